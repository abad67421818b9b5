//! A cursor over untrusted bytes. Never panics; unexpected input is [`Malformed`].

use crate::varint::unzigzag;

/// The bytes are not a valid record of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record: {what} at byte {at}")]
pub struct Malformed {
    /// The field that was being read.
    pub what: &'static str,
    /// Offset in bytes from the start of the record, or of its unpacked section.
    pub at: usize,
}

/// A cursor over untrusted bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the error for field `what` at the current position.
    #[must_use]
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// Returns the number of bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns the number of bytes read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// If fewer bytes remain.
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.malformed(what))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// If fewer bytes remain.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let taken = self.take(N, what)?;
        let mut array = [0; N];
        array.copy_from_slice(taken);
        Ok(array)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// If no byte remains.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Reads a little-endian number of 8 bytes.
    ///
    /// # Errors
    /// If fewer bytes remain.
    pub fn u64_le(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a variable-length number.
    ///
    /// # Errors
    /// If the bytes end within it, or it does not fit.
    pub fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            if shift == 63 && byte > 1 {
                break;
            }
            n |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(self.malformed(what))
    }

    /// Reads a number that must fit `T`.
    ///
    /// # Errors
    /// If the bytes end within it, or it does not fit.
    pub fn number<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, Malformed> {
        let n = self.varint(what)?;
        T::try_from(n).map_err(|_| self.malformed(what))
    }

    /// Reads a signed number.
    ///
    /// # Errors
    /// If the bytes end within it, or it does not fit.
    pub fn signed(&mut self, what: &'static str) -> Result<i64, Malformed> {
        Ok(unzigzag(self.varint(what)?))
    }

    /// Reads a distance and adds it to `from`, wrapping.
    pub(crate) fn delta(&mut self, from: u64, what: &'static str) -> Result<u64, Malformed> {
        Ok(from.wrapping_add(self.signed(what)? as u64))
    }

    /// Reads a count of items that take at least `bytes_min` bytes each. The count is bounded by the remaining bytes,
    /// so it is safe to allocate for it.
    ///
    /// # Errors
    /// If the remaining bytes cannot hold that many items.
    pub fn count(&mut self, bytes_min: usize, what: &'static str) -> Result<usize, Malformed> {
        let count: usize = self.number(what)?;
        match count.checked_mul(bytes_min) {
            Some(bytes) if bytes <= self.remaining() => Ok(count),
            _ => Err(self.malformed(what)),
        }
    }

    /// Reads a length and that many bytes.
    ///
    /// # Errors
    /// If fewer bytes remain.
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.count(1, what)?;
        self.take(len, what)
    }

    /// Reads a length and that many bytes of UTF-8.
    ///
    /// # Errors
    /// If fewer bytes remain, or they are not UTF-8.
    pub fn text(&mut self, what: &'static str) -> Result<String, Malformed> {
        let bytes = self.bytes(what)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| self.malformed(what))
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// If bytes remain: their meaning would be unknown to this decoder.
    pub fn finish(&self, what: &'static str) -> Result<(), Malformed> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.malformed(what)) }
    }
}

/// Reads a byte that is 0 or 1.
pub(crate) fn take_flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.malformed("flag")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::{put_signed, put_varint};

    #[test]
    fn numbers_survive_a_round_trip() {
        for n in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(n, &mut bytes);
            put_signed(n as i64, &mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint("n"), Ok(n));
            assert_eq!(reader.signed("n"), Ok(n as i64));
            assert_eq!(reader.finish("end"), Ok(()));
        }
    }

    #[test]
    fn a_count_beyond_the_remaining_bytes_is_rejected_before_allocation() {
        let mut bytes = Vec::new();
        put_varint(u64::MAX / 2, &mut bytes);
        bytes.extend_from_slice(&[0; 30]);
        assert!(Reader::new(&bytes).count(1, "c").is_err());
        assert!(Reader::new(&bytes).bytes("b").is_err());
        assert!(Reader::new(&[0xFF; 11]).varint("too long").is_err());
    }
}
