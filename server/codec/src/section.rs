//! Sections of a record: bytes that are lz4-compressed if that makes them smaller.

use std::borrow::Cow;

use crate::reader::{Malformed, Reader};
use crate::varint::put_varint;

/// Smaller sections are never compressed.
const PACK_BYTES_MIN: usize = 48;
/// Size of the sample that decides whether a large section is compressed.
const SAMPLE_BYTES: usize = 8 * 1024;
/// Maximum unpacked size that a decoder accepts: four times the largest batch.
const SECTION_BYTES_MAX: usize = 4 * tribunal_types::limits::BATCH_BYTES_MAX;
/// lz4 cannot compress by more than this factor, so a record that states a higher one is malformed.
const LZ4_RATIO_MAX: usize = 256;

/// Appends `raw` as a section.
pub(crate) fn put_section(raw: &[u8], out: &mut Vec<u8>) {
    if let Some(packed) = pack(raw) {
        put_varint((raw.len() as u64) << 1 | 1, out);
        put_varint(packed.len() as u64, out);
        out.extend_from_slice(&packed);
        return;
    }
    put_varint((raw.len() as u64) << 1, out);
    out.extend_from_slice(raw);
}

/// Appends `raw` as the last section of a record: a zero and the bytes, or the unpacked length and the packed bytes.
pub(crate) fn put_last_section(raw: &[u8], out: &mut Vec<u8>) {
    if let Some(packed) = pack(raw) {
        put_varint(raw.len() as u64, out);
        out.extend_from_slice(&packed);
        return;
    }
    out.push(0);
    out.extend_from_slice(raw);
}

fn pack(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() < PACK_BYTES_MIN || !sample_packs(raw) {
        return None;
    }
    let packed = lz4_flex::block::compress(raw);
    (packed.len() + raw.len() / 32 + 2 < raw.len()).then_some(packed)
}

/// Compresses a sample from the middle of a large section, to save a full pass over values that are random or already
/// compressed.
fn sample_packs(raw: &[u8]) -> bool {
    if raw.len() <= 4 * SAMPLE_BYTES {
        return true;
    }
    let from = raw.len() / 2;
    let packed = lz4_flex::block::compress(&raw[from..from + SAMPLE_BYTES]);
    packed.len() + SAMPLE_BYTES / 16 < SAMPLE_BYTES
}

/// Reads a section.
pub(crate) fn take_section<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<Cow<'a, [u8]>, Malformed> {
    let head = reader.varint(what)?;
    let raw_len = usize::try_from(head >> 1).map_err(|_| reader.malformed(what))?;
    if head & 1 == 0 {
        return reader.take(raw_len, what).map(Cow::Borrowed);
    }
    let packed = reader.bytes(what)?;
    unpack(reader, packed, raw_len, what).map(Cow::Owned)
}

/// Reads the last section of a record.
pub(crate) fn take_last_section<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<Cow<'a, [u8]>, Malformed> {
    let raw_len: usize = reader.number(what)?;
    let rest = reader.take(reader.remaining(), what)?;
    if raw_len == 0 { Ok(Cow::Borrowed(rest)) } else { unpack(reader, rest, raw_len, what).map(Cow::Owned) }
}

fn unpack(reader: &Reader<'_>, packed: &[u8], raw_len: usize, what: &'static str) -> Result<Vec<u8>, Malformed> {
    if raw_len > SECTION_BYTES_MAX || raw_len > packed.len().saturating_mul(LZ4_RATIO_MAX) {
        return Err(reader.malformed(what));
    }
    let raw = lz4_flex::block::decompress(packed, raw_len).map_err(|_| reader.malformed(what))?;
    if raw.len() == raw_len { Ok(raw) } else { Err(reader.malformed(what)) }
}
