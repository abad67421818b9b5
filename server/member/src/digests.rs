//! Compares the members' decisions while they run (rule 15 of the cluster): all must have the same digest after the
//! same epoch.
//!
//! At a steady pace while epochs are decided, a member sends the others its last decided epoch and the digest. It also
//! sends them to each member that appears: decisions from before both started are compared as well, for example after
//! the restore of copies that do not belong together. Digests are chained: two states that differ once differ from then
//! on, so reports about several epochs can be counted together. A member that finds a difference sends all others its
//! own digest of that very epoch, once, and so does every member that finds a difference in that one: soon all members
//! know the digests of one epoch.
//!
//! A member stops when so many others differ from it that its digest cannot be that of a majority. If a majority has
//! another digest, only this member stops; if no digest has a majority, all stop. A single odd member stops no other:
//! it is reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tribunal_core::executor::ShardExecutor;
use tribunal_raft::GroupLog;
use tribunal_replica::{PolicyRunner, Waiters};
use tribunal_types::{Digest, Epoch, NodeId};

use crate::frame::Frame;
use crate::member::Member;

/// Number of own epochs whose digests are kept: a few seconds of a busy cluster. A node that lags more does the
/// comparison itself.
const KEPT: usize = 4096;
/// Ticks between two reports.
const REPORT_EVERY_TICKS: u64 = 10;
/// Ticks for which a member that has to stop waits for the others' digests of one epoch, to report them.
const SETTLE_TICKS: u64 = 5;

/// The digests of this member and another one after the same epoch, if they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OddPeer {
    /// The epoch.
    pub epoch: Epoch,
    /// The other member's digest.
    pub theirs: Digest,
    /// This member's digest.
    pub own: Digest,
}

/// Known digests of this member and of the others.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    now: u64,
    /// Digests after own epochs, ascending.
    own: VecDeque<(Epoch, Digest)>,
    /// The last epoch that was reported to the others.
    told: Epoch,
    /// Of each other member, the earliest reported epoch that is not decided here yet.
    early: BTreeMap<NodeId, (Epoch, Digest)>,
    /// Of each other member, its last epoch that was compared.
    compared: BTreeMap<NodeId, Epoch>,
    odd: BTreeMap<NodeId, OddPeer>,
    /// The last epoch that was reported to the others because of a difference.
    disputed: Epoch,
    /// The difference to report to the others.
    dispute: Option<(Epoch, Digest)>,
    /// Tick at which too many differed, so that this member has to stop.
    lost_at: Option<u64>,
    stopped: bool,
}

impl Digests {
    /// Starts after this epoch.
    pub(crate) fn starting(epoch: Epoch, digest: Digest) -> Digests {
        Digests { own: VecDeque::from([(epoch, digest)]), told: epoch, ..Digests::default() }
    }

    /// Notes an epoch decided by this member.
    pub(crate) fn decided(&mut self, epoch: Epoch, digest: Digest) {
        if self.own.len() == KEPT {
            self.own.pop_front();
        }
        self.own.push_back((epoch, digest));
        while let Some((&node, &(_, theirs))) = self.early.iter().find(|(_, (early, _))| *early <= epoch) {
            let (early, _) = self.early.remove(&node).unwrap_or((epoch, theirs));
            self.compare(node, early, theirs);
        }
    }

    /// Notes another member's digest after an epoch.
    fn received(&mut self, from: NodeId, epoch: Epoch, digest: Digest) {
        if self.own.back().is_some_and(|(last, _)| epoch <= *last) {
            return self.compare(from, epoch, digest);
        }
        // Keep the first one: otherwise a lagging member would never compare.
        if self.early.get(&from).is_none_or(|(early, _)| epoch < *early) {
            self.early.insert(from, (epoch, digest));
        }
    }

    /// Compares another member's digest after an epoch that is decided here.
    fn compare(&mut self, from: NodeId, epoch: Epoch, theirs: Digest) {
        let after = self.own.partition_point(|(own, _)| *own <= epoch);
        // The epoch was decided too long ago here: the other member compares once it catches up.
        let Some((_, own)) = after.checked_sub(1).map(|at| self.own[at]) else { return };
        // Frames may overtake each other; the latest compared epoch counts. For a disputed epoch, every member reports
        // again.
        let last = self.compared.get(&from).copied().unwrap_or_default();
        if epoch < last && epoch != self.disputed {
            return;
        }
        self.compared.insert(from, last.max(epoch));
        if own == theirs {
            if self.odd.get(&from).is_none_or(|odd| odd.epoch < epoch) {
                self.odd.remove(&from);
            }
            return;
        }
        self.odd.insert(from, OddPeer { epoch, theirs, own });
        if epoch > self.disputed {
            self.disputed = epoch;
            self.dispute = Some((epoch, own));
        }
    }

