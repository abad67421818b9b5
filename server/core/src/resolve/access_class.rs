//! How an operation accesses its row, and which committed accesses conflict with it.

use tribunal_types::WriteKind;

use crate::planted::{Bug, planted};

/// Access classes of an operation, one bit each.
pub(crate) mod class {
    /// Reads the value. Only reads of ordered transactions take part.
    pub(crate) const READ_VALUE: u8 = 1;
    /// Relies on whether the row exists: `insert`, `update`, `delete`, `add`.
    pub(crate) const READ_EXISTENCE: u8 = 2;
    /// Relies on the value before the epoch being the one it adds to, an integer with headroom: `add`.
    pub(crate) const READ_BASE: u8 = 4;
    /// Replaces the value.
    pub(crate) const WRITE: u8 = 8;
    /// Adds to the value.
    pub(crate) const ADD: u8 = 16;
    /// Creates or removes the row: `insert`, `delete`, `put` of an absent row.
    pub(crate) const CHANGE_EXISTENCE: u8 = 32;
    /// Replaces the value that other transactions may add to.
    pub(crate) const CHANGE_BASE: u8 = 64;
    /// Creates the row unless an earlier add did: an add with a start value for a missing row.
    pub(crate) const CREATE_OR_ADD: u8 = 128;
    /// Any write.
    pub(crate) const WRITES: u8 = WRITE | ADD;
}

/// Accesses of this epoch's committed transactions to a row so far, one bit each.
pub(crate) mod held {
    /// Written by an unordered transaction.
    pub(crate) const WRITE_UNORDERED: u16 = 1;
    /// Added to by an unordered transaction.
    pub(crate) const ADD_UNORDERED: u16 = 2;
    /// Written by an ordered transaction.
    pub(crate) const WRITE_ORDERED: u16 = 4;
    /// Added to by an ordered transaction.
    pub(crate) const ADD_ORDERED: u16 = 8;
    /// Created or removed.
    pub(crate) const EXISTENCE_CHANGED: u16 = 16;
    /// Replaced, so that adds no longer add to the value before the epoch.
    pub(crate) const BASE_CHANGED: u16 = 32;
    /// Value read by an ordered transaction.
    pub(crate) const VALUE_READ: u16 = 64;
    /// Existence relied on by an ordered transaction.
    pub(crate) const EXISTENCE_READ: u16 = 128;
    /// Base of an add relied on by an ordered transaction.
    pub(crate) const BASE_READ: u16 = 256;
    /// Created by an add.
    pub(crate) const CREATED_BY_ADD: u16 = 512;
    /// Relied on by an ordered add to be absent or to be created by an add.
    pub(crate) const ABSENCE_READ: u16 = 1024;
    /// Written in any way.
    pub(crate) const WRITTEN: u16 = WRITE_UNORDERED | ADD_UNORDERED | WRITE_ORDERED | ADD_ORDERED;
    /// Written in any way by an unordered transaction.
    pub(crate) const WRITTEN_UNORDERED: u16 = WRITE_UNORDERED | ADD_UNORDERED;
    /// Changed in any way that another access may rely on not happening.
    pub(crate) const CHANGED: u16 = WRITTEN | EXISTENCE_CHANGED | BASE_CHANGED | CREATED_BY_ADD;
    /// Relied on in any way.
    pub(crate) const RELIED_ON: u16 = VALUE_READ | EXISTENCE_READ | BASE_READ | ABSENCE_READ;
}

/// Returns a write's access classes. `exists` refers to the state before the epoch; an `add` to a row that the
/// transaction also reads counts as an update.
#[inline(always)]
pub(crate) fn of_write(kind: WriteKind, exists: bool, was_read: bool) -> u8 {
    let exists = exists || kind == WriteKind::Put && planted(Bug::SkipPutExistence);
    CLASSES[kind as usize][usize::from(exists) << 1 | usize::from(was_read)]
}

