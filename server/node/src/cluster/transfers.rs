//! Named contents that one node pulls from another, part by part: data too large for a frame, or too rare for the log.
//!
//! A content does not change while it is pulled. The pulling node requests several parts at a time, and retries those
//! that do not arrive; the serving node keeps no state of a transfer, and serves a few parts at a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tribunal_member::{Frame, Part, Pull};
use tribunal_peer::Peers;
use tribunal_types::NodeId;
use tribunal_types::limits::PART_BYTES_MAX;

use crate::cluster::outgoing;

/// Maximum number of parts in flight to the pulling node.
const WINDOW: usize = 8;
/// Maximum number of parts that a node serves at a time; further requests are dropped and retried.
const SERVED_MAX: usize = 16;
/// Timeout after which a part is requested again.
const PART_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of consecutive timeouts.
const SILENCES_MAX: u32 = 10;
/// Maximum number of attempts to begin a transfer without a connection, and the time between two of them.
const BEGINS_MAX: u32 = 50;
const BEGIN_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Contents that a node serves.
pub trait Source: Send + Sync {
    /// Returns the length of a content and its part at `offset`, for node `to`; `None` if the name is not this
    /// source's. Called on a thread that may block on the disk.
    ///
    /// # Errors
    /// The reason why there is no such content, for the requesting node.
    fn part(&self, to: NodeId, name: &str, offset: u64) -> Option<Result<(u64, Bytes), String>>;
}

/// Handles a part: its offset, and its bytes.
pub type TakePart<'a> = dyn FnMut(u64, &[u8]) -> Result<(), String> + Send + 'a;

enum Reply {
    Part(Part),
    Absent(String),
}

/// A transfer to this node.
struct Incoming {
    from: NodeId,
    replies: mpsc::Sender<Reply>,
}

/// The transfers of a node, in both directions.
pub struct Transfers {
    runtime: Handle,
    sources: RwLock<Vec<Arc<dyn Source>>>,
    served: Arc<Semaphore>,
    incoming: Mutex<HashMap<u64, Incoming>>,
    last: Mutex<u64>,
    /// Set once the connections exist.
    peers: OnceLock<Weak<Peers>>,
}

impl Transfers {
    /// Pulls a content of at most `bytes_max` into memory. Blocks: not for threads of the runtime.
    ///
    /// # Errors
    /// As [`Transfers::pull`].
    pub fn pull_whole(&self, from: NodeId, name: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let mut whole = InMemory::new(bytes_max);
        self.runtime.block_on(self.pull(from, name, &mut |offset, part| whole.take(offset, part)))?;
        Ok(whole.content)
    }

    /// Creates the transfers of a node that serves nothing yet.
    #[must_use]
    pub fn new(runtime: Handle) -> Arc<Transfers> {
        Arc::new(Transfers {
            runtime,
            sources: RwLock::default(),
            served: Arc::new(Semaphore::new(SERVED_MAX)),
            incoming: Mutex::default(),
            last: Mutex::new(0),
            peers: OnceLock::new(),
        })
    }

    /// Serves a source's contents from now on.
    pub fn serve(&self, source: Arc<dyn Source>) {
        self.sources.write().push(source);
    }

    /// Sets the connections for frames. Nothing is sent before.
    pub fn connect(&self, peers: &Arc<Peers>) {
        let _ = self.peers.set(Arc::downgrade(peers));
    }

    /// Sends a frame; returns false if there is no connection.
    fn send(&self, to: NodeId, frame: &Frame) -> bool {
        self.peers.get().and_then(Weak::upgrade).is_some_and(|peers| outgoing::send(&peers, to, frame))
    }

    /// Ends the transfers from a node: frames sent to it may be lost, and their replies will not arrive.
    pub fn unreachable(&self, from: NodeId) {
        self.incoming.lock().retain(|_, incoming| incoming.from != from);
    }

    /// Handles a frame of another node; returns it if it belongs to no transfer. Does not block.
    pub fn take(self: &Arc<Self>, from: NodeId, frame: Frame) -> Option<Frame> {
        match frame {
            Frame::Pull(pull) => self.answer(from, pull),
            Frame::Part(part) => self.reply(from, part.transfer, Reply::Part(part)),
            Frame::Absent { transfer, reason } => self.reply(from, transfer, Reply::Absent(reason)),
            other => return Some(other),
        }
        None
    }

