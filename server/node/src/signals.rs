//! The signals that stop a node.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM, and SIGHUP, which a terminal sends when it closes: caught.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
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
        let hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        Ok(Signals { interrupt, terminate, hang_up })
    }

    /// Waits for the first one.
    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
