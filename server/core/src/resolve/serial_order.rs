//! The epoch's serial order of contended transactions, while the merge builds it.
//!
//! A transaction *must precede* another one if it relies on something that the other one changes. The order is kept as places:
//! numbers in which a transaction that must precede another one has the smaller one. Uncontended transactions are at 0.
//! To insert a transaction between others, those that must follow it are moved, as in the incremental topological order of
//! Pearce and Kelly ("A dynamic topological sort algorithm for directed acyclic graphs", JEA 2006): only transactions between
//! the two places that contradict each other are visited.

use alloc::vec::Vec;

use tribunal_types::limits;

use crate::planted::{Bug, planted};

/// Distance between neighbours at the ends of the order.
const STEP: i64 = 1 << 32;

/// Accesses that a search for a place may inspect. In epochs of 64 transactions at Zipf 0.9 it suffices for all; in epochs of
/// 1,000, where most searches are in vain, 67 % of the transactions commit, and 69 % with four times as many accesses.
const ACCESSES_MAX: usize = 256;

// The last place is at most that of as many searches as an epoch has transactions, each of which moves as many as it may visit.
const _: () =
    assert!((limits::TXNS_PER_EPOCH_MAX as i128) * (ACCESSES_MAX as i128 + 1) * (STEP as i128) < i64::MAX as i128);

/// A place in the order. Transactions may share a place if neither must precede the other one; then the one that joined
/// first is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(i64);

impl Place {
    /// Before and after every transaction.
    const START: Place = Place(i64::MIN);
    const END: Place = Place(i64::MAX);
}

/// Transactions that must follow, or precede, another one.
pub(crate) struct Neighbours<T> {
    /// The number of accesses among which they are found, known before they are inspected.
    pub(crate) accesses: usize,
    /// One for each conflict, so possibly repeated.
    pub(crate) txns: T,
}

/// Which of the transactions that have joined must precede which others.
pub(crate) trait Precedence {
    /// Returns the transactions that must follow `t`.
    fn followers(&self, t: u32) -> Neighbours<impl Iterator<Item = u32>>;

    /// Returns the transactions that must precede `t`.
    fn predecessors(&self, t: u32) -> Neighbours<impl Iterator<Item = u32>>;
}

/// The serial order.
#[derive(Debug, Default)]
pub(crate) struct SerialOrder {
    /// The transactions that have joined, in this order.
    joined: Vec<u32>,
    /// By transaction: its place, and its position in `joined`. [`Place::END`] if it has not joined.
    places: Vec<(Place, u32)>,
    at_front: i64,
    at_back: i64,
    /// Whether a transaction was inserted between others.
    is_rearranged: bool,
    /// By transaction: the last search in which it had to precede, or to follow, the inserted one.
    precedes: Vec<u32>,
    follows: Vec<u32>,
    searches: u32,
    moving: Vec<u32>,
}

impl SerialOrder {
    /// Starts the order of an epoch with `txns` transactions.
    pub(crate) fn reset(&mut self, txns: usize) {
        self.joined.clear();
        self.places.clear();
        self.places.resize(txns, (Place::END, 0));
        (self.at_front, self.at_back, self.is_rearranged, self.searches) = (0, 0, false, 0);
    }

    /// Places a transaction before all others.
    pub(crate) fn push_front(&mut self, t: u32) {
        self.at_front += 1;
        self.join(t, Place(-STEP * self.at_front));
    }

    /// Places a transaction after all others.
    pub(crate) fn push_back(&mut self, t: u32) {
        self.at_back += 1;
        self.join(t, Place(STEP * self.at_back));
    }

    fn join(&mut self, t: u32, place: Place) {
        self.places[t as usize] = (place, self.joined.len() as u32);
        self.joined.push(t);
    }

    /// Places a transaction after all that must precede it and before all that must follow it; there are some of both.
    /// `None`, and no change, if that would close a cycle, would inspect more than [`ACCESSES_MAX`] accesses, or finds no room
    /// between two places: after 32 insertions between the same neighbours, and after fewer if they move others.
    pub(crate) fn insert(&mut self, t: u32, precedence: &impl Precedence) -> Option<()> {
        let SerialOrder { places, at_back, precedes, follows, searches, moving, .. } = self;
        if *searches == 0 {
            for marks in [&mut *precedes, &mut *follows] {
                marks.clear();
                marks.resize(places.len(), 0);
            }
        }
        *searches += 1;
        // Counted before anything is inspected: in large epochs, most searches would take too long.
        let (predecessors, mut followers) = (precedence.predecessors(t), precedence.followers(t));
        let mut accesses_left = ACCESSES_MAX.checked_sub(predecessors.accesses + followers.accesses)?;
        let mut after = Place::START;
        for predecessor in predecessors.txns {
            precedes[predecessor as usize] = *searches;
            after = after.max(places[predecessor as usize].0);
        }
        // Followers that are not after `after` yet move there. So do the followers of those.
        let mut before = Place::END;
        moving.clear();
        moving.push(t);
        for next in 1.. {
            for follower in followers.txns {
                let (place, mark) = (places[follower as usize].0, &mut follows[follower as usize]);
                if place > after {
                    before = before.min(place);
                } else if *mark != *searches {
                    if precedes[follower as usize] == *searches && !planted(Bug::PlacedInCycle) {
                        return None;
                    }
                    *mark = *searches;
                    moving.push(follower);
                }
            }
            let Some(&moved) = moving.get(next) else { break };
            followers = precedence.followers(moved);
            accesses_left = accesses_left.checked_sub(followers.accesses)?;
        }
        moving[1..].sort_unstable_by_key(|moved| places[*moved as usize]);
        let count = moving.len() as i64;
        let step = if before == Place::END {
            after = Place(STEP * *at_back);
            *at_back += count;
            STEP
        } else {
            (before.0 - after.0) / (count + 1)
        };
        if step == 0 {
            return None;
        }
        for (moved, number) in moving.iter().zip(1..) {
            places[*moved as usize].0 = Place(after.0 + step * number);
        }
        self.join(t, Place(after.0 + step));
        self.is_rearranged = true;
        Some(())
    }