    /// Notes that a tick has passed; returns the epoch and digest to send to all others, if due.
    fn tick(&mut self) -> Option<(Epoch, Digest)> {
        self.now += 1;
        if !self.now.is_multiple_of(REPORT_EVERY_TICKS) {
            return None;
        }
        let last = self.own.back().copied().filter(|(last, _)| *last > self.told)?;
        self.told = last.0;
        Some(last)
    }

    /// Returns the reason if this member must stop; only once. `others` are all other members.
    fn must_stop(&mut self, me: NodeId, others: &BTreeSet<NodeId>) -> Option<String> {
        self.odd.retain(|node, _| others.contains(node));
        let members = others.len() + 1;
        let majority = members / 2 + 1;
        if self.stopped || members - self.odd.len() >= majority {
            self.lost_at = None;
            return None;
        }
        let since = *self.lost_at.get_or_insert(self.now);
        let mut same: BTreeMap<(Epoch, u64), usize> = BTreeMap::new();
        for odd in self.odd.values() {
            *same.entry((odd.epoch, odd.theirs.0)).or_default() += 1;
        }
        let majoritys = same.iter().find(|(_, nodes)| **nodes >= majority).map(|(digest, _)| *digest);
        let all_told = self.odd.len() == others.len() && same.keys().all(|(epoch, _)| *epoch == self.disputed);
        if majoritys.is_none() && !all_told && self.now - since < SETTLE_TICKS {
            return None;
        }
        self.stopped = true;
        Some(self.reason(me, majoritys.is_some()))
    }

    fn reason(&self, me: NodeId, majority_agrees: bool) -> String {
        let told = self.odd.iter().map(|(node, OddPeer { epoch, theirs, own })| {
            format!("node {node} has digest {theirs} after epoch {epoch}, and this one has {own}")
        });
        let told = told.collect::<Vec<_>>().join("; ");
        if majority_agrees {
            return format!(
                "the state of node {me} has diverged from that of a majority of the cluster: {told}. The others go on without \
                 it. Keep its directory and report this. Once the node has been removed from the cluster, it can be replaced \
                 by one with an empty directory"
            );
        }
        format!(
            "the states of the nodes have diverged, and no digest is known to be that of a majority of the cluster: {told}. \
             Every node that finds this stops, because none can tell which state is right. Keep the directories of all \
             nodes and report this"
        )
    }
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Returns the other members whose digest differs from this one's after the same epoch.
    #[must_use]
    pub fn odd_peers(&self) -> &BTreeMap<NodeId, OddPeer> {
        &self.digests.odd
    }

    /// Sends the others the digest of the last epoch, if due. Called once per tick.
    pub(crate) fn report_digest(&mut self) {
        let due = self.digests.tick();
        due.into_iter().for_each(|told| self.tell_digest(told));
    }

    /// Sends a member that has just appeared the digest of the last epoch.
    pub(crate) fn greet_with_digest(&mut self, node: NodeId) {
        if let Some(&(epoch, digest)) = self.digests.own.back().filter(|_| self.other_voters().contains(&node)) {
            self.frames.push_back((node, Frame::Decided { epoch, digest }));
        }
    }

    /// Processes another member's digest after an epoch.
    pub(crate) fn digest_told(&mut self, from: NodeId, epoch: Epoch, digest: Digest) {
        if self.other_voters().contains(&from) {
            self.digests.received(from, epoch, digest);
        }
    }

    /// Reports a new difference to the others; returns the reason if this member must stop.
    pub(crate) fn settle_digests(&mut self) -> Option<String> {
        let dispute = self.digests.dispute.take();
        dispute.into_iter().for_each(|told| self.tell_digest(told));
        if self.digests.odd.is_empty() {
            return None;
        }
        let others = self.other_voters();
        self.digests.must_stop(self.node, &others)
    }

