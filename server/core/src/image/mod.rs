//! Conversion of the resolver's whole replicated state to plain columns, and back. An image fits any number of shards;
//! within an epoch, its columns have no particular order. Invalid columns are rejected, never trusted.

mod freezing;
pub mod frozen;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use tribunal_types::image::StateImage;
use tribunal_types::{
    BodyHash, Digest, Epoch, Existence, Generation, Lsn, NamespaceId, RowKey, Span, StoreId, StoreSpec, VerdictAt,
    Version, WriteKinds,
};

use crate::image::frozen::Frozen;
use crate::planted::{Bug, planted};
use crate::resolve::resolver::{Resolver, ResolverConfig};
use crate::resolve::shard::Shard;
use crate::resolve::shard_place::ShardPlace;
use crate::state::floor::EpochMark;
use crate::state::history::{History, RowState};
use crate::state::id_bucket::IdEntry;
use crate::state::map_entry::{Entry, row_flag};
use crate::state::sums::{RowSums, Sum};
use crate::state::window::RangeWindow;

/// Columns of numbers.
mod words {
    pub(super) const META: u16 = 0;
    pub(super) const STORES: u16 = 1;
    pub(super) const ROWS: u16 = 2;
    pub(super) const SUPERSEDED: u16 = 3;
    pub(super) const EXPIRING: u16 = 4;
    pub(super) const WINDOW: u16 = 5;
    pub(super) const MARKS: u16 = 6;
    pub(super) const IDS: u16 = 7;
    pub(super) const SUMS: u16 = 8;
    pub(super) const ROW_COUNTS: u16 = 9;
    /// From the second generation on.
    pub(super) const DELETIONS: u16 = 10;
}

/// Columns of bytes.
mod bytes {
    pub(super) const STORE_TEXTS: u16 = 0;
    pub(super) const WINDOW_KEYS: u16 = 1;
}

/// Number of the column layout. An image of the first generation keeps the layout that releases supporting only that
/// generation can read.
const LAYOUT_OF_FIRST: u64 = 3;
const LAYOUT: u64 = 4;

/// More history than one epoch can contain, in bytes.
const MARK_BYTES_MAX: u64 = 1 << 40;

/// An image that this resolver cannot have produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageMismatch {
    /// The mismatch.
    pub what: &'static str,
}

impl fmt::Display for ImageMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state image: {}", self.what)
    }
}

impl core::error::Error for ImageMismatch {}

fn mismatch(what: &'static str) -> ImageMismatch {
    ImageMismatch { what }
}

impl Frozen {
    /// Converts the state to an image.
    #[must_use]
    pub fn into_image(self) -> StateImage {
        let Frozen { epoch, generation, floor, head, stores, store_texts, marks, .. } = self;
        let Frozen { histories, windows, sums, row_counts, deletions, rows, ids, .. } = self;
        let mut image = StateImage { epoch, ..StateImage::default() };
        let is_first = generation < Generation::SECOND;
        let layout = if is_first { LAYOUT_OF_FIRST } else { LAYOUT };
        let generation = [u64::from(generation.0)];
        let generation = if is_first { &[][..] } else { &generation[..] };
        image.push_words(words::META, [&[layout], &head[..], generation].concat());
        image.push_words(words::STORES, stores);
        image.push_bytes(bytes::STORE_TEXTS, store_texts);
        let count = rows.iter().map(Vec::len).sum();
        let rows = rows.into_iter().flatten();
        image.push_words(words::ROWS, words_of(count, rows.map(|e| [e.hi, e.lo_flags, e.version])));
        let count = histories.iter().map(History::superseded_len).sum();
        let superseded = histories.iter().flat_map(History::superseded);
        let superseded = superseded.map(|(epoch, key, state)| [epoch, key.hi, key.lo, state]);
        image.push_words(words::SUPERSEDED, words_of(count, superseded));
        let count = histories.iter().map(History::expiring_len).sum();
        let expiring = histories.iter().flat_map(History::expiring);
        image.push_words(words::EXPIRING, words_of(count, expiring.map(|(epoch, key)| [epoch, key.hi, key.lo])));
        drop(histories);
        let (count, key_bytes) = windows.iter().map(RangeWindow::size).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let (mut window, mut keys) = (Vec::with_capacity(3 * count), Vec::with_capacity(key_bytes));
        for (epoch, store, key) in windows.iter().flat_map(|window| window.keys(floor)) {
            window.extend([epoch, u64::from(store), key.len() as u64]);
            keys.extend_from_slice(key);
        }
        image.push_words(words::WINDOW, window);
        image.push_bytes(bytes::WINDOW_KEYS, keys);
        image.push_words(words::MARKS, marks);
        drop(windows);
        let words_of_id = |e: &IdEntry| [e.id[0], e.id[1], e.body_hash, e.epoch, u64::from(e.item), e.namespace_body];
        image.push_words(words::IDS, words_of(ids.len(), ids.iter().map(words_of_id)));
        drop(ids);
        let count = sums.iter().map(RowSums::rows).sum();
        let sums = sums.iter().flat_map(RowSums::entries);
        let sums = sums.map(|(key, sum)| [key.hi, key.lo, sum.center.cast_unsigned(), u64::from(sum.exact)]);
        image.push_words(words::SUMS, words_of(count, sums));
        image.push_words(words::ROW_COUNTS, row_counts);
        if !is_first {
            image.push_words(words::DELETIONS, deletions);
        }
        image
    }
}

