//! Shows at a terminal that a long step is still running. Programs that read the output see none of it.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Shorter steps show nothing.
const QUIET: Duration = Duration::from_secs(2);

/// Runs `step`; if it takes long, shows on standard error what is running and for how long.
pub fn during<T>(what: &str, step: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return step();
    }
    std::thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        scope.spawn(move || {
            let start = Instant::now();
            let mut wait = QUIET;
            let mut shown = false;
            while waiting.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let _ = write!(std::io::stderr(), "\r{what}: {} s", start.elapsed().as_secs());
                (shown, wait) = (true, Duration::from_secs(1));
            }
            if shown {
                let _ = writeln!(std::io::stderr());
            }
        });
        let result = step();
        drop(done);
        result
    })
}
