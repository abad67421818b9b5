//! The signals that stop a node.

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM, and SIGHUP, which a terminal sends when it closes: caught.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started with SIGHUP ignored, as by `nohup`.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Catches the signals from now on. Before, they end the process immediately. Must be called within a runtime.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn catch() -> Result<Signals, String> {
        let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let hang_up = (!ignores_hang_up()).then(|| signal(SignalKind::hangup())).transpose().map_err(failed)?;
        Ok(Signals { interrupt, terminate, hang_up })
    }

    /// Waits for the first signal.
    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = received(self.hang_up.as_mut()) => {}
        }
    }
}

/// Ends the process with status 0 on the first signal, as long as this exists. For a node that has not started, which
/// may wait long for the other nodes: it has acknowledged nothing that is not on its disk.
pub struct StopsAtOnce(Option<Runtime>);

impl StopsAtOnce {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn begin() -> Result<StopsAtOnce, String> {
        let built = Builder::new_multi_thread().worker_threads(1).thread_name("signals").enable_all().build();
        let runtime = built.map_err(|error| format!("cannot start a thread: {error}"))?;
        let signals = runtime.block_on(async { Signals::catch() })?;
        Ok(StopsAtOnce::new(runtime, signals))
    }

    /// Takes over signals that are already caught.
    #[must_use]
    pub fn new(runtime: Runtime, mut signals: Signals) -> StopsAtOnce {
        runtime.spawn(async move {
            signals.first().await;
            tracing::info!("stopping before the start is complete");
            std::process::exit(0);
        });
        StopsAtOnce(Some(runtime))
    }
}

impl Drop for StopsAtOnce {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Waits for a signal; for an uncaught one, forever.
async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns whether SIGHUP is ignored.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}
