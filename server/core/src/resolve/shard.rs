//! One partition of the version map, with the state needed to judge its rows: the unit of parallelism.
//!
//! A row belongs to one shard, by the top bits of its hashed name; a range takes part in every shard.

use crate::resolve::scratch::ShardScratch;
use crate::resolve::shard_place::ShardPlace;
use crate::state::history::History;
use crate::state::map::VersionMap;
use crate::state::row_counts::RowCounts;
use crate::state::sums::RowSums;
use crate::state::window::RangeWindow;

/// A shard: state that outlives epochs, and scratch memory that one epoch fills and the next reuses.
#[derive(Debug)]
pub struct Shard {
    pub(crate) place: ShardPlace,
    pub(crate) state: ShardState,
    pub(crate) scratch: ShardScratch,
}

/// Replicated state of a shard's rows.
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) map: VersionMap,
    pub(crate) history: History,
    pub(crate) window: RangeWindow,
    pub(crate) sums: RowSums,
    pub(crate) row_counts: RowCounts,
}

impl Shard {
    pub(crate) fn new(index: u32, count: u32) -> Shard {
        Shard {
            place: ShardPlace { index, count },
            state: ShardState {
                map: VersionMap::new(),
                history: History::default(),
                window: RangeWindow::default(),
                sums: RowSums::default(),
                row_counts: RowCounts::default(),
            },
            scratch: ShardScratch::default(),
        }
    }
}
