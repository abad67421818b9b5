//! A simulated file: the content that programs read, the content on the disk, and the writes between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::random::Random;

const PAGE_BYTES: u64 = 4096;
/// Unit that a disk writes completely or not at all, unless a write is torn at a byte.
const SECTOR_BYTES: usize = 512;

/// Bytes in pages that copies share; pages of zeros are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES as usize]>>,
    len: u64,
}

impl Bytes {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the disk space that they occupy: whole pages up to the end.
    pub(super) fn room(&self) -> u64 {
        self.len.next_multiple_of(PAGE_BYTES)
    }

    /// Fills `bytes` as far as the file reaches; returns the number of bytes filled.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        let filled = bytes.len().min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        for (at, within, step) in steps(offset, filled) {
            let target = &mut bytes[at..at + step];
            match self.pages.get(&((offset + at as u64) / PAGE_BYTES)) {
                Some(page) => target.copy_from_slice(&page[within..within + step]),
                None => target.fill(0),
            }
        }
        filled
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for (at, within, step) in steps(offset, bytes.len()) {
            let number = (offset + at as u64) / PAGE_BYTES;
            let source = &bytes[at..at + step];
            let zeros = source.iter().all(|byte| *byte == 0);
            if zeros && (step as u64 == PAGE_BYTES || !self.pages.contains_key(&number)) {
                self.pages.remove(&number);
                continue;
            }
            let page = self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
            Arc::make_mut(page)[within..within + step].copy_from_slice(source);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Truncates the file, or extends it with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.retain(|number, _| number * PAGE_BYTES < len);
            if let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES)) {
                Arc::make_mut(page)[(len % PAGE_BYTES) as usize..].fill(0);
            }
        }
        self.len = len;
    }
}

/// Yields pieces of `len` bytes at `offset`, each within one page: offset in the bytes, offset in the page, length.
fn steps(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let within = ((offset + at as u64) % PAGE_BYTES) as usize;
        let step = (PAGE_BYTES as usize - within).min(len - at);
        let piece = (at, within, step);
        at += step;
        (step > 0).then_some(piece)
    })
}

/// A change that is not on the disk yet.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen(u64),
}

impl Change {
    fn apply(&self, to: &mut Bytes) {
        match self {
            Change::Write { offset, bytes } => to.write(bytes, *offset),
            Change::SetLen(len) => to.set_len(*len),
        }
    }
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    cached: Bytes,
    durable: Bytes,
    /// The changes between `durable` and `cached`, in order.
    unsynced: Vec<Change>,
}

/// The fate of the unsynced changes of one file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// None is on the disk.
    Dropped,
    /// All are on the disk.
    Kept,
    /// A prefix of them is on the disk, and of the next one a prefix of its bytes.
    Torn,
    /// Any subset is on the disk, later ones without earlier ones, sector by sector.
    Reordered,
}

impl Fate {
    pub(super) fn draw(random: &mut Random) -> Self {
        [Fate::Dropped, Fate::Kept, Fate::Torn, Fate::Reordered][random.below(4) as usize]
    }
}

