//! Memory that one epoch fills in one shard and the next reuses. No content outlives an epoch.

use alloc::vec::Vec;

use tribunal_types::{Isolation, StoreId};

use crate::resolve::contention::{Holders, Part, VoteRow, Winners};
use crate::resolve::epoch_rows::EpochRows;
use crate::resolve::evidence::{Absences, LevelEvidence, OwnAbsence, Unplaced};
use crate::resolve::range_votes::RangeVotes;
use crate::resolve::txns::Fate;
use crate::state::sums::Headroom;

/// An add to a row that is missing before the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creation {
    /// Position of the row among the rows of the epoch.
    pub(crate) row: u32,
    pub(crate) txn: u32,
    /// Index of the write within the transaction's own writes.
    pub(crate) write: u32,
}

/// Working memory of one epoch.
#[derive(Debug, Default)]
pub(crate) struct ShardScratch {
    pub(crate) rows: EpochRows,
    /// Position in `rows` of every read of the epoch; `NONE` if the row belongs to another shard.
    pub(crate) read_rows: Vec<u32>,
    /// Position in `rows` of every write, likewise.
    pub(crate) write_rows: Vec<u32>,
    /// The map's slot of every write's row.
    pub(crate) write_slots: Vec<u32>,
    /// Access classes of every write of this shard.
    pub(crate) write_access: Vec<u8>,
    /// Evidence by level.
    pub(crate) levels: [LevelEvidence; 4],
    /// Writes that failed the existence check: transaction and fate.
    pub(crate) rejected: Vec<(u32, Fate)>,
    /// Reads whose row has changed since it was seen.
    pub(crate) unplaced: Vec<Unplaced>,
    /// Absent reads that may have seen any of several absences.
    pub(crate) absences: Vec<Absences>,
    /// Rows of the snapshot level that were read as absent, are written, and had been deleted before.
    pub(crate) own_absences: Vec<OwnAbsence>,
    /// Whether a live transaction adds to a row.
    pub(crate) adds: bool,
    /// Adds of live transactions that create their rows unless another add does.
    pub(crate) creations: Vec<Creation>,
    /// Headroom left in a row after the adds of the merge's winners, by the row's number; `None` until the first add.
    pub(crate) headrooms: Vec<Option<Headroom>>,
    /// Number of the row among those that may be contended, by position in `rows`; `NONE` if it cannot be.
    pub(crate) numbers: Vec<u32>,
    /// Participants by that number, if they had to be counted.
    pub(crate) votes: Vec<VoteRow>,
    /// Accesses to contended rows, by transaction.
    pub(crate) parts: Vec<Part>,
    /// End of each transaction's `parts`.
    pub(crate) part_ends: Vec<u32>,
    /// The bits that the winners set on a row (a set of `access_class::held`), and the winners; by the row's number.
    pub(crate) held: Vec<u16>,
    pub(crate) holders: Vec<Holders>,
    /// All accesses of the winners to contended rows.
    pub(crate) winners: Winners,
    /// Ranges and the epoch's own writes.
    pub(crate) ranges: RangeVotes,
    /// Result of applying: bytes of history, and rows imported by batch (empty if no batch has an import).
    pub(crate) applied_bytes: u64,
    pub(crate) imported: Vec<u64>,
    /// Tracked stores with a deleted row; may contain duplicates.
    pub(crate) deleted: Vec<StoreId>,
}

impl ShardScratch {
    /// Returns a transaction's accesses to contended rows.
    #[inline]
    pub(crate) fn parts_of(&self, t: u32) -> &[Part] {
        let start = if t == 0 { 0 } else { self.part_ends[t as usize - 1] };
        &self.parts[start as usize..self.part_ends[t as usize] as usize]
    }

    pub(crate) fn level(&mut self, level: Isolation) -> &mut LevelEvidence {
        &mut self.levels[level as usize]
    }
}
