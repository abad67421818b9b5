//! Which of an epoch's committed transactions must precede which others, from their accesses to contended rows and their
//! ranges.

use core::iter::{once, repeat_n};

use crate::resolve::access_class;
use crate::resolve::serial_order::Precedence;
use crate::resolve::shard::Shard;
use crate::resolve::txns::{EpochView, is_ordered, is_serializable};
use crate::resolve::validate::locate;

/// The conflicts of an epoch.
pub(crate) struct Conflicts<'a> {
    pub(crate) shards: &'a [Shard],
    pub(crate) view: EpochView<'a>,
}

/// Inspects the rows of `t` and the winners' accesses to them, for those that set `held` bits which conflict with the access
/// of `t`.
fn by_rows(shards: &[Shard], t: u32, conflicting: fn(u8) -> u16) -> impl Iterator<Item = Option<u32>> {
    shards.iter().flat_map(move |Shard { scratch, .. }| {
        scratch.parts_of(t).iter().flat_map(move |part| {
            let mask = conflicting(part.class);
            let accesses = (mask != 0).then(|| scratch.winners.of(part.row)).into_iter().flatten();
            let met = accesses.map(move |other| (other.holds & mask != 0 && other.txn != t).then_some(other.txn));
            // The row itself counts, too.
            once(None).chain(met)
        })
    })
}

impl Precedence for Conflicts<'_> {
    fn followers(&self, t: u32) -> impl Iterator<Item = Option<u32>> {
        let (batch, txn) = locate(self.view, t as usize);
        let level = batch.txns[txn].isolation;
        // Only an ordered transaction relies on anything.
        let shards = if is_ordered(level) { self.shards } else { &[] };
        // A range counts once, and not in each shard.
        let own_ranges = repeat_n(None, if is_serializable(level) { batch.ranges_of(txn).len() } else { 0 });
        let in_ranges = shards.iter().flat_map(move |shard| shard.scratch.ranges.winners_in_ranges(t));
        own_ranges.chain(in_ranges).chain(by_rows(shards, t, access_class::read_after_write))
    }

    fn predecessors(&self, t: u32) -> impl Iterator<Item = Option<u32>> {
        let around_writes = self.shards.iter().flat_map(move |shard| shard.scratch.ranges.winners_around_writes(t));
        around_writes.chain(by_rows(self.shards, t, access_class::write_after_read))
    }
}
