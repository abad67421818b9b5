//! The range window of one shard: the keys written above the floor, against which scanned ranges are checked.
//!
//! Writing appends 16 bytes to the run of its epoch and shares the batch's key arena; nothing is sorted until a range
//! is checked. Then the runs above its snapshot are sorted, and eight neighbouring runs of one tier merge into one, so
//! that a range searches few runs however old its snapshot is. A merged run may contain writes from both sides of a
//! snapshot: the newest epoch of each block of its keys determines which blocks a range may skip. Runs at or below the
//! floor are dropped.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use tribunal_types::{Epoch, Span, StoreId};

use crate::planted::{Bug, planted};

/// Bytes charged for one written key, excluding its arena.
pub(crate) const WINDOW_ITEM_BYTES: u64 = size_of::<Item>() as u64;

/// A key range of a store; `end` is exclusive, empty for "to the end of the store".
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRange<'a> {
    pub(crate) store: StoreId,
    pub(crate) start: &'a [u8],
    pub(crate) end: &'a [u8],
}

impl KeyRange<'_> {
    /// Returns a key's position relative to the range: before, within or after it.
    pub(crate) fn place(&self, store: StoreId, key: &[u8]) -> Ordering {
        match store.cmp(&self.store).then_with(|| compare(key, self.start)) {
            Ordering::Less => Ordering::Less,
            _ if store == self.store && (self.end.is_empty() || compare(key, self.end).is_lt()) => Ordering::Equal,
            _ => Ordering::Greater,
        }
    }
}

/// Orders keys by their bytes.
#[inline(always)]
fn compare(key: &[u8], bound: &[u8]) -> Ordering {
    if planted(Bug::RangeKeysCutShort) {
        let shorter = key.len().min(bound.len());
        return key[..shorter].cmp(&bound[..shorter]);
    }
    key.cmp(bound)
}

#[derive(Clone, Copy, Debug)]
struct Item {
    store: u32,
    /// Low half of the arena's number.
    arena: u32,
    at: u32,
    len: u32,
}

#[derive(Clone, Debug)]
struct Arena {
    epoch: u64,
    keys: Arc<Vec<u8>>,
}

/// The key arenas that runs point into, numbered in order of arrival.
#[derive(Clone, Debug, Default)]
struct Arenas {
    live: VecDeque<Arena>,
    /// Number of the oldest arena, truncated to 32 bits: far fewer than 2^31 are live at a time.
    base: u32,
}

impl Arenas {
    fn of(&self, item: &Item) -> &Arena {
        &self.live[item.arena.wrapping_sub(self.base) as usize]
    }

    fn key(&self, item: &Item) -> (u32, &[u8]) {
        (item.store, Span { at: item.at, len: item.len }.of(&self.of(item).keys))
    }
}

#[derive(Clone, Debug, Default)]
struct Run {
    first: u64,
    last: u64,
    /// How often its items were merged.
    tier: u8,
    sorted: bool,
    /// Shared with images in progress once the run is closed.
    items: Arc<Vec<Item>>,
    /// For a merged run: the newest epoch of every [`BLOCK_ITEMS`] items.
    blocks: Vec<u64>,
}

/// Keys per block of a merged run: a range covering many old writes skips a whole block at once.
const BLOCK_ITEMS: usize = 256;

impl Run {
    fn note_blocks(&mut self, arenas: &Arenas) {
        let newest = |block: &[Item]| block.iter().map(|item| arenas.of(item).epoch).max().unwrap_or(0);
        self.blocks = self.items.chunks(BLOCK_ITEMS).map(newest).collect();
    }

    /// Returns the index of the first item within the range that was written after the snapshot. The run must be
    /// sorted.
    fn first_above(&self, arenas: &Arenas, range: &KeyRange<'_>, snapshot: Epoch) -> Option<usize> {
        let place = |item: &Item| {
            let (store, key) = arenas.key(item);
            range.place(StoreId(store), key)
        };
        let from = self.items.partition_point(|item| place(item).is_lt());
        let above = |item: &Item| arenas.of(item).epoch > snapshot.0;
        let mut at = from;
        while let Some(item) = self.items.get(at) {
            match self.blocks.get(at / BLOCK_ITEMS) {
                Some(&newest) if newest <= snapshot.0 => at = (at / BLOCK_ITEMS + 1) * BLOCK_ITEMS,
                _ if !place(item).is_eq() => return None,
                _ if above(item) => return Some(at),
                _ => at += 1,
            }
        }
        None
    }
}

const MERGE_FANIN: usize = 8;
/// A merged run may keep keys up to this many tiers' worth of epochs below the floor.
const TIER_MAX: u8 = 4;