/// Returns a column of at most `count` rows, in one allocation: a growing one would be copied to fresh pages
/// repeatedly.
fn words_of<const N: usize>(count: usize, rows: impl Iterator<Item = [u64; N]>) -> Vec<u64> {
    let mut words = Vec::with_capacity(count * N);
    rows.for_each(|row| words.extend_from_slice(&row));
    words
}

/// Returns the last position of each store's log as of an image.
///
/// # Errors
/// If the stores cannot be read.
pub fn heads(image: &StateImage) -> Result<Vec<(StoreId, Lsn)>, ImageMismatch> {
    let stores = rows_of(image, words::STORES)?.iter();
    let head = |&[id, head, ..]: &[u64; 7]| {
        let id = u32::try_from(id).map_err(|_| mismatch("a store's number is too large"))?;
        Ok((StoreId(id), Lsn(head)))
    };
    stores.map(head).collect()
}

impl Resolver {
    /// Returns the replicated state after the last epoch.
    #[must_use]
    pub fn image(&self) -> StateImage {
        let rows = self.shards.iter().map(|s| s.state.map.entries().copied().collect()).collect();
        Frozen { rows, ids: self.ids.entries().copied().collect(), ..self.freeze() }.into_image()
    }

    /// Rebuilds a resolver from an image; `config` may have another number of shards.
    ///
    /// # Errors
    /// If a column is missing or cannot come from a resolver.
    pub fn restore(config: ResolverConfig, image: StateImage) -> Result<Resolver, ImageMismatch> {
        let image = &image;
        let mut resolver = Resolver::new(config);
        let (head, generation) = head_of(column(image, words::META)?)?;
        let [epoch, epoch_time_ms, floor, digest, ids_floor_ms] = head;
        if epoch != image.epoch.0 || epoch > Epoch::MAX.0 || floor > epoch {
            return Err(mismatch("epoch and floor do not fit"));
        }
        resolver.last = Epoch(epoch);
        resolver.epoch_time_ms = epoch_time_ms;
        resolver.digest = Digest(digest);
        resolver.generation = generation;
        resolver.restore_stores(image)?;
        resolver.restore_deletions(image)?;
        resolver.restore_rows(image)?;
        resolver.restore_sums(image)?;
        resolver.restore_row_counts(image)?;
        resolver.restore_history(image)?;
        resolver.restore_window(image)?;
        let mut marked = 0;
        for &[epoch, time_ms, bytes] in rows_of(image, words::MARKS)? {
            if epoch <= marked || epoch > image.epoch.0 || time_ms > epoch_time_ms || bytes > MARK_BYTES_MAX {
                return Err(mismatch("an epoch's mark does not fit"));
            }
            marked = epoch;
            resolver.floor.note(EpochMark { epoch: Epoch(epoch), time_ms, bytes });
        }
        resolver.floor.rise_to(Epoch(floor));
        for &[hi, lo, body_hash, epoch, item, namespace_body] in rows_of(image, words::IDS)? {
            let item = u32::try_from(item).map_err(|_| mismatch("an id's item is too large"))?;
            let entry = IdEntry { id: [hi, lo], body_hash, epoch, item, namespace_body };
            let body = (namespace_body & 1 != 0).then_some(BodyHash(body_hash));
            resolver.ids.insert(&entry.scoped(), body, VerdictAt { epoch: Epoch(epoch), item }, digest);
        }
        if !planted(Bug::IdFloorLost) {
            resolver.ids.set_floor_ms(ids_floor_ms);
        }
        Ok(resolver)
    }

