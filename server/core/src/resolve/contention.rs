//! Data passed from the vote to the merge: accesses to contended rows, and the rows' participants.

use alloc::vec::Vec;
use core::iter::successors;

use crate::resolve::access_class::{class, held};
use crate::resolve::epoch_rows::NONE;

/// An access to a contended row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The row's number in the shard.
    pub(crate) row: u32,
    /// Reads count from 0, writes from [`Part::WRITES_FROM`]: the index within the transaction.
    pub(crate) op: u32,
    /// Access classes.
    pub(crate) class: u8,
}

impl Part {
    pub(crate) const WRITES_FROM: u32 = 1 << 31;
    pub(crate) const NO: Part = Part { row: NONE, op: 0, class: 0 };
}

/// A winner's access to a contended row: the transaction, and the `held` bits that it set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WinnersAccess {
    pub(crate) txn: u32,
    pub(crate) holds: u16,
    /// The previous access to the row that changes it, and the previous one that relies on it; `NONE` if there is none.
    previous: [u32; 2],
}

/// The winners' accesses to a row: how many, the last one that changes it, and the last one that relies on it; `NONE` if
/// there is none.
#[derive(Clone, Copy, Debug)]
struct RowsWinners {
    count: u32,
    last: [u32; 2],
}

/// The winners' accesses to contended rows.
#[derive(Debug, Default)]
pub(crate) struct Winners {
    all: Vec<WinnersAccess>,
    /// By the row's number.
    rows: Vec<RowsWinners>,
}

impl Winners {
    /// Positions of the two lists of a row.
    const CHANGES: usize = 0;
    const RELIES: usize = 1;

    pub(crate) fn reset(&mut self, rows: usize) {
        self.all.clear();
        self.rows.clear();
        self.rows.resize(rows, RowsWinners { count: 0, last: [NONE; 2] });
    }

    /// Adds an access. Branchless, because branches would mispredict.
    #[inline(always)]
    pub(crate) fn add(&mut self, row: u32, txn: u32, holds: u16) {
        let row = &mut self.rows[row as usize];
        let at = self.all.len() as u32;
        self.all.push(WinnersAccess { txn, holds, previous: row.last });
        row.count += 1;
        let [changes, relies] = row.last;
        row.last = [
            if holds & held::CHANGED != 0 { at } else { changes },
            if holds & held::RELIED_ON != 0 { at } else { relies },
        ];
    }

    /// Returns the number of accesses to a row.
    pub(crate) fn count(&self, row: u32) -> usize {
        self.rows[row as usize].count as usize
    }

    /// Returns the transactions whose accesses to a row set one of these bits, the last one first. The bits are those of
    /// changes or those of accesses that rely on something.
    pub(crate) fn that_hold(&self, row: u32, bits: u16) -> impl Iterator<Item = u32> {
        let list = if bits & held::CHANGED != 0 { Winners::CHANGES } else { Winners::RELIES };
        debug_assert!(bits & held::CHANGED == 0 || bits & held::RELIED_ON == 0, "one list has all of them");
        let access = |at: u32| self.all.get(at as usize);
        let all = successors(access(self.rows[row as usize].last[list]), move |of| access(of.previous[list]));
        all.filter(move |access| access.holds & bits != 0).map(|access| access.txn)
    }
}

/// The committed transactions that hold a contended row: the last one that replaced the value, added to it, changed
/// existence or the base of adds, or relies on it in its place in the order. Kept apart from the `held` bits, which
/// every access is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holders {
    pub(crate) writer: u32,
    pub(crate) adder: u32,
    pub(crate) changer: u32,
    pub(crate) reader: u32,
}

pub(crate) const NO_HOLDERS: Holders = Holders { writer: NONE, adder: NONE, changer: NONE, reader: NONE };

/// Participants of a row that may be contended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VoteRow {
    /// One of the participants.
    participant: u32,
    /// Access classes of all participants.
    access: u8,
    /// Whether more than one transaction takes part.
    shared: bool,
}

impl VoteRow {
    pub(crate) const UNTOUCHED: VoteRow = VoteRow { participant: NONE, access: 0, shared: false };

    #[inline(always)]
    pub(crate) fn take_part(&mut self, t: u32, class: u8) {
        self.shared |= self.participant != t && self.participant != NONE;
        self.participant = t;
        self.access |= class;
    }

    #[inline(always)]
    pub(crate) fn is_contended(&self) -> bool {
        self.shared && self.access & class::WRITES != 0
    }
}
