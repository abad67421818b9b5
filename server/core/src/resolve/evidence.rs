//! Placing reads in time, and the columns of evidence that validators receive.

use alloc::vec::Vec;

use tribunal_types::{Batch, Epoch, Isolation, RowKey, Version, WriteKind};

use crate::policy::{PolicyFault, Validation, ValidatorColumns, group};
use crate::state::history::{Before, History, RowState};

/// Epochs at whose end a condition held: `from..=until`, empty if `from > until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Interval {
    pub(crate) const ALWAYS: Interval = Interval { from: 0, until: u64::MAX };
    pub(crate) const NEVER: Interval = Interval { from: u64::MAX, until: 0 };

    pub(crate) fn and(self, other: Interval) -> Interval {
        Interval { from: self.from.max(other.from), until: self.until.min(other.until) }
    }
}

/// A transaction's absent read that may have seen any of several absences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absences {
    pub(crate) txn: u32,
    /// Ascending, at least two.
    pub(crate) intervals: Vec<Interval>,
}

/// A row that a transaction read as absent and also writes, and that was deleted above the floor: the read must have
/// been valid after that deletion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAbsence {
    pub(crate) txn: u32,
    /// The write's row in the level's columns.
    pub(crate) write: u32,
    /// Epoch of the deletion.
    pub(crate) deleted: u64,
}

/// Evidence of one level in one shard.
#[derive(Debug, Default)]
pub(crate) struct LevelEvidence {
    pub(crate) columns: ValidatorColumns,
    /// Epoch-wide number of each transaction in the columns.
    pub(crate) txns: Vec<u32>,
    /// The validator's answer.
    pub(crate) answer: Option<Result<Validation, PolicyFault>>,
    /// Number of filled rows in the read columns.
    pub(crate) reads: usize,
    /// Number of filled rows in the write columns.
    pub(crate) writes: usize,
    /// Groups of columns to fill, besides those always filled.
    needs: u8,
}

impl LevelEvidence {
    /// Empties the columns and makes room for the given numbers of operations. Until [`LevelEvidence::close`],
    /// operation columns have that length, with stale contents. Their memory is kept. Groups that are not needed stay
    /// empty.
    pub(crate) fn open(&mut self, epoch: Epoch, reads: usize, writes: usize, needs: u8) {
        self.needs = needs;
        let writes = if self.fills_writes() { writes } else { 0 };
        let ValidatorColumns { txns, snapshot, current_from, current_until, multi_version, .. } = &mut self.columns;
        txns.epoch = epoch.0;
        for column in [&mut txns.csn, &mut txns.start, &mut txns.origin, &mut txns.first_attempt] {
            column.clear();
        }
        [snapshot, current_from, current_until].into_iter().for_each(Vec::clear);
        [&mut txns.reads, &mut txns.writes].into_iter().for_each(Vec::clear);
        [&mut txns.priority, multi_version].into_iter().for_each(Vec::clear);
        let ValidatorColumns { reads: read, writes: write, ranges, .. } = &mut self.columns;
        [&mut read.ends, &mut write.ends, &mut ranges.ends].into_iter().for_each(Vec::clear);
        ranges.changed.clear();
        read.seen.resize(reads, 0);
        read.latest.resize(reads, 0);
        write.kind.resize(writes, 0);
        write.flags.resize(writes, 0);
        write.latest.resize(writes, 0);
        (self.reads, self.writes) = (0, 0);
        self.txns.clear();
        self.answer = None;
    }

    /// Returns whether evidence about writes is needed.
    #[inline(always)]
    pub(crate) fn fills_writes(&self) -> bool {
        self.needs & group::WRITES != 0
    }

    /// Adds evidence about a write.
    #[inline(always)]
    pub(crate) fn add_write(&mut self, kind: WriteKind, flags: u8, latest: u64) {
        let columns = &mut self.columns.writes;
        columns.kind[self.writes] = kind as u8;
        columns.flags[self.writes] = flags;
        columns.latest[self.writes] = latest;
        self.writes += 1;
    }

