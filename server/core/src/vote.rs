//! Vote: which rows of a shard are contended among the transactions that are still live, and who takes part how.
//!
//! A row is contended if it has a writer and another participant. Reads take part only at serializable: below it
//! they see the state before the epoch, whoever writes. Nothing of a row that is not contended leaves the shard.

use crate::access::class;
use crate::epoch_rows::NONE;
use crate::shard::{Shard, ShardScratch};
use crate::txns::{EpochView, Fate, is_serializable};

/// An access to a contended row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Number among the shard's contended rows; while they are being found, position among the epoch's.
    pub(crate) row: u32,
    /// Reads count from 0, writes from [`Part::WRITES_FROM`]: the index within the transaction.
    pub(crate) op: u32,
    /// Access classes.
    pub(crate) class: u8,
}

impl Part {
    pub(crate) const WRITES_FROM: u32 = 1 << 31;
}

/// What the committed hold of a contended row, and who.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRow {
    pub(crate) held: u16,
    /// The last that replaced the value, added to it, changed existence or kind, or reads it at serializable.
    pub(crate) writer: u32,
    pub(crate) adder: u32,
    pub(crate) changer: u32,
    pub(crate) reader: u32,
}

const FREE: HeldRow = HeldRow { held: 0, writer: NONE, adder: NONE, changer: NONE, reader: NONE };

/// Finds the contended rows of one shard and the parts in them.
pub(crate) fn run(shard: &mut Shard, view: EpochView<'_>, fates: &[Fate]) {
    let place = shard.place;
    let scratch = &mut shard.scratch;
    scratch.part_ends.clear();
    scratch.held.clear();
    gather(scratch, view, fates);
    keep_contended(scratch);
    scratch.ranges.reset();
    if view.txns.oldest_range.is_some() {
        scratch.ranges.build(place, view, fates);
    }
}

/// Who takes part in a row of the epoch: 8 bytes, so that a pass over all operations stays in the nearest cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VoteRow {
    /// Some participant; once the contended are numbered, the row's number among them.
    who: u32,
    /// Access classes of all participants.
    access: u8,
    /// More than one transaction takes part.
    shared: bool,
    numbered: bool,
}

impl VoteRow {
    const UNTOUCHED: VoteRow = VoteRow { who: NONE, access: 0, shared: false, numbered: false };

    #[inline(always)]
    fn take_part(&mut self, t: u32, class: u8) {
        self.shared |= self.who != t && self.who != NONE;
        self.who = t;
        self.access |= class;
    }

    #[inline(always)]
    fn is_contended(&self) -> bool {
        self.shared && self.access & class::WRITES != 0
    }
}

/// Collects the parts in rows that more than one transaction touches, by position of the row, and votes for them. All
/// other rows are those of one transaction: of most operations only a bit is looked at.
///
/// Which rows are shared cannot be foretold, so every operation is written where the next part belongs, and stays there
/// if it is one: that is cheaper than a branch.
fn gather(scratch: &mut ShardScratch, view: EpochView<'_>, fates: &[Fate]) {
    let ShardScratch { rows, votes, read_rows, write_rows, write_access, parts, part_ends, .. } = scratch;
    votes.clear();
    votes.resize(rows.named(), VoteRow::UNTOUCHED);
    // One more than there can be, for the operation behind the last part. What lies behind `part_ends` means nothing.
    let room = view.txns.reads + view.txns.writes + 1;
    parts.resize(room.max(parts.len()), Part { row: NONE, op: 0, class: 0 });
    let mut end = 0;
    for (batch, base) in view.input.batches.iter().zip(&view.txns.bases) {
        let (mut read, mut write) = (base.read, base.write);
        for (t, txn) in (base.txn..).zip(&batch.txns) {
            let (reads_end, writes_end) = (base.read + txn.reads_end as usize, base.write + txn.writes_end as usize);
            if fates[t].is_live() {
                let start = end;
                if is_serializable(txn.isolation) {
                    for (op, &row) in (0..).zip(&read_rows[read..reads_end]) {
                        parts[end] = Part { row, op, class: class::READ_VALUE };
                        end += usize::from(rows.is_shared(row));
                    }
                }
                let classes = &write_access[write..writes_end];
                for (op, (&row, &class)) in (Part::WRITES_FROM..).zip(write_rows[write..writes_end].iter().zip(classes))
                {
                    parts[end] = Part { row, op, class };
                    end += usize::from(rows.is_shared(row));
                }
                for part in &parts[start..end] {
                    votes[part.row as usize].take_part(t as u32, part.class);
                }
            }
            (read, write) = (reads_end, writes_end);
            part_ends.push(end as u32);
        }
    }
}

/// Keeps the parts in contended rows only, and numbers those rows.
fn keep_contended(scratch: &mut ShardScratch) {
    let ShardScratch { votes, parts, part_ends, held, .. } = scratch;
    let (mut start, mut kept, mut numbered) = (0, 0, 0);
    for end in part_ends {
        for at in start..*end as usize {
            let part = parts[at];
            let vote = &mut votes[part.row as usize];
            let contended = vote.is_contended();
            let fresh = contended && !vote.numbered;
            *vote = if fresh { VoteRow { who: numbered, numbered: true, ..*vote } } else { *vote };
            numbered += u32::from(fresh);
            parts[kept] = Part { row: vote.who, ..part };
            kept += usize::from(contended);
        }
        start = *end as usize;
        *end = kept as u32;
    }
    held.resize(numbered as usize, FREE);
}
