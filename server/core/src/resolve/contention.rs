//! Data passed from the vote to the merge: accesses to contended rows, and the rows' participants.

use alloc::vec::Vec;
use core::iter::successors;

use crate::resolve::access_class::class;
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
    /// The previous access to the row, `NONE` if it is the first.
    previous: u32,
}

/// The winners' accesses to contended rows.
#[derive(Debug, Default)]
pub(crate) struct Winners {
    all: Vec<WinnersAccess>,
    /// The last access to each row, by the row's number; `NONE` if there is none.
    last: Vec<u32>,
}

impl Winners {
    pub(crate) fn reset(&mut self, rows: usize) {
        self.all.clear();
        self.last.clear();
        self.last.resize(rows, NONE);
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, row: u32, txn: u32, holds: u16) {
        let last = &mut self.last[row as usize];
        self.all.push(WinnersAccess { txn, holds, previous: *last });
        *last = self.all.len() as u32 - 1;
    }

    /// Returns the accesses to a row, the last one first.
    pub(crate) fn of(&self, row: u32) -> impl Iterator<Item = &WinnersAccess> {
        let access = |at: u32| self.all.get(at as usize);
        successors(access(self.last[row as usize]), move |of| access(of.previous))
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
