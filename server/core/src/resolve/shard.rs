//! One partition of the version map, with what it needs to judge its rows: the unit of parallelism.
//!
//! A row belongs to one shard, by the top bits of its hashed name; a range takes part in all of them.

use alloc::vec::Vec;

use tribunal_types::{Isolation, RowKey};

use crate::resolve::epoch_rows::EpochRows;
use crate::resolve::evidence::LevelEvidence;
use crate::resolve::range_votes::RangeVotes;
use crate::resolve::vote::{Holders, Part};
use crate::state::history::History;
use crate::state::map::VersionMap;
use crate::state::window::RangeWindow;

/// A shard: state that outlives epochs, and scratch memory that one epoch fills and the next one reuses.
#[derive(Debug)]
pub struct Shard {
    pub(crate) place: ShardPlace,
    pub(crate) state: ShardState,
    pub(crate) scratch: ShardScratch,
}

/// Which of how many shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardPlace {
    pub(crate) index: u32,
    pub(crate) count: u32,
}

impl ShardPlace {
    /// Tells whether the row is of this shard.
    #[inline(always)]
    pub(crate) fn owns(self, key: RowKey) -> bool {
        self.count == 1 || self.of(key) == self.index
    }

    /// Returns the number of the row's shard.
    #[inline(always)]
    pub(crate) fn of(self, key: RowKey) -> u32 {
        (((key.hi >> 32) * u64::from(self.count)) >> 32) as u32
    }
}

/// Replicated state of a shard's rows.
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) map: VersionMap,
    pub(crate) history: History,
    pub(crate) window: RangeWindow,
}

/// What one epoch works with.
#[derive(Debug, Default)]
pub(crate) struct ShardScratch {
    pub(crate) rows: EpochRows,
    /// Position in `rows` of every read of the epoch; `NONE` if it is not of this shard.
    pub(crate) read_rows: Vec<u32>,
    /// The same of every write.
    pub(crate) write_rows: Vec<u32>,
    /// The map's slot of every write's row.
    pub(crate) write_slots: Vec<u32>,
    /// Access classes of every write of this shard.
    pub(crate) write_access: Vec<u8>,
    /// Evidence by level.
    pub(crate) levels: [LevelEvidence; 4],
    /// Writes that failed the existence check: transaction and fate.
    pub(crate) rejected: Vec<(u32, crate::resolve::txns::Fate)>,
    /// Reads that are not as they were seen.
    pub(crate) unplaced: Vec<crate::resolve::join::Unplaced>,
    /// Absent reads with more than one absence that could have been seen.
    pub(crate) absences: Vec<crate::resolve::evidence::Absences>,
    /// Number of the row among those that may be contended, by position in `rows`; `NONE` if it cannot be.
    pub(crate) numbers: Vec<u32>,
    /// Participants by that number, where they had to be counted.
    pub(crate) votes: Vec<crate::resolve::vote::VoteRow>,
    /// Accesses to contended rows, by transaction.
    pub(crate) parts: Vec<Part>,
    /// End of each transaction's `parts`.
    pub(crate) part_ends: Vec<u32>,
    /// What the merge's winners hold of a row, a set of `access_class::held`, and who they are; by the row's number.
    pub(crate) held: Vec<u16>,
    pub(crate) holders: Vec<Holders>,
    /// Ranges against the epoch's own writes.
    pub(crate) ranges: RangeVotes,
    /// Result of applying: bytes of history, and rows imported.
    pub(crate) applied_bytes: u64,
    pub(crate) imported: u64,
}

impl ShardScratch {
    pub(crate) fn level(&mut self, level: Isolation) -> &mut LevelEvidence {
        &mut self.levels[level as usize]
    }
}

impl Shard {
    pub(crate) fn new(index: u32, count: u32) -> Shard {
        Shard {
            place: ShardPlace { index, count },
            state: ShardState { map: VersionMap::new(), history: History::default(), window: RangeWindow::default() },
            scratch: ShardScratch::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_shard() {
        for n in 0..10_000_u64 {
            let key = RowKey { hi: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), lo: n };
            for count in [1, 2, 3, 7] {
                let owners = (0..count).filter(|&index| ShardPlace { index, count }.owns(key)).count();
                assert_eq!(owners, 1);
            }
        }
    }
}
