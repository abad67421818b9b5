//! Which of an epoch's transactions must precede which, from their accesses to contended rows and their ranges.

use crate::resolve::access_class;
use crate::resolve::contention::parts_of;
use crate::resolve::serial_order::{Precedence, Steps};
use crate::resolve::shard::Shard;
use crate::resolve::txns::{EpochView, is_ordered};
use crate::resolve::validate::locate;

/// The conflicts of an epoch, once the participants of its rows are listed.
pub(crate) struct Conflicts<'a> {
    shards: &'a [Shard],
    view: EpochView<'a>,
}

impl<'a> Conflicts<'a> {
    /// Lists the participants of each contended row, unless that has been done in this epoch.
    pub(crate) fn of(shards: &'a mut [Shard], view: EpochView<'a>) -> Conflicts<'a> {
        for shard in &mut *shards {
            let scratch = &mut shard.scratch;
            if scratch.participants.is_empty() {
                let (parts, part_ends, rows) = (&scratch.parts, &scratch.part_ends, scratch.held.len());
                scratch.participants.list(parts, part_ends, rows, |t| Self::is_ordered(view, t));
            }
        }
        Conflicts { shards, view }
    }

    fn is_ordered(view: EpochView<'_>, t: u32) -> bool {
        let (batch, txn) = locate(view, t as usize);
        is_ordered(batch.txns[txn].isolation)
    }

    /// Visits the other transactions that hold the rows of `t` in a way that conflicts with its access.
    fn visit_rows(
        &self,
        t: u32,
        steps: &mut Steps,
        conflicting: impl Fn(u8) -> u16,
        mut visit: impl FnMut(u32),
    ) -> Option<()> {
        for scratch in self.shards.iter().map(|shard| &shard.scratch) {
            for part in parts_of(scratch, t) {
                let mask = conflicting(part.class);
                if mask == 0 {
                    continue;
                }
                let participants = scratch.participants.of(part.row);
                steps.take(participants.len())?;
                let met = participants.iter().filter(|other| other.holds & mask != 0 && other.txn != t);
                met.for_each(|other| visit(other.txn));
            }
        }
        Some(())
    }
}

impl Precedence for Conflicts<'_> {
    fn visit_followers(&self, t: u32, steps: &mut Steps, mut visit: impl FnMut(u32)) -> Option<()> {
        // The others rely on nothing in the order.
        if !Self::is_ordered(self.view, t) {
            return Some(());
        }
        for shard in self.shards {
            shard.scratch.ranges.visit_writers(t, steps, &mut visit)?;
        }
        self.visit_rows(t, steps, access_class::read_after_write, visit)
    }

    fn visit_predecessors(&self, t: u32, steps: &mut Steps, mut visit: impl FnMut(u32)) -> Option<()> {
        for shard in self.shards {
            shard.scratch.ranges.visit_readers(t, steps, &mut visit)?;
        }
        self.visit_rows(t, steps, access_class::write_after_read, visit)
    }
}
