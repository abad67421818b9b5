//! The two interfaces through which policies reach the resolver: columns in, columns out.
//!
//! A policy is a pure function of its columns. The resolver calls it once per epoch (a validator once per level and
//! shard), passes only the data it can affect, and trusts nothing of its answer but the shape: a wrong length or a
//! fault makes the whole epoch fall back to the native policy in [`crate::policy::native`], on every replica.

pub mod native;
mod policies;

pub use policies::Policies;

use alloc::string::String;
use alloc::vec::Vec;

use tribunal_types::Isolation;

/// Columns of transactions, all of length `n`, in epoch order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnColumns {
    /// Arrival stamps.
    pub csn: Vec<u64>,
    /// The epoch being resolved (the same in every row).
    pub epoch: u64,
    /// Epoch at Begin; `epoch` if the transaction did not begin here.
    pub start: Vec<u64>,
    /// Hash of the API key or client id.
    pub origin: Vec<u64>,
    /// 0 to 255.
    pub priority: Vec<u8>,
    /// Number of rows and ranges read.
    pub reads: Vec<u32>,
    /// Number of rows written.
    pub writes: Vec<u32>,
    /// Time of the client's first attempt at the work in Unix milliseconds; the time in the transaction's id if it gave
    /// none.
    pub first_attempt: Vec<u64>,
}

/// Evidence about reads: one row per read; transaction `t` has rows `ends[t - 1]..ends[t]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadColumns {
    /// Ends by transaction; length `n`.
    pub ends: Vec<u32>,
    /// Version seen, as bits; 0 if "absent" was observed.
    pub seen: Vec<u64>,
    /// Current version (state after the previous epoch), as bits; 0 if the row is absent now.
    pub latest: Vec<u64>,
}

/// Evidence about writes: one row per write, by `ends` as for reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteColumns {
    /// Ends by transaction; length `n`.
    pub ends: Vec<u32>,
    /// `WriteKind` as a number.
    pub kind: Vec<u8>,
    /// Bit set of [`write_flag`].
    pub flags: Vec<u8>,
    /// Current version, as bits; 0 if the row is absent now.
    pub latest: Vec<u64>,
}

/// Flags of a write's evidence.
pub mod write_flag {
    /// The row exists now.
    pub const EXISTS: u8 = 1;
    /// The row is in the transaction's own read set.
    pub const WAS_READ: u8 = 2;
    /// That read is still current; at the snapshot level, if it saw no row, this also requires that the row was not
    /// written and deleted since the moment at which all reads hold. Meaningless without `WAS_READ`.
    pub const READ_CURRENT: u8 = 4;
    /// The row changed after the transaction's snapshot of its store (without a snapshot: never).
    pub const CHANGED_SINCE_SNAPSHOT: u8 = 8;
}

/// Evidence about ranges: one row per range, by `ends` as for reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeColumns {
    /// Ends by transaction; length `n`.
    pub ends: Vec<u32>,
    /// 1 if a row within the range was written after the transaction's snapshot of its store, otherwise 0.
    pub changed: Vec<u8>,
}

/// Groups of a validator's columns, one bit each. Ends are always present.
pub mod group {
    /// The transactions' own columns.
    pub const TXNS: u8 = 1;
    /// `snapshot`, `current_from`, `current_until` and `multi_version`, at any level that needs them.
    pub const SNAPSHOTS: u8 = 2;
    /// Evidence about reads.
    pub const READS: u8 = 4;
    /// Evidence about ranges.
    pub const RANGES: u8 = 8;
    /// Evidence about writes.
    pub const WRITES: u8 = 16;
    /// All of them.
    pub const ALL: u8 = TXNS | SNAPSHOTS | READS | RANGES | WRITES;
}

/// A validator's input: the transactions of its level that take part in one shard. Columns of groups that it does not
/// need may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidatorColumns {
    /// The transactions; counts cover the whole transaction, not only this shard.
    pub txns: TxnColumns,
    /// The newest store snapshot of each transaction (an epoch); `epoch - 1` if it named none. Length `n`.
    pub snapshot: Vec<u64>,
    /// First epoch of an interval in which *every* row read, in all shards, was current; 0 if nothing was read. If
    /// there are several, the earliest one with an epoch at or after `snapshot` and, at the snapshot level, after the
    /// last deletion of a row that was read as absent and is written. `u64::MAX` if there is none. Length `n`.
    pub current_from: Vec<u64>,
    /// Last epoch of that interval; `u64::MAX` while all rows are still current. Less than `current_from` if there is
    /// none. Length `n`.
    pub current_until: Vec<u64>,
    /// 1 if a store of the transaction is multi-version, so that all its reads must hold exactly at `snapshot` (its
    /// reads of such stores are excluded from `current_from` and `current_until`), otherwise 0.
    pub multi_version: Vec<u8>,
    /// Reads of this shard.
    pub reads: ReadColumns,
    /// Writes of this shard.
    pub writes: WriteColumns,
    /// Ranges of this shard.
    pub ranges: RangeColumns,
}

impl ValidatorColumns {
    /// Returns the number of transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reads.ends.len()
    }

    /// Returns whether there is no transaction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A validator's answer: one row per transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// 0 accepts; otherwise a `Reason::code` (1-127 are the plugin's own).
    pub code: Vec<u8>,
    /// The operation to blame among the transaction's operations *in the columns given*, counted through its reads,
    /// then its ranges, then its writes; [`NO_WITNESS`] for none in particular.
    pub witness: Vec<u32>,
}

/// "No operation in particular."
pub const NO_WITNESS: u32 = u32::MAX;

/// A rule's answer: one 128-bit rank per transaction; the lower rank wins. Ties are broken by CSN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// High halves.
    pub hi: Vec<u64>,
    /// Low halves.
    pub lo: Vec<u64>,
}

/// A deterministic failure of a policy: the same on every replica. (A failure of the host is not a fault: the host
/// stops.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault(pub String);

/// Judges whether transactions of a level are acceptable, each by itself and as a conjunction over its operations, so
/// that the verdict does not depend on how rows are distributed over shards (split-invariance).
pub trait Validator: Sync {
    /// Returns the groups of columns ([`group`]) that judging this level needs; always the same answer. From
    /// [`Generation::THIRD`](tribunal_types::Generation::THIRD) on it is part of the rules: with [`group::SNAPSHOTS`] or
    /// [`group::WRITES`], every transaction of the level needs history from its snapshots on.
    fn needs(&self, _level: Isolation) -> u8 {
        group::ALL
    }

    /// Judges every transaction of `columns`.
    ///
    /// # Errors
    /// A deterministic fault; the epoch then falls back to the native validator.
    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault>;
}

/// Orders transactions that contend for rows: each only by its own columns and the epoch's constants, whatever else is
/// in the batch (subset-invariance).
pub trait ConflictRule: Sync {
    /// Ranks every transaction of `columns`.
    ///
    /// # Errors
    /// A deterministic fault; the epoch then falls back to the native rule.
    fn rank(&self, columns: &TxnColumns) -> Result<Ranks, PolicyFault>;
}
