//! Tracks which group records are needed from an epoch on: where the entries begin that the epochs of Raft groups were
//! decided from.
//!
//! An entry may be written long before the epoch that it ends with is decided, and so before the entries of earlier
//! epochs. So the value kept for an epoch is the lowest sequence of a record that this epoch or a later one needs.
//! These values never decrease from one epoch to the next, and neighbours share one if they are close, which keeps the
//! list short.

use std::collections::VecDeque;

use tribunal_types::Epoch;

/// Records within which neighbouring epochs share a start.
const NEAR_RECORDS: u64 = 64;

/// Starts of epochs, ascending in both: `(last, sequence)` means that the epochs after the previous pair's up to `last`
/// need records from `sequence` on.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochStarts(VecDeque<(Epoch, u64)>);

impl EpochStarts {
    /// Notes the first record of an epoch above all noted ones.
    pub(crate) fn push(&mut self, epoch: Epoch, mut sequence: u64) {
        while let Some((_, start)) = self.0.pop_back_if(|(_, start)| sequence < *start + NEAR_RECORDS) {
            sequence = sequence.min(start);
        }
        self.0.push_back((epoch, sequence));
    }

    /// Returns the first record that `epoch` or a later one needs; `None` if no epoch from `epoch` on is noted.
    pub(crate) fn first_needed(&self, epoch: Epoch) -> Option<u64> {
        self.0.get(self.0.partition_point(|(last, _)| *last < epoch)).map(|(_, start)| *start)
    }

    /// Returns the first epoch from which on every epoch has all of its records, if the records before `sequence` are
    /// removed.
    pub(crate) fn first_whole(&self, sequence: u64) -> Epoch {
        let gone = self.0.partition_point(|(_, start)| *start < sequence);
        gone.checked_sub(1).map_or(Epoch(0), |at| self.0[at].0.next())
    }

    /// Forgets epochs below `epoch`.
    pub(crate) fn remove_below(&mut self, epoch: Epoch) {
        while self.0.pop_front_if(|(last, _)| *last < epoch).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: u64 = NEAR_RECORDS;

    #[test]
    fn an_epoch_needs_what_any_later_one_needs() {
        let mut starts = EpochStarts::default();
        for (epoch, start) in [(2, 10), (5, 6), (6, 3), (9, 5)] {
            starts.push(Epoch(epoch), FAR * start);
        }
        let needed = |epoch| starts.first_needed(Epoch(epoch));
        assert_eq!((needed(0), needed(5), needed(6)), (Some(FAR * 3), Some(FAR * 3), Some(FAR * 3)));
        assert_eq!((needed(7), needed(9), needed(10)), (Some(FAR * 5), Some(FAR * 5), None));
        assert_eq!((starts.first_whole(FAR * 3), starts.first_whole(FAR * 3 + 1)), (Epoch(0), Epoch(7)));
        assert_eq!(starts.first_whole(FAR * 9), Epoch(10));
        starts.remove_below(Epoch(7));
        assert_eq!((starts.0.len(), starts.first_needed(Epoch(1))), (1, Some(FAR * 5)));
    }

    #[test]
    fn neighbours_share_a_start_that_is_never_too_late() {
        let mut starts = EpochStarts::default();
        let all: Vec<(u64, u64)> = (1..=10_000).map(|epoch| (epoch, epoch * 3 + (epoch * 7919) % 50)).collect();
        all.iter().for_each(|(epoch, start)| starts.push(Epoch(*epoch), *start));
        for (at, (epoch, _)) in all.iter().enumerate() {
            let exact = all[at..].iter().map(|(_, start)| *start).min().expect("one");
            let needed = starts.first_needed(Epoch(*epoch)).expect("it is noted");
            assert!(needed <= exact && exact - needed <= 2 * NEAR_RECORDS, "epoch {epoch}: {needed}, exactly {exact}");
        }
        assert!(starts.0.len() < 1_000, "{}", starts.0.len());
    }
}
