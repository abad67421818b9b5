//! Keys and values: the same bytes for every peer.

use std::ops::Deref;

use rand::Rng;
use tribunal_bench::body::write_text;
use tribunal_bench::key::Row;
use tribunal_bench::key::{INSERTED_DIGITS, number as row_number, number_text};

/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = PREFIX_BYTES + INSERTED_DIGITS;
const PREFIX_BYTES: usize = 4;

/// A key: 11 bytes for a loaded row or a counter, 15 for an inserted row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Returns the key of a row.
#[must_use]
pub fn row(row: Row) -> Key {
    numbered(b"row/", row)
}

/// Returns the key of a counter.
#[must_use]
pub fn hot(row: Row) -> Key {
    numbered(b"hot/", row)
}

/// Returns the number of the row with this key.
#[must_use]
pub fn number(key: &[u8]) -> Option<Row> {
    row_number(key.strip_prefix(b"row/")?)
}

/// Returns the end of a range that ends with `last`: the least key above it.
#[must_use]
pub fn after(last: &[u8]) -> Vec<u8> {
    [last, &[0]].concat()
}

fn numbered(prefix: &[u8; PREFIX_BYTES], row: Row) -> Key {
    let (text, length) = number_text(row);
    let mut key = Key { bytes: [0; KEY_BYTES_MAX], length: PREFIX_BYTES + length };
    key.bytes[..PREFIX_BYTES].copy_from_slice(prefix);
    key.bytes[PREFIX_BYTES..].copy_from_slice(&text);
    key
}

/// Appends a value of `bytes` random letters, digits, `-` and `_`.
pub fn text(out: &mut Vec<u8>, bytes: usize, rng: &mut impl Rng) {
    write_text(out, bytes, rng);
}

#[cfg(test)]
mod tests {
    use tribunal_bench::key::inserted;

    use super::*;

    #[test]
    fn keys_are_those_of_the_bench_client() {
        assert_eq!((&*row(1_234_567), &*hot(42)), (&b"row/1234567"[..], &b"hot/0000042"[..]));
        assert_eq!(&*row(inserted(42, 7)), b"row/0000042+007");
        assert_eq!((number(&row(42)), number(&hot(42))), (Some(42), None));
    }
}
