//! Keeps an embedded store up to date with its log while it is not read, and reports its position on disk.
//!
//! Readers do not wait for this task: they apply missing epochs before they read ([`EmbeddedStore::catch_up`]). The
//! task only ensures that little work is left for them, and that the log may be truncated. So it may be slow: it
//! applies the epochs of each [`PACE`] together instead of one by one.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tribunal_types::{Lsn, StoreId};

use super::{EmbeddedError, EmbeddedStore};
use crate::status::{Progress, PushActivity, PushHandle};
use crate::{AckSink, LogSource, StorageDurability};

/// How long epochs accumulate before they are applied together, unless a read applies them.
const PACE: Duration = Duration::from_millis(10);
/// First delay after a temporary error; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Maximum delay after a temporary error.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The task of one embedded store.
pub struct Follower {
    store: Arc<EmbeddedStore>,
    id: StoreId,
    sink: Arc<dyn AckSink>,
    progress: Arc<Mutex<Progress>>,
    resume: Arc<Notify>,
    /// Whether the store was opened again because its disk had failed it.
    is_reopened: bool,
}

/// The end of a store's task because its disk failed it: the store must be opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfUse {
    /// The error.
    pub text: String,
    /// How long the store had worked.
    pub worked_for: Duration,
}

/// What follows an error.
enum Next {
    /// The same again, after a pause.
    Retry(Duration),
    /// The store is opened again.
    Reopen(String),
    /// An operator resumes the store.
    Wait,
}

impl Follower {
    /// Builds the task of a store, and the handle that shows its status. `failure` is why the store was out of use before,
    /// if it was: it is shown until the disk has taken the rows in memory.
    #[must_use]
    pub fn new(
        store: Arc<EmbeddedStore>,
        id: StoreId,
        sink: Arc<dyn AckSink>,
        failure: Option<String>,
    ) -> (Follower, PushHandle) {
        let is_reopened = failure.is_some();
        let progress = Arc::new(Mutex::new(Progress {
            activity: PushActivity::Connecting,
            acked: None,
            attempts: u32::from(is_reopened),
            last_error: failure,
            poison: None,
            rewinds: 0,
            durable: StorageDurability::Always,
            caught_up: Instant::now(),
            fork: None,
        }));
        let resume = Arc::new(Notify::new());
        let handle = PushHandle {
            store: id,
            source: Arc::clone(&store.source) as Arc<dyn LogSource>,
            progress: Arc::clone(&progress),
            resume: Arc::clone(&resume),
            skips: Arc::default(),
        };
        (Follower { store, id, sink, progress, resume, is_reopened }, handle)
    }

    /// Follows the log until `shutdown` completes, or the disk fails the store.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Option<OutOfUse> {
        tokio::select! {
            () = shutdown => {
                self.progress.lock().activity = PushActivity::Ended;
                None
            }
            out_of_use = self.follow() => Some(out_of_use),
        }
    }

    async fn follow(&self) -> OutOfUse {
        let mut flushed = self.store.watch_flushed();
        let mut reported = None;
        let mut told_of_damage = false;
        // What a reopened store must have on disk before it counts as working.
        let mut proof = None;
        let mut works_since = None;
        self.sink.opened(self.id);
        loop {
            // Read it first: a flush that ends or fails from here on wakes the task again.
            let on_disk = *flushed.borrow_and_update();
            let proves = self.is_reopened && works_since.is_none();
            match self.catch_up(proves).await {
                Ok(at) => {
                    if proves && on_disk < *proof.get_or_insert(at) {
                        self.progress.lock().acked = Some(at);
                    } else {
                        works_since.get_or_insert_with(Instant::now);
                        self.caught_up(at);
                        if proves {
                            self.sink.restored(self.id);
                        }
                    }
                    // Before its position: other nodes would rely on it.
                    if self.store.damage().is_some() && !std::mem::replace(&mut told_of_damage, true) {
                        self.sink.damaged(self.id);
                    }
                    match reported.replace(on_disk) {
                        None => self.sink.rewound(self.id, on_disk),
                        Some(before) if before != on_disk => self.sink.acked(self.id, on_disk),
                        Some(_) => {}
                    }
                    tokio::select! {
                        () = self.store.source.changed(self.id, at) => tokio::time::sleep(PACE).await,
                        _ = flushed.changed() => {}
                        () = self.resume.notified() => {}
                    }
                }
                Err(error) => {
                    let resumed = self.resume.notified();
                    match self.trouble(&error) {
                        Next::Retry(wait) => drop(tokio::time::timeout(wait, resumed).await),
                        Next::Reopen(text) => {
                            let worked_for = works_since.map_or(Duration::ZERO, |since| since.elapsed());
                            return OutOfUse { text, worked_for };
                        }
                        Next::Wait => {
                            // The position of a stopped store counts as unknown until it reports again.
                            reported = None;
                            resumed.await;
                        }
                    }
                }
            }
        }
    }

    /// Applies the epochs that the log has. If `flushes`, also begins to flush the rows in memory.
    async fn catch_up(&self, flushes: bool) -> Result<Lsn, EmbeddedError> {
        let store = Arc::clone(&self.store);
        let caught_up = move || {
            store.catch_up()?;
            if flushes {
                store.flush()?;
            }
            // An idle store has nothing to apply, but its last flush may have failed.
            store.shared.usable()?;
            Ok(store.applied())
        };
        let caught_up = tokio::task::spawn_blocking(caught_up).await;
        caught_up.unwrap_or_else(|error| Err(EmbeddedError::Stopped(format!("the store failed: {error}"))))
    }

    fn caught_up(&self, at: Lsn) {
        let mut progress = self.progress.lock();
        progress.activity = PushActivity::Idle;
        progress.acked = Some(at);
        progress.last_error = None;
        progress.poison = None;
        progress.attempts = 0;
        progress.caught_up = Instant::now();
    }

    /// Reports an error; returns what follows.
    fn trouble(&self, error: &EmbeddedError) -> Next {
        let text = error.to_string();
        let mut progress = self.progress.lock();
        progress.attempts = progress.attempts.saturating_add(1);
        progress.last_error = Some(text.clone());
        if matches!(error, EmbeddedError::Busy { .. } | EmbeddedError::Log(crate::SourceError::Unavailable(_))) {
            progress.activity = PushActivity::BackingOff;
            let wait = BACKOFF_MIN.saturating_mul(1 << (progress.attempts - 1).min(10)).min(BACKOFF_MAX);
            return Next::Retry(wait);
        }
        if error.may_pass() {
            progress.activity = PushActivity::BackingOff;
            drop(progress);
            self.sink.out_of_use(self.id);
            return Next::Reopen(text);
        }
        progress.activity = PushActivity::Stopped;
        if let EmbeddedError::Poison { lsn, .. } = error {
            progress.poison = Some(*lsn);
        }
        drop(progress);
        self.sink.failed(self.id, &text);
        Next::Wait
    }
}
