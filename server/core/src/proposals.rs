//! A node's own proposals with waiters, and the positions of their answers in an epoch's outcome.
//!
//! A committed batch finds its waiters by its stamp, never by its place in a queue: proposals may be dropped, be void,
//! or complete several at a time, and an epoch has batches of other groups too. It never decides a waiter's answer.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::{Batch, Csn, EpochInput, GroupId, ItemPlaces};

use crate::planted::{Bug, planted};

/// Waiters of the proposals of one group, `W` for each.
#[derive(Debug)]
pub struct Proposals<W> {
    group: GroupId,
    /// In ascending order of stamp, which is the order of proposal.
    waiting: VecDeque<(Csn, W)>,
}

impl<W> Proposals<W> {
    /// Starts without proposals of `group`.
    #[must_use]
    pub fn new(group: GroupId) -> Self {
        Proposals { group, waiting: VecDeque::new() }
    }

    /// Adds the waiters of a batch that is being proposed.
    ///
    /// # Panics
    /// If the batch belongs to another group, or its stamp is not above the earlier ones.
    pub fn add(&mut self, batch: &Batch, waiting: W) {
        let stamp = batch.proposal();
        assert_eq!(batch.group, self.group, "a node proposes for its own group");
        assert!(self.waiting.back().is_none_or(|last| last.0 < stamp), "stamps of proposals rise");
        self.waiting.push_back((stamp, waiting));
    }

    /// Returns the waiters of a batch; `None` if it belongs to another group, or has had no waiters since the start.
    pub fn get_mut(&mut self, batch: &Batch) -> Option<&mut W> {
        let at = self.find(batch)?;
        self.waiting.get_mut(at).map(|waiting| &mut waiting.1)
    }

    /// Returns the waiters of a batch, and forgets the batch.
    pub fn take(&mut self, batch: &Batch) -> Option<W> {
        let at = self.find(batch)?;
        self.waiting.remove(at).map(|waiting| waiting.1)
    }

    /// Returns the waiters of the group's batch in an epoch, and the positions of the answers. Forgets the batch.
    pub fn take_decided<'a>(&mut self, input: &'a EpochInput) -> Option<(&'a Arc<Batch>, ItemPlaces, W)> {
        let (batch, places) = input.places().find(|(batch, _)| batch.group == self.group)?;
        let places = if planted(Bug::AnswersShifted) { from_zero(batch) } else { places };
        self.take(batch).map(|waiting| (batch, places, waiting))
    }

    /// Returns the waiters of proposals that satisfy a condition, in order, and forgets these proposals.
    pub fn take_where(&mut self, mut condition: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut taken = Vec::new();
        for (stamp, waiting) in core::mem::take(&mut self.waiting) {
            if condition(&waiting) {
                taken.push(waiting);
            } else {
                self.waiting.push_back((stamp, waiting));
            }
        }
        taken
    }

    /// Returns the waiters, in the order of the proposals.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &W> {
        self.waiting.iter().map(|(_, waiting)| waiting)
    }

    /// Returns the waiters of the newest `count` proposals, in order.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = &W> {
        self.waiting.range(self.waiting.len().saturating_sub(count)..).map(|(_, waiting)| waiting)
    }

    /// Returns whether there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets all proposals, and returns their waiters.
    pub fn take_all(&mut self) -> Vec<W> {
        self.waiting.drain(..).map(|(_, waiting)| waiting).collect()
    }

    fn find(&self, batch: &Batch) -> Option<usize> {
        if batch.group != self.group {
            return None;
        }
        let stamp = batch.proposal();
        self.waiting.binary_search_by_key(&stamp, |waiting| waiting.0).ok()
    }
}

/// Returns the places that the items would have if no other batch preceded theirs.
fn from_zero(batch: &Batch) -> ItemPlaces {
    let (txns, early_aborts, fences) = (batch.txns.len(), batch.early_aborts.len(), batch.fences.len());
    ItemPlaces { batch: 0, txns: 0..txns, early_aborts: 0..early_aborts, fences: 0..fences }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{Epoch, FenceItem, Incarnation, NodeId, TxnRequest};

    use super::*;

    fn batch(node: u16, stamp_us: u64) -> Batch {
        let group = GroupId { node: NodeId(node), incarnation: Incarnation(0) };
        Batch { group, first: Epoch(5), last: Epoch(5), stamp_us, ..Batch::default() }
    }

    #[test]
    fn waiters_are_found_by_the_proposal_in_any_order() {
        let mut proposals = Proposals::new(batch(2, 0).group);
        for (stamp, waiting) in [(3, "a"), (7, "b"), (8, "c")] {
            proposals.add(&batch(2, stamp), waiting);
        }
        assert_eq!(proposals.newest(2).collect::<Vec<_>>(), [&"b", &"c"]);
        assert_eq!(proposals.newest(9).count(), 3);
        assert_eq!(proposals.take(&batch(1, 7)), None, "another group's");
        assert_eq!(proposals.take(&batch(2, 4)), None, "made for the group by another node");
        assert_eq!(proposals.take(&batch(2, 7)), Some("b"), "the first one was dropped on its way");
        assert_eq!(proposals.take(&batch(2, 7)), None);
        assert_eq!(proposals.get_mut(&batch(2, 3)), Some(&mut "a"));
        assert_eq!(proposals.take_where(|waiting| *waiting == "a"), ["a"]);
        assert_eq!((proposals.take(&batch(2, 3)), proposals.get_mut(&batch(2, 8))), (None, Some(&mut "c")));
        proposals.add(&batch(2, 9), "d");
        assert_eq!(proposals.take_all(), ["c", "d"]);
        assert_eq!(proposals.take_all(), [""; 0]);
    }

    #[test]
    fn answers_follow_those_of_earlier_groups() {
        let with = |node: u16, txns: u64, fences: usize| {
            let mut batch = batch(node, 1);
            (0..txns).for_each(|n| batch.push(&TxnRequest::default(), Csn::new(n + 1, batch.group.node)));
            batch.fences = alloc::vec![FenceItem { id: Default::default(), namespace: Default::default() }; fences];
            Arc::new(batch)
        };
        let batches = alloc::vec![with(1, 2, 1), with(2, 0, 3), with(3, 4, 0), with(4, 1, 2)];
        let input = EpochInput { epoch: Epoch(5), epoch_time_ms: 0, batches };
        let mut places = Vec::new();
        for (batch, expected) in input.batches.iter().zip(input.places()) {
            let mut proposals = Proposals::new(batch.group);
            proposals.add(batch, ());
            let (found, place, ()) = proposals.take_decided(&input).expect("it waits");
            assert_eq!((found, &place), (batch, &expected.1));
            places.push((place.batch, place.txns, place.fences));
        }
        assert_eq!(places, [(0, 0..2, 0..1), (1, 2..2, 1..4), (2, 2..6, 4..4), (3, 6..7, 4..6)]);
        assert!(Proposals::<()>::new(batch(5, 0).group).take_decided(&input).is_none());
    }
}
