//! Ranges of serializable transactions versus the writes of their own epoch, in one shard.
//!
//! The epoch's live writes are sorted by key, so a range is an interval of positions. During the merge, a bit set shows
//! whether an interval contains a committed write, and painted positions show whether a committed range covers a write:
//! a few steps each, regardless of the number of ranges.

use alloc::vec::Vec;

use tribunal_types::{Batch, Span, StoreId};

use crate::planted::{Bug, planted};
use crate::resolve::epoch_rows::NONE;
use crate::resolve::shard_place::ShardPlace;
use crate::resolve::txns::{EpochView, Fate, is_serializable};
use crate::state::window::KeyRange;

/// A range of a live serializable transaction.
#[derive(Clone, Copy, Debug)]
struct RangeVote {
    txn: u32,
    /// Index within the transaction.
    op: u32,
    /// Positions of the writes in the range.
    from: u32,
    until: u32,
}

/// A live write.
#[derive(Clone, Copy, Debug)]
struct WriteVote {
    txn: u32,
    /// Index within the transaction.
    op: u32,
    position: u32,
}

/// A committed write within a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeHit {
    /// Index of the range within its transaction.
    pub(crate) range: u32,
    /// The transaction that wrote it.
    pub(crate) writer: u32,
    /// Index of the write within that transaction.
    pub(crate) write: u32,
}

/// Ranges and writes of one shard's live transactions; empty unless a serializable transaction has a range.
#[derive(Debug, Default)]
pub(crate) struct RangeVotes {
    /// By transaction.
    ranges: Vec<RangeVote>,
    /// By transaction.
    writes: Vec<WriteVote>,
    /// Transaction by position.
    owners: Vec<u32>,
    /// Index of the write within its transaction, by position.
    ops: Vec<u32>,
    /// Committed writes by position.
    committed: BitSet,
    /// The committed transaction whose range covers a position.
    painter: Vec<u32>,
    /// The next unpainted position, including this one.
    unpainted: Vec<u32>,
    /// The ranges of committed transactions, as positions in `ranges`.
    held: Vec<u32>,
}