    /// Sorts the order into the transactions before the uncontended ones, the last one first, and those after them.
    pub(crate) fn finish(&mut self, front: &mut Vec<u32>, back: &mut Vec<u32>) {
        let SerialOrder { joined, places, .. } = self;
        if self.is_rearranged {
            joined.sort_unstable_by_key(|t| places[*t as usize]);
        }
        for &mut t in joined {
            if places[t as usize].0 < Place(0) { front.push(t) } else { back.push(t) }
        }
        if self.is_rearranged {
            front.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of which the first must precede the second.
    struct Pairs(Vec<(u32, u32)>);

    impl Precedence for Pairs {
        // Every pair counts as inspected.
        fn followers(&self, t: u32) -> Neighbours<impl Iterator<Item = u32>> {
            let txns = self.0.iter().filter(move |(first, _)| *first == t).map(|(_, second)| *second);
            Neighbours { accesses: self.0.len(), txns }
        }

        fn predecessors(&self, t: u32) -> Neighbours<impl Iterator<Item = u32>> {
            let txns = self.0.iter().filter(move |(_, second)| *second == t).map(|(first, _)| *first);
            Neighbours { accesses: self.0.len(), txns }
        }
    }

    fn finished(mut order: SerialOrder) -> Vec<u32> {
        let (mut front, mut back) = (Vec::new(), Vec::new());
        order.finish(&mut front, &mut back);
        front.into_iter().rev().chain([u32::MAX]).chain(back).collect()
    }

    fn order(front: u32, back: u32) -> SerialOrder {
        let mut order = SerialOrder::default();
        order.reset(100);
        (1..=front).for_each(|t| order.push_front(t));
        (front + 1..=front + back).for_each(|t| order.push_back(t));
        order
    }

    #[test]
    fn a_transaction_joins_between_those_that_it_must_follow_and_precede() {
        assert_eq!(finished(order(2, 2)), [2, 1, u32::MAX, 3, 4]);
        let mut found = order(2, 2);
        assert!(found.insert(9, &Pairs([(2, 9), (9, 1)].into())).is_some());
        assert!(found.insert(8, &Pairs([(3, 8), (8, 4)].into())).is_some());
        assert!(found.insert(7, &Pairs([(1, 7), (7, 3)].into())).is_some(), "beside the uncontended");
        assert_eq!(finished(found), [2, 9, 1, u32::MAX, 7, 3, 8, 4]);
    }

    #[test]
    fn what_must_follow_moves_after_what_must_precede() {
        let mut found = order(0, 4);
        // 1 must follow 9, and 2 must follow 1; 3 must precede 9, and 4 must follow 2.
        assert!(found.insert(9, &Pairs([(9, 1), (1, 2), (2, 4), (3, 9)].into())).is_some());
        assert_eq!(finished(found), [u32::MAX, 3, 9, 1, 2, 4]);
        let mut found = order(0, 3);
        assert!(found.insert(9, &Pairs([(9, 1), (1, 2), (3, 9)].into())).is_some(), "to the end");
        found.push_back(8);
        assert_eq!(finished(found), [u32::MAX, 3, 9, 1, 2, 8]);
    }

    /// Places are shared by 2 and 5, which are moved together.
    #[test]
    fn transactions_with_one_place_stay_in_the_order_in_which_they_joined() {
        for (two, five) in [(2, 5), (5, 2)] {
            let pairs = Pairs([(3, 7), (five, 4), (7, two), (0, five), (7, five)].into());
            let mut found = SerialOrder::default();
            found.reset(8);
            [0, 1, two, 3, 4].into_iter().for_each(|t| found.push_back(t));
            assert!(found.insert(five, &Pairs([(0, five), (five, 4)].into())).is_some());
            assert_eq!(found.places[two as usize].0, found.places[five as usize].0);
            assert!(found.insert(7, &pairs).is_some());
            assert_eq!(finished(found), [u32::MAX, 0, 1, 3, 7, two, five, 4]);
        }
    }

    #[test]
    fn a_cycle_is_refused_and_changes_nothing() {
        let mut found = order(1, 3);
        assert!(found.insert(9, &Pairs([(9, 2), (2, 3), (3, 4), (4, 9)].into())).is_none());
        assert_eq!(finished(found), [1, u32::MAX, 2, 3, 4]);
    }

    #[test]
    fn a_long_search_and_a_place_without_room_are_refused() {
        let mut found = order(0, 2);
        let many = (0..ACCESSES_MAX as u32).map(|n| (50, 60 + n)).chain([(1, 9), (9, 2)]).collect();
        assert!(found.insert(9, &Pairs(many)).is_none());
        let (mut found, mut inserted) = (order(0, 2), 10);
        while found.insert(inserted, &Pairs([(1, inserted), (inserted, inserted - 1), (inserted, 2)].into())).is_some()
        {
            inserted += 1;
        }
        assert_eq!(inserted - 10, 32, "each halves what is left");
        assert_eq!(finished(found).len(), 3 + 32);
    }
}
