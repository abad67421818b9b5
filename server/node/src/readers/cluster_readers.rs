//! Readers of a cluster's logs, as seen by a member: a view of the control log's state, and the changes that this node
//! proposes.
//!
//! Offsets and watermarks change constantly, so changes that arrive while an entry is in flight share the next control
//! log entry; a node has one entry in flight, and at most twenty per second. A watermark may wait for a second: a
//! receiver may get records again.
//!
//! Invariant: every position that is shown, or permits truncation of the log, was agreed on by a majority.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tribunal_core::control::effect::ReaderMoved;
use tribunal_core::control::readers::ReaderTable;
use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_types::limits::READER_MOVES_MAX;
use tribunal_types::{
    ConsumerOffset, ControlChange, ControlIndex, HeldWebhook, Lsn, NamespaceId, ReaderMove, StoreId, Webhook,
};

use crate::commit::message::Message;
use crate::readers::earlier_file::EarlierFile;

/// Minimum time between two entries of a node.
const PACE: Duration = Duration::from_millis(50);
/// How long a watermark may wait for its entry.
const WATERMARK_WAIT: Duration = Duration::from_secs(1);
/// How long an entry may take to be committed.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a change, or why it is unknown.
pub type Moved = Result<ReaderMoved, String>;

/// The readers of a cluster. Cheap to share by `Arc`.
pub struct ClusterReaders {
    known: RwLock<ReaderTable>,
    waiting: Mutex<Waiting>,
    /// Wakes the proposing task.
    added: Notify,
    /// Wakes the task that tracks which webhooks this node delivers.
    reassigned: Notify,
    /// State that an earlier release stored on this node alone.
    earlier: Mutex<Option<EarlierFile>>,
}

#[derive(Default)]
struct Waiting {
    moves: Vec<(ReaderMove, oneshot::Sender<Moved>)>,
    /// Number of moves at which those of disconnected callers are removed.
    swept_at: usize,
    /// Receivers' acknowledgements to this node, by store.
    delivered: HashMap<StoreId, Delivered>,
    /// When moved watermarks are proposed next, if any.
    watermarks_due: Option<Instant>,
}

/// A receiver's acknowledgement to this node.
#[derive(Clone, Copy)]
struct Delivered {
    delivery: ControlIndex,
    lsn: Lsn,
    /// The last proposed position.
    proposed: Option<Lsn>,
}

impl ClusterReaders {
    /// Starts with the recovered readers, and optionally with a file of an earlier release.
    #[must_use]
    pub fn new(replicated: &ReplicatedState, earlier: Option<EarlierFile>) -> ClusterReaders {
        ClusterReaders {
            known: RwLock::new(replicated.readers().unshared()),
            waiting: Mutex::default(),
            added: Notify::new(),
            reassigned: Notify::new(),
            earlier: Mutex::new(earlier),
        }
    }

    /// Returns the file of an earlier release, once.
    pub fn take_earlier(&self) -> Option<EarlierFile> {
        self.earlier.lock().take()
    }

    /// Applies a control entry that had this effect. Does not block.
    pub fn follow(&self, replicated: &ReplicatedState, effect: &Effect) {
        let reassigns = match effect {
            Effect::WebhookRegistered(_) | Effect::WebhookAssigned(_) | Effect::WebhookRemoved(_) => true,
            Effect::ReadersMoved(_) => false,
            _ => return,
        };
        self.known.write().follow(replicated.readers(), effect);
        if reassigns {
            self.reassigned.notify_one();
        }
    }

    /// Waits until another webhook may be assigned to this node, or away from it.
    pub async fn reassigned(&self) {
        self.reassigned.notified().await;
    }

    /// Returns all offsets, by namespace, name and store.
    pub fn offsets(&self) -> Vec<ConsumerOffset> {
        self.known.read().offsets().cloned().collect()
    }

    /// Returns a consumer's offset in a store.
    pub fn offset(&self, namespace: NamespaceId, name: &str, store: StoreId) -> Option<ConsumerOffset> {
        self.known.read().offset(namespace, name, store).cloned()
    }

    /// Returns all webhooks, ascending store.
    pub fn webhooks(&self) -> Vec<HeldWebhook> {
        self.known.read().webhooks().cloned().collect()
    }

    /// Returns a store's webhook. If this node delivers it, the watermark may be ahead of the committed one.
    pub fn webhook(&self, store: StoreId) -> Option<HeldWebhook> {
        let mut held = self.known.read().webhook(store).cloned()?;
        let delivered = self.waiting.lock().delivered.get(&store).copied();
        if let Some(own) = delivered.filter(|own| own.delivery == held.delivery()) {
            held.webhook.watermark = own.lsn;
        }
        Some(held)
    }

    /// Calls `each` with the committed position of every reader.
    pub fn each_position(&self, mut each: impl FnMut(StoreId, Lsn, tribunal_types::LogId)) {
        let known = self.known.read();
        known.offsets().for_each(|offset| each(offset.store, offset.lsn, offset.log));
        known.webhooks().for_each(|held| each(held.webhook.store, held.webhook.watermark, held.webhook.log));
    }