    fn restore_stores(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        let mut texts = image.bytes(bytes::STORE_TEXTS).ok_or(mismatch("the stores' texts are missing"))?;
        for &[id, head, namespace, flags, name, adaptor, config] in rows_of(image, words::STORES)? {
            let number = |n: u64| u32::try_from(n).map_err(|_| mismatch("a store's number is too large"));
            let id = StoreId(number(id)?);
            self.stores.set_head(id, Lsn(head));
            if flags & 1 == 0 {
                continue;
            }
            let mut text = |len: u64| -> Result<String, ImageMismatch> {
                let cut = usize::try_from(len).ok().and_then(|len| texts.split_at_checked(len));
                let (text, rest) = cut.ok_or(mismatch("the stores' texts are short"))?;
                texts = rest;
                String::from_utf8(text.to_vec()).map_err(|_| mismatch("a store's text is not UTF-8"))
            };
            let (name, adaptor, adaptor_config) = (text(name)?, text(adaptor)?, text(config)?);
            self.stores.declare(StoreSpec {
                id,
                namespace: NamespaceId(number(namespace)?),
                name,
                existence: if flags & 2 != 0 { Existence::Declared } else { Existence::Tracked },
                multi_version: flags & 4 != 0,
                transactional: flags & 8 != 0,
                takes: WriteKinds::from_bits((flags >> 8) as u8)
                    .ok_or(mismatch("a store takes unknown kinds of writes"))?,
                adaptor: (flags & 16 != 0).then_some(adaptor),
                adaptor_config,
            });
        }
        Ok(())
    }

    fn restore_deletions(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        if self.generation < Generation::SECOND {
            return Ok(());
        }
        for &[store, epoch] in rows_of(image, words::DELETIONS)? {
            let store = u32::try_from(store).map_err(|_| mismatch("a store's number is too large"))?;
            if epoch > image.epoch.0 {
                return Err(mismatch("a deletion is of a later epoch"));
            }
            self.stores.note_deletion(StoreId(store), Epoch(epoch));
        }
        Ok(())
    }

    fn restore_rows(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        for &[hi, lo_flags, version] in rows_of(image, words::ROWS)? {
            let entry = Entry { hi, lo_flags, version };
            let known = entry.flags() & row_flag::KNOWN != 0;
            let version = Version::from_bits(version).filter(|_| known).ok_or(mismatch("a row has no version"))?;
            let map = &mut self.shard_mut(entry.key()).state.map;
            if map.find(entry.key()).is_some() {
                return Err(mismatch("a row occurs twice"));
            }
            map.insert_new(entry.key(), version, entry.flags());
        }
        Ok(())
    }

    fn restore_sums(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        for &[hi, lo, center, exact] in rows_of(image, words::SUMS)? {
            let key = RowKey { hi, lo };
            let state = &mut self.shard_mut(key).state;
            if state.map.find(key).is_none_or(|(_, entry)| entry.flags() & row_flag::SUMMED == 0) || exact > 1 {
                return Err(mismatch("a sum is of no row that has one"));
            }
            state.sums.set(key, Sum { center: center.cast_signed(), exact: exact == 1 });
        }
        let summed = |s: &Shard| s.state.map.entries().filter(|e| e.flags() & row_flag::SUMMED != 0).count();
        if self.shards.iter().any(|shard| summed(shard) != shard.state.sums.rows()) {
            return Err(mismatch("a row's sum is missing"));
        }
        Ok(())
    }

    /// Restores the row counts. A count covers the rows of all shards, so any shard may hold it. It affects no decision
    /// and is taken as is: for a store that was declared differently after versions were imported, it includes
    /// forgotten rows.
    fn restore_row_counts(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        for &[store, count] in rows_of(image, words::ROW_COUNTS)? {
            let store = u32::try_from(store).map_err(|_| mismatch("a store's number is too large"))?;
            let count = i64::try_from(count).map_err(|_| mismatch("a count of rows is too large"))?;
            self.shards[0].state.row_counts.add(StoreId(store), count);
        }
        Ok(())
    }

    fn restore_history(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        let mut epochs: BTreeMap<u64, PastOfEpoch> = BTreeMap::new();
        for &[epoch, hi, lo, state] in rows_of(image, words::SUPERSEDED)? {
            let state = RowState::from_bits(state).ok_or(mismatch("a superseded state has no version"))?;
            epochs.entry(epoch).or_default().0.push((RowKey { hi, lo }, state));
        }
        for &[epoch, hi, lo] in rows_of(image, words::EXPIRING)? {
            epochs.entry(epoch).or_default().1.push(RowKey { hi, lo });
        }
        for (epoch, (superseded, expiring)) in epochs {
            self.shards.iter_mut().for_each(|s| s.state.history.open(Epoch(epoch), 0));
            for (key, state) in superseded {
                self.shard_mut(key).state.history.open_run().supersede(key, state);
            }
            for key in expiring {
                self.shard_mut(key).state.history.open_run().expire(key, key.lo & 1 != 0);
            }
            self.shards.iter_mut().for_each(|s| _ = s.state.history.close());
        }
        Ok(())
    }

