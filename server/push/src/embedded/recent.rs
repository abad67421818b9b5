//! Rows written since the last checkpoint, in memory; the journal holds them durably.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribunal_types::{Lsn, Version};

use super::fold::Folded;

/// A row's value and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub version: Version,
    pub value: Box<[u8]>,
}

/// Rows by key; `None` is a deleted one.
pub(super) type Rows = BTreeMap<Box<[u8]>, Option<Stored>>;

/// What a row costs in memory beside its bytes: the tree's entry and two allocations, roughly.
const ROW_OVERHEAD_BYTES: usize = 96;

/// What is newer than the checkpoint.
pub(super) struct Recent {
    /// Newest rows.
    pub active: Rows,
    /// Memory that they take, bytes.
    pub active_bytes: usize,
    /// Rows that a checkpoint writes right now, with the last record among them: older than `active`, newer than the
    /// base.
    pub frozen: Option<Arc<(Rows, Lsn)>>,
    /// Last record applied.
    pub applied: Lsn,
}

impl Recent {
    pub(super) fn new(applied: Lsn) -> Self {
        Recent { active: Rows::new(), active_bytes: 0, frozen: None, applied }
    }

    /// Returns the row if it was written recently: `Some(None)` if it was deleted.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&Stored>> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.0.get(key));
        self.active.get(key).or_else(frozen).map(Option::as_ref)
    }

    pub(super) fn apply(&mut self, folded: Folded<'_>, to: Lsn) {
        for (key, (version, value)) in folded.rows {
            let row = value.map(|value| Stored { version, value: value.into_owned().into() });
            let bytes = row.as_ref().map_or(0, |row| row.value.len());
            let old = match self.active.get_mut(key) {
                Some(slot) => std::mem::replace(slot, row).map_or(0, |old| old.value.len()),
                None => {
                    self.active.insert(key.into(), row);
                    self.active_bytes += key.len() + ROW_OVERHEAD_BYTES;
                    0
                }
            };
            self.active_bytes = self.active_bytes + bytes - old;
        }
        self.applied = to;
    }

    /// Sets the active rows aside for a checkpoint.
    pub(super) fn freeze(&mut self) {
        self.active_bytes = 0;
        self.frozen = Some(Arc::new((std::mem::take(&mut self.active), self.applied)));
    }
}