    /// Makes a change; returns its result once a majority has it.
    pub async fn change(&self, change: ReaderMove) -> Moved {
        let (reply, moved) = oneshot::channel();
        self.waiting.lock().add(change, reply);
        self.added.notify_one();
        moved.await.unwrap_or_else(|_| Err("the node is stopping".into()))
    }

    /// Moves the watermark of a webhook that this node delivers. It becomes durable soon.
    pub fn acknowledged(&self, store: StoreId, delivery: ControlIndex, lsn: Lsn) {
        let mut waiting = self.waiting.lock();
        let proposed =
            waiting.delivered.get(&store).filter(|own| own.delivery == delivery).and_then(|own| own.proposed);
        waiting.delivered.insert(store, Delivered { delivery, lsn, proposed });
        // A receiver ahead of the log is detectable only while it is ahead.
        let wait = if lsn == Webhook::AHEAD { Duration::ZERO } else { WATERMARK_WAIT };
        let due = Instant::now() + wait;
        if waiting.watermarks_due.is_none_or(|before| due < before) {
            waiting.watermarks_due = Some(due);
            self.added.notify_one();
        }
    }

    /// Proposes queued changes until the sequencer has ended.
    pub async fn propose(self: Arc<Self>, messages: Sender<Message>) {
        loop {
            let (moves, replies) = self.next_entry().await;
            let begun = Instant::now();
            let (reply, applied) = oneshot::channel();
            if messages.send(Message::Control(ControlChange::MoveReaders(moves), reply)).is_err() {
                // Answers the waiters that the node is stopping.
                self.waiting.lock().moves.clear();
                return;
            }
            let applied = timeout(AGREEMENT_TIMEOUT, applied).await;
            answer(replies, applied.ok().and_then(Result::ok).map(|reply| reply.applied));
            tokio::time::sleep(PACE.saturating_sub(begun.elapsed())).await;
        }
    }

    /// Waits for changes, and returns those for the next entry with their replies; watermarks have none and come last.
    async fn next_entry(&self) -> (Vec<ReaderMove>, Vec<oneshot::Sender<Moved>>) {
        loop {
            let due = {
                let mut waiting = self.waiting.lock();
                let entry = waiting.take(Instant::now(), |store| self.delivery_of(store));
                if !entry.0.is_empty() {
                    return entry;
                }
                waiting.watermarks_due
            };
            match due {
                None => self.added.notified().await,
                Some(due) => drop(tokio::time::timeout_at(due.into(), self.added.notified()).await),
            }
        }
    }

    fn delivery_of(&self, store: StoreId) -> Option<ControlIndex> {
        self.known.read().webhook(store).map(HeldWebhook::delivery)
    }
}

impl Waiting {
    fn add(&mut self, change: ReaderMove, reply: oneshot::Sender<Moved>) {
        self.moves.push((change, reply));
        if self.moves.len() > self.swept_at.max(READER_MOVES_MAX) {
            self.sweep();
            self.swept_at = 2 * self.moves.len();
        }
    }

    /// Removes moves whose callers have disconnected: they would only delay the others.
    fn sweep(&mut self) {
        self.moves.retain(|(_, reply)| !reply.is_closed());
    }

    fn take(
        &mut self,
        now: Instant,
        delivery_of: impl Fn(StoreId) -> Option<ControlIndex>,
    ) -> (Vec<ReaderMove>, Vec<oneshot::Sender<Moved>>) {
        self.sweep();
        let count = self.moves.len().min(READER_MOVES_MAX);
        let (mut moves, replies): (Vec<_>, Vec<_>) = self.moves.drain(..count).unzip();
        if self.watermarks_due.is_some_and(|due| due <= now) {
            // Deliveries before another node took over are useless.
            self.delivered.retain(|store, own| delivery_of(*store) == Some(own.delivery));
            let mut moved: Vec<_> =
                self.delivered.iter_mut().filter(|(_, own)| own.proposed != Some(own.lsn)).collect();
            moved.sort_unstable_by_key(|(store, _)| **store);
            let room = READER_MOVES_MAX - moves.len();
            let all = moved.len() <= room;
            for (&store, own) in moved.into_iter().take(room) {
                own.proposed = Some(own.lsn);
                moves.push(ReaderMove::Delivered { store, delivery: own.delivery, lsn: own.lsn });
            }
            self.watermarks_due = (!all).then_some(now);
        }
        (moves, replies)
    }
}

