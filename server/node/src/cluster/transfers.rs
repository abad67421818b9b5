//! Pulls named bytes from another node, part by part: components of plugins, and whatever else a node has in full that
//! another one lacks.
//!
//! A name means what the [`Source`]s of the asked node make of it; the first that knows it serves it. One part is under way
//! for each transfer, so a transfer takes the memory of one part on either side and leaves the connection to the Raft groups
//! most of the time. Nothing of it reaches the sequencer: frames come from the connections, parts are read by a thread of
//! their own, and who pulls waits on a thread of its own, never for long.
//!
//! A part may be lost, late or twice: the one that pulls asks again, and knows a part by its transfer and its offset. What
//! the bytes are worth is checked by those that pull them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::{Mutex, RwLock};
use tribunal_member::Frame;
use tribunal_types::NodeId;
use tribunal_types::limits::PART_BYTES_MAX;

/// Questions of other nodes that may wait to be served; further ones are asked again.
const QUESTIONS_MAX: usize = 64;
/// How long a part is waited for before it is asked for again.
const PART_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a part is asked for.
const ATTEMPTS_MAX: u32 = 3;

/// What other nodes may pull from this one.
pub trait Source: Send + Sync {
    /// Returns the size of all bytes under a name, and those from `offset` on, at most `bytes_max`; `None` if there is
    /// nothing of that name.
    fn part(&self, name: &[u8], offset: u64, bytes_max: usize) -> Option<(u64, Vec<u8>)>;
}

/// Why nothing, or not all, was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullError {
    /// The node has nothing of that name, or lost it on the way.
    NotHere,
    /// It does not answer.
    Silent,
    /// What it sends does not fit together, or the one that pulls does not take it: why.
    Refused(String),
}

impl std::fmt::Display for PullError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PullError::NotHere => f.write_str("it is not there"),
            PullError::Silent => f.write_str("the node does not answer"),
            PullError::Refused(why) => f.write_str(why),
        }
    }
}

/// A part as it came.
struct Part {
    offset: u64,
    total: Option<u64>,
    bytes: Bytes,
}

/// A question of another node.
struct Question {
    from: NodeId,
    transfer: u64,
    name: Bytes,
    offset: u64,
}

/// Sends a frame to a node; it may be lost.
pub type SendFrame = Box<dyn Fn(NodeId, Frame) + Send + Sync>;

/// The transfers of a node, in both directions.
pub struct Transfers {
    send: OnceLock<SendFrame>,
    sources: RwLock<Vec<Arc<dyn Source>>>,
    questions: Sender<Question>,
    /// Who waits for a part: from which node, and where it goes.
    waiting: Mutex<BTreeMap<u64, (NodeId, Sender<Part>)>>,
    last: AtomicU64,
    part_timeout: Duration,
}

impl Transfers {
    /// Starts the thread that serves other nodes. Nothing is sent before [`Transfers::connect`].
    ///
    /// # Errors
    /// If the thread does not start.
    pub fn start() -> Result<Arc<Transfers>, String> {
        Transfers::with_timeout(PART_TIMEOUT)
    }

    fn with_timeout(part_timeout: Duration) -> Result<Arc<Transfers>, String> {
        let (questions, asked) = bounded(QUESTIONS_MAX);
        let transfers = Arc::new(Transfers {
            send: OnceLock::new(),
            sources: RwLock::default(),
            questions,
            waiting: Mutex::default(),
            last: AtomicU64::new(0),
            part_timeout,
        });
        let serving = Arc::downgrade(&transfers);
        let thread = std::thread::Builder::new().name("transfers".into());
        thread.spawn(move || serve(&serving, &asked)).map_err(|error| format!("no thread for transfers: {error}"))?;
        Ok(transfers)
    }

    /// Gives it the way to the other nodes, once.
    pub fn connect(&self, send: SendFrame) {
        let _ = self.send.set(send);
    }

    /// Serves what a source has from now on.
    pub fn serve(&self, source: Arc<dyn Source>) {
        self.sources.write().push(source);
    }

