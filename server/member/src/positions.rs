//! How far the replica has received each group's log: from this node's own Raft group or, ahead of it, from a peer.
//!
//! An entry handed out by a peer is committed and final, so it is folded before this node's own log has it. When the
//! own group hands out the same entries, they are recognised, and their terms must match. All of this is forgotten at a
//! restart: the replica is then where its own log is, and lags again.

use std::collections::{BTreeMap, VecDeque};

use tribunal_codec::EntryId;
use tribunal_core::planted::{Bug, planted};
use tribunal_types::GroupId;

/// The meaning for the replica of an entry that the own group hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOut<D = u64> {
    /// It is the next entry.
    Next,
    /// The replica has already received it from a peer.
    Known,
    /// A peer has handed out an entry of another term, this one, at its index.
    Differs(D),
}

impl<D> HandedOut<D> {
    /// Converts the value of [`HandedOut::Differs`].
    pub(crate) fn map<F>(self, differs: impl FnOnce(D) -> F) -> HandedOut<F> {
        match self {
            HandedOut::Next => HandedOut::Next,
            HandedOut::Known => HandedOut::Known,
            HandedOut::Differs(other) => HandedOut::Differs(differs(other)),
        }
    }
}

/// The replica's position in one group.
#[derive(Debug, Default)]
struct Position {
    reached: u64,
    /// Entries that only peers have handed out so far: runs of one term, each with its last index.
    ahead: VecDeque<(u64, u64)>,
}

/// The replica's position in each group.
#[derive(Debug, Default)]
pub(crate) struct Positions(BTreeMap<GroupId, Position>);

impl Positions {
    /// Begins a group that the replica's state includes up to this index.
    pub(crate) fn begin(&mut self, group: GroupId, reached: u64) {
        self.0.insert(group, Position { reached, ahead: VecDeque::new() });
    }

    /// Returns the index of the last entry that the replica has received.
    pub(crate) fn reached(&self, group: GroupId) -> u64 {
        self.0.get(&group).map_or(0, |position| position.reached)
    }

    /// Notes an entry that the own group hands out, and classifies it.
    pub(crate) fn handed_out(&mut self, group: GroupId, id: EntryId) -> HandedOut {
        let position = self.0.entry(group).or_default();
        if id.index <= position.reached
            && let Some(&(term, last)) = position.ahead.front()
        {
            if last <= id.index {
                position.ahead.pop_front();
            }
            return if term == id.term { HandedOut::Known } else { HandedOut::Differs(term) };
        }
        position.reached = id.index;
        HandedOut::Next
    }

    /// Returns whether an entry is the next one.
    pub(crate) fn follows(&self, group: GroupId, id: EntryId) -> bool {
        let reached = self.reached(group);
        if planted(Bug::PeersGapsFolded) { id.index > reached } else { id.index == reached + 1 }
    }

    /// Notes the next entry, handed out by a peer.
    pub(crate) fn fetched(&mut self, group: GroupId, id: EntryId) {
        let position = self.0.entry(group).or_default();
        position.reached = id.index;
        match position.ahead.back_mut() {
            Some((term, last)) if *term == id.term => *last = id.index,
            _ => position.ahead.push_back((id.term, id.index)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::CONTROL;

    fn id(term: u64, index: u64) -> EntryId {
        EntryId { term, index }
    }

    #[test]
    fn what_a_peer_has_handed_out_is_known_when_it_comes_again() {
        let mut positions = Positions::default();
        positions.begin(GROUP, 4);
        assert_eq!(positions.handed_out(GROUP, id(2, 5)), HandedOut::Next);
        assert!(!positions.follows(GROUP, id(2, 7)), "entry 6 is missing");
        assert!(!positions.follows(GROUP, id(2, 5)), "it is there");
        for next in [id(2, 6), id(2, 7), id(3, 8), id(5, 9)] {
            assert!(positions.follows(GROUP, next));
            positions.fetched(GROUP, next);
        }
        assert_eq!(positions.reached(GROUP), 9);
        for known in [id(2, 6), id(2, 7), id(3, 8)] {
            assert_eq!(positions.handed_out(GROUP, known), HandedOut::Known);
        }
        positions.fetched(GROUP, id(5, 10));
        assert_eq!(positions.handed_out(GROUP, id(5, 9)), HandedOut::Known);
        assert_eq!(positions.handed_out(GROUP, id(5, 10)), HandedOut::Known);
        assert_eq!(positions.handed_out(GROUP, id(5, 11)), HandedOut::Next);
        assert_eq!(positions.reached(GROUP), 11);
    }

    #[test]
    fn another_term_in_the_place_of_an_entry_is_noticed() {
        let mut positions = Positions::default();
        positions.fetched(GROUP, id(2, 1));
        positions.fetched(GROUP, id(4, 2));
        assert_eq!(positions.handed_out(GROUP, id(2, 1)), HandedOut::Known);
        assert_eq!(positions.handed_out(GROUP, id(3, 2)), HandedOut::Differs(4));
    }

    #[test]
    fn what_an_older_image_lacks_comes_again() {
        let mut positions = Positions::default();
        assert_eq!(positions.handed_out(GROUP, id(1, 1)), HandedOut::Next);
        assert_eq!(positions.handed_out(GROUP, id(1, 2)), HandedOut::Next);
        assert_eq!(positions.handed_out(GROUP, id(1, 1)), HandedOut::Next);
        assert_eq!(positions.reached(GROUP), 1);
    }
}
