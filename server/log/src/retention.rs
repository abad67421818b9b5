//! Retention: how much of the log is kept beyond what is needed, by age in replicated time and by size.

use std::collections::VecDeque;

use tribunal_types::Epoch;

/// Epochs between two samples.
const SAMPLE_EPOCHS: u64 = 64;
/// Bytes between two samples.
const SAMPLE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of entries without an outcome, in order. They count once the entries are decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undecided(VecDeque<(Epoch, u64)>);

impl Undecided {
    /// Notes the size of the entry that ends with `epoch`.
    pub(crate) fn push(&mut self, epoch: Epoch, bytes: u64) {
        self.0.push_back((epoch, bytes));
    }

    /// Returns the size of the entry of `epoch`, and forgets it and the entries before it.
    pub(crate) fn take(&mut self, epoch: Epoch) -> u64 {
        while let Some((last, bytes)) = self.0.front().copied().filter(|(last, _)| *last <= epoch) {
            self.0.pop_front();
            if last == epoch {
                return bytes;
            }
        }
        0
    }
}

/// Retention limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub age_ms: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    epoch: Epoch,
    epoch_time_ms: u64,
    /// Bytes of all records before those of this epoch.
    bytes_before: u64,
}

/// Samples of the log's age and size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retention {
    samples: VecDeque<Sample>,
    bytes: u64,
    newest_ms: u64,
}

impl Retention {
    /// Notes an epoch above all noted ones.
    pub(crate) fn push(&mut self, epoch: Epoch, epoch_time_ms: u64, bytes: u64) {
        let due = self.samples.back().is_none_or(|last| {
            epoch.0 >= last.epoch.0 + SAMPLE_EPOCHS || self.bytes >= last.bytes_before + SAMPLE_BYTES
        });
        if due {
            self.samples.push_back(Sample { epoch, epoch_time_ms, bytes_before: self.bytes });
        }
        self.bytes += bytes;
        self.newest_ms = self.newest_ms.max(epoch_time_ms);
    }

    /// Notes the bytes of records that belong to no epoch: those of Raft groups. They count as written after the last
    /// noted epoch.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Returns the first epoch that must be retained under `limits`: everything below it is too old or exceeds the
    /// size.
    pub(crate) fn keep_from(&self, limits: Limits) -> Epoch {
        let too_old = |s: &Sample| s.epoch_time_ms + limits.age_ms < self.newest_ms;
        let too_much = |s: &Sample| self.bytes - s.bytes_before > limits.bytes;
        let gone = self.samples.partition_point(|sample| too_old(sample) || too_much(sample));
        // Everything below the last sample over the limits is truncated; the exact cut between two samples is unknown,
        // so everything from that sample on is kept.
        gone.checked_sub(1).map_or(Epoch(0), |ix| self.samples[ix].epoch)
    }

    /// Forgets epochs below `epoch`.
    pub(crate) fn remove_below(&mut self, epoch: Epoch) {
        while self.samples.len() > 1 && self.samples[1].epoch <= epoch {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_of_both_limits_wins_nothing() {
        let mut retention = Retention::default();
        for n in 1..=1000_u64 {
            retention.push(Epoch(n), n * 10, 1000);
        }
        let keep = |age_ms, bytes| retention.keep_from(Limits { age_ms, bytes }).0;
        assert_eq!(keep(u64::MAX / 2, u64::MAX), 0, "nothing is too old or too much");
        let by_age = keep(5_000, u64::MAX);
        assert!((400..=500).contains(&by_age), "{by_age}");
        let by_size = keep(u64::MAX / 2, 300_000);
        assert!((600..=701).contains(&by_size), "{by_size}");
        assert_eq!(keep(5_000, 300_000), by_size);
    }

    #[test]
    fn bytes_without_an_epoch_count_beside_those_that_have_one() {
        let mut retention = Retention::default();
        for n in 1..=1000_u64 {
            retention.add(9_000);
            retention.push(Epoch(n), n * 10, 1000);
        }
        let keep = |bytes| retention.keep_from(Limits { age_ms: u64::MAX / 2, bytes }).0;
        let by_size = keep(3_000_000);
        assert!((600..=701).contains(&by_size), "{by_size}");
        assert_eq!(keep(u64::MAX), 0);
    }
}