    /// Takes a frame of another node, if it is about a transfer; gives it back otherwise. Never waits.
    pub fn take(&self, from: NodeId, frame: Frame) -> Option<Frame> {
        match frame {
            Frame::Pull { transfer, name, offset } => {
                // A full queue loses it, and it is asked again.
                let _ = self.questions.try_send(Question { from, transfer, name, offset });
                None
            }
            Frame::Part { transfer, offset, total, bytes } => {
                if let Some((asked, part)) = self.waiting.lock().get(&transfer)
                    && *asked == from
                {
                    match part.try_send(Part { offset, total, bytes }) {
                        // It came twice, or too late.
                        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
                    }
                }
                None
            }
            frame => Some(frame),
        }
    }

    /// Pulls the bytes under a name from a node, from `offset` on. `sink` gets the size of all bytes, the offset of a part and the
    /// part, in order and without a gap; when it has had the last one, this returns the size. Blocks.
    ///
    /// # Errors
    /// Why not, with everything before that delivered: another node may continue there.
    pub fn pull(
        &self,
        from: NodeId,
        name: &[u8],
        mut offset: u64,
        sink: &mut dyn FnMut(u64, u64, &[u8]) -> Result<(), String>,
    ) -> Result<u64, PullError> {
        let transfer = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, parts) = bounded(1);
        self.waiting.lock().insert(transfer, (from, sender));
        let _ended = Ended { transfers: self, transfer };
        let name = Bytes::copy_from_slice(name);
        let mut size = None;
        loop {
            let question = Frame::Pull { transfer, name: name.clone(), offset };
            let (total, bytes) = self.ask(from, &question, offset, &parts)?;
            if size.is_some_and(|size| size != total) || offset > total || bytes.len() as u64 > total - offset {
                return Err(PullError::Refused("its size has changed on the way".into()));
            }
            if bytes.is_empty() && offset < total {
                return Err(PullError::Refused("an empty part was sent".into()));
            }
            size = Some(total);
            sink(total, offset, &bytes).map_err(PullError::Refused)?;
            offset += bytes.len() as u64;
            if offset == total {
                return Ok(total);
            }
        }
    }

    /// Pulls the bytes under a name into memory, at most `bytes_max`, from the first of these nodes that delivers them all. A
    /// node that fails is followed by the next one, which continues. Blocks.
    ///
    /// # Errors
    /// What each node failed at.
    pub fn pull_whole(&self, nodes: &[NodeId], name: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
        let mut whole = Vec::new();
        let mut failed = Vec::new();
        for node in nodes {
            let pulled = self.pull(*node, name, whole.len() as u64, &mut |total, _, part| {
                if total > bytes_max as u64 {
                    return Err(format!("it has {total} bytes, and {bytes_max} are allowed"));
                }
                whole.extend_from_slice(part);
                Ok(())
            });
            match pulled {
                Ok(_) => return Ok(whole),
                Err(error) => failed.push(format!("node {node}: {error}")),
            }
        }
        Err(if failed.is_empty() { "no other node is connected".into() } else { failed.join("; ") })
    }

    /// Asks until the part at an offset is there.
    fn ask(
        &self,
        from: NodeId,
        question: &Frame,
        offset: u64,
        parts: &Receiver<Part>,
    ) -> Result<(u64, Bytes), PullError> {
        let Some(send) = self.send.get() else { return Err(PullError::Silent) };
        for _ in 0..ATTEMPTS_MAX {
            send(from, question.clone());
            let until = std::time::Instant::now() + self.part_timeout;
            while let Ok(part) = parts.recv_deadline(until) {
                if part.offset == offset {
                    return part.total.map(|total| (total, part.bytes)).ok_or(PullError::NotHere);
                }
            }
        }
        Err(PullError::Silent)
    }
}

/// Forgets a transfer that has ended.
struct Ended<'a> {
    transfers: &'a Transfers,
    transfer: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.transfers.waiting.lock().remove(&self.transfer);
    }
}