/// The run of the epoch being applied.
pub(crate) struct OpenRun<'a> {
    items: &'a mut Vec<Item>,
    arena: u32,
}

impl OpenRun<'_> {
    /// Notes a written key.
    #[inline(always)]
    pub(crate) fn note(&mut self, store: StoreId, key: Span) {
        self.items.push(Item { store: store.0, arena: self.arena, at: key.at, len: key.len });
    }
}

/// Written keys above the floor, of one shard.
#[derive(Debug, Default)]
pub(crate) struct RangeWindow {
    arenas: Arenas,
    runs: VecDeque<Run>,
    /// Emptied runs, whose buffers are reused.
    spare: Vec<Arc<Vec<Item>>>,
}

const SPARE_RUNS_MAX: usize = 64;

/// Returns the items of an open run for writing.
fn owned(items: &mut Arc<Vec<Item>>) -> &mut Vec<Item> {
    Arc::get_mut(items).expect("only closed runs are shared")
}

impl RangeWindow {
    /// Opens the run of epoch `epoch`, the newest, with room for `keys` keys.
    pub(crate) fn open(&mut self, epoch: Epoch, keys: usize) {
        let mut items = self.spare.pop().unwrap_or_default();
        owned(&mut items).reserve(keys);
        self.runs.push_back(Run { first: epoch.0, last: epoch.0, items, ..Run::default() });
    }

    /// Adds the arena of the keys that follow.
    pub(crate) fn share(&mut self, epoch: Epoch, keys: &Arc<Vec<u8>>) {
        self.arenas.live.push_back(Arena { epoch: epoch.0, keys: Arc::clone(keys) });
    }

