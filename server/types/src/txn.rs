//! A transaction as an engine posts it: its observations and its writes, in flat columns.

use alloc::vec::Vec;
use core::mem::size_of;

use crate::ids::{BodyHash, Epoch, NamespaceId, RowKey, StoreId, TxnId, Version};

/// Isolation level of a transaction. The numbers are part of the log format and of the plugin ABI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Isolation {
    /// Sees committed rows only; read sets are not checked.
    ReadCommitted = 0,
    /// Every row read must be unchanged at commit.
    RepeatableRead = 1,
    /// Reads form one snapshot; first committer wins on writes.
    Snapshot = 2,
    /// Strict serializability.
    #[default]
    Serializable = 3,
}

impl Isolation {
    /// All levels, weakest first.
    pub const ALL: [Isolation; 4] =
        [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable];

    /// Returns the level with the number `n`.
    #[must_use]
    pub fn from_u8(n: u8) -> Option<Isolation> {
        Self::ALL.get(usize::from(n)).copied()
    }

    /// Returns the level's name in the API, which is also the name of its built-in validator.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read-committed",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
}

/// Operation of a write on its row. The numbers are part of the log format and of the plugin ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WriteKind {
    /// Creates the row; aborts if it exists.
    Insert = 0,
    /// Replaces the value; aborts if the row is missing.
    Update = 1,
    /// Creates or replaces.
    Put = 2,
    /// Removes the row; aborts if it is missing.
    Delete = 3,
    /// Adds to an integer row; aborts if the row is missing, unless the write gives a start value. Two adds never
    /// conflict.
    Add = 4,
}

impl WriteKind {
    /// All kinds, by number.
    pub const ALL: [WriteKind; 5] =
        [WriteKind::Insert, WriteKind::Update, WriteKind::Put, WriteKind::Delete, WriteKind::Add];

    /// Returns the kind with the number `n`.
    #[must_use]
    pub fn from_u8(n: u8) -> Option<WriteKind> {
        Self::ALL.get(usize::from(n)).copied()
    }

    /// Returns the operation's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteKind::Insert => "insert",
            WriteKind::Update => "update",
            WriteKind::Put => "put",
            WriteKind::Delete => "delete",
            WriteKind::Add => "add",
        }
    }
}

/// A set of [`WriteKind`]s; contains all of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteKinds(u8);

impl Default for WriteKinds {
    fn default() -> WriteKinds {
        WriteKinds::ALL
    }
}

impl WriteKinds {
    /// Every kind.
    pub const ALL: WriteKinds = WriteKinds((1 << WriteKind::ALL.len()) - 1);

    /// Returns the set as bits, one per kind number.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Restores a set from [`WriteKinds::bits`]; `None` if a bit is not a kind's.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<WriteKinds> {
        (bits & !WriteKinds::ALL.0 == 0).then_some(WriteKinds(bits))
    }

    /// Returns whether the kind is in the set.
    #[must_use]
    pub fn contains(self, kind: WriteKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

impl FromIterator<WriteKind> for WriteKinds {
    fn from_iter<I: IntoIterator<Item = WriteKind>>(kinds: I) -> WriteKinds {
        WriteKinds(kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u8))
    }
}

/// A piece of a byte arena: `arena[at..at + len]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub at: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// Appends `bytes` to the arena and returns their span.
    ///
    /// # Panics
    /// If the arena would exceed 4 GiB, which `limits` rules out by far.
    pub fn push(arena: &mut Vec<u8>, bytes: &[u8]) -> Span {
        let at = u32::try_from(arena.len()).expect("arena below 4 GiB");
        let len = u32::try_from(bytes.len()).expect("piece below 4 GiB");
        arena.extend_from_slice(bytes);
        Span { at, len }
    }

    /// Returns the bytes in `arena`.
    ///
    /// # Panics
    /// If the span is not of this arena. Decoders check every span once, when they decode it.
    #[must_use]
    pub fn of(self, arena: &[u8]) -> &[u8] {
        &arena[self.at as usize..self.at as usize + self.len as usize]
    }
}

/// A row that the transaction observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Hashed name of the row.
    pub row: RowKey,
    /// Version seen; `None` if the row was observed to be absent.
    pub seen: Option<Version>,
    /// The row's store.
    pub store: StoreId,
    /// The row's key, in the key arena.
    pub key: Span,
}

/// A key range `start..end` (end exclusive, bytewise order) that the transaction scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The range's store.
    pub store: StoreId,
    /// First key, in the key arena.
    pub start: Span,
    /// Key after the last one, in the key arena; an empty end means "to the end of the store".
    pub end: Span,
}

