//! The decided ids of one second: entries in order of arrival, and an index by hash. Growing either never stalls an
//! epoch.
//!
//! Entries are stored in pages, so growth moves none. A full index is replaced by one of twice its size; every new id
//! moves some old ones into it (like Redis dictionaries, `dict.c`: incremental rehashing). Until all are moved, the old
//! index is searched too. Never iterated except for images.

use alloc::vec::Vec;
use core::ops::Range;

use tribunal_types::{BodyHash, Epoch, NamespaceId, TxnId, VerdictAt};

use crate::state::prefetch::prefetch;
use crate::state::scoped_id::ScopedId;

/// A decided id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdEntry {
    pub(crate) id: [u64; 2],
    pub(crate) body_hash: u64,
    pub(crate) epoch: u64,
    pub(crate) item: u32,
    /// Namespace, shifted left by one; the lowest bit: the id came with a body.
    pub(crate) namespace_body: u64,
}

/// Bytes charged for one id, whatever its table's fill.
pub(crate) const ID_BYTES: u64 = 72;
const _: () = assert!(size_of::<IdEntry>() <= 48, "an entry and four index words fit in what an id counts for");

impl IdEntry {
    #[inline]
    pub(crate) fn new(id: &ScopedId, body: Option<BodyHash>, at: VerdictAt) -> IdEntry {
        IdEntry {
            id: halves(id.id),
            body_hash: body.map_or(0, |hash| hash.0),
            epoch: at.epoch.0,
            item: at.item,
            namespace_body: u64::from(id.namespace.0) << 1 | u64::from(body.is_some()),
        }
    }

    pub(crate) fn at(&self) -> VerdictAt {
        VerdictAt { epoch: Epoch(self.epoch), item: self.item }
    }

    pub(crate) fn body(&self) -> Option<BodyHash> {
        (self.namespace_body & 1 != 0).then_some(BodyHash(self.body_hash))
    }

    /// Returns whether both are the same id of the same namespace, whatever was decided.
    #[inline]
    fn names(&self, other: &IdEntry) -> bool {
        self.id == other.id && self.namespace_body >> 1 == other.namespace_body >> 1
    }

    pub(crate) fn scoped(&self) -> ScopedId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.id[0].to_be_bytes());
        id[8..].copy_from_slice(&self.id[1].to_be_bytes());
        ScopedId { namespace: NamespaceId((self.namespace_body >> 1) as u32), id: TxnId(id) }
    }
}

#[inline]
fn halves(id: TxnId) -> [u64; 2] {
    let n = u128::from_be_bytes(id.0);
    [(n >> 64) as u64, n as u64]
}

/// Entries per page: large enough that allocating a page is rare, small enough that it is fast.
const PAGE: usize = 1 << 12;

/// Entries in order of arrival.
#[derive(Clone, Debug, Default)]
struct Pages {
    /// Full, except for the last used one. Emptied pages are kept after it.
    pages: Vec<Vec<IdEntry>>,
    len: usize,
}

impl Pages {
    #[inline]
    fn get(&self, position: usize) -> &IdEntry {
        &self.pages[position / PAGE][position % PAGE]
    }

    #[inline]
    fn push(&mut self, entry: IdEntry) {
        let page = self.len / PAGE;
        if page == self.pages.len() {
            // Most seconds of a quiet service have few ids: the first page grows with them.
            self.pages.push(Vec::with_capacity(if page == 0 { 0 } else { PAGE }));
        }
        self.pages[page].push(entry);
        self.len += 1;
    }

    fn clear(&mut self) {
        self.pages.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }

    fn iter(&self) -> impl Iterator<Item = &IdEntry> {
        self.pages.iter().flatten()
    }
}

/// Positions of entries by hash: the position, counted from 1, below bits of the hash. At most three quarters full, so
/// that positions stay below the size, which is a power of two.
#[derive(Clone, Debug, Default)]
struct Index(Vec<u32>);

impl Index {
    fn of_size(size: usize) -> Index {
        Index(alloc::vec![0; size])
    }

    #[inline]
    fn mask(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns the home slot of an id: the upper half of the hash places it, the lower half distinguishes it from other
    /// ids there.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.mask()
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        if !self.0.is_empty() {
            prefetch(&self.0, self.home(hash));
        }
    }

