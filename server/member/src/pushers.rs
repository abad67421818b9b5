//! Which member pushes to which storage (rules 21 and 22 of the cluster), and what all others know of the storage.
//!
//! The control log names one node for each store. The leader of the control group proposes it: for a store that has none,
//! and for one whose node is gone, that of the nodes which are there that pushes to the fewest stores. Two leaders at a time
//! may propose different ones; the first that is agreed on wins, because a proposal names the push that it replaces. Until a
//! node has learned that it was replaced, both push, which is safe: a storage moves its watermark from the expected position
//! only.
//!
//! The node that pushes tells all others what its storages have acknowledged: when that changes, and at a steady pace,
//! because the others believe it for a while only.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::executor::ShardExecutor;
use tribunal_raft::GroupLog;
use tribunal_replica::{Event, PolicyRunner, StorageAt, Waiters};
use tribunal_types::{ControlChange, ControlIndex, DeclaredStore, Epoch, GroupId, NodeId, StoreId};

use crate::frame::Frame;
use crate::member::Member;

/// Ticks of silence after which another node takes a push over; longer than what a node has told is believed.
pub(crate) const TAKE_OVER_TICKS: u64 = 60;
/// Ticks for which a node may lag without getting further, although it sends: its disk is stuck.
const STUCK_TICKS: u64 = 100;
/// Ticks between two reports of what has not changed.
const REPORT_EVERY_TICKS: u64 = 10;
/// Ticks after which a node is proposed again for the same push.
const AGAIN_TICKS: u64 = 100;

/// What a node knows of the pushes of the cluster beside the control log.
#[derive(Debug, Default)]
pub(crate) struct Pushers {
    now: u64,
    /// Of other nodes: the last epoch that they have decided, and when they were last further than before, or as far as
    /// this node.
    decided: BTreeMap<NodeId, (Epoch, u64)>,
    /// Pushes for which a node was proposed, and when.
    proposed: BTreeMap<StoreId, (ControlIndex, u64)>,
    /// Own pushes to report.
    changed: BTreeSet<StoreId>,
    /// All are to be reported.
    due: bool,
}

impl Pushers {
    /// Notes that a tick has passed.
    fn tick(&mut self) {
        self.now += 1;
        self.due |= self.now.is_multiple_of(REPORT_EVERY_TICKS);
    }

    /// Notes that an own push has reported.
    pub(crate) fn changed(&mut self, store: StoreId) {
        self.changed.insert(store);
    }

    /// Notes how far another node has decided; this one has up to `own`.
    fn told(&mut self, node: NodeId, decided: Epoch, own: Epoch) {
        let now = self.now;
        let known = self.decided.entry(node).or_insert((decided, now));
        if decided > known.0 || decided >= own {
            *known = (decided, now);
        }
    }

    /// Returns whether a node lags, and has not got further for long.
    fn is_stuck(&self, node: NodeId, own: Epoch) -> bool {
        self.decided.get(&node).is_some_and(|(decided, at)| *decided < own && self.now - at >= STUCK_TICKS)
    }

    /// Returns whether a node is to be proposed in place of this push now, and notes it.
    fn proposes(&mut self, store: StoreId, push: ControlIndex) -> bool {
        let last = self.proposed.get(&store);
        let is_due = last.is_none_or(|(of, at)| *of != push || self.now - at >= AGAIN_TICKS);
        if is_due {
            self.proposed.insert(store, (push, self.now));
        }
        is_due
    }
}