impl RangeVotes {
    pub(crate) fn reset(&mut self) {
        self.ranges.clear();
        self.writes.clear();
        self.owners.clear();
        self.ops.clear();
        self.held.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Collects the live ranges and, if there are any, the live writes.
    pub(crate) fn build(&mut self, place: ShardPlace, view: EpochView<'_>, fates: &[Fate]) {
        if planted(Bug::SkipRanges) || !has_live_range(view, fates) {
            return;
        }
        let mut keys: Vec<(StoreId, &[u8], u32)> = Vec::new();
        for_each_live(view, fates, |t, batch, txn| {
            for (op, write) in batch.writes[batch.writes_of(txn)].iter().enumerate() {
                if place.owns(write.row) {
                    keys.push((write.store, write.key.of(&batch.keys), self.writes.len() as u32));
                    self.writes.push(WriteVote { txn: t, op: op as u32, position: NONE });
                }
            }
        });
        keys.sort_unstable();
        for (position, &(_, _, write)) in keys.iter().enumerate() {
            let write = &mut self.writes[write as usize];
            write.position = position as u32;
            self.owners.push(write.txn);
            self.ops.push(write.op);
        }
        for_each_live(view, fates, |t, batch, txn| {
            if !is_serializable(batch.txns[txn].isolation) {
                return;
            }
            let bytes = |span: Span| span.of(&batch.keys);
            for (op, range) in batch.ranges[batch.ranges_of(txn)].iter().enumerate() {
                let wanted = KeyRange { store: range.store, start: bytes(range.start), end: bytes(range.end) };
                let from = keys.partition_point(|&(store, key, _)| wanted.place(store, key).is_lt());
                let len = keys[from..].partition_point(|&(store, key, _)| wanted.place(store, key).is_eq());
                let (from, until) = (from as u32, (from + len) as u32);
                self.ranges.push(RangeVote { txn: t, op: op as u32, from, until });
            }
        });
        let positions = self.owners.len();
        self.committed.reset(positions);
        self.painter.clear();
        self.painter.resize(positions, NONE);
        self.unpainted.clear();
        self.unpainted.extend(0..=positions as u32);
    }

    /// Marks in `contended` the transactions with a range that another transaction writes into, and those writers.
    pub(crate) fn mark_contended(&self, contended: &mut [bool]) {
        if self.is_empty() {
            return;
        }
        let positions = self.owners.len();
        // For each position, the end of the run of consecutive writes by the same owner.
        let mut run_end = alloc::vec![positions as u32; positions];
        for at in (0..positions.saturating_sub(1)).rev() {
            run_end[at] = if self.owners[at] == self.owners[at + 1] { run_end[at + 1] } else { at as u32 + 1 };
        }
        let mut covers = alloc::vec![0_i64; positions + 1];
        for range in self.ranges.iter().filter(|r| r.from < r.until) {
            covers[range.from as usize] += 1;
            covers[range.until as usize] -= 1;
            let from = range.from as usize;
            if self.owners[from] != range.txn || run_end[from] < range.until {
                contended[range.txn as usize] = true;
            }
        }
        let mut covering = 0;
        for cover in &mut covers {
            covering += *cover;
            *cover = covering;
        }
        for write in &self.writes {
            let own = self.ranges_of(write.txn).iter().filter(|r| (r.from..r.until).contains(&write.position)).count();
            if covers[write.position as usize] > own as i64 {
                contended[write.txn as usize] = true;
            }
        }
    }

    fn ranges_of(&self, t: u32) -> &[RangeVote] {
        let from = self.ranges.partition_point(|r| r.txn < t);
        let len = self.ranges[from..].partition_point(|r| r.txn == t);
        &self.ranges[from..from + len]
    }

    fn writes_of(&self, t: u32) -> &[WriteVote] {
        let from = self.writes.partition_point(|w| w.txn < t);
        let len = self.writes[from..].partition_point(|w| w.txn == t);
        &self.writes[from..from + len]
    }

    /// `RAW`: returns the first of the transaction's ranges that a committed transaction wrote into, with the smallest
    /// key written there.
    pub(crate) fn read_after_write(&self, t: u32) -> Option<RangeHit> {
        self.ranges_of(t).iter().find_map(|range| {
            let hit = self.committed.first_in(range.from as usize, range.until as usize)?;
            Some(RangeHit { range: range.op, writer: self.owners[hit], write: self.ops[hit] })
        })
    }

    /// `WAR`: returns the first of the transaction's writes within a range of a committed transaction, and that
    /// transaction.
    pub(crate) fn write_after_read(&self, t: u32) -> Option<(u32, u32)> {
        self.writes_of(t).iter().find_map(|write| {
            let painter = self.painter[write.position as usize];
            (painter != NONE).then_some((write.op, painter))
        })
    }

    /// Returns the number of live writes in the ranges of `t`, those in two ranges twice.
    pub(crate) fn positions_in_ranges(&self, t: u32) -> usize {
        self.ranges_of(t).iter().map(|range| (range.until - range.from) as usize).sum()
    }

    /// Returns the other winners that wrote into ranges of `t`.
    pub(crate) fn winners_in_ranges(&self, t: u32) -> impl Iterator<Item = u32> {
        let positions = self.ranges_of(t).iter().flat_map(|range| range.from..range.until);
        let written = positions.filter(|at| self.committed.contains(*at as usize));
        written.map(|at| self.owners[at as usize]).filter(move |owner| *owner != t)
    }

    /// Returns the writes of `t`, and whether each is in a range of a winner.
    fn covered_writes(&self, t: u32) -> impl Iterator<Item = (&WriteVote, bool)> {
        let writes = if self.is_empty() { &[] } else { self.writes_of(t) };
        writes.iter().map(|write| (write, self.painter[write.position as usize] != NONE))
    }

    /// Returns how many ranges have to be inspected to find those of winners around the writes of `t`, and the number of
    /// these writes.
    pub(crate) fn ranges_around_writes(&self, t: u32) -> usize {
        self.covered_writes(t).map(|(_, is_covered)| 1 + if is_covered { self.held.len() } else { 0 }).sum()
    }

    /// Returns the other winners with a range around a write of `t`.
    pub(crate) fn winners_around_writes(&self, t: u32) -> impl Iterator<Item = u32> {
        let covered = self.covered_writes(t).filter(|(_, is_covered)| *is_covered);
        let around = covered.flat_map(|(write, _)| {
            let held = self.held.iter().map(|range| &self.ranges[*range as usize]);
            held.filter(|range| (range.from..range.until).contains(&write.position))
        });
        around.map(|range| range.txn).filter(move |owner| *owner != t)
    }

    /// Notes that the transaction commits.
    pub(crate) fn commit(&mut self, t: u32) {
        if self.is_empty() {
            return;
        }
        let first = self.writes.partition_point(|w| w.txn < t);
        for write in self.writes[first..].iter().take_while(|w| w.txn == t) {
            self.committed.insert(write.position as usize);
        }
        let first = self.ranges.partition_point(|r| r.txn < t);
        for at in first..self.ranges.len() {
            let range = self.ranges[at];
            if range.txn != t {
                break;
            }
            self.held.push(at as u32);
            let mut position = self.next_unpainted(range.from);
            while position < range.until {
                self.painter[position as usize] = t;
                self.unpainted[position as usize] = position + 1;
                position = self.next_unpainted(position);
            }
        }
    }

    /// Returns the next unpainted position, compressing the path to it.
    fn next_unpainted(&mut self, from: u32) -> u32 {
        let mut end = from;
        while self.unpainted[end as usize] != end {
            end = self.unpainted[end as usize];
        }
        let mut at = from;
        while at != end {
            at = core::mem::replace(&mut self.unpainted[at as usize], end);
        }
        end
    }
}

fn for_each_live<'a>(view: EpochView<'a>, fates: &[Fate], mut each: impl FnMut(u32, &'a Batch, usize)) {
    for (batch, base) in view.input.batches.iter().zip(&view.txns.bases) {
        for txn in 0..batch.txns.len() {
            if fates[base.txn + txn].is_live() {
                each((base.txn + txn) as u32, batch, txn);
            }
        }
    }
}

fn has_live_range(view: EpochView<'_>, fates: &[Fate]) -> bool {
    let mut found = false;
    for_each_live(view, fates, |_, batch, txn| {
        found |= is_serializable(batch.txns[txn].isolation) && !batch.ranges_of(txn).is_empty();
    });
    found
}

/// A set of positions that finds its first member in an interval.
#[derive(Debug, Default)]
struct BitSet {
    words: Vec<u64>,
    /// One bit per nonzero word.
    summary: Vec<u64>,
}

impl BitSet {
    fn reset(&mut self, positions: usize) {
        let words = positions.div_ceil(64);
        self.words.clear();
        self.words.resize(words, 0);
        self.summary.clear();
        self.summary.resize(words.div_ceil(64), 0);
    }