    fn answer(self: &Arc<Self>, to: NodeId, pull: Pull) {
        let Ok(permit) = Arc::clone(&self.served).try_acquire_owned() else { return };
        let this = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let Pull { transfer, name, offset } = pull;
            let sources = this.sources.read().clone();
            let frame = match sources.iter().find_map(|source| source.part(to, &name, offset)) {
                Some(Ok((total, bytes))) => Frame::Part(Part { transfer, offset, total, bytes }),
                Some(Err(reason)) => Frame::Absent { transfer, reason },
                None => Frame::Absent { transfer, reason: format!("it has nothing of the name {name:?}") },
            };
            let _ = this.send(to, &frame);
            drop(permit);
        });
    }

    fn reply(&self, from: NodeId, transfer: u64, reply: Reply) {
        if let Some(incoming) = self.incoming.lock().get(&transfer).filter(|incoming| incoming.from == from) {
            // A reply without room was requested twice.
            let _ = incoming.replies.try_send(reply);
        }
    }

    /// Pulls a content from another node, and passes its parts to `take`, in any order and each once. Returns the total
    /// length.
    ///
    /// # Errors
    /// If the node does not have it or does not answer, or the reason why `take` failed.
    pub async fn pull(&self, from: NodeId, name: &str, take: &mut TakePart<'_>) -> Result<u64, String> {
        let (sender, mut replies) = mpsc::channel(2 * WINDOW);
        let transfer = {
            let mut last = self.last.lock();
            *last += 1;
            *last
        };
        // Runs even if the caller gives up.
        let _ends = Ends { transfers: self, transfer };
        let ask = |offset| self.send(from, &Frame::Pull(Pull { transfer, name: name.to_owned(), offset }));
        let mut pulling = Pulling::default();
        let pulled = async {
            for _ in 0..BEGINS_MAX {
                self.incoming.lock().insert(transfer, Incoming { from, replies: sender.clone() });
                if pulling.begin(&ask) {
                    drop(sender);
                    return pulling.run(&mut replies, &ask, take).await;
                }
                tokio::time::sleep(BEGIN_AGAIN_AFTER).await;
            }
            Err("it cannot be reached".to_owned())
        };
        pulled.await.map_err(|reason| format!("node {from}: {reason}"))
    }
}

/// Collects a content in memory, up to a maximum length.
#[derive(Debug, Default)]
pub struct InMemory {
    /// The content received so far.
    pub content: Vec<u8>,
    bytes_max: usize,
}

impl InMemory {
    /// Creates a collector of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> InMemory {
        InMemory { content: Vec::new(), bytes_max }
    }

    /// Takes a part.
    ///
    /// # Errors
    /// If the content is too long.
    pub fn take(&mut self, offset: u64, part: &[u8]) -> Result<(), String> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(part.len()));
        let end = end.filter(|end| *end <= self.bytes_max);
        let end = end.ok_or_else(|| format!("it is longer than {} bytes", self.bytes_max))?;
        self.content.resize(self.content.len().max(end), 0);
        self.content[end - part.len()..end].copy_from_slice(part);
        Ok(())
    }
}

/// Removes a transfer on drop.
struct Ends<'a> {
    transfers: &'a Transfers,
    transfer: u64,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.transfers.incoming.lock().remove(&self.transfer);
    }
}

/// Progress of a transfer.
#[derive(Default)]
struct Pulling {
    /// Offsets of requested parts that have not arrived.
    asked: BTreeSet<u64>,
    /// Offset of the next part to request.
    next: u64,
    received: u64,
    /// Length of the content, from the first part.
    total: Option<u64>,
}

impl Pulling {
    /// Requests the first part; returns false if the request cannot be sent.
    fn begin(&mut self, ask: &(dyn Fn(u64) -> bool + Sync)) -> bool {
        let begun = ask(0);
        if begun {
            self.asked.insert(0);
            self.next = PART_BYTES_MAX as u64;
        }
        begun
    }

    async fn run(
        &mut self,
        replies: &mut mpsc::Receiver<Reply>,
        ask: &(dyn Fn(u64) -> bool + Sync),
        take: &mut TakePart<'_>,
    ) -> Result<u64, String> {
        let mut silences = 0;
        loop {
            if let Some(total) = self.total.filter(|total| self.received == *total) {
                return Ok(total);
            }
            if self.total.is_some() {
                self.ask_for_more(ask);
            }
            match tokio::time::timeout(PART_TIMEOUT, replies.recv()).await {
                Ok(Some(Reply::Part(part))) => {
                    silences = 0;
                    if self.is_expected(&part)? {
                        take(part.offset, &part.bytes)?;
                    }
                }
                Ok(Some(Reply::Absent(reason))) => return Err(reason),
                Ok(None) => return Err("the connection was lost".into()),
                Err(_) if silences == SILENCES_MAX => return Err("it does not answer".into()),
                Err(_) => {
                    silences += 1;
                    // Requests that cannot be sent are retried like lost ones.
                    for offset in &self.asked {
                        let _ = ask(*offset);
                    }
                }
            }
        }
    }