    fn tell_digest(&mut self, (epoch, digest): (Epoch, Digest)) {
        let others = self.other_voters();
        self.frames.extend(others.into_iter().map(|node| (node, Frame::Decided { epoch, digest })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    fn others(count: u16) -> BTreeSet<NodeId> {
        (2..=count).map(NodeId).collect()
    }

    /// A member that has decided epochs 1, 3 and 5 with digests 10, 30 and 50.
    fn digests() -> Digests {
        let mut digests = Digests::starting(Epoch(0), Digest(0));
        [1, 3, 5].into_iter().for_each(|epoch| digests.decided(Epoch(epoch), Digest(10 * epoch)));
        digests
    }

    fn told(digests: &mut Digests, node: u16, epoch: u64, digest: u64) {
        digests.received(NodeId(node), Epoch(epoch), Digest(digest));
    }

    fn odd(digests: &Digests) -> Vec<u16> {
        digests.odd.keys().map(|node| node.0).collect()
    }

    #[test]
    fn one_odd_peer_is_reported_and_stops_nobody() {
        let mut digests = digests();
        told(&mut digests, 2, 3, 30);
        told(&mut digests, 3, 3, 31);
        assert_eq!((odd(&digests), digests.dispute), (vec![3], Some((Epoch(3), Digest(30)))));
        for _ in 0..10 * SETTLE_TICKS {
            digests.tick();
            assert_eq!(digests.must_stop(ME, &others(3)), None);
        }
        told(&mut digests, 3, 1, 10);
        assert_eq!(odd(&digests), [3], "that was before");
        told(&mut digests, 3, 5, 50);
        assert_eq!(odd(&digests), [0; 0], "another state, which is right");
    }

    #[test]
    fn a_node_that_differs_from_a_majority_stops() {
        let mut digests = digests();
        told(&mut digests, 2, 5, 51);
        assert_eq!(digests.must_stop(ME, &others(3)), None);
        told(&mut digests, 3, 5, 51);
        let reason = digests.must_stop(ME, &others(3)).expect("it is alone");
        assert!(reason.contains("from that of a majority") && reason.contains("after epoch 5"), "{reason}");
        assert!(digests.must_stop(ME, &others(3)).is_none(), "once is enough");
        // Three of five agree with this one, or two do; but not if two others have left.
        let mut digests = self::digests();
        told(&mut digests, 2, 5, 51);
        told(&mut digests, 3, 5, 51);
        assert_eq!(digests.must_stop(ME, &others(5)), None);
        assert!(digests.must_stop(ME, &others(3)).is_some());
    }

    #[test]
    fn all_stop_if_no_digest_has_a_majority() {
        let mut digests = digests();
        told(&mut digests, 2, 5, 51);
        told(&mut digests, 3, 5, 52);
        let reason = digests.must_stop(ME, &others(3)).expect("everybody is alone");
        assert!(reason.contains("no digest is known to be that of a majority"), "{reason}");
        let mut digests = self::digests();
        told(&mut digests, 2, 5, 51);
        let reason = digests.must_stop(ME, &others(2)).expect("one of two");
        assert!(reason.contains("no digest is known"), "{reason}");
        // Two against two and one, in a cluster of five.
        let mut digests = self::digests();
        told(&mut digests, 2, 5, 50);
        [(3, 51), (4, 51)].into_iter().for_each(|(node, digest)| told(&mut digests, node, 5, digest));
        assert_eq!(digests.must_stop(ME, &others(5)), None);
        told(&mut digests, 5, 5, 52);
        assert!(digests.must_stop(ME, &others(5)).is_none(), "node 5 has told, the rest may follow");
        (0..SETTLE_TICKS).for_each(|_| assert_eq!(digests.tick(), None));
        assert!(digests.must_stop(ME, &others(5)).is_some());
    }

    #[test]
    fn what_was_told_of_several_epochs_adds_up_after_a_while() {
        let mut digests = digests();
        told(&mut digests, 2, 3, 31);
        told(&mut digests, 3, 5, 51);
        assert_eq!(digests.must_stop(ME, &others(3)), None, "they may agree");
        // Node 2 received the report of the difference in epoch 5.
        told(&mut digests, 2, 5, 51);
        assert!(digests.must_stop(ME, &others(3)).is_some_and(|reason| reason.contains("from that of a majority")));
        let mut digests = self::digests();
        told(&mut digests, 2, 3, 31);
        told(&mut digests, 3, 5, 51);
        let stops = (0..=SETTLE_TICKS).filter(|_| {
            let stops = digests.must_stop(ME, &others(3)).is_some();
            digests.tick();
            stops
        });
        assert_eq!(stops.collect::<Vec<_>>(), [SETTLE_TICKS], "they have not told more");
    }

    #[test]
    fn the_first_early_epoch_waits_until_it_is_decided() {
        let mut digests = digests();
        [(9, 91), (7, 70), (11, 110)].into_iter().for_each(|(epoch, digest)| told(&mut digests, 2, epoch, digest));
        digests.decided(Epoch(6), Digest(60));
        assert_eq!((digests.early.get(&NodeId(2)), odd(&digests)), (Some(&(Epoch(7), Digest(70))), vec![]));
        digests.decided(Epoch(7), Digest(77));
        assert_eq!((digests.early.len(), odd(&digests)), (0, vec![2]));
        // Epoch 8 was empty here, but not there.
        digests.decided(Epoch(9), Digest(90));
        told(&mut digests, 3, 8, 77);
        told(&mut digests, 4, 8, 80);
        assert_eq!(odd(&digests), [2, 4]);
    }

    #[test]
    fn an_idle_member_tells_nothing_more_and_old_epochs_are_forgotten() {
        let mut digests = digests();
        let ticks =
            |digests: &mut Digests| (0..3 * REPORT_EVERY_TICKS).filter_map(|_| digests.tick()).collect::<Vec<_>>();
        assert_eq!(ticks(&mut digests), [(Epoch(5), Digest(50))]);
        assert_eq!(ticks(&mut digests), []);
        (10..10 + 2 * KEPT as u64).for_each(|epoch| digests.decided(Epoch(epoch), Digest(epoch)));
        assert_eq!(digests.own.len(), KEPT);
        told(&mut digests, 2, 5, 51);
        assert!(digests.odd.is_empty(), "that is not known any more");
    }
}