    /// Ends a transaction whose operations are in the columns; does nothing if it has none here.
    #[inline(always)]
    pub(crate) fn end_txn(&mut self, t: u32) {
        let ValidatorColumns { reads, writes, ranges, .. } = &mut self.columns;
        let ends = [self.reads as u32, self.writes as u32, ranges.changed.len() as u32];
        let last = |ends: &[u32]| ends.last().map_or(0, |&end| end);
        if ends == [last(&reads.ends), last(&writes.ends), last(&ranges.ends)] {
            return;
        }
        reads.ends.push(ends[0]);
        writes.ends.push(ends[1]);
        ranges.ends.push(ends[2]);
        self.txns.push(t);
    }

    /// Fills the transaction columns for one batch, whose transactions start at `base`, from row `first` on.
    pub(crate) fn describe(&mut self, batch: &Batch, base: usize, first: usize, newest: &[u64]) {
        if self.needs & (group::TXNS | group::SNAPSHOTS) == 0 {
            return;
        }
        let ValidatorColumns { txns, snapshot, current_from, current_until, multi_version, .. } = &mut self.columns;
        let added = &self.txns[first..];
        let header = |&t: &u32| &batch.txns[t as usize - base];
        txns.csn.extend(added.iter().map(header).map(|txn| txn.csn.0));
        txns.start.extend(added.iter().map(header).map(|txn| txn.start.map_or(txns.epoch, |start| start.0)));
        txns.origin.extend(added.iter().map(header).map(|txn| txn.origin));
        txns.priority.extend(added.iter().map(header).map(|txn| txn.priority));
        txns.first_attempt.extend(added.iter().map(header).map(|txn| txn.first_attempt_ms));
        let reads = |txn: usize| batch.reads_of(txn).len() + batch.ranges_of(txn).len();
        txns.reads.extend(added.iter().map(|&t| reads(t as usize - base) as u32));
        txns.writes.extend(added.iter().map(|&t| batch.writes_of(t as usize - base).len() as u32));
        snapshot.extend(added.iter().map(|&t| newest[t as usize]));
        // Keeps the values already set for a level that needs snapshots.
        current_from.resize(self.txns.len(), 0);
        current_until.resize(self.txns.len(), u64::MAX);
        multi_version.resize(self.txns.len(), 0);
    }

    /// Truncates the operation columns to the filled rows.
    pub(crate) fn close(&mut self) {
        let ValidatorColumns { reads, writes, .. } = &mut self.columns;
        reads.seen.truncate(self.reads);
        reads.latest.truncate(self.reads);
        writes.kind.truncate(self.writes);
        writes.flags.truncate(self.writes);
        writes.latest.truncate(self.writes);
    }
}

/// A read of a row that is not as it was seen, at a level whose validator needs snapshots. Its place in time is looked
/// up after the join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unplaced {
    pub(crate) level: Isolation,
    /// The transaction's row in the level's columns, and its number in the epoch.
    pub(crate) at: u32,
    pub(crate) txn: u32,
    /// Position among the epoch's rows.
    pub(crate) row: u32,
    pub(crate) seen: Option<Version>,
    pub(crate) declared: bool,
}

/// A row's present state, the starting point for looking into its past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowNow {
    pub(crate) key: RowKey,
    /// The newest state; `None` if the map does not know the row.
    pub(crate) state: Option<RowState>,
    /// Whether the engine's read set decides where there is no history.
    pub(crate) declared: bool,
}

/// Looks into the past of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past<'a> {
    pub(crate) history: &'a History,
    pub(crate) floor: Epoch,
}

