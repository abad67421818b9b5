//! A transaction's answer, and the reasons for its defeat. An abort is a decision, not an error.

use alloc::vec::Vec;
use core::fmt;

use crate::ids::{Csn, Epoch, Lsn, StoreId, TxnId, Version};

/// Why a transaction aborted. The numbers are part of the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A row that was read has another version now, has appeared or was deleted.
    ReadConflict,
    /// A written row was written by another transaction first.
    WriteConflict,
    /// A scanned range changed.
    RangeConflict,
    /// An insert of a row that exists.
    RowExists,
    /// An update, delete or add of a row that does not exist.
    RowMissing,
    /// An add to a row whose value is not an integer.
    NotANumber,
    /// The snapshot is below the floor: the history needed to judge it was dropped.
    SnapshotTooOld,
    /// The snapshot is above the last complete state, so it cannot have been read.
    SnapshotFromTheFuture,
    /// The transaction would close a cycle in the serial order of its epoch, or the search for a place ended without one. Before
    /// [`Generation::THIRD`](crate::Generation::THIRD), it fits neither before nor after all others.
    OrderConflict,
    /// A lock that the transaction relied on is no longer held.
    LockLost,
    /// The transaction waited in a cycle.
    Deadlock,
    /// The client gave up.
    ClientAbort,
    /// A fence settled that the id can never commit.
    Fenced,
    /// Stores that keep versions themselves were read at snapshots that do not form one state of the database.
    SnapshotsDiffer,
    /// An add whose sum could leave 64 bits.
    AddOverflow,
    /// The isolation validator rejected it with a code of its own: 1 to 63 if the same work may be accepted later, 64
    /// to 127 if not.
    Plugin(u8),
}

impl Reason {
    const TABLE: [(Reason, u8, &'static str); 15] = [
        (Reason::ReadConflict, 128, "read_conflict"),
        (Reason::WriteConflict, 129, "write_conflict"),
        (Reason::RangeConflict, 130, "range_conflict"),
        (Reason::RowExists, 131, "row_exists"),
        (Reason::RowMissing, 132, "row_missing"),
        (Reason::NotANumber, 133, "not_a_number"),
        (Reason::SnapshotTooOld, 134, "snapshot_too_old"),
        (Reason::SnapshotFromTheFuture, 135, "snapshot_from_the_future"),
        (Reason::OrderConflict, 136, "order_conflict"),
        (Reason::LockLost, 137, "lock_lost"),
        (Reason::Deadlock, 138, "deadlock"),
        (Reason::ClientAbort, 139, "client_abort"),
        (Reason::Fenced, 140, "fenced"),
        (Reason::SnapshotsDiffer, 141, "snapshots_differ"),
        (Reason::AddOverflow, 142, "add_overflow"),
    ];

    /// Returns the reason's code in log records and in validators' answers: 1-127 are `Plugin`, 0 means no reason.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Reason::Plugin(code) => code,
            named => Self::TABLE.iter().find(|row| row.0 == named).map_or(0, |row| row.1),
        }
    }

    /// Restores a reason from its code; `None` for 0 and for unassigned codes.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Reason> {
        match code {
            0 => None,
            1..=127 => Some(Reason::Plugin(code)),
            _ => Self::TABLE.iter().find(|row| row.1 == code).map(|row| row.0),
        }
    }

    /// Plugin reasons from this code on are final.
    const FIRST_FINAL: u8 = 64;

    /// Returns whether the same work, repeated with fresh reads, may commit.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Reason::Plugin(code) => code < Self::FIRST_FINAL,
            Reason::ClientAbort | Reason::Fenced | Reason::NotANumber | Reason::AddOverflow => false,
            _ => true,
        }
    }
}

impl Reason {
    /// Returns the reason's name; `plugin` for all plugin codes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Plugin(_) => "plugin",
            named => Self::TABLE.iter().find(|row| row.0 == named).map_or("unknown", |row| row.2),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Plugin(code) => write!(f, "plugin:{code}"),
            named => f.write_str(named.name()),
        }
    }
}

/// The stage that defeated the transaction. The numbers are part of the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// Before the epoch was sealed (certain loser, client abort).
    Admission = 0,
    /// Id table and fences.
    Identity = 1,
    /// Snapshot bounds and row existence, judged on the state before the epoch.
    Join = 2,
    /// The isolation validator.
    Validate = 3,
    /// The walk in rank order, against the epoch's own winners.
    Merge = 4,
}