/// Returns a node for each store that has none, or whose node is gone, with the push that it replaces. `present` are the nodes
/// that can push.
fn assignments<'a>(
    stores: impl Iterator<Item = &'a DeclaredStore> + Clone,
    present: &BTreeSet<NodeId>,
    is_gone: impl Fn(NodeId) -> bool,
) -> Vec<(StoreId, ControlIndex, NodeId)> {
    let pushed = stores.filter(|store| store.is_external() && store.detached.is_none());
    let of = |store: &DeclaredStore| store.pusher.map(|pusher| pusher.node).filter(|node| !is_gone(*node));
    let mut load: BTreeMap<NodeId, usize> = present.iter().map(|node| (*node, 0)).collect();
    for node in pushed.clone().filter_map(of) {
        load.entry(node).and_modify(|stores| *stores += 1);
    }
    let mut named = Vec::new();
    for store in pushed.filter(|store| of(store).is_none()) {
        // The first of those with the fewest: all are present, whose order is that of their numbers.
        let Some((&node, stores)) = load.iter_mut().min_by_key(|(_, stores)| **stores) else { break };
        *stores += 1;
        named.push((store.spec.id, store.push(), node));
    }
    named
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Proposes nodes for stores that nobody pushes to. Once a tick.
    pub(crate) fn assign_pushes(&mut self) {
        self.pushers.tick();
        if !self.roles.leads(GroupId::CONTROL) || self.handing_over.is_leaving() {
            return;
        }
        let own = self.replica().last_complete();
        let others = self.other_voters();
        let nodes = self.replica().replicated().members();
        let leaves = |node: NodeId| nodes.leaves(node) || nodes.is_drained(node);
        let is_present = |node: &NodeId| self.presence.is_here(*node) && !self.pushers.is_stuck(*node, own);
        let present = others.iter().copied().filter(is_present).chain([self.node]);
        let present = present.filter(|node| !leaves(*node)).collect();
        let is_gone = |node: NodeId| {
            leaves(node)
                || node != self.node
                    && (!others.contains(&node)
                        || self.presence.is_gone(node, TAKE_OVER_TICKS)
                        || self.pushers.is_stuck(node, own))
        };
        for (store, replaces, node) in assignments(self.replica().replicated().stores().stores(), &present, is_gone) {
            if self.pushers.proposes(store, replaces) {
                self.events.push_back(Event::Propose(ControlChange::AssignPush { store, replaces, node }));
            }
        }
    }

    /// Has the others told what storages to which this node pushes have acknowledged, as far as that is due. Returns whether
    /// there is something to send.
    pub(crate) fn report_pushes(&mut self) -> bool {
        let (changed, due) = (std::mem::take(&mut self.pushers.changed), std::mem::take(&mut self.pushers.due));
        // Where there are no storages, nobody asks how far this node is.
        let is_pushed_to = |store: &DeclaredStore| store.is_external();
        if (!due && changed.is_empty()) || !self.replica().replicated().stores().stores().any(is_pushed_to) {
            return false;
        }
        let stores = self.replica().pushed_by(self.node).filter(|at| due || changed.contains(&at.store)).collect();
        let frame = Frame::Pushed { decided: self.replica().last_complete(), stores };
        let others = self.other_voters();
        self.frames.extend(others.into_iter().map(|node| (node, frame.clone())));
        !self.frames.is_empty()
    }

    /// Another node tells what its storages have acknowledged.
    pub(crate) fn pushes_told(&mut self, from: NodeId, decided: Epoch, stores: Vec<StorageAt>) {
        let own = self.replica().last_complete();
        self.pushers.told(from, decided, own);
        if !stores.is_empty() {
            self.events.push_back(Event::PushesReported { from, stores });
        }
    }

    /// Returns the other members.
    pub(crate) fn other_voters(&self) -> BTreeSet<NodeId> {
        let voters = self.raft.members(GroupId::CONTROL).into_iter().flat_map(|members| &members.voters);
        voters.copied().filter(|node| *node != self.node).collect()
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{Pusher, StoreSpec};

    use super::*;

    fn store(id: u32, node: Option<u16>) -> DeclaredStore {
        let spec = StoreSpec { id: StoreId(id), adaptor: Some("redis".into()), ..StoreSpec::default() };
        let pusher = node.map(|node| Pusher { node: NodeId(node), since: ControlIndex(90 + u64::from(id)) });
        DeclaredStore { spec, generation: ControlIndex(u64::from(id)), pusher, ..DeclaredStore::default() }
    }

    fn named(stores: &[DeclaredStore], present: &[u16], gone: &[u16]) -> Vec<(u32, u64, u16)> {
        let present = present.iter().map(|node| NodeId(*node)).collect();
        let named = assignments(stores.iter(), &present, |node| gone.contains(&node.0));
        named.into_iter().map(|(store, push, node)| (store.0, push.0, node.0)).collect()
    }

    #[test]
    fn stores_go_to_the_node_with_the_fewest_and_stay_there() {
        let new = [store(1, None), store(2, None), store(3, None), store(4, None)];
        assert_eq!(named(&new, &[1, 2, 3], &[]), [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 1)]);
        let stores = [store(1, Some(1)), store(2, Some(2)), store(3, Some(3)), store(4, Some(1)), store(5, None)];
        assert_eq!(named(&stores, &[1, 2, 3], &[]), [(5, 5, 2)]);
        assert_eq!(named(&stores[..4], &[2, 3], &[1]), [(1, 91, 2), (4, 94, 3)], "in place of the pushes of 1");
        assert_eq!(named(&stores[..4], &[2], &[]), [], "1 is silent, but not for long");
        assert_eq!(named(&stores, &[], &[1, 2, 3]), [], "nobody is there");
    }

    #[test]
    fn nobody_is_named_for_stores_that_nothing_is_pushed_to() {
        let embedded = {
            let store = store(1, None);
            DeclaredStore { spec: StoreSpec { adaptor: Some("kv".into()), ..store.spec.clone() }, ..store }
        };
        let log_only = DeclaredStore { spec: StoreSpec::default(), ..store(2, None) };
        let detached = {
            let detachment = tribunal_types::Detachment {
                store: StoreId(3),
                declared: ControlIndex(3),
                at: Epoch(1),
                acked: tribunal_types::Lsn(0),
                reason: String::new(),
            };
            DeclaredStore { detached: Some(detachment), ..store(3, Some(9)) }
        };
        assert_eq!(named(&[embedded, log_only, detached], &[1], &[9]), []);
    }

    #[test]
    fn a_node_is_stuck_if_it_lags_and_gets_no_further_for_long() {
        let (node, mut pushers) = (NodeId(2), Pushers::default());
        let ticks = |pushers: &mut Pushers, count| (0..count).for_each(|_| pushers.tick());
        assert!(!pushers.is_stuck(node, Epoch(9)), "it has told nothing");
        pushers.told(node, Epoch(5), Epoch(5));
        ticks(&mut pushers, 10 * STUCK_TICKS);
        pushers.told(node, Epoch(5), Epoch(5));
        assert!(!pushers.is_stuck(node, Epoch(9)), "nothing was decided for long, and now something is");
        ticks(&mut pushers, STUCK_TICKS - 1);
        pushers.told(node, Epoch(5), Epoch(9));
        assert!(!pushers.is_stuck(node, Epoch(9)));
        pushers.tick();
        assert!(pushers.is_stuck(node, Epoch(9)));
        pushers.told(node, Epoch(6), Epoch(9));
        assert!(!pushers.is_stuck(node, Epoch(9)), "it catches up");
    }

    #[test]
    fn a_node_is_proposed_once_for_each_push_and_again_after_a_while() {
        let mut pushers = Pushers::default();
        let mut proposes = |push| pushers.proposes(StoreId(1), ControlIndex(push));
        assert_eq!([proposes(3), proposes(3), proposes(4), proposes(4)], [true, false, true, false]);
        (0..AGAIN_TICKS).for_each(|_| pushers.tick());
        assert!(pushers.proposes(StoreId(1), ControlIndex(4)));
    }
}
