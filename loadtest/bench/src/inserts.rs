//! Selects the next rows to insert, and the newest rows that readers may rely on. As in YCSB, inserted keys are spread
//! evenly between the loaded ones, and reads of recent rows choose only among inserts that have ended.

use std::collections::VecDeque;

use crate::key;
use crate::key::Row;

/// Rows of a workload in the order of their creation: the loaded ones, then the inserted ones.
#[derive(Debug)]
pub struct Inserts {
    loaded: Row,
    /// A number coprime to the number of loaded rows, about 0.62 of it: its multiples are spread evenly.
    stride: u64,
    /// Number of leading inserts that have all ended.
    ended: u32,
    /// The following inserts, and whether each has ended.
    open: VecDeque<(Row, bool)>,
}

impl Inserts {
    /// Creates the state after `inserted` inserts, all of which have ended.
    ///
    /// # Panics
    /// If there are no loaded rows.
    #[must_use]
    pub fn after(loaded: Row, inserted: u32) -> Inserts {
        let near = |share: f64| (f64::from(loaded) * share) as u64;
        let coprime = |candidate: &u64| greatest_common_divisor(*candidate, u64::from(loaded)) == 1;
        let stride = (near(0.618_034).max(1)..).find(coprime).expect("a number above has no common divisor");
        Inserts { loaded, stride, ended: inserted, open: VecDeque::new() }
    }

    /// Returns the number of inserts begun.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ended + u32::try_from(self.open.len()).expect("clients are few")
    }

    /// Returns the maximum number of inserts.
    #[must_use]
    pub fn limit(loaded: Row) -> u32 {
        loaded.saturating_mul(key::INSERTS_AT_A_PLACE)
    }

    /// Returns the next row to insert. No row is returned twice, up to [`Inserts::limit`].
    pub fn begin(&mut self) -> Row {
        let row = self.inserted(self.count());
        self.open.push_back((row, false));
        row
    }

    /// Records that the transaction that inserts `row` has ended, committed or not.
    pub fn end(&mut self, row: Row) {
        if let Some(open) = self.open.iter_mut().find(|(open, _)| *open == row) {
            open.1 = true;
        }
        while let Some((_, true)) = self.open.front() {
            self.open.pop_front();
            self.ended += 1;
        }
    }

    /// Returns the row `rank` steps before the newest one up to which all inserts have ended.
    #[must_use]
    pub fn latest(&self, rank: u32) -> Row {
        match self.ended.checked_sub(rank + 1) {
            Some(index) => self.inserted(index),
            None => self.loaded - 1 - (rank - self.ended) % self.loaded,
        }
    }

    /// Spreads loaded rows over the key order, each to a different position.
    #[must_use]
    pub fn scatter(&self, row: Row) -> Row {
        Row::try_from(u64::from(row) * self.stride % u64::from(self.loaded)).expect("a remainder of a Row")
    }

    fn inserted(&self, index: u32) -> Row {
        let nth = index / self.loaded % key::INSERTS_AT_A_PLACE;
        key::inserted(self.scatter(index % self.loaded), 1 + nth)
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_row_is_inserted_twice_though_turns_go_on_where_others_stopped() {
        let mut seen = HashSet::new();
        let mut begun = 0;
        for turn in [1, 7, 500, 3_000, 999] {
            let mut inserts = Inserts::after(1_000, begun);
            for _ in 0..turn {
                let row = inserts.begin();
                assert!(key::is_inserted(row) && key::order(row).0 < 1_000);
                assert!(seen.insert(row), "{row} is inserted again");
            }
            begun = inserts.count();
        }
        assert_eq!(begun, 4_507);
    }

    #[test]
    fn inserts_are_spread_evenly() {
        for loaded in [7, 1_000, 2_048, 99_991] {
            let mut inserts = Inserts::after(loaded, 0);
            let mut places: Vec<_> = (0..loaded).map(|_| key::order(inserts.begin()).0).collect();
            let first_half = &places[..loaded as usize / 2];
            let low = first_half.iter().filter(|place| **place < loaded / 2).count();
            assert!(low.abs_diff(loaded as usize / 4) <= 2 + loaded as usize / 50, "{low} of {loaded}");
            places.sort_unstable();
            assert_eq!(places, (0..loaded).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_latest_row_is_one_before_which_every_insert_has_ended() {
        let mut inserts = Inserts::after(1_000, 0);
        assert_eq!((inserts.latest(0), inserts.latest(999)), (999, 0));
        let [one, two, three] = [inserts.begin(), inserts.begin(), inserts.begin()];
        inserts.end(two);
        assert_eq!(inserts.latest(0), 999, "the first is still under way");
        inserts.end(one);
        assert_eq!([0, 1, 2, 3].map(|rank| inserts.latest(rank)), [two, one, 999, 998]);
        inserts.end(three);
        assert_eq!((inserts.latest(0), inserts.latest(2)), (three, one));
        assert_eq!((inserts.count(), Inserts::after(1_000, 3).latest(0)), (3, three));
    }
}