impl Stage {
    /// All stages, by number.
    pub const ALL: [Stage; 5] = [Stage::Admission, Stage::Identity, Stage::Join, Stage::Validate, Stage::Merge];

    /// Returns the stage's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Admission => "admission",
            Stage::Identity => "identity",
            Stage::Join => "join",
            Stage::Validate => "validate",
            Stage::Merge => "merge",
        }
    }
}

/// The column of a transaction that holds an operation. The numbers are part of the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OpKind {
    /// `reads`
    Read = 0,
    /// `ranges`
    Range = 1,
    /// `writes`
    Write = 2,
}

/// One reason for an abort, with everything a client needs to act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The store.
    pub store: StoreId,
    /// The row's key; a range's start.
    pub key: Vec<u8>,
    /// A range's end.
    pub end: Option<Vec<u8>>,
    /// Kind of the operation that lost.
    pub op: OpKind,
    /// Version that the transaction read, if the operation was a read of an existing row.
    pub read_version: Option<Version>,
    /// For a range: the first row in it that the winner wrote, if the winner is known. Not stored.
    pub row: Option<Vec<u8>>,
    /// Current version; `None` if the row is absent or the winner is in the same epoch.
    pub current_version: Option<Version>,
    /// The winner: always if it is in the same epoch, otherwise while its epoch is in memory.
    pub by_txn: Option<TxnId>,
    /// For a range that changed before the epoch: the epoch of the last write to its first changed row. Not stored.
    pub changed_in: Option<Epoch>,
    /// The stage that found it.
    pub stage: Stage,
}

impl Conflict {
    /// Returns whether the row or range is known to have changed since the transaction read it, so that its writer is
    /// to blame.
    #[must_use]
    pub fn shows_change(&self) -> bool {
        match self.op {
            OpKind::Read => self.current_version != self.read_version,
            OpKind::Range => self.changed_in.is_some(),
            OpKind::Write => false,
        }
    }

    /// Returns the bytes of memory that the conflict occupies, including its keys.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |key: &Option<Vec<u8>>| key.as_ref().map_or(0, Vec::len);
        size_of::<Conflict>() + self.key.len() + of(&self.end) + of(&self.row)
    }
}

/// A transaction's final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Durable and final.
    Committed {
        /// Epoch.
        epoch: Epoch,
        /// Arrival stamp.
        csn: Csn,
        /// Version of every row it wrote.
        version: Version,
        /// Position in the log of each store it wrote, ascending store.
        lsns: Vec<(StoreId, Lsn)>,
    },
    /// Read-only and consistent at this snapshot; nothing was stored.
    ReadOnly {
        /// Last complete epoch that it was judged on.
        epoch: Epoch,
    },
    /// Final, too.
    Aborted {
        /// Epoch in which it was decided.
        epoch: Epoch,
        /// Why.
        reason: Reason,
        /// The operations that lost, and the winners; at least one, except for `client_abort` and `fenced`.
        conflicts: Vec<Conflict>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_tells_whether_its_reason_is_final() {
        let retryable = [0, 1, 63, 64, 127].map(|code| Reason::Plugin(code).is_retryable());
        assert_eq!(retryable, [true, true, true, false, false]);
        assert!(Reason::ReadConflict.is_retryable() && !Reason::Fenced.is_retryable());
    }

    #[test]
    fn a_conflict_only_shows_a_change_of_what_was_read() {
        let version = |epoch| Version::new(Epoch(epoch), 0);
        let conflict = |op, read_version, current_version, changed_in| Conflict {
            store: StoreId(1),
            key: Vec::new(),
            end: None,
            op,
            read_version,
            row: None,
            current_version,
            by_txn: None,
            changed_in,
            stage: Stage::Validate,
        };
        for (op, read, current, changed_in, shows) in [
            (OpKind::Read, version(5), version(5), None, false),
            (OpKind::Read, version(5), version(6), None, true),
            (OpKind::Read, version(5), None, None, true),
            (OpKind::Read, None, None, None, false),
            (OpKind::Range, None, None, None, false),
            (OpKind::Range, None, None, Some(Epoch(6)), true),
            (OpKind::Write, None, version(6), None, false),
        ] {
            assert_eq!(conflict(op, read, current, changed_in).shows_change(), shows, "{op:?} {read:?} {current:?}");
        }
    }
}
