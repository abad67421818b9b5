//! Vote: finds which rows of a shard are contended among the live transactions, and how each transaction takes part.
//!
//! A row is contended if it has a writer and another participant. Reads take part only at repeatable read and
//! serializable: at the other levels, reads see the state before the epoch anyway. Nothing about an uncontended row
//! leaves the shard.

use tribunal_types::Isolation;

use crate::resolve::access_class::class;
use crate::resolve::contention::{NO_HOLDERS, Part, VoteRow};
use crate::resolve::epoch_rows::NONE;
use crate::resolve::scratch::ShardScratch;
use crate::resolve::shard::Shard;
use crate::resolve::txns::{EpochView, Fate, is_ordered};

/// Finds the contended rows of one shard and the parts in them.
pub(crate) fn run(shard: &mut Shard, view: EpochView<'_>, fates: &[Fate]) {
    let place = shard.place;
    let scratch = &mut shard.scratch;
    let numbered = number(scratch);
    gather(scratch, view, fates);
    if !is_told_by_touches(view, fates) {
        recount(scratch, numbered);
    }
    scratch.held.clear();
    scratch.held.resize(numbered, 0);
    scratch.holders.clear();
    scratch.holders.resize(numbered, NO_HOLDERS);
    scratch.winners.reset(numbered);
    if scratch.adds {
        scratch.headrooms.clear();
        scratch.headrooms.resize(numbered, None);
    }
    scratch.ranges.reset();
    if view.txns.oldest_range.is_some() {
        scratch.ranges.build(place, view, fates);
    }
}

/// Numbers the rows that may be contended. They are few, so the merge's per-row state stays in the nearest cache.
fn number(scratch: &mut ShardScratch) -> usize {
    let ShardScratch { rows, numbers, .. } = scratch;
    let mut next = 0;
    numbers.clear();
    numbers.extend(rows.all().iter().map(|row| {
        let may_be = row.may_be_contended();
        let number = if may_be { next } else { NONE };
        next += u32::from(may_be);
        number
    }));
    next as usize
}

/// Collects the parts in rows that may be contended. All other rows are touched by one transaction only, or only read:
/// for most operations, only a number is inspected.
///
/// Whether a row is contended is unpredictable, so every operation is written to the slot of the next part and kept if
/// it is one: cheaper than a branch.
fn gather(scratch: &mut ShardScratch, view: EpochView<'_>, fates: &[Fate]) {
    let ShardScratch { numbers, read_rows, write_rows, write_access, parts, part_ends, .. } = scratch;
    // One more than the maximum, for the operation after the last part. Entries past `part_ends` are meaningless.
    let room = view.txns.reads + view.txns.writes + 1;
    parts.resize(room.max(parts.len()), Part::NO);
    part_ends.clear();
    part_ends.reserve(view.txns.txns);
    // Rows of other shards have no position.
    let number_of = |row: u32| numbers.get(row as usize).map_or(NONE, |&number| number);
    let mut end = 0;
    for (batch, base) in view.input.batches.iter().zip(&view.txns.bases) {
        let (mut read, mut write) = (base.read, base.write);
        for (txn, fate) in batch.txns.iter().zip(&fates[base.txn..]) {
            let (reads_end, writes_end) = (base.read + txn.reads_end as usize, base.write + txn.writes_end as usize);
            if fate.is_live() {
                if is_ordered(txn.isolation) {
                    for (op, &row) in (0..).zip(&read_rows[read..reads_end]) {
                        let row = number_of(row);
                        parts[end] = Part { row, op, class: class::READ_VALUE };
                        end += usize::from(row != NONE);
                    }
                }
                let writes = write_rows[write..writes_end].iter().zip(&write_access[write..writes_end]);
                for (op, (&row, &class)) in (Part::WRITES_FROM..).zip(writes) {
                    let row = number_of(row);
                    parts[end] = Part { row, op, class };
                    end += usize::from(row != NONE);
                }
            }
            (read, write) = (reads_end, writes_end);
            part_ends.push(end as u32);
        }
    }
}

/// Returns whether every transaction that touched a row takes part in it, so that touches suffice to find contention:
/// all joined transactions are still live, and all of them are ordered.
fn is_told_by_touches(view: EpochView<'_>, fates: &[Fate]) -> bool {
    let only_ordered = Isolation::ALL.iter().all(|&level| is_ordered(level) || !view.txns.levels[level as usize]);
    only_ordered && fates == view.txns.fates.as_slice()
}

/// Counts the actual participants, and keeps the parts in rows that are contended among them.
fn recount(scratch: &mut ShardScratch, numbered: usize) {
    let ShardScratch { votes, parts, part_ends, .. } = scratch;
    votes.clear();
    votes.resize(numbered, VoteRow::UNTOUCHED);
    let mut start = 0;
    for (t, &end) in (0..).zip(part_ends.iter()) {
        for part in &parts[start..end as usize] {
            votes[part.row as usize].take_part(t, part.class);
        }
        start = end as usize;
    }
    let (mut start, mut kept) = (0, 0);
    for end in part_ends {
        for at in start..*end as usize {
            let part = parts[at];
            parts[kept] = part;
            kept += usize::from(votes[part.row as usize].is_contended());
        }
        start = *end as usize;
        *end = kept as u32;
    }
}
