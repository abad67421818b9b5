//! LEB128 numbers: seven bits per byte, low bits first. Signed numbers are zigzag-encoded, so that small deltas stay short.

/// Appends `n` in one to ten bytes.
pub fn put_varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends `n`, zigzag-encoded.
pub fn put_signed(n: i64, out: &mut Vec<u8>) {
    put_varint(((n << 1) ^ (n >> 63)) as u64, out);
}

/// Appends the distance `to - from`; it wraps, so it is defined for any two numbers.
pub(crate) fn put_delta(from: u64, to: u64, out: &mut Vec<u8>) {
    put_signed(to.wrapping_sub(from) as i64, out);
}

/// Appends a length and the bytes.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Decodes a zigzag-encoded number.
pub(crate) fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}