/// A row that the transaction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Hashed name of the row.
    pub row: RowKey,
    /// The row's store.
    pub store: StoreId,
    /// The row's key, in the key arena.
    pub key: Span,
    /// The JSON value as posted (or the decimal delta of an add), in the value arena; empty for a delete.
    pub value: Span,
    /// Operation on the row.
    pub kind: WriteKind,
    /// Whether the value is a JSON integer within `i64`, so that an `add` may follow.
    pub integer: bool,
    /// For an `add` that creates a missing row: length of the row's start value, a decimal integer right after `value`
    /// in the value arena. 0: the row must exist.
    pub start_len: u8,
}

const _: () = assert!(size_of::<Write>() == 40, "batches hold millions of writes");

impl Write {
    /// Returns the start value that an `add` gives to a missing row, in the value arena.
    #[inline(always)]
    #[must_use]
    pub fn start(&self) -> Option<Span> {
        (self.start_len > 0)
            .then(|| Span { at: self.value.at.saturating_add(self.value.len), len: u32::from(self.start_len) })
    }
}

/// The newest state of one store that a transaction may have read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreSnapshot {
    /// The store.
    pub store: StoreId,
    /// Its state after all commits with an epoch up to this one.
    pub at: Epoch,
}

/// A transaction on its way into a batch. Row keys are hashed; spans point into `keys` and `values`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnRequest {
    /// Idempotency key.
    pub id: TxnId,
    /// Tells a retry from a different body under the same id.
    pub body_hash: BodyHash,
    /// Tenant.
    pub namespace: NamespaceId,
    /// Isolation level.
    pub isolation: Isolation,
    /// 0 to 255, default 100; only rules read it.
    pub priority: u8,
    /// Hash of the API key or client id; only rules read it.
    pub origin: u64,
    /// Epoch at Begin, if the transaction began on this service.
    pub start: Option<Epoch>,
    /// When the client first attempted this work, Unix milliseconds; only rules read it.
    pub first_attempt_ms: Option<u64>,
    /// Snapshots in ascending store order, no store twice. Empty where they may be omitted.
    pub snapshots: Vec<StoreSnapshot>,
    /// Rows observed; no row twice.
    pub reads: Vec<Read>,
    /// Ranges observed.
    pub ranges: Vec<Range>,
    /// Rows written; no row twice.
    pub writes: Vec<Write>,
    /// Arena of keys.
    pub keys: Vec<u8>,
    /// Arena of values.
    pub values: Vec<u8>,
    /// W3C `traceparent` of the request, kept in log records.
    pub traceparent: Option<alloc::string::String>,
}

impl TxnRequest {
    /// Returns whether the transaction has no writes, in which case it is judged immediately and never stored.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the latest epoch that the transaction is known to have seen, from its snapshots and the versions it
    /// read. `None` if it may have seen a later one (a scanned range, or a row found absent, may be of a later epoch
    /// than its snapshot), or if it has neither snapshots nor reads.
    #[must_use]
    pub fn seen(&self) -> Option<Epoch> {
        if !self.ranges.is_empty() || self.reads.iter().any(|read| read.seen.is_none()) {
            return None;
        }
        let snapshots = self.snapshots.iter().map(|snapshot| snapshot.at);
        snapshots.chain(self.reads.iter().filter_map(|read| read.seen).map(Version::epoch)).max()
    }

    /// Returns the approximate memory of a waiting transaction in bytes: its keys, values and operations.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let operations = self.reads.len() + self.ranges.len() + self.writes.len();
        self.keys.len() + self.values.len() + operations * size_of::<Write>() + size_of::<TxnRequest>()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn what_a_transaction_has_seen_is_known_only_if_every_read_tells_its_version() {
        let read = |epoch: Option<u64>| Read {
            row: RowKey::default(),
            seen: epoch.and_then(|epoch| Version::new(Epoch(epoch), 3)),
            store: StoreId(1),
            key: Span::default(),
        };
        let of = |at: &[u64], reads: &[Option<u64>], ranges: usize| {
            let snapshots = at.iter().map(|at| StoreSnapshot { store: StoreId(1), at: Epoch(*at) }).collect();
            let reads = reads.iter().copied().map(read).collect();
            let range = Range { store: StoreId(1), start: Span::default(), end: Span::default() };
            TxnRequest { snapshots, reads, ranges: vec![range; ranges], ..TxnRequest::default() }.seen()
        };
        assert_eq!(of(&[90, 80], &[], 0), Some(Epoch(90)));
        assert_eq!(of(&[90], &[Some(50), Some(98)], 0), Some(Epoch(98)), "a row may be read later than its snapshot");
        assert_eq!(of(&[], &[Some(50)], 0), Some(Epoch(50)));
        assert_eq!(of(&[90], &[Some(50), None], 0), None, "it may have been deleted after the snapshot");
        assert_eq!(of(&[90], &[Some(50)], 1), None, "so may a row of a range");
        assert_eq!(of(&[], &[], 0), None, "it tells nothing");
    }
}