    /// Restores the range window. A range takes part in every shard, so it would find a key in any of them. Each key
    /// still goes to the shard of its row, as on a node that applied the write: a validator's call gets the changes of
    /// one shard, so its fuel depends on their placement.
    fn restore_window(&mut self, image: &StateImage) -> Result<(), ImageMismatch> {
        let mut keys = image.bytes(bytes::WINDOW_KEYS).ok_or(mismatch("the window's keys are missing"))?;
        let mut epochs: BTreeMap<u64, KeysOfEpoch> = BTreeMap::new();
        for &[epoch, store, len] in rows_of(image, words::WINDOW)? {
            let cut = usize::try_from(len).ok().and_then(|len| keys.split_at_checked(len));
            let (key, rest) = cut.ok_or(mismatch("the window's keys are short"))?;
            keys = rest;
            let (arena, items) = epochs.entry(epoch).or_default();
            if arena.len() + key.len() > u32::MAX as usize {
                return Err(mismatch("an epoch's keys pass 4 GiB"));
            }
            let store = StoreId(u32::try_from(store).map_err(|_| mismatch("a store's number is too large"))?);
            let row = self.config.keyer.row(self.stores.namespace(store), store, key);
            items.push((row, store, Span::push(arena, key)));
        }
        let shards = self.shards.len();
        for (epoch, (arena, items)) in epochs {
            let arena = Arc::new(arena);
            for shard in &mut self.shards {
                shard.state.window.open(Epoch(epoch), items.len().div_ceil(shards));
                shard.state.window.share(Epoch(epoch), &arena);
            }
            for (turn, &(row, store, key)) in items.iter().enumerate() {
                let shard =
                    if planted(Bug::WindowKeysDealt) { &mut self.shards[turn % shards] } else { self.shard_mut(row) };
                shard.state.window.open_run().note(store, key);
            }
            self.shards.iter_mut().for_each(|shard| _ = shard.state.window.close());
        }
        Ok(())
    }

    fn shard_mut(&mut self, row: RowKey) -> &mut Shard {
        let count = self.shards.len() as u32;
        &mut self.shards[ShardPlace { index: 0, count }.of(row) as usize]
    }
}

/// An epoch's superseded states and expiring rows.
type PastOfEpoch = (Vec<(RowKey, RowState)>, Vec<RowKey>);

/// An arena, and the keys in it with their rows.
type KeysOfEpoch = (Vec<u8>, Vec<(RowKey, StoreId, Span)>);

/// Returns the epoch, its time, floor, digest and the floor of the ids, and the generation that decided.
fn head_of(words: &[u64]) -> Result<([u64; 5], Generation), ImageMismatch> {
    let (layout, head) = words.split_first().ok_or(mismatch("the head has another length"))?;
    match (*layout, head) {
        (LAYOUT_OF_FIRST, &[a, b, c, d, e]) => Ok(([a, b, c, d, e], Generation::FIRST)),
        (LAYOUT, &[a, b, c, d, e, generation]) => {
            let generation = u32::try_from(generation).ok().map(Generation).filter(|g| *g >= Generation::SECOND);
            Ok(([a, b, c, d, e], generation.ok_or(mismatch("the generation has another layout"))?))
        }
        (LAYOUT_OF_FIRST | LAYOUT, _) => Err(mismatch("the head has another length")),
        _ => Err(mismatch("the layout is of another release")),
    }
}

fn column(image: &StateImage, id: u16) -> Result<&[u64], ImageMismatch> {
    image.words(id).ok_or(mismatch("a column is missing"))
}

fn rows_of<const N: usize>(image: &StateImage, id: u16) -> Result<&[[u64; N]], ImageMismatch> {
    let (rows, rest) = column(image, id)?.as_chunks::<N>();
    if rest.is_empty() { Ok(rows) } else { Err(mismatch("a column is cut short")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_damaged_is_refused() {
        let image = Resolver::new(ResolverConfig::default()).image();
        assert!(Resolver::restore(ResolverConfig::default(), image.clone()).is_ok());
        let mut cut = image.clone();
        cut.columns.retain(|c| c.id != words::IDS);
        assert_eq!(Resolver::restore(ResolverConfig::default(), cut).err(), Some(mismatch("a column is missing")));
        let mut short = image.clone();
        short.columns[words::ROWS as usize].words.push(7);
        assert_eq!(Resolver::restore(ResolverConfig::default(), short).err(), Some(mismatch("a column is cut short")));
        let mut later = image;
        later.columns[words::META as usize].words[0] = LAYOUT + 1;
        let refused = Resolver::restore(ResolverConfig::default(), later).err();
        assert_eq!(refused, Some(mismatch("the layout is of another release")));
    }

    #[test]
    fn a_count_that_includes_forgotten_rows_is_kept() {
        let mut image = Resolver::new(ResolverConfig::default()).image();
        image.columns[words::ROW_COUNTS as usize].words.extend([7, 1]);
        let restored = Resolver::restore(ResolverConfig::default(), image.clone()).unwrap();
        assert_eq!(restored.rows_of(StoreId(7)), 1);
        assert_eq!(restored.image(), image);
    }
}
