//! Reports to the supervisor of the process, such as systemd, if there is one that listens (`NOTIFY_SOCKET`, see
//! `man 3 sd_notify`).
//!
//! The supervisor learns what operators see elsewhere as well, so a report that cannot be sent is only logged.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// Keep-alives per period within which the supervisor expects one.
const PER_PERIOD: u32 = 3;

/// Reports that the node serves.
pub fn tell_ready() {
    tell(&NotifyState::Ready);
}

/// Reports that the node has begun to stop.
pub fn tell_stopping() {
    tell(&NotifyState::Stopping);
}

/// Sends keep-alives for as long as `runtime` executes tasks, if the supervisor expects them (`WATCHDOG_USEC`).
pub fn keep_alive(runtime: &Handle) {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| *period > Duration::ZERO) else { return };
    runtime.spawn(async move {
        let mut ticks = tokio::time::interval(period / PER_PERIOD);
        loop {
            ticks.tick().await;
            // A supervisor that reads nothing blocks the thread that sends.
            let _ = spawn_blocking(|| tell(&NotifyState::Watchdog)).await;
        }
    });
}

fn tell(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!(%error, "the state of the node could not be reported to the socket in NOTIFY_SOCKET");
    }
}
