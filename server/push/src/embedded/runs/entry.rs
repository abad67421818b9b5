//! The encoding of a row in a block of a run.
//!
//! `version u64, key_len u16, value_len u32, key, value`, little-endian; a deleted row has `value_len` [`DELETED`] and
//! version 0.

use tribunal_types::Version;

use crate::embedded::stored::Stored;

/// Value length that marks a deleted row; far above the length of any value.
const DELETED: u32 = u32::MAX;
/// Size of an entry without key and value.
pub(in crate::embedded) const HEAD_BYTES: usize = 8 + 2 + 4;

/// A row of a run, borrowed from its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::embedded) struct Entry<'a> {
    pub key: &'a [u8],
    /// Version and value; `None` if the row is deleted.
    pub row: Option<(Version, &'a [u8])>,
}

impl<'a> Entry<'a> {
    /// Returns a copy of the row.
    pub(in crate::embedded) fn stored(&self) -> Option<Stored> {
        self.row.map(|(version, value)| Stored { version, value: value.into() })
    }

    /// Returns the encoded size of the entry.
    pub(super) fn encoded_len(&self) -> usize {
        HEAD_BYTES + self.key.len() + self.row.map_or(0, |(_, value)| value.len())
    }

    /// Appends the entry to a block. Keys are at most 10 KiB long and values 1 MiB, which is checked when requests are
    /// parsed.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        let version = self.row.map_or(0, |(version, _)| version.bits());
        into.extend_from_slice(&version.to_le_bytes());
        into.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        into.extend_from_slice(&self.row.map_or(DELETED, |(_, value)| value.len() as u32).to_le_bytes());
        into.extend_from_slice(self.key);
        into.extend_from_slice(self.row.map_or(&[], |(_, value)| value));
    }

    /// Decodes the entry at the start of `bytes`. Returns it with its length; `None` if the bytes are malformed.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let (key_len, rest) = rest.split_first_chunk::<2>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
        let value_len = u32::from_le_bytes(*value_len);
        let row = if value_len == DELETED {
            None
        } else {
            let version = Version::from_bits(u64::from_le_bytes(*version))?;
            Some((version, rest.get(..value_len as usize)?))
        };
        let entry = Entry { key, row };
        Some((entry, entry.encoded_len()))
    }
}
