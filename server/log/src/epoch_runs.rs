//! Maps epochs to the entries with their items. Entries and epochs are both consecutive numbers, so runs of (epoch,
//! index) pairs are kept: a busy node has one run for months.

use std::collections::BTreeMap;

use tribunal_types::Epoch;

/// Pairs (epoch, index of the entry that ends with it), ascending in both.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochRuns {
    /// First epoch of a run -> (index of its entry, length of the run).
    runs: BTreeMap<Epoch, (u64, u64)>,
}

impl EpochRuns {
    /// Adds a pair above all others; any other pair is already known and is ignored.
    pub(crate) fn push(&mut self, epoch: Epoch, index: u64) {
        if let Some((first, (start, len))) = self.runs.iter_mut().next_back() {
            if epoch.0 == first.0 + *len && index == *start + *len {
                *len += 1;
                return;
            }
            if epoch.0 < first.0 + *len {
                return;
            }
        }
        self.runs.insert(epoch, (index, 1));
    }

    /// Returns the entry that ends with epoch `epoch`.
    pub(crate) fn index_of(&self, epoch: Epoch) -> Option<u64> {
        let (first, (start, len)) = self.runs.range(..=epoch).next_back()?;
        let distance = epoch.0 - first.0;
        (distance < *len).then_some(start + distance)
    }

    /// Returns the last pair whose epoch is below `epoch`.
    pub(crate) fn last_below(&self, epoch: Epoch) -> Option<(Epoch, u64)> {
        let (first, (start, len)) = self.runs.range(..epoch).next_back()?;
        let distance = (epoch.0 - 1 - first.0).min(len - 1);
        Some((Epoch(first.0 + distance), start + distance))
    }

    /// Returns the last pair.
    pub(crate) fn last(&self) -> Option<(Epoch, u64)> {
        self.last_below(Epoch::MAX)
    }

    /// Forgets pairs whose epoch is below `epoch`.
    pub(crate) fn remove_below(&mut self, epoch: Epoch) {
        let kept = self.runs.split_off(&epoch);
        if let Some((first, (start, len))) = self.runs.pop_last() {
            let gone = epoch.0 - first.0;
            if gone < len {
                self.runs = BTreeMap::from([(epoch, (start + gone, len - gone))]);
            } else {
                self.runs.clear();
            }
        }
        self.runs.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_and_forgotten() {
        let mut runs = EpochRuns::default();
        let pairs = [(1, 1), (2, 2), (3, 3), (10, 4), (11, 5), (20, 9), (21, 10)];
        for (epoch, index) in pairs {
            runs.push(Epoch(epoch), index);
            runs.push(Epoch(epoch), index);
        }
        assert_eq!(runs.runs.len(), 3);
        for below in 0..23 {
            let kept = |epoch: u64| pairs.iter().find(|p| p.0 == epoch && p.0 >= below).map(|p| p.1);
            let mut runs = runs.clone();
            runs.remove_below(Epoch(below));
            for epoch in 0..23 {
                assert_eq!(runs.index_of(Epoch(epoch)), kept(epoch), "epoch {epoch} after removal below {below}");
                let before = pairs.iter().rev().find(|p| p.0 < epoch && p.0 >= below);
                assert_eq!(runs.last_below(Epoch(epoch)), before.map(|p| (Epoch(p.0), p.1)));
            }
        }
    }
}
