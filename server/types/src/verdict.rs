//! A transaction's answer, and why it was defeated. An abort is a decision, not an error.

use alloc::vec::Vec;
use core::fmt;

use crate::ids::{Csn, Epoch, Lsn, StoreId, TxnId, Version};

/// Why a transaction aborted. The numbers are part of the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A row read has another version now, appeared or is gone.
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
    /// The snapshot is below the floor: the history to judge it is gone.
    SnapshotTooOld,
    /// The snapshot is above everything that is complete: it cannot have been read.
    SnapshotFromTheFuture,
    /// The transaction fits neither before nor after the serializable transactions of its epoch that committed. (A
    /// cleverer order might have room: the search for one ends at the queue's two ends.)
    OrderConflict,
    /// A lock that the transaction relied on is no longer held.
    LockLost,
    /// The transaction waited in a cycle.
    Deadlock,
    /// The client gave up.
    ClientAbort,
    /// A fence settled that the id can never commit.
    Fenced,
    /// The stores that keep versions themselves were read at snapshots that are not one state of the database.
    SnapshotsDiffer,
    /// An add whose sum could leave 64 bits.
    AddOverflow,
    /// The isolation validator rejected it with a code of its own: 1 to 63 if the same work may be accepted later, 64 to 127 if
    /// not.
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

    /// Returns the reason's code in log records and in validators' answers: 1-127 are `Plugin`, 0 is no reason.
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

    /// Reasons of plugins from this code on are final.
    const FIRST_FINAL: u8 = 64;

    /// Returns whether the same work, done again on fresh reads, may commit.
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
    /// Returns the reason's name; `plugin` for all codes of plugins.
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

/// Which stage defeated the transaction. The numbers are part of the log format.
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
    /// The walk in rank order against the epoch's own winners.
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

/// Which column of a transaction an operation is in. The numbers are part of the log format.
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
    /// Which kind of operation lost.
    pub op: OpKind,
    /// Version that the transaction had read, if the operation was a read of a present row.
    pub read_version: Option<Version>,
    /// Of a range: the first row in it that the winner wrote, where the winner is known. Not stored.
    pub row: Option<Vec<u8>>,
    /// Version that is there now; `None` if the row is absent or the winner is of the same epoch.
    pub current_version: Option<Version>,
    /// The winner: always if it is of the same epoch, else as long as its epoch is in memory.
    pub by_txn: Option<TxnId>,
    /// Of a range that had changed before the epoch: the epoch in which its first changed row was last written. Not
    /// stored.
    pub changed_in: Option<Epoch>,
    /// Where it was found.
    pub stage: Stage,
}

impl Conflict {
    /// Returns whether the row, or range, is known to have changed since the transaction read it, so that the one who
    /// changed it is to blame.
    #[must_use]
    pub fn shows_change(&self) -> bool {
        match self.op {
            OpKind::Read => self.current_version != self.read_version,
            OpKind::Range => self.changed_in.is_some(),
            OpKind::Write => false,
        }
    }

    /// Bytes of memory that the conflict occupies, its keys included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |key: &Option<Vec<u8>>| key.as_ref().map_or(0, Vec::len);
        size_of::<Conflict>() + self.key.len() + of(&self.end) + of(&self.row)
    }
}

/// A transaction's final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Durable, and it can no longer change.
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
    /// Final as well.
    Aborted {
        /// Epoch in which it was decided.
        epoch: Epoch,
        /// Why.
        reason: Reason,
        /// What defeated it; at least one, except for `client_abort` and `fenced`.
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