impl Content {
    pub(super) fn cached(&self) -> &Bytes {
        &self.cached
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.change(Change::Write { offset, bytes: bytes.into() });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len != self.cached.len {
            self.change(Change::SetLen(len));
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Fails a sync: some of the unsynced changes reach the disk, and no later sync writes the rest, although reads
    /// return it. Linux behaves this way.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.settle(Fate::draw(random), random);
    }

    /// Cuts the power: everything that is not on the disk is lost.
    pub(super) fn cut_power(&mut self, fate: Fate, random: &mut Random) {
        self.settle(fate, random);
        self.cached = self.durable.clone();
    }

    fn settle(&mut self, fate: Fate, random: &mut Random) {
        let changes = std::mem::take(&mut self.unsynced);
        let whole = match fate {
            Fate::Dropped | Fate::Reordered => 0,
            Fate::Kept => changes.len(),
            Fate::Torn => random.below(changes.len() as u64 + 1) as usize,
        };
        for change in &changes[..whole] {
            change.apply(&mut self.durable);
        }
        match fate {
            Fate::Torn => {
                if let Some(Change::Write { offset, bytes }) = changes.get(whole) {
                    self.durable.write(&bytes[..random.below(bytes.len() as u64 + 1) as usize], *offset);
                }
            }
            Fate::Reordered => changes.iter().for_each(|change| self.scatter(change, random)),
            Fate::Dropped | Fate::Kept => {}
        }
    }

    /// Writes some sectors of a change to the disk.
    fn scatter(&mut self, change: &Change, random: &mut Random) {
        // All, none, or some of them.
        let share = random.below(3);
        match change {
            Change::SetLen(len) if share > 0 => self.durable.set_len(*len),
            Change::SetLen(_) => {}
            Change::Write { offset, bytes } => {
                for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if share == 1 || share == 2 && random.below(2) == 0 {
                        self.durable.write(sector, offset + (number * SECTOR_BYTES) as u64);
                    }
                }
                let end = offset + bytes.len() as u64;
                // The file has its full length but not all of the bytes: they read as zeros.
                if end > self.durable.len && random.below(2) == 0 {
                    self.durable.set_len(end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &Bytes) -> Vec<u8> {
        let mut read = vec![1; bytes.len() as usize];
        assert_eq!(bytes.read(&mut read, 0), read.len());
        read
    }

    #[test]
    fn pages_hold_what_a_plain_vector_holds() {
        let (mut random, mut bytes, mut plain) = (Random(3), Bytes::default(), Vec::new());
        for round in 0..300 {
            if random.below(8) == 0 {
                let len = random.below(20_000);
                bytes.set_len(len);
                plain.resize(len as usize, 0);
            } else {
                let (offset, len) = (random.below(15_000) as usize, random.below(6_000) as usize);
                let fill = if random.below(3) == 0 { 0 } else { round as u8 };
                bytes.write(&vec![fill; len], offset as u64);
                plain.resize(plain.len().max(offset + len), 0);
                plain[offset..offset + len].fill(fill);
            }
            assert!(read(&bytes) == plain, "round {round}");
        }
    }

    /// Returns the remains of three writes of a page each, after a first one that was synced.
    fn left(fate: Fate, seed: u64) -> Vec<u8> {
        let (mut content, mut random) = (Content::default(), Random(seed));
        content.write(&[9; 4096], 0);
        content.sync();
        for number in 1..=3_u8 {
            content.write(&[number; 4096], u64::from(number) * 4096);
        }
        content.cut_power(fate, &mut random);
        let left = read(content.cached());
        assert_eq!(left[..4096], [9; 4096], "what was synced is there");
        left
    }

    #[test]
    fn what_was_not_synced_is_dropped_kept_torn_or_reordered() {
        assert_eq!(left(Fate::Dropped, 1).len(), 4096);
        assert_eq!(left(Fate::Kept, 1).len(), 4 * 4096);
        let (mut torn, mut reordered) = (0, 0);
        for seed in 0..200 {
            let cut = left(Fate::Torn, seed);
            assert!(cut.iter().enumerate().skip(4096).all(|(at, byte)| *byte as usize == at / 4096), "seed {seed}");
            torn += usize::from(!cut.len().is_multiple_of(SECTOR_BYTES));
            let any = left(Fate::Reordered, seed);
            // A missing sector precedes an existing one.
            reordered += usize::from(any[4096..].contains(&0) && any.last().is_some_and(|last| *last != 0));
        }
        assert!(torn > 50 && reordered > 20, "{torn} torn, {reordered} reordered");
    }

    #[test]
    fn after_a_failed_sync_no_later_one_helps() {
        let mut lost = 0;
        for seed in 0..50 {
            let (mut content, mut random) = (Content::default(), Random(seed));
            content.write(b"first", 0);
            content.fail_sync(&mut random);
            assert_eq!(read(content.cached()), b"first", "it is read back all the same");
            content.write(b"second", 5);
            content.sync();
            content.cut_power(Fate::Kept, &mut random);
            let left = read(content.cached());
            assert_eq!(left[5..], *b"second");
            lost += usize::from(left[..5] != *b"first");
        }
        assert!(lost > 5, "{lost}");
    }
}