/// Returns the access classes of an add that creates its row, which is missing before the epoch. Two such adds do not
/// conflict unless the transaction has read the row: the first in the order creates the row.
#[inline(always)]
pub(crate) fn of_creating_add(was_read: bool) -> u8 {
    use class::*;
    let creates = if was_read { WRITE | READ_EXISTENCE | CHANGE_EXISTENCE } else { CREATE_OR_ADD };
    ADD | READ_BASE | creates
}

/// Access classes by kind, then by whether the row exists and whether it was read, one bit each: a lookup is cheaper
/// than a branch that mispredicts.
static CLASSES: [[u8; 4]; WriteKind::ALL.len()] = {
    let mut classes = [[0; 4]; WriteKind::ALL.len()];
    let mut kind = 0;
    while kind < classes.len() {
        let mut bits = 0;
        while bits < 4 {
            classes[kind][bits] = classes_of(WriteKind::ALL[kind], bits & 2 != 0, bits & 1 != 0);
            bits += 1;
        }
        kind += 1;
    }
    classes
};

const fn classes_of(kind: WriteKind, exists: bool, was_read: bool) -> u8 {
    use class::*;
    match kind {
        WriteKind::Insert => WRITE | READ_EXISTENCE | CHANGE_EXISTENCE,
        WriteKind::Update => WRITE | READ_EXISTENCE | CHANGE_BASE,
        WriteKind::Put if exists => WRITE | CHANGE_BASE,
        WriteKind::Put => WRITE | CHANGE_EXISTENCE | CHANGE_BASE,
        WriteKind::Delete => WRITE | READ_EXISTENCE | CHANGE_EXISTENCE,
        // It writes as an update does, and its sum counts as an add's.
        WriteKind::Add if was_read => WRITE | ADD | READ_EXISTENCE | READ_BASE,
        WriteKind::Add => ADD | READ_EXISTENCE | READ_BASE,
    }
}

/// Masks over [`held`] derived from an access's classes. Precomputed, because the merge needs them for every part of a
/// contended transaction.
#[derive(Clone, Copy)]
struct Masks {
    write_write: u16,
    read_after_write: u16,
    write_after_read: u16,
    /// Bits set by an unordered transaction, and by an ordered one.
    holds: [u16; 2],
}

/// Number of sets of access classes.
const SETS: usize = 1 << 8;

static MASKS: [Masks; SETS] = {
    let mut masks = [masks_of(0); SETS];
    let mut class = 1;
    while class < SETS {
        masks[class] = masks_of(class as u8);
        class += 1;
    }
    masks
};

const fn masks_of(class: u8) -> Masks {
    use class::*;
    const fn when(holds: bool, then: u16) -> u16 {
        if holds { then } else { 0 }
    }
    let changed = when(class & CHANGE_EXISTENCE != 0, held::EXISTENCE_CHANGED)
        | when(class & CHANGE_BASE != 0, held::BASE_CHANGED)
        | when(class & CREATE_OR_ADD != 0, held::CREATED_BY_ADD);
    let unordered = when(class & WRITE != 0, held::WRITE_UNORDERED) | when(class & ADD != 0, held::ADD_UNORDERED);
    let ordered = when(class & WRITE != 0, held::WRITE_ORDERED)
        | when(class & ADD != 0, held::ADD_ORDERED)
        | when(class & READ_VALUE != 0, held::VALUE_READ)
        | when(class & READ_EXISTENCE != 0, held::EXISTENCE_READ)
        | when(class & READ_BASE != 0, held::BASE_READ)
        | when(class & CREATE_OR_ADD != 0, held::ABSENCE_READ);
    Masks {
        // Two adds do not conflict.
        write_write: when(class & WRITE != 0, held::WRITTEN)
            | when(class & ADD != 0, held::WRITE_UNORDERED | held::WRITE_ORDERED),
        read_after_write: when(class & READ_VALUE != 0, held::WRITTEN)
            | when(class & READ_EXISTENCE != 0, held::EXISTENCE_CHANGED | held::CREATED_BY_ADD)
            | when(class & CREATE_OR_ADD != 0, held::EXISTENCE_CHANGED)
            | when(class & READ_BASE != 0, held::BASE_CHANGED),
        write_after_read: when(class & WRITES != 0, held::VALUE_READ)
            | when(class & CHANGE_EXISTENCE != 0, held::EXISTENCE_READ | held::ABSENCE_READ)
            | when(class & CREATE_OR_ADD != 0, held::EXISTENCE_READ)
            | when(class & CHANGE_BASE != 0, held::BASE_READ),
        holds: [unordered | changed, ordered | changed],
    }
}

