//! The state after one epoch, frozen while later epochs are resolved: the source of images.

use alloc::vec::Vec;

use tribunal_types::{Epoch, Generation};

use crate::state::history::History;
use crate::state::id_bucket::IdEntry;
use crate::state::map_entry::Entry;
use crate::state::sums::RowSums;
use crate::state::window::RangeWindow;

/// Replicated state after an epoch. Independent of the resolver: any thread may convert it to an image.
#[derive(Debug, Default)]
pub struct Frozen {
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    pub(crate) floor: Epoch,
    /// Epoch, its time, floor, digest, and the floor of the ids.
    pub(crate) head: [u64; 5],
    pub(crate) stores: Vec<u64>,
    pub(crate) store_texts: Vec<u8>,
    /// Epochs above the floor.
    pub(crate) marks: Vec<u64>,
    pub(crate) histories: Vec<History>,
    pub(crate) windows: Vec<RangeWindow>,
    pub(crate) sums: Vec<RowSums>,
    /// Pairs of store and row count.
    pub(crate) row_counts: Vec<u64>,
    /// Pairs of store and the last epoch that deleted one of its rows.
    pub(crate) deletions: Vec<u64>,
    /// By shard; during copying, only finished shards.
    pub(crate) rows: Vec<Vec<Entry>>,
    pub(crate) ids: Vec<IdEntry>,
}

impl Frozen {
    /// Returns the epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}