    /// Returns the id's slot in the index, and its position among the entries if it is known.
    #[inline]
    fn search(&self, entries: &Pages, id: &IdEntry, hash: u64) -> (usize, Option<usize>) {
        let mask = self.mask();
        let mut at = self.home(hash);
        loop {
            let word = self.0[at];
            if word == 0 {
                return (at, None);
            }
            if (word ^ hash as u32) & !mask as u32 == 0 {
                let position = (word & mask as u32) as usize - 1;
                if entries.get(position).names(id) {
                    return (at, Some(position));
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Records an entry's position in the empty slot `at`.
    #[inline]
    fn note_at(&mut self, at: usize, hash: u64, position: usize) {
        self.0[at] = hash as u32 & !self.mask() as u32 | (position as u32 + 1);
    }

    /// Records the position of an entry that is not in the index.
    fn note(&mut self, hash: u64, position: usize) {
        let mut at = self.home(hash);
        while self.0[at] != 0 {
            at = (at + 1) & self.mask();
        }
        self.note_at(at, hash, position);
    }
}

const INDEX_MIN: usize = 16;

/// How many old ids each new id moves into a new index: more than one, so that all are moved long before the new index
/// is full.
const MOVED_AT_ONCE: usize = 2;

/// The ids of one second.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdBucket {
    entries: Pages,
    index: Index,
    /// The previous index, while it contains entries that are not in `index`.
    old: Option<Index>,
    /// Positions of the entries still to be moved from `old` to `index`.
    to_move: Range<usize>,
    /// Clients choose the ids: without a key they could target one chain of the index.
    seed: u64,
}

impl IdBucket {
    /// Begins a second that is likely to have `ids` ids. The bucket must be empty.
    pub(crate) fn open(&mut self, seed: u64, ids: usize) {
        debug_assert!(self.entries.len == 0, "ids are filed by their seed");
        self.seed = seed;
        let size = (ids * 4 / 3 + 1).next_power_of_two().max(INDEX_MIN);
        if self.index.0.len() < size {
            self.index = Index::of_size(size);
        }
    }

    /// Forgets all ids, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.index.0.fill(0);
        self.old = None;
        self.to_move = 0..0;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len
    }

    /// Returns all entries in order of arrival, for images.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &IdEntry> {
        self.entries.iter()
    }

    /// Appends the entries at these positions to `into`.
    pub(crate) fn copy(&self, positions: Range<usize>, into: &mut Vec<IdEntry>) {
        let mut at = positions.start;
        while at < positions.end {
            let page = &self.entries.pages[at / PAGE];
            let upto = positions.end.min((at / PAGE + 1) * PAGE);
            into.extend_from_slice(&page[at % PAGE..=(upto - 1) % PAGE]);
            at = upto;
        }
    }

    #[inline]
    fn hash(&self, id: &IdEntry) -> u64 {
        let [hi, lo] = id.id;
        let folded = u128::from(hi ^ self.seed) * u128::from(lo ^ self.seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15);
        (folded as u64 ^ (folded >> 64) as u64 ^ id.namespace_body >> 1).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// Starts loading the data that [`IdBucket::find`] will need.
    #[inline]
    pub(crate) fn prefetch(&self, id: &IdEntry) {
        let hash = self.hash(id);
        self.index.prefetch(hash);
        if let Some(old) = &self.old {
            old.prefetch(hash);
        }
    }

    /// Returns the stored entry with this entry's id.
    #[inline]
    pub(crate) fn find(&self, id: &IdEntry) -> Option<&IdEntry> {
        if self.index.0.is_empty() {
            return None;
        }
        let hash = self.hash(id);
        let (_, position) = self.index.search(&self.entries, id, hash);
        position.or_else(|| self.find_old(id, hash)).map(|position| self.entries.get(position))
    }

    #[inline]
    fn find_old(&self, id: &IdEntry, hash: u64) -> Option<usize> {
        self.old.as_ref().and_then(|old| old.search(&self.entries, id, hash).1)
    }

    /// Returns the entry of a known id, or adds an unknown one, in a single walk.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, id: IdEntry) -> Option<&IdEntry> {
        if self.old.is_some() || (self.entries.len + 1) * 4 > self.index.0.len() * 3 {
            self.grow();
        }
        let hash = self.hash(&id);
        let (at, position) = self.index.search(&self.entries, &id, hash);
        let known = position.or_else(|| self.find_old(&id, hash));
        if known.is_none() {
            self.index.note_at(at, hash, self.entries.len);
            self.entries.push(id);
        }
        known.map(|position| self.entries.get(position))
    }

    /// Begins to grow the index when it is full, or continues growing it.
    #[cold]
    fn grow(&mut self) {
        if self.old.is_none() {
            let grown = Index::of_size((self.index.0.len() * 2).max(INDEX_MIN));
            self.old = Some(core::mem::replace(&mut self.index, grown));
            self.to_move = 0..self.entries.len;
        }
        for _ in 0..MOVED_AT_ONCE {
            let Some(position) = self.to_move.next() else { break };
            let hash = self.hash(self.entries.get(position));
            self.index.note(hash, position);
        }
        if self.to_move.is_empty() {
            self.old = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> IdEntry {
        let id = [n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n];
        IdEntry { id, body_hash: n, epoch: 3, item: n as u32, namespace_body: 3 }
    }

    #[test]
    fn every_id_is_found_at_every_moment_of_growth() {
        let mut bucket = IdBucket::default();
        bucket.open(7, 0);
        let mut while_growing = 0;
        for n in 0..3 * PAGE as u64 {
            assert_eq!(bucket.find_or_insert(id(n)), None, "{n} is new");
            while_growing += u64::from(bucket.old.is_some());
            for known in [0, n / 3, n / 2, n] {
                assert_eq!(bucket.find(&id(known)), Some(&id(known)), "{known} after {n}");
                assert_eq!(bucket.find_or_insert(id(known)), Some(&id(known)));
            }
            assert_eq!(bucket.find(&id(n + 1)), None);
        }
        assert!(while_growing > 1_000, "the index was asked while it grew");
        assert_eq!(bucket.len(), 3 * PAGE);
        let all: Vec<IdEntry> = (0..3 * PAGE as u64).map(id).collect();
        assert!(bucket.iter().eq(&all), "in order of arrival");
        for positions in [0..0, 0..1, 5..PAGE, PAGE - 1..PAGE + 1, 7..3 * PAGE, PAGE..2 * PAGE] {
            let mut copied = Vec::new();
            bucket.copy(positions.clone(), &mut copied);
            assert_eq!(copied, all[positions.clone()], "{positions:?}");
        }
    }

    #[test]
    fn an_emptied_bucket_knows_nothing_and_fills_again() {
        let mut bucket = IdBucket::default();
        bucket.open(7, 0);
        // Emptied both while the index grows and while it does not.
        for ids in [13, 5_000, 12] {
            for n in 0..ids {
                assert_eq!(bucket.find_or_insert(id(n)), None);
            }
            bucket.clear();
            assert_eq!((bucket.len(), bucket.find(&id(0)), bucket.iter().count()), (0, None, 0));
            bucket.open(8, 100);
        }
    }
}
