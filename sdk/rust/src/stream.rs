//! Commits over one connection: written as they arrive, answered as they are decided. With one endpoint, a commit that
//! the service may have accepted is never written again; with several, it is written to the next one, with the same id.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use crate::answer::NoAnswer;
use crate::coalescer::Batchable as _;
use crate::commit_batch::{CommitItem, Reply, Verdict, failure_of_line, in_doubt};
use crate::failover::{Failure, ROUNDS_MAX, listed};
use crate::link::{Delivered, Delivery, Link, NotTaken, Place};
use crate::{Client, Error, Outcome, PreparedCommit};

/// Maximum number of commits that await their verdicts; the service accepts the same number.
const COMMITS_MAX: usize = 1024;
/// Bytes of their lines.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest line. A longer commit is a separate request: a stream accepts it only if the tenant's quota has room for
/// another request, and otherwise ends.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of times that a commit is written if the only endpoint certainly did not accept it: a stream may end
/// at any time.
const ATTEMPTS_MAX: u32 = 2;

/// A stream of commits, over a separate connection. Clones share it; many tasks may commit at the same time.
///
/// It connects on first use, and again after the connection was lost. It ends when the last clone is dropped. The
/// connection belongs to the tokio runtime of the commit that opened it, so use a stream on one runtime, or on one that
/// keeps running.
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
    /// Opens a stream of commits, for engines that commit constantly and for which a request per commit, or a batch, is
    /// too slow. Sends nothing yet.
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
    /// Requests the verdict of a prepared commit, as [`Client::commit`] does. First waits while 1,024 commits, or 4 MiB
    /// of them, have no verdict yet. Commits that wait at the same time may be decided in any order. A commit with a
    /// `traceparent`, because a stream has one trace context, or of more than 1 MiB is a separate request. If the
    /// future is dropped, a commit that was already written still arrives.
    ///
    /// When the connection is lost, the commit is written to the next endpoint with the same id; if there is only one,
    /// or no other one responds, the outcome is requested by the id. Nothing is returned until it is known.
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
        match self.inner.delivered(&prepared.txn_id, &line, item.wait()).await {
            Some(reply) => client.settled(&prepared.txn_id, reply).await,
            // The stream already has this id: a separate request gets the verdict of the first.
            None => client.commit_item(item).await,
        }
    }
}

impl Inner {
    fn current(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a link that accepts lines.
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

    /// Writes a line and waits for its reply; `None` if a line with this id already awaits one. With several endpoints,
    /// it is written again after each failure, within the timeout and the time that the service may wait.
    async fn delivered(&self, txn_id: &str, line: &[u8], wait: Duration) -> Option<Reply> {
        let endpoints = self.client.connection().endpoints();
        let urls = endpoints.urls();
        let count = u32::try_from(urls.len()).unwrap_or(u32::MAX);
        let attempts_max = if count == 1 { ATTEMPTS_MAX } else { ROUNDS_MAX.saturating_mul(count) };
        let timeout = self.client.timeout();
        let mut place = Some(self.place(line.len()).await?);
        let begun = Instant::now();
        let mut failures: Vec<Option<String>> = vec![None; urls.len()];
        let (mut maybe_taken, mut attempts) = (false, 0);
        let whole = wait + timeout;
        while attempts < attempts_max && (count == 1 || begun.elapsed() < whole) {
            if attempts > 0 && attempts % count == 0 && count > 1 {
                tokio::time::sleep(self.client.retry().wait(attempts / count, None).unwrap_or_default()).await;
            }
            let free = match place.take() {
                Some(free) => free,
                None => self.place(line.len()).await?,
            };
            let link = self.open_link();
            let comes = match link.write(txn_id, line, free) {
                Delivery::Written(comes) => comes,
                Delivery::Repeated => return None,
                // The link has just ended; the next one is new.
                Delivery::Over(free) => {
                    place = Some(free);
                    continue;
                }
            };
            attempts += 1;
            let mut share = wait + timeout / count;
            if attempts < count {
                // Another endpoint is untried.
                share = share.min(wait + endpoints.timeout());
            }
            let delivered = match self.awaited(&link, comes, whole, share).await {
                Ok(delivered) => delivered,
                Err(lost) => return Some(Err(lost)),
            };
            let reply = match delivered {
                Ok(reply) => reply,
                Err(NotTaken(reason, free)) => {
                    place = Some(free);
                    failures[link.endpoint()] = Some(reason);
                    continue;
                }
            };
            let failure = if count == 1 { None } else { failure_of(&reply) };
            let Some(failure) = failure else { return Some(in_doubt(reply, maybe_taken)) };
            maybe_taken |= failure.maybe_taken;
            failures[link.endpoint()] = Some(failure.text().to_owned());
            self.leave(&link);
        }
        let text = match (count, &failures[0]) {
            (1, reason) => reason.clone().unwrap_or_default(),
            _ => format!("no endpoint has answered: {}", listed(urls, &failures)),
        };
        Some(Err(NoAnswer { text, never_sent: !maybe_taken, hopeless: false, retry_after: None, answered: false }))
    }

    /// Waits for the reply to a line. If there are other endpoints, a link that is silent for its share of the timeout
    /// is cut.
    async fn awaited(
        &self,
        link: &Link,
        mut comes: oneshot::Receiver<Delivered>,
        timeout: Duration,
        share: Duration,
    ) -> Result<Delivered, NoAnswer> {
        let written = Instant::now();
        let ended = |_| Err(NoAnswer::lost("the runtime that sent the commit has ended".to_owned()));
        if let Ok(arrived) = tokio::time::timeout(share, &mut comes).await {
            return arrived.or_else(ended);
        }
        if share == timeout {
            return Err(no_reply(timeout));
        }
        if link.is_silent_since(written) {
            link.cut();
        }
        match tokio::time::timeout(timeout.saturating_sub(share), comes).await {
            Ok(arrived) => arrived.or_else(ended),
            Err(_) => Err(no_reply(timeout)),
        }
    }

    /// Directs further lines to another endpoint. Replies to written lines still arrive.
    fn leave(&self, link: &Arc<Link>) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|open| Arc::ptr_eq(open, link)) {
            *current = None;
            self.client.connection().failed(link.endpoint());
        }
        link.finish();
    }
}

/// Returns why a reply is not usable, so that the commit is to be written elsewhere.
fn failure_of(reply: &Reply) -> Option<Failure> {
    match reply {
        Ok(Verdict::Response(answer)) => Failure::of_reply(&Ok(answer.clone())),
        Err(lost) => Some(Failure::of_lost(lost)),
        line => failure_of_line(line),
    }
}

fn no_reply(timeout: Duration) -> NoAnswer {
    NoAnswer::lost(format!("no verdict within {} ms", timeout.as_millis()))
}
