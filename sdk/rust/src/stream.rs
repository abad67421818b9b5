//! Commits over one connection: written as they come, answered as they are decided. Never repeats a commit that the
//! service may have taken in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::coalescer::Batchable as _;
use crate::commit_batch::{CommitItem, Reply};
use crate::connection::NoAnswer;
use crate::link::{Delivery, Link, NotTaken, Place};
use crate::{Client, Error, Outcome, PreparedCommit};

/// Commits that may wait for their verdicts: as many as the service takes in.
const COMMITS_MAX: usize = 1024;
/// Bytes of their lines.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// A longer commit is a request of its own: a stream takes it only if the tenant's quota has room for another request, and
/// ends otherwise.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// How often a commit that the service certainly did not take in is written: a stream may end at any time.
const ATTEMPTS_MAX: u32 = 2;

/// A stream of commits, over a connection of its own. Clones share it; many tasks may commit at the same time.
///
/// It connects on first use and again when the connection was lost. When the last clone is dropped, it ends.
#[derive(Clone)]
pub struct CommitStream {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    commits: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    link: Mutex<Option<Arc<Link>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(link) = self.current().take() {
            link.finish();
        }
    }
}

impl Client {
    /// Opens a stream of commits: for engines that commit all the time, and for whom a request each, or a batch, is too
    /// slow. Sends nothing yet.
    #[must_use]
    pub fn commit_stream(&self) -> CommitStream {
        let inner = Inner {
            client: self.clone(),
            commits: Arc::new(Semaphore::new(COMMITS_MAX)),
            bytes: Arc::new(Semaphore::new(BYTES_MAX)),
            link: Mutex::default(),
        };
        CommitStream { inner: Arc::new(inner) }
    }
}

impl CommitStream {
    /// Asks for the verdict of a prepared commit, as [`Client::commit`] does. Waits before that while 1,024 commits, or
    /// 4 MiB of them, have no verdict yet. Commits that wait at the same time may be decided in any order. A commit with
    /// a `traceparent`, because a stream has one trace context, and one of more than 1 MiB are requests of their own. If the
    /// future is dropped, a commit that was written arrives all the same.
    ///
    /// When the connection is lost, the outcome is requested by the id. Until it is known, nothing is returned.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn commit(&self, prepared: &PreparedCommit) -> Result<Outcome, Error> {
        let (item, client) = (CommitItem::of(prepared)?, &self.inner.client);
        if prepared.traceparent.is_some() || item.bytes() > LINE_BYTES_MAX {
            return client.commit_item(item).await;
        }
        let mut line = Vec::with_capacity(item.bytes());
        item.write_to(&mut line);
        match self.inner.delivered(&prepared.txn_id, &line).await {
            Some(reply) => client.settled(&prepared.txn_id, reply).await,
            // The stream has this id already: a request of its own gets the verdict of the first.
            None => client.commit_item(item).await,
        }
    }
}

impl Inner {
    fn current(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a link that takes lines.
    fn open_link(&self) -> Arc<Link> {
        let mut current = self.current();
        match &*current {
            Some(link) if !link.is_over() => Arc::clone(link),
            _ => Arc::clone(current.insert(Link::start(self.client.clone()))),
        }
    }

    /// Waits until the window has room for a line.
    async fn place(&self, bytes: usize) -> Option<Place> {
        let bytes = u32::try_from(bytes).ok()?;
        let commit = Arc::clone(&self.commits).acquire_owned().await.ok()?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok()?;
        Some(Place { _commit: commit, _bytes: bytes })
    }

    /// Writes a line and waits for its reply; `None` if the id waits for one already.
    async fn delivered(&self, txn_id: &str, line: &[u8]) -> Option<Reply> {
        let timeout = self.client.timeout();
        let mut place = self.place(line.len()).await?;
        let mut ended = String::new();
        let mut attempts = 0;
        while attempts < ATTEMPTS_MAX {
            let comes = match self.open_link().write(txn_id, line, place) {
                Delivery::Written(comes) => comes,
                Delivery::Repeated => return None,
                // It ended just now; the next one is new.
                Delivery::Over(free) => {
                    place = free;
                    continue;
                }
            };
            attempts += 1;
            match tokio::time::timeout(timeout, comes).await {
                Ok(Ok(Ok(reply))) => return Some(reply),
                Ok(Ok(Err(NotTaken(reason, free)))) => (ended, place) = (reason, free),
                Ok(Err(_)) => {
                    return Some(Err(NoAnswer::lost("the runtime that sent the commit has ended".to_owned())));
                }
                Err(_) => return Some(Err(no_reply(timeout))),
            }
        }
        Some(Err(NoAnswer { text: ended, never_sent: true, hopeless: false }))
    }
}

fn no_reply(timeout: Duration) -> NoAnswer {
    NoAnswer::lost(format!("no verdict within {} ms", timeout.as_millis()))
}
