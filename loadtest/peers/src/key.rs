//! Keys and values: the same bytes for every peer.

use rand::Rng;
use tribunal_bench::body::write_text;
use tribunal_bench::model::Row;

/// Bytes of a key.
pub const KEY_BYTES: usize = 11;

/// Returns the key of a row.
#[must_use]
pub fn row(row: Row) -> [u8; KEY_BYTES] {
    numbered(*b"row/0000000", row)
}

/// Returns the key of a counter.
#[must_use]
pub fn hot(row: Row) -> [u8; KEY_BYTES] {
    numbered(*b"hot/0000000", row)
}

/// Returns the number of the row with this key.
#[must_use]
pub fn number(key: &[u8]) -> Option<usize> {
    str::from_utf8(key.strip_prefix(b"row/")?).ok()?.parse().ok()
}

fn numbered(mut key: [u8; KEY_BYTES], mut rest: Row) -> [u8; KEY_BYTES] {
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Appends a value of `bytes` random letters, digits, `-` and `_`.
pub fn text(out: &mut Vec<u8>, bytes: usize, rng: &mut impl Rng) {
    write_text(out, bytes, rng);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_bench_client() {
        assert_eq!((&row(1_234_567), &hot(42)), (b"row/1234567", b"hot/0000042"));
        assert_eq!((number(&row(42)), number(&hot(42))), (Some(42), None));
    }
}
