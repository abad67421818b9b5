//! The checksum of a log record: one definition for the server that writes it and the clients that check it.
//!
//! CRC-32C, as eight lower-case hex digits, over consecutive pieces, each preceded by its length in bytes as
//! 32 bits, little-endian. The pieces are texts as they stand in the record: `lsn`, `epoch`, `csn`, `version`, `txn_id`;
//! then of every write `op`, the key's bytes, and the value's JSON text byte for byte (nothing for a delete, and
//! `{"$b64":"..."}` for a `value_b64`). Covers no names of fields, so that new ones may follow.

/// A record's checksum in the making.
#[derive(Clone, Copy, Debug)]
pub struct RecordChecksum(u32);

/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

impl RecordChecksum {
    /// Begins with the record's head.
    #[must_use]
    pub fn new(numbers: [u64; 4], txn_id: &str) -> RecordChecksum {
        let mut sum = RecordChecksum(0);
        for number in numbers {
            let mut digits = [0; DIGITS_MAX];
            sum.piece(decimal(number, &mut digits));
        }
        sum.piece(txn_id.as_bytes());
        sum
    }

    /// Adds a write.
    pub fn write(&mut self, op: &str, key: &[u8], value: &[u8]) {
        self.piece(op.as_bytes());
        self.piece(key);
        self.piece(value);
    }

    /// Returns it as it stands in the record.
    #[must_use]
    pub fn hex(self) -> String {
        format!("{:08x}", self.0)
    }

    fn piece(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        self.0 = crc32c::crc32c_append(crc32c::crc32c_append(self.0, &length), bytes);
    }
}

fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_matches_its_description() {
        let mut sum = RecordChecksum::new([120, 8842, u64::MAX, 0], "id");
        sum.write("put", b"k", b"{\"a\":1}");
        sum.write("delete", b"", b"");
        let mut bytes = Vec::new();
        let numbers = ["120", "8842", "18446744073709551615", "0", "id"];
        for piece in numbers.into_iter().chain(["put", "k", "{\"a\":1}", "delete", "", ""]) {
            bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            bytes.extend_from_slice(piece.as_bytes());
        }
        assert_eq!(sum.hex(), format!("{:08x}", crc32c::crc32c(&bytes)));
    }
}