    fn ask_for_more(&mut self, ask: &(dyn Fn(u64) -> bool + Sync)) {
        while self.asked.len() < WINDOW && self.total.is_some_and(|total| self.next < total) {
            let _ = ask(self.next);
            self.asked.insert(self.next);
            self.next += PART_BYTES_MAX as u64;
        }
    }

    /// Records a received part; returns whether it was missing.
    fn is_expected(&mut self, part: &Part) -> Result<bool, String> {
        if *self.total.get_or_insert(part.total) != part.total {
            return Err("what is pulled has changed".into());
        }
        if !self.asked.remove(&part.offset) {
            return Ok(false);
        }
        let len = part.bytes.len() as u64;
        if len != (part.total - part.offset).min(PART_BYTES_MAX as u64) {
            return Err(format!("a part of {len} bytes, which is not as long as it should be"));
        }
        self.received += len;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers requests with the results of `reply`, in any order.
    async fn pulled(content: &[u8], mut reply: impl FnMut(u64, u32) -> Vec<Reply> + Send) -> Result<Vec<u8>, String> {
        let (sender, mut replies) = mpsc::channel(64);
        let asked = Mutex::new(Vec::new());
        let ask = |offset: u64| {
            asked.lock().push(offset);
            true
        };
        let mut found = vec![0; content.len()];
        let mut take = |offset: u64, part: &[u8]| {
            found[offset as usize..][..part.len()].copy_from_slice(part);
            Ok(())
        };
        let mut pulling = Pulling::default();
        assert!(!pulling.begin(&|_| false) && pulling.begin(&ask));
        let answering = async {
            let mut times: HashMap<u64, u32> = HashMap::new();
            loop {
                // Backwards: parts arrive in another order.
                for offset in std::mem::take(&mut *asked.lock()).into_iter().rev() {
                    let time = times.entry(offset).or_default();
                    *time += 1;
                    for reply in reply(offset, *time) {
                        let _ = sender.try_send(reply);
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let done = tokio::select! {
            done = pulling.run(&mut replies, &ask, &mut take) => done,
            () = answering => unreachable!("it never ends"),
        };
        done.map(|total| {
            assert_eq!(total, content.len() as u64);
            found
        })
    }

    fn part(content: &[u8], offset: u64) -> Reply {
        let rest = &content[offset as usize..];
        let bytes = Bytes::copy_from_slice(&rest[..rest.len().min(PART_BYTES_MAX)]);
        Reply::Part(Part { transfer: 1, offset, total: content.len() as u64, bytes })
    }

    #[tokio::test]
    async fn a_content_arrives_whole_though_parts_are_lost_repeated_and_reordered() {
        for len in [0, 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 20 * PART_BYTES_MAX + 7] {
            let content: Vec<u8> = (0..len).map(|at| (at / 1000) as u8).collect();
            let found = pulled(&content, |offset, time| match offset as usize / PART_BYTES_MAX {
                5 if time == 1 => Vec::new(),
                3 => vec![part(&content, offset), part(&content, offset)],
                _ => vec![part(&content, offset)],
            });
            assert_eq!(found.await.unwrap(), content);
        }
    }

    #[tokio::test]
    async fn what_is_not_there_or_changes_is_an_error() {
        let content = vec![7; 3 * PART_BYTES_MAX];
        let absent = pulled(&content, |_, _| vec![Reply::Absent("it is gone".into())]).await;
        assert_eq!(absent.unwrap_err(), "it is gone");
        let short = pulled(&content, |offset, _| {
            let bytes = Bytes::from_static(b"abc");
            vec![Reply::Part(Part { transfer: 1, offset, total: content.len() as u64, bytes })]
        });
        assert!(short.await.unwrap_err().contains("3 bytes"));
        let changed = pulled(&content, |offset, _| {
            let longer = vec![7; content.len() + offset as usize];
            vec![part(&longer, offset)]
        });
        assert!(changed.await.unwrap_err().contains("changed"));
    }
}