/// Serves other nodes until nobody holds the transfers any more.
fn serve(transfers: &Weak<Transfers>, asked: &Receiver<Question>) {
    while let Ok(Question { from, transfer, name, offset }) = asked.recv() {
        let Some(transfers) = transfers.upgrade() else { return };
        let sources = transfers.sources.read().clone();
        let found = sources.iter().find_map(|source| source.part(&name, offset, PART_BYTES_MAX));
        let (total, bytes) = found.map_or((None, Vec::new()), |(total, bytes)| (Some(total), bytes));
        if let Some(send) = transfers.send.get() {
            send(from, Frame::Part { transfer, offset, total, bytes: bytes.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Has one thing, in parts of three bytes.
    struct Letters(&'static [u8]);

    impl Source for Letters {
        fn part(&self, name: &[u8], offset: u64, bytes_max: usize) -> Option<(u64, Vec<u8>)> {
            assert_eq!(bytes_max, PART_BYTES_MAX);
            let from = usize::try_from(offset).ok()?.min(self.0.len());
            let part = self.0[from..].iter().copied().take(3).collect();
            (name == b"letters").then_some((self.0.len() as u64, part))
        }
    }

    /// Two nodes; `lose` tells whether a frame to a node is lost.
    fn connected(letters: &'static [u8], lose: impl Fn(&Frame) -> bool + Send + Sync + 'static) -> [Arc<Transfers>; 2] {
        let node = || Transfers::with_timeout(Duration::from_millis(50)).expect("starts");
        let nodes = [node(), node()];
        let lose = Arc::new(lose);
        for me in 0..2 {
            let (other, lose) = (Arc::downgrade(&nodes[1 - me]), Arc::clone(&lose));
            nodes[me].connect(Box::new(move |to, frame| {
                // Node 1 asks node 2; nobody else is there.
                if let Some(other) = other.upgrade().filter(|_| to == NodeId(2 - me as u16) && !lose(&frame)) {
                    let decoded = Frame::decode(&frame.encode().into()).expect("it is a frame");
                    assert_eq!(other.take(NodeId(me as u16 + 1), decoded), None);
                }
            }));
        }
        nodes[1].serve(Arc::new(Letters(letters)));
        nodes
    }

    #[test]
    fn a_name_is_pulled_part_by_part_and_from_an_offset() {
        let nodes = connected(b"abcdefgh", |_| false);
        assert_eq!(nodes[0].pull_whole(&[NodeId(2)], b"letters", 8).as_deref(), Ok(&b"abcdefgh"[..]));
        let mut parts = Vec::new();
        let pulled = nodes[0].pull(NodeId(2), b"letters", 5, &mut |total, offset, part| {
            parts.push((total, offset, part.to_vec()));
            Ok(())
        });
        assert_eq!((pulled, parts), (Ok(8), vec![(8, 5, b"fgh".to_vec())]));
        let empty = connected(b"", |_| false);
        assert_eq!(empty[0].pull_whole(&[NodeId(2)], b"letters", 8).as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn what_is_not_there_or_too_large_is_refused() {
        let nodes = connected(b"abcdefgh", |_| false);
        let refused = |name: &[u8], bytes_max| nodes[0].pull_whole(&[NodeId(2)], name, bytes_max).unwrap_err();
        assert_eq!(refused(b"numbers", 8), "node 2: it is not there");
        assert_eq!(refused(b"letters", 7), "node 2: it has 8 bytes, and 7 are allowed");
        let past = nodes[0].pull(NodeId(2), b"letters", 9, &mut |_, _, _| Ok(()));
        assert!(matches!(past, Err(PullError::Refused(_))), "{past:?}");
        assert!(nodes[0].waiting.lock().is_empty(), "ended transfers are forgotten");
    }

    #[test]
    fn a_lost_part_is_asked_for_again_and_a_silent_node_followed_by_another() {
        let lost = AtomicBool::new(false);
        let nodes = connected(b"abcdefgh", move |frame| {
            matches!(frame, Frame::Part { offset: 3, .. }) && !lost.swap(true, Ordering::Relaxed)
        });
        assert_eq!(nodes[0].pull_whole(&[NodeId(2)], b"letters", 8).as_deref(), Ok(&b"abcdefgh"[..]));
        assert_eq!(nodes[0].pull_whole(&[NodeId(3), NodeId(2)], b"letters", 8).as_deref(), Ok(&b"abcdefgh"[..]));
        let failed = nodes[0].pull_whole(&[NodeId(3)], b"letters", 8).unwrap_err();
        assert_eq!(failed, "node 3: the node does not answer");
        assert_eq!(nodes[0].pull_whole(&[], b"letters", 8).unwrap_err(), "no other node is connected");
    }
}