impl Past<'_> {
    /// Returns when the row had the version `seen`.
    pub(crate) fn when_present(&self, row: &RowNow, seen: Version) -> Interval {
        let Some(mut state) = row.state else {
            let believed = row.declared && seen.epoch() <= self.floor;
            return if believed { Interval { from: seen.epoch().0, until: u64::MAX } } else { Interval::NEVER };
        };
        let mut until = u64::MAX;
        loop {
            if state.version == seen && !state.tombstone {
                return Interval { from: seen.epoch().0, until };
            }
            if state.version <= seen {
                return Interval::NEVER;
            }
            // An imported version may be of epoch 0.
            until = state.version.epoch().0.saturating_sub(1);
            match self.history.before(row.key, state.version, self.floor) {
                Before::State(before) => state = before,
                // The engine's read set decides up to the first write in the history.
                Before::Absent if row.declared && seen.epoch() <= self.floor => {
                    return Interval { from: seen.epoch().0, until };
                }
                Before::Absent | Before::Forgotten => return Interval::NEVER,
            }
        }
    }

    /// Appends, newest first, the intervals in which the row was absent at `since` or later.
    pub(crate) fn when_absent(&self, row: &RowNow, since: u64, absences: &mut Vec<Interval>) {
        let Some(mut state) = row.state else {
            absences.push(Interval::ALWAYS);
            return;
        };
        let mut until = u64::MAX;
        loop {
            let from = state.version.epoch().0;
            if state.tombstone {
                absences.push(Interval { from, until });
            }
            if from <= since {
                return;
            }
            until = from - 1;
            match self.history.before(row.key, state.version, self.floor) {
                Before::State(before) => state = before,
                Before::Absent => {
                    absences.push(Interval { from: 0, until });
                    return;
                }
                Before::Forgotten => return,
            }
        }
    }
}

/// Returns the earliest moment at or after `newest` at which every read was current, as the interval around it.
///
/// `simple` is the common interval of the reads with a single one; each of `absences` must contain the moment in one of
/// its intervals.
pub(crate) fn settle(newest: u64, simple: Interval, absences: &[&[Interval]]) -> Interval {
    let mut moment = newest.max(simple.from);
    let mut around = simple;
    let mut at = 0;
    while at < absences.len() {
        let Some(next) = absences[at].iter().find(|i| i.until >= moment) else { return Interval::NEVER };
        if next.from > moment {
            // The moment moved past the one the earlier absences were checked at: check them again.
            moment = next.from;
            around = simple;
            at = 0;
            continue;
        }
        around = around.and(*next);
        at += 1;
    }
    if moment > around.until { Interval::NEVER } else { around }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: u64, until: u64) -> Interval {
        Interval { from, until }
    }

    fn version(epoch: u64) -> Version {
        Version::new(Epoch(epoch), 0).expect("fits")
    }

    #[test]
    fn a_moment_at_which_all_reads_hold_is_found() {
        let a = [interval(0, 4), interval(8, 9), interval(12, u64::MAX)];
        let b = [interval(0, 6), interval(9, 11)];
        assert_eq!(settle(2, Interval::ALWAYS, &[&a, &b]), interval(0, 4));
        assert_eq!(settle(5, Interval::ALWAYS, &[&a, &b]), interval(9, 9));
        assert_eq!(settle(10, Interval::ALWAYS, &[&a, &b]), Interval::NEVER);
        assert_eq!(settle(5, interval(0, 8), &[&a, &b]), Interval::NEVER);
        assert_eq!(settle(5, interval(7, 20), &[]), interval(7, 20));
    }

    #[test]
    fn a_row_is_placed_by_the_versions_around_it() {
        let key = RowKey { hi: 1, lo: 2 };
        let mut history = History::default();
        for (at, before, tombstone) in [(5, 3, false), (8, 5, false), (11, 8, true)] {
            history.open(Epoch(at), 1);
            history.open_run().supersede(key, RowState { version: version(before), tombstone });
            history.close();
        }
        let past = Past { history: &history, floor: Epoch(2) };
        let state = Some(RowState { version: version(11), tombstone: false });
        let row = RowNow { key, state, declared: false };
        assert_eq!(past.when_present(&row, version(11)), interval(11, u64::MAX));
        assert_eq!(past.when_present(&row, version(5)), interval(5, 7));
        assert_eq!(past.when_present(&row, version(4)), Interval::NEVER);
        let mut absences = Vec::new();
        past.when_absent(&row, 2, &mut absences);
        assert_eq!(absences, [interval(8, 10), interval(0, 2)]);
        absences.clear();
        past.when_absent(&row, 9, &mut absences);
        assert_eq!(absences, [interval(8, 10)]);
    }
}
