//! Bounds the duration of a stop.

use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use crate::commands::last_line::write_reason;

/// Maximum duration of a stop, including the drops at its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Ends the process if a stop takes longer than [`STOP_TIMEOUT`], unless dropped before: a disk that hangs keeps
/// threads in the kernel, and a missing data directory keeps a store's own threads waiting.
pub struct StopDeadline {
    _cancelled_when_dropped: Sender<()>,
}

impl StopDeadline {
    /// Starts the deadline.
    pub fn start() -> StopDeadline {
        let (sender, cancelled) = bounded::<()>(0);
        let watch = move || {
            if cancelled.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                let seconds = STOP_TIMEOUT.as_secs();
                write_reason(&format!(
                    "the stop did not end within {seconds} s, so the process ends without it. Nothing acknowledged is lost. \
                     Check the disk of the data directory before you start again"
                ));
                std::process::exit(1);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("stop-deadline".into()).spawn(watch) {
            tracing::warn!(%error, "cannot start the thread that limits the duration of the shutdown");
        }
        StopDeadline { _cancelled_when_dropped: sender }
    }
}