/// Answers the callers whose changes were in an entry.
fn answer(replies: Vec<oneshot::Sender<Moved>>, applied: Option<tribunal_core::control::Applied>) {
    let mut moved = match applied {
        Some(Ok(Effect::ReadersMoved(moved))) => moved.into_iter(),
        _ => Vec::new().into_iter(),
    };
    for reply in replies {
        let unknown = || "no majority of the nodes has confirmed it in time; it may still become durable".to_owned();
        // The client may have disconnected.
        let _ = reply.send(moved.next().ok_or_else(unknown));
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{ControlImage, Pusher, Webhook};

    use super::*;

    fn forget(name: &str) -> ReaderMove {
        ReaderMove::Forget { namespace: NamespaceId(0), name: name.into(), store: None }
    }

    fn readers(delivery: u64) -> Arc<ClusterReaders> {
        let webhook = Webhook { store: StoreId(1), watermark: Lsn(3), ..Webhook::default() };
        let deliverer = Some(Pusher { node: tribunal_types::NodeId(1), since: ControlIndex(delivery) });
        let webhooks = vec![HeldWebhook { webhook, registered: ControlIndex(1), deliverer }];
        let state = ReplicatedState::restore(ControlImage { webhooks, ..ControlImage::default() });
        Arc::new(ClusterReaders::new(&state, None))
    }

    /// Queues a move; its caller waits, too, until the result is dropped.
    fn call(readers: &ClusterReaders, name: &str) -> oneshot::Receiver<Moved> {
        let (reply, moved) = oneshot::channel();
        readers.waiting.lock().add(forget(name), reply);
        moved
    }

    #[test]
    fn callers_who_have_disconnected_keep_nobody_waiting() {
        let readers = readers(5);
        let moves = || readers.waiting.lock().moves.len();
        let first = call(&readers, "first");
        for n in 0..10 * READER_MOVES_MAX {
            drop(call(&readers, &n.to_string()));
            assert!(moves() <= READER_MOVES_MAX + 1, "{n}");
        }
        let last = call(&readers, "last");
        let entry = readers.waiting.lock().take(Instant::now(), |store| readers.delivery_of(store)).0;
        assert_eq!((entry, moves()), (vec![forget("first"), forget("last")], 0));
        drop((first, last));
    }

    #[test]
    fn changes_share_an_entry_and_watermarks_wait() {
        let (readers, now) = (readers(5), Instant::now());
        readers.acknowledged(StoreId(1), ControlIndex(4), Lsn(9));
        assert_eq!(readers.webhook(StoreId(1)).map(|held| held.webhook.watermark), Some(Lsn(3)), "of another delivery");
        readers.acknowledged(StoreId(1), ControlIndex(5), Lsn(7));
        readers.acknowledged(StoreId(1), ControlIndex(5), Lsn(8));
        assert_eq!(readers.webhook(StoreId(1)).map(|held| held.webhook.watermark), Some(Lsn(8)));
        let take = |at: Instant| readers.waiting.lock().take(at, |store| readers.delivery_of(store)).0;
        let _callers: Vec<_> = (0..600).map(|n| call(&readers, &n.to_string())).collect();
        let first = take(now);
        assert_eq!((first.len(), &first[0]), (READER_MOVES_MAX, &forget("0")));
        let delivered = ReaderMove::Delivered { store: StoreId(1), delivery: ControlIndex(5), lsn: Lsn(8) };
        let second = take(now + 2 * WATERMARK_WAIT);
        assert_eq!((second.len(), second.last()), (600 - READER_MOVES_MAX + 1, Some(&delivered)));
        assert_eq!(take(now + 9 * WATERMARK_WAIT), [], "nothing has moved since");
        readers.acknowledged(StoreId(1), ControlIndex(5), Lsn(8));
        assert_eq!(take(now + 9 * WATERMARK_WAIT), [], "nothing has moved since");
    }

    #[tokio::test]
    async fn every_change_of_an_entry_gets_its_own_answer() {
        let readers = readers(5);
        let (messages, inbox) = crossbeam_channel::unbounded();
        let proposing = tokio::spawn(Arc::clone(&readers).propose(messages));
        let change = |name: &'static str| {
            let readers = Arc::clone(&readers);
            tokio::spawn(async move { readers.change(forget(name)).await })
        };
        let mut state = ReplicatedState::default();
        let mut index = 0;
        let mut agree = move |message| {
            let Message::Control(change, reply) = message else { panic!("something else is proposed") };
            index += 1;
            let moment = tribunal_core::control::Moment {
                next: tribunal_types::Epoch(1),
                is_existence_fixed: &|_| false,
                members: &[],
            };
            let applied = state.apply(ControlIndex(index), &change.into(), moment);
            let _ = reply.send(tribunal_replica::ControlReply { index: ControlIndex(index), applied });
        };
        let asked: Vec<_> = ["a", "b", "c"].map(change).into();
        let (all, all_answered) = crossbeam_channel::bounded(0);
        let agreed = tokio::task::spawn_blocking(move || {
            // The first may be proposed alone.
            loop {
                crossbeam_channel::select! {
                    recv(inbox) -> message => agree(message.expect("the proposer lives")),
                    recv(all_answered) -> _ => return inbox,
                }
            }
        });
        for (asked, expected) in asked.into_iter().zip(["a", "b", "c"]) {
            match asked.await.unwrap() {
                Ok(ReaderMoved::Forgotten { name, stores, .. }) => assert_eq!((&*name, stores.len()), (expected, 0)),
                other => panic!("{other:?}"),
            }
        }
        all.send(()).unwrap();
        drop(agreed.await.unwrap());
        assert_eq!(readers.change(forget("d")).await, Err("the node is stopping".into()));
        proposing.await.unwrap();
    }
}
