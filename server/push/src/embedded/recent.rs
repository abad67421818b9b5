//! Rows written since the last checkpoint, in memory; the journal holds them durably.
//!
//! A row that is written often is found by its hash, in one or two cache misses; its place in the order of keys is
//! looked up only when it is new. In one ordered tree every write paid for a walk over keys scattered in memory.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tribunal_types::{Version, Watermark};

use super::fold::Folded;

/// A row's value and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub version: Version,
    pub value: Box<[u8]>,
}

impl Stored {
    fn of((version, value): (Version, &[u8])) -> Stored {
        Stored { version, value: value.into() }
    }
}

/// Rows by key; `None` is a deleted one.
#[derive(Default)]
pub(super) struct Rows {
    by_key: HashMap<Arc<[u8]>, Option<Stored>, RandomState>,
    /// The same keys.
    order: BTreeSet<Arc<[u8]>>,
}

/// A key, and its row unless that was deleted.
pub(super) type Entry<'a> = (&'a [u8], Option<&'a Stored>);

impl Rows {
    /// Returns the number of rows, deleted ones among them.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the row: `Some(None)` if it was deleted, `None` if nothing is known of it here.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&Stored>> {
        self.by_key.get(key).map(Option::as_ref)
    }

    /// Returns the rows of `start..end` in the order of keys; an empty `end` means to the last one.
    pub(super) fn range<'a>(&'a self, start: &[u8], end: &[u8]) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let keys = self.order.range::<[u8], _>((Bound::Included(start), end));
        keys.map(|key| (&**key, self.by_key.get(key).and_then(Option::as_ref)))
    }

    /// Puts a row; returns by how many bytes the memory for rows grows, or shrinks.
    fn put(&mut self, key: &[u8], row: Option<(Version, &[u8])>) -> isize {
        let new = row.map_or(0, |(_, value)| value.len());
        if let Some(slot) = self.by_key.get_mut(key) {
            let old = slot.as_ref().map_or(0, |stored| stored.value.len());
            match (slot, row) {
                // Most rows keep their size, and then their memory.
                (Some(stored), Some((version, value))) if old == new => {
                    stored.version = version;
                    stored.value.copy_from_slice(value);
                }
                (slot, row) => *slot = row.map(Stored::of),
            }
            return new.cast_signed() - old.cast_signed();
        }
        let shared: Arc<[u8]> = key.into();
        self.order.insert(Arc::clone(&shared));
        self.by_key.insert(shared, row.map(Stored::of));
        (new + key.len() + ROW_OVERHEAD_BYTES).cast_signed()
    }
}

/// What a row costs in memory beside its bytes: an entry each in the table and in the tree, and two allocations, roughly.
const ROW_OVERHEAD_BYTES: usize = 144;

/// What is newer than the checkpoint.
pub(super) struct Recent {
    /// Newest rows.
    pub active: Rows,
    /// Memory that they take, bytes.
    pub active_bytes: usize,
    /// Rows that a checkpoint writes right now, with the last record among them: older than `active`, newer than the
    /// runs.
    pub frozen: Option<Arc<(Rows, Watermark)>>,
    /// Last record applied.
    pub applied: Watermark,
}

impl Recent {
    pub(super) fn new(applied: Watermark) -> Self {
        Recent { active: Rows::default(), active_bytes: 0, frozen: None, applied }
    }

    /// Returns the row if it was written recently: `Some(None)` if it was deleted.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&Stored>> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.0.get(key));
        self.active.get(key).or_else(frozen)
    }

    pub(super) fn apply(&mut self, folded: &Folded<'_>, to: Watermark) {
        for (key, (version, value)) in &folded.rows {
            let row = value.as_deref().map(|value| (*version, value));
            self.active_bytes = self.active_bytes.saturating_add_signed(self.active.put(key, row));
        }
        self.applied = to;
    }

    /// Sets the active rows aside for a checkpoint.
    pub(super) fn freeze(&mut self) {
        self.active_bytes = 0;
        self.frozen = Some(Arc::new((std::mem::take(&mut self.active), self.applied)));
    }
}