    fn contains(&self, position: usize) -> bool {
        self.words[position / 64] & 1 << (position % 64) != 0
    }

    fn insert(&mut self, position: usize) {
        self.words[position / 64] |= 1 << (position % 64);
        self.summary[position / 4096] |= 1 << (position / 64 % 64);
    }

    /// Returns the first set bit of `words` at or after bit `from`.
    fn next(words: &[u64], from: usize) -> Option<usize> {
        let mut at = from / 64;
        let mut word = words.get(at)? & u64::MAX << (from % 64);
        while word == 0 {
            at += 1;
            word = *words.get(at)?;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    fn first_in(&self, from: usize, until: usize) -> Option<usize> {
        if from >= until {
            return None;
        }
        let here = self.words[from / 64] & u64::MAX << (from % 64);
        let found = if here != 0 {
            from / 64 * 64 + here.trailing_zeros() as usize
        } else {
            let word = Self::next(&self.summary, from / 64 + 1)?;
            word * 64 + self.words[word].trailing_zeros() as usize
        };
        (found < until).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_set_finds_the_first_member_of_an_interval() {
        let members = [3, 64, 700, 4_095, 4_096, 9_000];
        let mut set = BitSet::default();
        set.reset(10_000);
        members.iter().for_each(|&m| set.insert(m));
        for from in (0..10_000).step_by(13) {
            for until in [from, from + 1, from + 70, 10_000] {
                let expected = members.iter().copied().find(|m| (from..until).contains(m));
                assert_eq!(set.first_in(from, until), expected, "{from}..{until}");
            }
        }
    }

    fn votes() -> RangeVotes {
        let mut votes = RangeVotes::default();
        for (position, txn) in [0, 0, 1, 2].into_iter().enumerate() {
            votes.owners.push(txn);
            votes.ops.push(0);
            votes.writes.push(WriteVote { txn, op: 0, position: position as u32 });
        }
        votes.ranges.push(RangeVote { txn: 0, op: 0, from: 0, until: 2 });
        votes.ranges.push(RangeVote { txn: 1, op: 0, from: 1, until: 3 });
        votes.committed.reset(4);
        votes.painter = alloc::vec![NONE; 4];
        votes.unpainted = (0..=4).collect();
        votes
    }

    #[test]
    fn a_range_is_contended_only_by_others() {
        let mut contended = [false; 3];
        votes().mark_contended(&mut contended);
        assert_eq!(contended, [true, true, false], "0 writes into the range of 1; 2 is alone");
    }

    #[test]
    fn commits_leave_writes_and_painted_ranges() {
        let mut votes = votes();
        assert_eq!(votes.read_after_write(1), None);
        votes.commit(0);
        assert_eq!(votes.read_after_write(1), Some(RangeHit { range: 0, writer: 0, write: 0 }));
        assert_eq!(votes.write_after_read(1), None);
        votes.commit(1);
        assert_eq!(votes.painter, [0, 0, 1, NONE], "a painted position stays its first painter's");
    }
}
