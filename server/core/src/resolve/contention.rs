//! Data passed from the vote to the merge: accesses to contended rows, and the rows' participants.

use alloc::vec::Vec;

use crate::resolve::access_class::{self, class};
use crate::resolve::epoch_rows::NONE;
use crate::resolve::scratch::ShardScratch;

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

/// Returns the parts of a transaction in one shard.
#[inline]
pub(crate) fn parts_of(scratch: &ShardScratch, t: u32) -> &[Part] {
    let start = if t == 0 { 0 } else { scratch.part_ends[t as usize - 1] };
    &scratch.parts[start as usize..scratch.part_ends[t as usize] as usize]
}

/// A transaction that accesses a contended row, and the `held` bits that its access sets if it commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Participant {
    pub(crate) txn: u32,
    pub(crate) holds: u16,
}

/// The participants of contended rows, by the row's number. Listed only in epochs that need them.
#[derive(Debug, Default)]
pub(crate) struct Participants {
    all: Vec<Participant>,
    /// End of each row's participants.
    ends: Vec<u32>,
}

impl Participants {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.ends.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Lists the participants of `rows` rows from the parts of all transactions.
    pub(crate) fn list(&mut self, parts: &[Part], part_ends: &[u32], rows: usize, is_ordered: impl Fn(u32) -> bool) {
        let count = part_ends.last().map_or(0, |&end| end as usize);
        self.all.resize(count, Participant { txn: NONE, holds: 0 });
        self.ends.resize(rows, 0);
        for part in &parts[..count] {
            self.ends[part.row as usize] += 1;
        }
        // First the start of each row's participants, which filling them in turns into their end.
        let mut start = 0;
        for end in &mut self.ends {
            start += core::mem::replace(end, start);
        }
        let mut first = 0;
        for (t, &end) in (0..).zip(part_ends) {
            let own = &parts[first..end as usize];
            first = end as usize;
            let ordered = !own.is_empty() && is_ordered(t);
            for part in own {
                let at = &mut self.ends[part.row as usize];
                self.all[*at as usize] = Participant { txn: t, holds: access_class::holds(part.class, ordered) };
                *at += 1;
            }
        }
    }

    pub(crate) fn of(&self, row: u32) -> &[Participant] {
        let start = if row == 0 { 0 } else { self.ends[row as usize - 1] };
        &self.all[start as usize..self.ends[row as usize] as usize]
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
