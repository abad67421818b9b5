//! A row's entry in the version map.

use tribunal_types::{RowKey, Version};

/// Flags of a known row, in the low byte of an entry's second word.
pub(crate) mod row_flag {
    /// The slot contains a row. Set in every entry that is not empty.
    pub(crate) const KNOWN: u8 = 1;
    /// The row was deleted at its version.
    pub(crate) const TOMBSTONE: u8 = 2;
    /// The row's value is an integer.
    pub(crate) const INTEGER: u8 = 4;
    /// More is known of the value than that it is an integer: see `sums`.
    pub(crate) const SUMMED: u8 = 8;
    /// The newest write was an add.
    pub(crate) const ADDED: u8 = 16;
}

/// A row's entry in the map. The last 8 bits of the key make room for the flags: 120 bits identify the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) hi: u64,
    /// The upper 56 bits of the key's low half, above 8 bits of flags.
    pub(crate) lo_flags: u64,
    /// `Version::bits` of the newest write; for a tombstone, of the deletion.
    pub(crate) version: u64,
}

impl Entry {
    pub(crate) fn new(key: RowKey, version: Version, flags: u8) -> Entry {
        let flags = u64::from(flags | row_flag::KNOWN);
        Entry { hi: key.hi, lo_flags: key.lo & !0xff | flags, version: version.bits() }
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        self.lo_flags as u8
    }

    #[inline(always)]
    pub(crate) fn is(&self, key: RowKey) -> bool {
        self.names(key) && !self.is_empty()
    }

    /// Returns the entry that an epoch uses for a row that is not in the map.
    pub(crate) fn unknown(key: RowKey) -> Entry {
        Entry { hi: key.hi, lo_flags: key.lo & !0xff, version: 0 }
    }

    /// Returns whether the entry, known or not, belongs to this row.
    #[inline(always)]
    pub(crate) fn names(&self, key: RowKey) -> bool {
        (self.hi ^ key.hi) | (self.lo_flags ^ key.lo) >> 8 == 0
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lo_flags & u64::from(row_flag::KNOWN) == 0
    }

    /// Returns the row's key without its last 8 bits, which are not used here.
    pub(crate) fn key(&self) -> RowKey {
        RowKey { hi: self.hi, lo: self.lo_flags & !0xff }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, version: Version, flags: u8) {
        self.lo_flags = self.lo_flags & !0xff | u64::from(flags | row_flag::KNOWN);
        self.version = version.bits();
    }
}
