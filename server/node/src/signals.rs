//! The signals that stop a node.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM, and SIGHUP, which a terminal sends when it closes: caught.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started with it ignored, as by `nohup`.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Catches them from now on. Until then, they end the process at once. Must be called within a runtime.
    ///
    /// # Errors
    /// In words, if the operating system refuses.
    pub fn catch() -> Result<Signals, String> {
        let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let hang_up = (!ignores_hang_up()).then(|| signal(SignalKind::hangup())).transpose().map_err(failed)?;
        Ok(Signals { interrupt, terminate, hang_up })
    }

    /// Waits for the first one.
    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = received(self.hang_up.as_mut()) => {}
        }
    }
}

/// Waits for a signal; for one that is not caught, forever.
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
