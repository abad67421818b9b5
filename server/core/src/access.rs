//! How an operation takes part in its row, and which committed accesses stand in its way.

use tribunal_types::WriteKind;

use crate::planted::{Bug, planted};

/// Access classes of an operation, a bit each.
pub(crate) mod class {
    /// Reads the value. Only serializable reads take part.
    pub(crate) const READ_VALUE: u8 = 1;
    /// Relies on whether the row exists: `insert`, `update`, `delete`, `add`.
    pub(crate) const READ_EXISTENCE: u8 = 2;
    /// Relies on the value being an integer: `add`.
    pub(crate) const READ_KIND: u8 = 4;
    /// Replaces the value.
    pub(crate) const WRITE: u8 = 8;
    /// Adds to the value.
    pub(crate) const ADD: u8 = 16;
    /// Creates or removes the row: `insert`, `delete`, `put` of an absent row.
    pub(crate) const CHANGE_EXISTENCE: u8 = 32;
    /// Leaves a value that is not an integer.
    pub(crate) const CHANGE_KIND: u8 = 64;
    /// Any write.
    pub(crate) const WRITES: u8 = WRITE | ADD;
}

/// What the committed of this epoch have done to a row so far, a bit each.
pub(crate) mod held {
    /// Written by one below serializable.
    pub(crate) const WRITE_LOW: u16 = 1;
    /// Added to by one below serializable.
    pub(crate) const ADD_LOW: u16 = 2;
    /// Written by a serializable one.
    pub(crate) const WRITE_SER: u16 = 4;
    /// Added to by a serializable one.
    pub(crate) const ADD_SER: u16 = 8;
    /// Created or removed.
    pub(crate) const EXISTENCE_CHANGED: u16 = 16;
    /// Left without an integer.
    pub(crate) const KIND_CHANGED: u16 = 32;
    /// Value read by a serializable one.
    pub(crate) const VALUE_READ: u16 = 64;
    /// Existence relied on by a serializable one.
    pub(crate) const EXISTENCE_READ: u16 = 128;
    /// Kind relied on by a serializable one.
    pub(crate) const KIND_READ: u16 = 256;
    /// Written in any way.
    pub(crate) const WRITTEN: u16 = WRITE_LOW | ADD_LOW | WRITE_SER | ADD_SER;
    /// Written in any way by one below serializable.
    pub(crate) const WRITTEN_LOW: u16 = WRITE_LOW | ADD_LOW;
}

/// Returns a write's access classes. `exists` is the state before the epoch; an `add` of a row that the transaction
/// also reads is an update.
#[inline(always)]
pub(crate) fn of_write(kind: WriteKind, integer: bool, exists: bool, was_read: bool) -> u8 {
    use class::*;
    let spoils = if integer { 0 } else { CHANGE_KIND };
    match kind {
        WriteKind::Insert => WRITE | READ_EXISTENCE | CHANGE_EXISTENCE,
        WriteKind::Update => WRITE | READ_EXISTENCE | spoils,
        WriteKind::Put if exists || planted(Bug::SkipPutExistence) => WRITE | spoils,
        WriteKind::Put => WRITE | CHANGE_EXISTENCE | spoils,
        WriteKind::Delete => WRITE | READ_EXISTENCE | CHANGE_EXISTENCE,
        WriteKind::Add if was_read => WRITE | READ_EXISTENCE | READ_KIND,
        WriteKind::Add => ADD | READ_EXISTENCE | READ_KIND,
    }
}

/// `WW`: what is held that the access writes as well. Two adds do not meet.
#[inline(always)]
pub(crate) fn write_write(class: u8) -> u16 {
    if planted(Bug::IgnoreWriteSet) {
        return 0;
    }
    let sets = if class & class::WRITE != 0 { held::WRITTEN } else { 0 };
    let adds =
        if class & class::ADD != 0 && !planted(Bug::AddsNeverConflict) { held::WRITE_LOW | held::WRITE_SER } else { 0 };
    sets | adds
}

/// `RAW`: what is held that the access relies on not being changed.
#[inline(always)]
pub(crate) fn read_after_write(class: u8) -> u16 {
    let value = if class & class::READ_VALUE != 0 { held::WRITTEN } else { 0 };
    let existence = if class & class::READ_EXISTENCE != 0 { held::EXISTENCE_CHANGED } else { 0 };
    let kind = if class & class::READ_KIND != 0 && !planted(Bug::AddsNeverConflict) { held::KIND_CHANGED } else { 0 };
    value | existence | kind
}

/// `WAR`: what serializable ones hold that relies on the access not happening before.
#[inline(always)]
pub(crate) fn write_after_read(class: u8) -> u16 {
    let value = if class & class::WRITES != 0 { held::VALUE_READ } else { 0 };
    let existence = if class & class::CHANGE_EXISTENCE != 0 { held::EXISTENCE_READ } else { 0 };
    let kind = if class & class::CHANGE_KIND != 0 { held::KIND_READ } else { 0 };
    value | existence | kind
}

/// What a committed access holds from then on.
#[inline(always)]
pub(crate) fn holds(class: u8, serializable: bool) -> u16 {
    let when = |bit: u8, then: u16| if class & bit != 0 { then } else { 0 };
    let changed = when(class::CHANGE_EXISTENCE, held::EXISTENCE_CHANGED) | when(class::CHANGE_KIND, held::KIND_CHANGED);
    if serializable {
        when(class::WRITE, held::WRITE_SER)
            | when(class::ADD, held::ADD_SER)
            | when(class::READ_VALUE, held::VALUE_READ)
            | when(class::READ_EXISTENCE, held::EXISTENCE_READ)
            | when(class::READ_KIND, held::KIND_READ)
            | changed
    } else {
        when(class::WRITE, held::WRITE_LOW) | when(class::ADD, held::ADD_LOW) | changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_adds_commute_and_an_add_after_a_read_does_not() {
        let add = of_write(WriteKind::Add, true, true, false);
        let update = of_write(WriteKind::Add, true, true, true);
        let held = holds(add, true);
        assert_eq!(held & (write_write(add) | read_after_write(add) | write_after_read(add)), 0);
        assert_ne!(held & write_write(update), 0);
    }

    #[test]
    fn a_put_changes_existence_only_of_an_absent_row() {
        let insert = holds(of_write(WriteKind::Insert, true, false, false), true);
        let over = of_write(WriteKind::Put, true, true, false);
        let fresh = of_write(WriteKind::Put, true, false, false);
        assert_eq!(insert & write_after_read(over), 0);
        assert_eq!(insert & write_after_read(fresh), held::EXISTENCE_READ);
    }

    #[test]
    fn an_add_relies_on_an_integer() {
        let add = of_write(WriteKind::Add, true, true, false);
        let text = of_write(WriteKind::Update, false, true, false);
        let number = of_write(WriteKind::Update, true, true, false);
        assert_ne!(holds(text, true) & read_after_write(add), 0);
        assert_eq!(holds(number, true) & read_after_write(add), 0);
        assert_ne!(holds(add, true) & write_after_read(text), 0);
        assert_eq!(holds(add, true) & write_after_read(number), 0);
    }
}
