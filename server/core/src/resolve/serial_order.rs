//! The epoch's serial order of contended transactions, while the merge builds it.
//!
//! A transaction *must precede* another one if it relies on something that the other one changes. The order is kept as places:
//! numbers in which a transaction that must precede another one has the smaller one. Uncontended transactions are at 0.
//! To insert a transaction between others, those that must follow it are moved, as in the incremental topological order of
//! Pearce and Kelly ("A dynamic topological sort algorithm for directed acyclic graphs", JEA 2006): only transactions between
//! the two places that contradict each other are visited.

use alloc::vec::Vec;

use crate::planted::{Bug, planted};

/// Distance between neighbours at the ends of the order.
const STEP: i64 = 1 << 32;

/// Accesses that a search for a place may inspect. At Zipf 0.9, searches in epochs of 64 transactions inspect 34 on
/// average, in epochs of 512 about 290; 1,024 suffice for 99 % of what unlimited ones commit.
const STEPS_MAX: usize = 1024;

/// The accesses that a search may still inspect.
pub(crate) struct Steps(usize);

impl Steps {
    /// Counts accesses before they are inspected; `None` if they are too many.
    pub(crate) fn take(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.checked_sub(count)?;
        Some(())
    }
}

/// A place in the order. Transactions may share a place if neither must precede the other one; then the one that joined
/// first is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(i64);

impl Place {
    /// Before and after every transaction.
    const START: Place = Place(i64::MIN);
    const END: Place = Place(i64::MAX);
}

/// Which transactions of an epoch must precede which.
pub(crate) trait Precedence {
    /// Visits all transactions that must follow `t`, whether they are committed or not. `None` if there are too many.
    fn visit_followers(&self, t: u32, steps: &mut Steps, visit: impl FnMut(u32)) -> Option<()>;

    /// Visits all transactions that must precede `t`, likewise.
    fn visit_predecessors(&self, t: u32, steps: &mut Steps, visit: impl FnMut(u32)) -> Option<()>;
}

/// The serial order.
#[derive(Debug, Default)]
pub(crate) struct SerialOrder {
    /// The committed transactions, in the order in which they joined.
    joined: Vec<u32>,
    /// By transaction: its place, [`Place::END`] if it has not joined.
    places: Vec<Place>,
    fronts: i64,
    backs: i64,
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
        self.places.resize(txns, Place::END);
        (self.fronts, self.backs, self.is_rearranged, self.searches) = (0, 0, false, 0);
    }

    /// Places a transaction before all others.
    pub(crate) fn push_front(&mut self, t: u32) {
        self.fronts += 1;
        self.join(t, Place(-STEP * self.fronts));
    }

    /// Places a transaction after all others.
    pub(crate) fn push_back(&mut self, t: u32) {
        self.backs += 1;
        self.join(t, Place(STEP * self.backs));
    }

    fn join(&mut self, t: u32, place: Place) {
        self.places[t as usize] = place;
        self.joined.push(t);
    }

    /// Places a transaction after all that must precede it and before all that must follow it; there are some of both.
    /// `None` if that would close a cycle, or is not found within [`STEPS_MAX`] steps; then nothing has changed.
    pub(crate) fn insert(&mut self, t: u32, precedence: &impl Precedence) -> Option<()> {
        let SerialOrder { joined, places, backs, is_rearranged, precedes, follows, searches, moving, .. } = self;
        if *searches == 0 {
            for marks in [&mut *precedes, &mut *follows] {
                marks.clear();
                marks.resize(places.len(), 0);
            }
        }
        *searches += 1;
        let search = *searches;
        let mut after = Place::START;
        let mut steps = Steps(STEPS_MAX);
        precedence.visit_predecessors(t, &mut steps, |predecessor| {
            let place = places[predecessor as usize];
            if place != Place::END {
                precedes[predecessor as usize] = search;
                after = after.max(place);
            }
        })?;
        // What must follow, and is not behind `after`, moves there. What must follow that moves with it.
        let mut before = Place::END;
        let mut is_cycle = false;
        moving.clear();
        moving.push(t);
        let mut next = 0;
        while let Some(&moved) = moving.get(next) {
            next += 1;
            precedence.visit_followers(moved, &mut steps, |follower| {
                let place = places[follower as usize];
                if place > after {
                    before = before.min(place);
                } else if follows[follower as usize] != search {
                    is_cycle |= precedes[follower as usize] == search;
                    follows[follower as usize] = search;
                    moving.push(follower);
                }
            })?;
            if is_cycle && !planted(Bug::PlacedInCycle) {
                return None;
            }
        }
        moving[1..].sort_unstable_by_key(|&moved| (places[moved as usize], moved));
        let count = moving.len() as i64;
        let step = if before == Place::END {
            after = Place(STEP * *backs);
            *backs += count;
            STEP
        } else {
            // At least 1, or there is no room left between these places.
            (before.0 - after.0) / (count + 1)
        };
        if step == 0 {
            return None;
        }
        for (moved, place) in moving.iter().zip((1..).map(|number| Place(after.0 + step * number))) {
            places[*moved as usize] = place;
        }
        joined.push(t);
        *is_rearranged = true;
        Some(())
    }

    /// Sorts the order into the transactions before the uncontended ones, the last one first, and those after them.
    pub(crate) fn finish(&mut self, front: &mut Vec<u32>, back: &mut Vec<u32>) {
        let SerialOrder { joined, places, .. } = self;
        let place = |t: u32| places[t as usize];
        if self.is_rearranged {
            // Stable: transactions with the same place stay in the order in which they joined.
            joined.sort_by_key(|t| place(*t));
        }
        for &mut t in joined {
            if place(t) < Place(0) { front.push(t) } else { back.push(t) }
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
        fn visit_followers(&self, t: u32, steps: &mut Steps, mut visit: impl FnMut(u32)) -> Option<()> {
            steps.take(self.0.len())?;
            self.0.iter().filter(|(first, _)| *first == t).for_each(|(_, second)| visit(*second));
            Some(())
        }

        fn visit_predecessors(&self, t: u32, steps: &mut Steps, mut visit: impl FnMut(u32)) -> Option<()> {
            steps.take(self.0.len())?;
            self.0.iter().filter(|(_, second)| *second == t).for_each(|(first, _)| visit(*first));
            Some(())
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
    fn what_must_follow_moves_behind_what_must_precede() {
        let mut found = order(0, 4);
        // 1 must follow 9, and 2 must follow 1; 3 must precede 9, and 4 must follow 2.
        assert!(found.insert(9, &Pairs([(9, 1), (1, 2), (2, 4), (3, 9)].into())).is_some());
        assert_eq!(finished(found), [u32::MAX, 3, 9, 1, 2, 4]);
        let mut found = order(0, 3);
        assert!(found.insert(9, &Pairs([(9, 1), (1, 2), (3, 9)].into())).is_some(), "to the end");
        found.push_back(8);
        assert_eq!(finished(found), [u32::MAX, 3, 9, 1, 2, 8]);
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
        let many = (0..STEPS_MAX as u32).map(|n| (50, 60 + n)).chain([(1, 9), (9, 2)]).collect();
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
