//! A copy of a version map as of one epoch, made segment by segment while later epochs change the map.
//!
//! Invariant: when a row is changed or removed before its segment is copied, its old state is saved here, once: from
//! then on its version belongs to a later epoch, and such rows are not copied. Only an import adds rows with early
//! versions later: these are recorded and left out.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use tribunal_types::{Epoch, RowKey, Version};

use crate::state::map_entry::Entry;

/// A copy in progress.
#[derive(Debug)]
pub(crate) struct MapCopy {
    upto: Epoch,
    /// Number of segments copied.
    segments_done: usize,
    rows: Vec<Entry>,
    /// Rows that were imported before their segment's turn.
    imported: BTreeSet<RowKey>,
}

impl MapCopy {
    pub(crate) fn new(upto: Epoch, rows: usize) -> MapCopy {
        MapCopy { upto, segments_done: 0, rows: Vec::with_capacity(rows), imported: BTreeSet::new() }
    }

    pub(crate) fn segments_done(&self) -> usize {
        self.segments_done
    }

    fn is_of_copy(&self, entry: &Entry) -> bool {
        entry.version >> Version::POSITION_BITS <= self.upto.0 && !self.imported.contains(&entry.key())
    }

    /// Copies the next segment.
    pub(crate) fn add_segment<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        let mut rows = core::mem::take(&mut self.rows);
        rows.extend(entries.filter(|entry| self.is_of_copy(entry)));
        self.rows = rows;
        self.segments_done += 1;
    }

    /// Saves the state of a row of this segment from before it was written or forgotten.
    #[inline]
    pub(crate) fn note_before(&mut self, segment: usize, before: &Entry) {
        if segment >= self.segments_done && self.is_of_copy(before) {
            self.rows.push(*before);
        }
    }

    /// Notes that a row of this segment was imported.
    pub(crate) fn note_imported(&mut self, segment: usize, row: RowKey) {
        if segment >= self.segments_done {
            self.imported.insert(row);
        }
    }

    /// Returns the rows of a finished copy.
    pub(crate) fn into_rows(self) -> Vec<Entry> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::map::{NO_SLOT, VersionMap};

    fn key(n: u64) -> RowKey {
        RowKey { hi: n, lo: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xff }
    }

    fn version(epoch: u64) -> Version {
        Version::new(Epoch(epoch), 0).expect("fits")
    }

    fn write(map: &mut VersionMap, n: u64, epoch: u64) {
        match map.at_mut(key(n), NO_SLOT) {
            Some(entry) => {
                let before = *entry;
                entry.set(version(epoch), 0);
                map.changed(&before);
            }
            None => map.insert_new(key(n), version(epoch), 0),
        }
    }

    #[test]
    fn a_copy_is_of_its_epoch_whatever_changes_meanwhile() {
        let mut map = VersionMap::new();
        (0..3_000).for_each(|n| write(&mut map, n, 1 + n % 9));
        let mut expected: Vec<_> = map.entries().map(|e| (e.key(), e.version)).collect();
        map.begin_copy(Epoch(9));
        let mut epoch = 10;
        let copy = loop {
            for n in 0..40 {
                write(&mut map, (epoch * 37 + n * 11) % 4_000, epoch);
            }
            map.remove_if(key(epoch * 7 % 3_000), |_| true);
            for n in [epoch * 7 % 3_000, 5_000 + epoch] {
                if map.find(key(n)).is_none() {
                    map.import_new(key(n), version(3), 0);
                }
            }
            epoch += 1;
            if let Some(copy) = map.step_copy() {
                break copy;
            }
        };
        let mut copied: Vec<_> = copy.into_rows().iter().map(|e| (e.key(), e.version)).collect();
        copied.sort_unstable();
        expected.sort_unstable();
        assert!(copied == expected, "{} rows instead of {}", copied.len(), expected.len());
    }
}