#[inline(always)]
fn masks(class: u8) -> &'static Masks {
    &MASKS[usize::from(class)]
}

/// `WW`: returns the [`held`] bits that conflict with the access's writes.
#[inline(always)]
pub(crate) fn write_write(class: u8) -> u16 {
    if planted(Bug::IgnoreWriteSet) {
        return 0;
    }
    let class = if planted(Bug::AddsNeverConflict) { class & !class::ADD } else { class };
    masks(class).write_write
}

/// `RAW`: returns the [`held`] bits of changes to anything the access relies on.
#[inline(always)]
pub(crate) fn read_after_write(class: u8) -> u16 {
    let class = if planted(Bug::AddsNeverConflict) { class & !class::READ_BASE } else { class };
    let class = if planted(Bug::CreatingAddsIgnoreExistence) { class & !class::CREATE_OR_ADD } else { class };
    masks(class).read_after_write
}

/// `WAR`: returns the [`held`] bits of ordered transactions that rely on the access not happening before them.
#[inline(always)]
pub(crate) fn write_after_read(class: u8) -> u16 {
    masks(class).write_after_read
}

/// Returns the [`held`] bits that a committed access sets.
#[inline(always)]
pub(crate) fn holds(class: u8, ordered: bool) -> u16 {
    masks(class).holds[usize::from(ordered)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_adds_commute_and_an_add_after_a_read_does_not() {
        let add = of_write(WriteKind::Add, true, false);
        let update = of_write(WriteKind::Add, true, true);
        let held = holds(add, true);
        assert_eq!(held & (write_write(add) | read_after_write(add) | write_after_read(add)), 0);
        assert_ne!(held & write_write(update), 0);
    }

    #[test]
    fn whatever_an_access_conflicts_with_is_either_a_change_or_relies_on_one() {
        for class in 0..=u8::MAX {
            assert_eq!(read_after_write(class) & !held::CHANGED, 0);
            assert_eq!(write_after_read(class) & !held::RELIED_ON, 0);
        }
        assert_eq!(held::CHANGED & held::RELIED_ON, 0);
    }

    #[test]
    fn a_put_changes_existence_only_of_an_absent_row() {
        let insert = holds(of_write(WriteKind::Insert, false, false), true);
        let over = of_write(WriteKind::Put, true, false);
        let fresh = of_write(WriteKind::Put, false, false);
        assert_eq!(insert & write_after_read(over), 0);
        assert_eq!(insert & write_after_read(fresh), held::EXISTENCE_READ);
    }

    #[test]
    fn adds_that_create_one_row_commute_and_an_insert_fits_on_neither_side() {
        let add = of_creating_add(false);
        let held = holds(add, true);
        assert_eq!(held & (write_write(add) | read_after_write(add) | write_after_read(add)), 0);
        let insert = of_write(WriteKind::Insert, false, false);
        for (one, two) in [(add, insert), (insert, add), (of_creating_add(true), add)] {
            assert_ne!(holds(one, true) & read_after_write(two), 0);
            assert_ne!(holds(one, true) & write_after_read(two), 0);
        }
    }

    #[test]
    fn an_add_comes_before_whatever_replaces_its_row() {
        let add = of_write(WriteKind::Add, true, false);
        for kind in [WriteKind::Update, WriteKind::Put] {
            let replaced = of_write(kind, true, false);
            assert_ne!(holds(replaced, true) & read_after_write(add), 0);
            assert_eq!(holds(add, true) & read_after_write(replaced), 0);
        }
        assert_eq!(holds(add, true) & read_after_write(add), 0);
    }
}
