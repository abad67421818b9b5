//! Freezes the state after one epoch while later epochs are resolved.
//!
//! [`Resolver::begin_image`] shares data that never changes again (history and window of closed epochs) or is copied on
//! write (sums), copies small data, and notes which rows and ids are still to be copied. [`Resolver::step_image`]
//! copies a slice of those between two epochs; anything that an epoch changes before its slice is copied is kept in its
//! old state. So no single step takes longer than one segment of the version map, however large the state is.

use alloc::vec::Vec;

use tribunal_types::{Epoch, Existence};

use crate::image::frozen::Frozen;
use crate::resolve::resolver::Resolver;
use crate::state::row_counts::RowCounts;

impl Resolver {
    /// Begins an image of the current state; [`Resolver::step_image`] continues it. Abandons an unfinished image.
    pub fn begin_image(&mut self) {
        let upto = self.last;
        self.shards.iter_mut().for_each(|shard| shard.state.map.begin_copy(upto));
        self.ids.begin_copy();
        self.freezing = Some(self.freeze());
    }

    /// Copies the next slice of the image being taken, and returns the state after the last slice.
    pub fn step_image(&mut self) -> Option<Frozen> {
        let frozen = self.freezing.as_mut()?;
        if let Some(shard) = self.shards.get_mut(frozen.rows.len()) {
            frozen.rows.extend(shard.state.map.step_copy().map(|copy| copy.into_rows()));
            return None;
        }
        frozen.ids = self.ids.step_copy()?;
        self.freezing.take()
    }

    /// Returns the state without rows and ids.
    pub(crate) fn freeze(&self) -> Frozen {
        let floor = self.floor.at();
        let mut frozen = Frozen {
            epoch: self.last,
            generation: self.generation,
            floor,
            head: [self.last.0, self.epoch_time_ms, floor.0, self.digest.0, self.ids.floor_ms()],
            marks: self.floor.marks().flat_map(|m| [m.epoch.0, m.time_ms, m.bytes]).collect(),
            histories: self.shards.iter().map(|s| s.state.history.shared()).collect(),
            sums: self.shards.iter().map(|s| s.state.sums.clone()).collect(),
            row_counts: self.row_counts(),
            windows: self.shards.iter().map(|s| s.state.window.shared()).collect(),
            ..Frozen::default()
        };
        self.freeze_stores(&mut frozen);
        frozen
    }

    /// Returns pairs of store and row count, summed over all shards.
    fn row_counts(&self) -> Vec<u64> {
        let mut all = RowCounts::default();
        for (store, rows) in self.shards.iter().flat_map(|shard| shard.state.row_counts.iter()) {
            all.add(store, rows);
        }
        let counted = all.iter().filter(|(_, rows)| *rows > 0);
        counted.flat_map(|(store, rows)| [u64::from(store.0), rows.cast_unsigned()]).collect()
    }

    fn freeze_stores(&self, frozen: &mut Frozen) {
        let Frozen { stores, store_texts, deletions, .. } = frozen;
        for store in self.stores.iter() {
            if store.deleted > Epoch(0) {
                deletions.extend([u64::from(store.id.0), store.deleted.0]);
            }
            stores.extend([u64::from(store.id.0), store.head.0]);
            let Some(spec) = &store.spec else {
                stores.extend([0; 5]);
                continue;
            };
            let flags = 1
                | u64::from(spec.existence == Existence::Declared) << 1
                | u64::from(spec.multi_version) << 2
                | u64::from(spec.transactional) << 3
                | u64::from(spec.adaptor.is_some()) << 4
                | u64::from(spec.takes.bits()) << 8;
            let adaptor = spec.adaptor.as_deref().unwrap_or_default();
            stores.extend([u64::from(spec.namespace.0), flags]);
            for text in [spec.name.as_str(), adaptor, spec.adaptor_config.as_str()] {
                stores.push(text.len() as u64);
                store_texts.extend_from_slice(text.as_bytes());
            }
        }
    }
}