    /// Returns the open run for writing keys of the arena shared last.
    pub(crate) fn open_run(&mut self) -> OpenRun<'_> {
        let arena = self.arenas.base.wrapping_add(self.arenas.live.len() as u32).wrapping_sub(1);
        let run = self.runs.back_mut().expect("a run is open while an epoch is applied");
        OpenRun { items: owned(&mut run.items), arena }
    }

    /// Closes the open run and returns the bytes charged for it, excluding arenas.
    pub(crate) fn close(&mut self) -> u64 {
        let Some(run) = self.runs.back() else { return 0 };
        let bytes = run.items.len() as u64 * WINDOW_ITEM_BYTES;
        if bytes == 0 {
            self.spare.extend(self.runs.pop_back().map(|run| run.items));
            while let Some(arena) = self.arenas.live.back()
                && self.runs.back().is_none_or(|run| run.last < arena.epoch)
            {
                self.arenas.live.pop_back();
            }
        }
        bytes
    }

    /// Sorts and merges the runs that a range with this snapshot must search.
    pub(crate) fn prepare(&mut self, snapshot: Epoch) {
        let RangeWindow { arenas, runs, .. } = self;
        let from = runs.partition_point(|run| run.last <= snapshot.0);
        for run in runs.range_mut(from..).rev() {
            if !run.sorted {
                Arc::make_mut(&mut run.items).sort_unstable_by(|a, b| arenas.key(a).cmp(&arenas.key(b)));
                run.sorted = true;
            }
        }
        self.merge(from);
    }

    fn merge(&mut self, from: usize) {
        for tier in 0..TIER_MAX {
            let mut at = from;
            while at + MERGE_FANIN <= self.runs.len() {
                let fits = |run: &Run| run.tier == tier && run.sorted;
                if !self.runs.range(at..at + MERGE_FANIN).all(fits) {
                    at += 1;
                    continue;
                }
                let mut merged = Run { tier: tier + 1, sorted: true, ..core::mem::take(&mut self.runs[at]) };
                let items = Arc::make_mut(&mut merged.items);
                for run in self.runs.drain(at + 1..at + MERGE_FANIN) {
                    items.extend_from_slice(&run.items);
                    merged.last = run.last;
                }
                let arenas = &self.arenas;
                // The stable sort detects the eight sorted runs and merges them.
                items.sort_by(|a, b| arenas.key(a).cmp(&arenas.key(b)));
                merged.note_blocks(arenas);
                self.runs[at] = merged;
                at += 1;
            }
        }
    }

    /// Returns whether a key of the range was written after the snapshot.
    pub(crate) fn changed(&self, range: &KeyRange<'_>, snapshot: Epoch) -> bool {
        let within = |item: &Item| {
            let (store, key) = self.arenas.key(item);
            range.place(StoreId(store), key)
        };
        let above = |item: &Item| self.arenas.of(item).epoch > snapshot.0;
        self.runs.iter().rev().take_while(|run| run.last > snapshot.0).any(|run| {
            if run.sorted {
                return run.first_above(&self.arenas, range, snapshot).is_some();
            }
            run.items.iter().any(|item| above(item) && within(item).is_eq())
        })
    }

    /// Returns the first key of the range that was written after the snapshot, with the epoch of its last write. The
    /// result does not depend on how the runs are merged.
    pub(crate) fn first_change(&self, range: &KeyRange<'_>, snapshot: Epoch) -> Option<(&[u8], Epoch)> {
        let within = |item: &&Item| {
            let (store, key) = self.arenas.key(item);
            range.place(StoreId(store), key).is_eq()
        };
        let written = |item: &'_ Item| (self.arenas.key(item).1, Epoch(self.arenas.of(item).epoch));
        let better = |a: &(&[u8], Epoch), b: &(&[u8], Epoch)| b.0.cmp(a.0).then(a.1.cmp(&b.1));
        let first_of = |run: &'_ Run| {
            let above = |item: &&Item| self.arenas.of(item).epoch > snapshot.0;
            if !run.sorted {
                return run.items.iter().filter(above).filter(within).map(written).max_by(better);
            }
            let at = run.first_above(&self.arenas, range, snapshot)?;
            let first = written(&run.items[at]);
            let same = run.items[at..].iter().take_while(within).map(written).take_while(|(key, _)| *key == first.0);
            same.max_by(better)
        };
        self.runs.iter().rev().take_while(|run| run.last > snapshot.0).filter_map(first_of).max_by(better)
    }

    /// Drops the runs at or below the floor.
    pub(crate) fn drop_below(&mut self, floor: Epoch) {
        while let Some(run) = self.runs.front()
            && run.last <= floor.0
        {
            let mut items = self.runs.pop_front().expect("just seen").items;
            if self.spare.len() < SPARE_RUNS_MAX
                && let Some(own) = Arc::get_mut(&mut items)
            {
                own.clear();
                self.spare.push(items);
            }
        }
        let oldest = self.runs.front().map_or(u64::MAX, |run| run.first);
        while let Some(arena) = self.arenas.live.front()
            && arena.epoch < oldest
        {
            self.arenas.live.pop_front();
            self.arenas.base = self.arenas.base.wrapping_add(1);
        }
    }

    /// Returns the same window, sharing its runs and arenas instead of copying them.
    pub(crate) fn shared(&self) -> RangeWindow {
        RangeWindow { arenas: self.arenas.clone(), runs: self.runs.clone(), spare: Vec::new() }
    }

    /// Returns the number of keys and their bytes, including keys that merged runs have kept from below the floor.
    pub(crate) fn size(&self) -> (usize, usize) {
        let items = self.runs.iter().flat_map(|run| run.items.iter());
        items.fold((0, 0), |(keys, bytes), item| (keys + 1, bytes + item.len as usize))
    }

    /// Returns all keys above the floor as (epoch, store, key), for images.
    pub(crate) fn keys(&self, floor: Epoch) -> impl Iterator<Item = (u64, u32, &[u8])> {
        let items = self.runs.iter().flat_map(|run| run.items.iter());
        items.filter_map(move |item| {
            let epoch = self.arenas.of(item).epoch;
            let (store, key) = self.arenas.key(item);
            (epoch > floor.0).then_some((epoch, store, key))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(window: &mut RangeWindow, epoch: u64, keys: &[&str]) {
        let mut arena = Vec::new();
        let spans: Vec<Span> = keys.iter().map(|k| Span::push(&mut arena, k.as_bytes())).collect();
        window.open(Epoch(epoch), keys.len());
        window.share(Epoch(epoch), &Arc::new(arena));
        spans.iter().for_each(|&span| window.open_run().note(StoreId(1), span));
        window.close();
    }

    fn changed(window: &RangeWindow, start: &str, end: &str, snapshot: u64) -> bool {
        let range = KeyRange { store: StoreId(1), start: start.as_bytes(), end: end.as_bytes() };
        window.changed(&range, Epoch(snapshot))
    }

    #[test]
    fn sorted_merged_or_not_the_answer_is_the_same() {
        let mut plain = RangeWindow::default();
        let mut prepared = RangeWindow::default();
        for epoch in 1..=200_u64 {
            let a = alloc::format!("k{:03}", epoch * 7 % 100);
            let b = alloc::format!("k{:03}", epoch * 31 % 100);
            for window in [&mut plain, &mut prepared] {
                write(window, epoch, &[&a, &b]);
            }
            prepared.prepare(Epoch(epoch.saturating_sub(epoch % 40)));
        }
        prepared.prepare(Epoch(0));
        assert!(prepared.runs.len() < 40, "merged: {}", prepared.runs.len());
        plain.drop_below(Epoch(90));
        prepared.drop_below(Epoch(90));
        for n in 0..100 {
            for snapshot in 90..201 {
                let (start, end) = (alloc::format!("k{n:03}"), alloc::format!("k{:03}", n + 2));
                let expected = changed(&plain, &start, &end, snapshot);
                assert_eq!(changed(&prepared, &start, &end, snapshot), expected, "{start} at {snapshot}");
                let range = KeyRange { store: StoreId(1), start: start.as_bytes(), end: end.as_bytes() };
                let first = plain.first_change(&range, Epoch(snapshot));
                assert_eq!(first.is_some(), expected, "{start} at {snapshot}");
                assert_eq!(prepared.first_change(&range, Epoch(snapshot)), first, "{start} at {snapshot}");
            }
        }
    }

    /// One merged run of several blocks, with the newest write of all in each place once.
    #[test]
    fn blocks_without_a_newer_write_are_skipped_and_no_others() {
        const KEYS: usize = BLOCK_ITEMS * 3;
        for newest in [0, 1, BLOCK_ITEMS - 1, BLOCK_ITEMS, BLOCK_ITEMS + 1, 2 * BLOCK_ITEMS, KEYS - 1] {
            let mut window = RangeWindow::default();
            for epoch in 1..=MERGE_FANIN {
                let own = (0..KEYS).filter(|n| match *n == newest {
                    true => epoch == MERGE_FANIN,
                    false => n % (MERGE_FANIN - 1) + 1 == epoch,
                });
                let keys: Vec<_> = own.map(|n| alloc::format!("k{n:05}")).collect();
                write(&mut window, epoch as u64, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
            }
            window.prepare(Epoch(0));
            assert_eq!((window.runs.len(), window.runs[0].blocks.len()), (1, KEYS.div_ceil(BLOCK_ITEMS)));
            let snapshot = MERGE_FANIN as u64 - 1;
            for (start, end) in [(0, KEYS), (newest, newest + 1), (newest.saturating_sub(300), newest + 300)] {
                let (start, end) = (alloc::format!("k{start:05}"), alloc::format!("k{end:05}"));
                assert!(changed(&window, &start, &end, snapshot), "{newest} in {start}..{end}");
                assert!(!changed(&window, &start, &end, snapshot + 1), "{newest} in {start}..{end}");
            }
            for (start, end) in [(0, newest), (newest + 1, KEYS)] {
                let (start, end) = (alloc::format!("k{start:05}"), alloc::format!("k{end:05}"));
                assert!(!changed(&window, &start, &end, snapshot), "{newest} not in {start}..{end}");
            }
        }
    }

    #[test]
    fn the_first_change_of_a_range_is_its_smallest_key_with_its_last_epoch() {
        let mut window = RangeWindow::default();
        write(&mut window, 3, &["c", "b"]);
        write(&mut window, 4, &["d"]);
        write(&mut window, 5, &["b", "e"]);
        let first = |window: &RangeWindow, start: &str, snapshot: u64| {
            let range = KeyRange { store: StoreId(1), start: start.as_bytes(), end: b"" };
            window.first_change(&range, Epoch(snapshot)).map(|(key, epoch)| (key.to_vec(), epoch.0))
        };
        for _ in 0..2 {
            assert_eq!(first(&window, "a", 2), Some((b"b".to_vec(), 5)));
            assert_eq!(first(&window, "c", 2), Some((b"c".to_vec(), 3)));
            assert_eq!(first(&window, "c", 3), Some((b"d".to_vec(), 4)));
            assert_eq!(first(&window, "c", 4), Some((b"e".to_vec(), 5)));
            assert_eq!(first(&window, "c", 5), None);
            window.prepare(Epoch(0));
        }
    }

    #[test]
    fn an_empty_end_means_to_the_end_of_the_store() {
        let mut window = RangeWindow::default();
        write(&mut window, 3, &["b"]);
        assert!(changed(&window, "a", "", 2));
        assert!(!changed(&window, "a", "b", 2));
        assert!(!changed(&window, "a", "", 3));
        let other = KeyRange { store: StoreId(2), start: b"", end: b"" };
        assert!(!window.changed(&other, Epoch(0)));
    }

    #[test]
    fn an_epoch_without_writes_leaves_nothing() {
        let mut window = RangeWindow::default();
        write(&mut window, 3, &["b"]);
        write(&mut window, 4, &[]);
        assert_eq!((window.runs.len(), window.arenas.live.len()), (1, 1));
        window.drop_below(Epoch(3));
        assert_eq!((window.runs.len(), window.arenas.live.len()), (0, 0));
    }
}
