//! Which of an epoch's committed transactions must precede which others, from their accesses to contended rows and their
//! ranges.

use crate::resolve::access_class;
use crate::resolve::contention::Part;
use crate::resolve::scratch::ShardScratch;
use crate::resolve::serial_order::{Neighbours, Precedence};
use crate::resolve::shard::Shard;
use crate::resolve::txns::{EpochView, is_ordered, is_serializable};
use crate::resolve::validate::locate;

/// The conflicts of an epoch.
pub(crate) struct Conflicts<'a> {
    pub(crate) shards: &'a [Shard],
    pub(crate) view: EpochView<'a>,
}

/// Returns the winners whose accesses to the rows of `t` set `held` bits that conflict with the access of `t`. All accesses of
/// winners to a row with a conflicting kind of access count, and so does each row of `t` itself.
fn by_rows(shards: &[Shard], t: u32, conflicting: fn(u8) -> u16) -> Neighbours<impl Iterator<Item = u32>> {
    let counted = |scratch: &ShardScratch, part: &Part| {
        1 + if conflicting(part.class) == 0 { 0 } else { scratch.winners.count(part.row) }
    };
    let of_shard = |Shard { scratch, .. }: &Shard| -> usize {
        scratch.parts_of(t).iter().map(|part| counted(scratch, part)).sum()
    };
    let txns = shards.iter().flat_map(move |Shard { scratch, .. }| {
        let parts = scratch.parts_of(t).iter().map(move |part| (part.row, conflicting(part.class)));
        parts.filter(|(_, bits)| *bits != 0).flat_map(|(row, bits)| scratch.winners.that_hold(row, bits))
    });
    Neighbours { accesses: shards.iter().map(of_shard).sum(), txns: txns.filter(move |other| *other != t) }
}

impl Precedence for Conflicts<'_> {
    fn followers(&self, t: u32) -> Neighbours<impl Iterator<Item = u32>> {
        let (batch, txn) = locate(self.view, t as usize);
        let level = batch.txns[txn].isolation;
        // Only an ordered transaction relies on anything.
        let shards = if is_ordered(level) { self.shards } else { &[] };
        // A range counts once, and not in each shard.
        let own_ranges = if is_serializable(level) { batch.ranges_of(txn).len() } else { 0 };
        let in_ranges: usize = shards.iter().map(|shard| shard.scratch.ranges.positions_in_ranges(t)).sum();
        let rows = by_rows(shards, t, access_class::read_after_write);
        Neighbours {
            accesses: own_ranges + in_ranges + rows.accesses,
            txns: shards.iter().flat_map(move |shard| shard.scratch.ranges.winners_in_ranges(t)).chain(rows.txns),
        }
    }

    fn predecessors(&self, t: u32) -> Neighbours<impl Iterator<Item = u32>> {
        let ranges = |shard: &Shard| shard.scratch.ranges.ranges_around_writes(t);
        let rows = by_rows(self.shards, t, access_class::write_after_read);
        Neighbours {
            accesses: self.shards.iter().map(ranges).sum::<usize>() + rows.accesses,
            txns: self
                .shards
                .iter()
                .flat_map(move |shard| shard.scratch.ranges.winners_around_writes(t))
                .chain(rows.txns),
        }
    }
}
