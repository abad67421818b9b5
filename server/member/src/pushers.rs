//! Assigns each storage and each webhook to the member that pushes to it (rules 21, 22 and 24 of the cluster), and
//! distributes the storages' acknowledgements to the other members.
//!
//! The control log names one node for each of them. The leader of the control group proposes it for a push without a
//! node, and for one whose node is gone: the reachable node with the fewest pushes. Two leaders at a time may propose
//! different nodes; the first committed proposal wins, because a proposal names the push that it replaces. Until a node
//! has learned that it was replaced, both push, which is safe: a storage moves its watermark only from the expected
//! position, and a webhook's receiver identifies a record by its position.
//!
//! The pushing node reports its storages' acknowledgements to all others: when they change, and at a steady pace,
//! because the others trust a report only for a limited time. Each node reports its copies of embedded stores in the
//! same way.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::control::ReplicatedState;
use tribunal_core::executor::ShardExecutor;
use tribunal_raft::GroupLog;
use tribunal_replica::{Event, PolicyRunner, StorageAt, Waiters};
use tribunal_types::{ControlChange, ControlIndex, DeclaredStore, Epoch, GroupId, NodeId, StoreId};

use crate::frame::Frame;
use crate::member::Member;

/// Ticks of silence after which another node takes over a push; longer than a node's reports are trusted.
pub(crate) const TAKE_OVER_TICKS: u64 = 60;
/// Ticks for which a node may lag without progress, although it sends: after that its disk counts as stuck.
const STUCK_TICKS: u64 = 100;
/// Ticks between two reports of unchanged positions.
const REPORT_EVERY_TICKS: u64 = 10;
/// Ticks after which a node is proposed again for the same push.
const AGAIN_TICKS: u64 = 100;

/// A node's knowledge of the cluster's pushes, in addition to the control log.
#[derive(Debug, Default)]
pub(crate) struct Pushers {
    now: u64,
    /// For each other node: its last decided epoch, and the tick at which it last advanced, or was as far as this node.
    decided: BTreeMap<NodeId, (Epoch, u64)>,
    /// Pushes for which a node was proposed, and the tick of the proposal.
    proposed: BTreeMap<Target, (ControlIndex, u64)>,
    /// Own pushes to be reported.
    changed: BTreeSet<StoreId>,
    /// All own pushes are to be reported.
    due: bool,
}

impl Pushers {
    /// Notes that a tick has passed.
    fn tick(&mut self) {
        self.now += 1;
        self.due |= self.now.is_multiple_of(REPORT_EVERY_TICKS);
    }

    /// Notes a report of an own push.
    pub(crate) fn changed(&mut self, store: StoreId) {
        self.changed.insert(store);
    }

    /// Notes how far another node has decided; this node has decided up to `own`.
    fn told(&mut self, node: NodeId, decided: Epoch, own: Epoch) {
        let now = self.now;
        let known = self.decided.entry(node).or_insert((decided, now));
        if decided > known.0 || decided >= own {
            *known = (decided, now);
        }
    }

    /// Returns whether a node lags and has made no progress for a long time.
    fn is_stuck(&self, node: NodeId, own: Epoch) -> bool {
        self.decided.get(&node).is_some_and(|(decided, at)| *decided < own && self.now - at >= STUCK_TICKS)
    }

    /// Returns whether to propose a node in place of this push now, and notes the proposal.
    fn proposes(&mut self, target: Target, push: ControlIndex) -> bool {
        let last = self.proposed.get(&target);
        let is_due = last.is_none_or(|(of, at)| *of != push || self.now - at >= AGAIN_TICKS);
        if is_due {
            self.proposed.insert(target, (push, self.now));
        }
        is_due
    }
}

/// A destination to which one node pushes a store's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Storage(StoreId),
    Webhook(StoreId),
}

/// A push, and the node that the control log names for it.
#[derive(Clone, Copy, Debug)]
struct Push {
    target: Target,
    name: ControlIndex,
    node: Option<NodeId>,
}

/// Returns all pushes of the cluster.
fn pushes_of(state: &ReplicatedState) -> impl Iterator<Item = Push> {
    let pushed = state.stores().stores().filter(|store| store.is_external() && store.detached.is_none());
    let storages = pushed.map(|store| Push {
        target: Target::Storage(store.spec.id),
        name: store.push(),
        node: store.pusher.map(|pusher| pusher.node),
    });
    let webhooks = state.readers().webhooks().map(|held| Push {
        target: Target::Webhook(held.webhook.store),
        name: held.delivery(),
        node: held.deliverer.map(|deliverer| deliverer.node),
    });
    storages.chain(webhooks)
}

