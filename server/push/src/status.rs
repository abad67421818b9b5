//! The status of a store's push, and the handle to resume it or skip a record.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tribunal_types::{Lsn, StoreId};

use crate::{LogSource, StorageDurability};

/// State of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushActivity {
    /// Connecting, and reading the storage's watermark.
    #[default]
    Connecting,
    /// Sending records.
    Pushing,
    /// All records are acknowledged.
    Idle,
    /// Waiting before a retry.
    BackingOff,
    /// Requires an operator: see `last_error`, then [`PushHandle::resume`].
    Stopped,
    /// The server is shutting down.
    Ended,
}

impl PushActivity {
    /// All states, in the order of the numbers by which nodes tell each other of them: append only.
    pub const ALL: [PushActivity; 6] = [
        PushActivity::Connecting,
        PushActivity::Pushing,
        PushActivity::Idle,
        PushActivity::BackingOff,
        PushActivity::Stopped,
        PushActivity::Ended,
    ];

    /// Returns the name that a webhook's status shows. A store's status uses other names: `PushState`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PushActivity::Connecting => "connecting",
            PushActivity::Pushing => "pushing",
            PushActivity::Idle => "idle",
            PushActivity::BackingOff => "backing_off",
            PushActivity::Stopped => "stopped",
            PushActivity::Ended => "ended",
        }
    }
}

/// Progress of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushStatus {
    /// State of the push.
    pub activity: PushActivity,
    /// Last record that the storage acknowledged.
    pub acked: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// Number of records that are not acknowledged yet.
    pub lag: u64,
    /// Time since the push was last caught up, milliseconds, rounded up; 0 only if it is caught up.
    pub lag_ms: u64,
    /// Last error; cleared when the push is caught up.
    pub last_error: Option<String>,
    /// The record that the push stopped at because the storage can never accept it.
    pub poison: Option<Lsn>,
    /// Failed attempts since the last progress.
    pub attempts: u32,
    /// Number of times that the storage has lost acknowledged records.
    pub rewinds: u64,
    /// When the storage makes acknowledged records durable; `None` until it has returned its watermark.
    pub durable: Option<StorageDurability>,
}

pub(crate) struct Progress {
    pub activity: PushActivity,
    /// `None` until the watermark has been read for the first time.
    pub acked: Option<Lsn>,
    pub last_error: Option<String>,
    pub poison: Option<Lsn>,
    pub attempts: u32,
    pub rewinds: u64,
    pub durable: StorageDurability,
    pub caught_up: Instant,
    /// See [`PushParts::fork`](crate::PushParts::fork).
    pub fork: Option<Lsn>,
}

/// A handle to a push. Cheap to clone.
#[derive(Clone)]
pub struct PushHandle {
    pub(crate) store: StoreId,
    pub(crate) source: Arc<dyn LogSource>,
    pub(crate) progress: Arc<Mutex<Progress>>,
    pub(crate) resume: Arc<Notify>,
    pub(crate) skips: Arc<Mutex<BTreeSet<Lsn>>>,
}

impl PushHandle {
    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the status of the push.
    #[must_use]
    pub fn status(&self) -> PushStatus {
        let head = self.source.head(self.store);
        let progress = self.progress.lock();
        let acked = progress.acked.unwrap_or_default();
        let lag = head.0.saturating_sub(acked.0);
        PushStatus {
            activity: progress.activity,
            acked,
            head,
            lag,
            lag_ms: if lag == 0 { 0 } else { rounded_up_ms(progress.caught_up.elapsed()) },
            last_error: progress.last_error.clone(),
            poison: progress.poison,
            attempts: progress.attempts,
            rewinds: progress.rewinds,
            durable: progress.acked.map(|_| progress.durable),
        }
    }

    /// Resumes the push immediately: a stopped push restarts, and one that is backing off skips the rest of its delay.
    /// The status no longer shows the error, unless it occurs again.
    pub fn resume(&self) {
        {
            let mut progress = self.progress.lock();
            if matches!(progress.activity, PushActivity::Stopped | PushActivity::BackingOff) {
                progress.activity = PushActivity::Connecting;
                progress.last_error = None;
                progress.poison = None;
            }
        }
        self.resume.notify_one();
    }

    /// Skips record `lsn`: from now on, the storage gets it without its rows. The record remains in the log.
    pub fn skip(&self, lsn: Lsn) {
        self.skips.lock().insert(lsn);
        self.resume();
    }
}

/// Returns a time in milliseconds, at least 1: a lag of less must not look caught up.
fn rounded_up_ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MemoryLog, STORE};

    #[test]
    fn a_push_that_is_resumed_does_not_look_stopped_any_more() {
        for (activity, shown) in [
            (PushActivity::Stopped, PushActivity::Connecting),
            (PushActivity::BackingOff, PushActivity::Connecting),
            (PushActivity::Pushing, PushActivity::Pushing),
        ] {
            let progress = Progress {
                activity,
                acked: Some(Lsn(4)),
                last_error: Some("LSN 5 is refused".into()),
                poison: Some(Lsn(5)),
                attempts: 3,
                rewinds: 0,
                durable: StorageDurability::Unknown,
                caught_up: Instant::now(),
                fork: None,
            };
            let handle = PushHandle {
                store: STORE,
                source: MemoryLog::new(),
                progress: Arc::new(Mutex::new(progress)),
                resume: Arc::default(),
                skips: Arc::default(),
            };
            handle.resume();
            let status = handle.status();
            let is_shown = activity == shown;
            assert_eq!((status.activity, status.acked, status.attempts), (shown, Lsn(4), 3));
            assert_eq!((status.poison.is_some(), status.last_error.is_some()), (is_shown, is_shown), "{activity:?}");
        }
    }

    #[test]
    fn a_lag_of_less_than_a_millisecond_is_not_none() {
        let ms = |us| rounded_up_ms(Duration::from_micros(us));
        assert_eq!([0, 1, 999, 1000, 1001].map(ms), [1, 1, 1, 1, 2]);
    }
}
