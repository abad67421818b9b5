//! Refused connections: counts them, remembers the last one, and logs it when the reason changes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::status::Refused;

/// Minimum time between two warnings: strangers must not fill the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Refusals since the start.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    count: u64,
    last: Option<Refused>,
    warned: Option<(Instant, String)>,
}

impl Refusals {
    pub(crate) fn note(&self, from: IpAddr, reason: String) {
        let at = Instant::now();
        let mut noted = self.0.lock();
        noted.count += 1;
        let is_new = noted
            .warned
            .as_ref()
            .is_none_or(|(warned_at, warned)| *warned != reason && at.duration_since(*warned_at) >= WARNING_INTERVAL);
        if is_new {
            noted.warned = Some((at, reason.clone()));
            tracing::warn!(%from, "{reason}");
        } else {
            tracing::debug!(%from, "{reason}");
        }
        noted.last = Some(Refused { at, from, reason });
    }

    pub(crate) fn read(&self) -> (u64, Option<Refused>) {
        let noted = self.0.lock();
        (noted.count, noted.last.clone())
    }
}