/// Returns a node for each push that has none, or whose node is gone. `present` are the nodes that can push.
fn assignments(
    pushes: &[Push],
    present: &BTreeSet<NodeId>,
    is_gone: impl Fn(NodeId) -> bool,
) -> Vec<(Target, ControlIndex, NodeId)> {
    let of = |push: &Push| push.node.filter(|node| !is_gone(*node));
    let mut load: BTreeMap<NodeId, usize> = present.iter().map(|node| (*node, 0)).collect();
    for node in pushes.iter().filter_map(of) {
        load.entry(node).and_modify(|pushes| *pushes += 1);
    }
    let mut named = Vec::new();
    for push in pushes.iter().filter(|push| of(push).is_none()) {
        // The first node with the fewest pushes; the map is ordered by node number.
        let Some((&node, pushes)) = load.iter_mut().min_by_key(|(_, pushes)| **pushes) else { break };
        *pushes += 1;
        named.push((push.target, push.name, node));
    }
    named
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Proposes nodes for storages and webhooks without a pushing node. Called once per tick.
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
        let pushes: Vec<Push> = pushes_of(self.replica().replicated()).collect();
        for (target, replaces, node) in assignments(&pushes, &present, is_gone) {
            if self.pushers.proposes(target, replaces) {
                self.events.push_back(Event::Propose(match target {
                    Target::Storage(store) => ControlChange::AssignPush { store, replaces, node },
                    Target::Webhook(store) => ControlChange::AssignWebhook { store, replaces, node },
                }));
            }
        }
    }

    /// Queues reports of the acknowledgements of this node's storages and embedded copies, if due. Returns whether
    /// there is anything to send.
    pub(crate) fn report_pushes(&mut self) -> bool {
        let (changed, due) = (std::mem::take(&mut self.pushers.changed), std::mem::take(&mut self.pushers.due));
        // Without pushes, no node needs to know how far this one is.
        let state = self.replica().replicated();
        let is_pushed_to = |store: &DeclaredStore| store.is_external() || store.spec.is_embedded();
        let pushes = state.stores().stores().any(is_pushed_to) || state.readers().webhooks().next().is_some();
        if (!due && changed.is_empty()) || !pushes {
            return false;
        }
        let stores = self.replica().pushed_by(self.node).filter(|at| due || changed.contains(&at.store)).collect();
        let frame = Frame::Pushed { decided: self.replica().last_complete(), stores };
        let others = self.other_voters();
        self.frames.extend(others.into_iter().map(|node| (node, frame.clone())));
        !self.frames.is_empty()
    }

    /// Processes another node's report of its storages' acknowledgements.
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
    use tribunal_types::{ControlImage, HeldWebhook, Pusher, StoreSpec, Webhook};

    use super::*;

    fn store(id: u32, node: Option<u16>) -> DeclaredStore {
        let spec = StoreSpec { id: StoreId(id), adaptor: Some("redis".into()), ..StoreSpec::default() };
        let pusher = node.map(|node| Pusher { node: NodeId(node), since: ControlIndex(90 + u64::from(id)) });
        DeclaredStore { spec, generation: ControlIndex(u64::from(id)), pusher, ..DeclaredStore::default() }
    }

    fn state(stores: &[DeclaredStore], webhooks: &[HeldWebhook]) -> ReplicatedState {
        let (stores, webhooks) = (stores.to_vec(), webhooks.to_vec());
        ReplicatedState::restore(ControlImage { stores, webhooks, ..ControlImage::default() })
    }

    fn named_of(state: &ReplicatedState, present: &[u16], gone: &[u16]) -> Vec<(Target, u64, u16)> {
        let present = present.iter().map(|node| NodeId(*node)).collect();
        let pushes: Vec<Push> = pushes_of(state).collect();
        let named = assignments(&pushes, &present, |node| gone.contains(&node.0));
        named.into_iter().map(|(target, push, node)| (target, push.0, node.0)).collect()
    }

    fn named(stores: &[DeclaredStore], present: &[u16], gone: &[u16]) -> Vec<(u32, u64, u16)> {
        let store = |(target, push, node)| match target {
            Target::Storage(store) => (store.0, push, node),
            Target::Webhook(_) => panic!("there are none"),
        };
        named_of(&state(stores, &[]), present, gone).into_iter().map(store).collect()
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
    fn webhooks_and_storages_are_spread_together() {
        let webhook = |store, node: Option<u16>| HeldWebhook {
            webhook: Webhook { store: StoreId(store), ..Webhook::default() },
            registered: ControlIndex(50),
            deliverer: node.map(|node| Pusher { node: NodeId(node), since: ControlIndex(60) }),
        };
        let state = state(&[store(1, Some(1)), store(2, None)], &[webhook(1, None), webhook(2, Some(2))]);
        let (storage, hook) = (|store| Target::Storage(StoreId(store)), |store| Target::Webhook(StoreId(store)));
        assert_eq!(named_of(&state, &[1, 2, 3], &[]), [(storage(2), 2, 3), (hook(1), 50, 1)]);
        let taken_over = [(storage(2), 2, 3), (hook(1), 50, 1), (hook(2), 60, 3)];
        assert_eq!(named_of(&state, &[1, 3], &[2]), taken_over, "in place of the delivery by 2, too");
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
        let mut proposes = |push| pushers.proposes(Target::Webhook(StoreId(1)), ControlIndex(push));
        assert_eq!([proposes(3), proposes(3), proposes(4), proposes(4)], [true, false, true, false]);
        (0..AGAIN_TICKS).for_each(|_| pushers.tick());
        assert!(pushers.proposes(Target::Webhook(StoreId(1)), ControlIndex(4)));
    }
}
