//! A stored chunk: checksum, where it belongs, and a piece of a payload.
//!
//! A chunk names its own place, so that a chunk found anywhere (under another key, or in the raw bytes of a damaged file)
//! can be told from the one that belongs there. Chunks are small enough that sled never moves them to a file of their own.
//!
//! Layout: magic, kind, CRC32C of all that follows (little endian), node, incarnation, index, number of the chunk, count of
//! chunks, in the first chunk the link (eight bytes), length of the piece, the piece.

use tribunal_codec::{Malformed, Reader, put_bytes, put_varint};
use tribunal_types::{GroupId, Incarnation, NodeId};

/// First byte of every chunk.
pub(crate) const MAGIC: u8 = 0xE5;
/// Bytes of a payload that one chunk takes; the frame around it stays below a hundred.
pub(crate) const PIECE_BYTES_MAX: usize = tribunal_disk::VALUE_BYTES_MAX - 128;

/// What a chunk is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry of a group's log.
    Entry = b'T',
    /// An entry of the control log.
    Control = b'C',
    /// An epoch's outcome.
    Outcome = b'O',
}

/// Which record a chunk is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub kind: Kind,
    pub group: GroupId,
    /// Index of an entry, epoch of an outcome.
    pub index: u64,
}

/// A chunk that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub place: Place,
    pub number: u32,
    pub count: u32,
    /// Of the first chunk: the chain hash before an entry, or the index of the entry that an outcome belongs to.
    pub link: u64,
    pub piece: &'a [u8],
    /// Bytes that the chunk took.
    pub bytes: usize,
}

/// Returns the chunks of a payload, in order; at least one.
pub(crate) fn chunks(place: Place, link: u64, payload: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let count = payload.len().div_ceil(PIECE_BYTES_MAX).max(1);
    (0..count).map(move |number| {
        let piece = &payload[number * PIECE_BYTES_MAX..payload.len().min((number + 1) * PIECE_BYTES_MAX)];
        let mut out = Vec::with_capacity(piece.len() + 64);
        out.extend_from_slice(&[MAGIC, place.kind as u8, 0, 0, 0, 0]);
        put_varint(u64::from(place.group.node.0), &mut out);
        put_varint(u64::from(place.group.incarnation.0), &mut out);
        put_varint(place.index, &mut out);
        put_varint(number as u64, &mut out);
        put_varint(count as u64, &mut out);
        if number == 0 {
            out.extend_from_slice(&link.to_le_bytes());
        }
        put_bytes(piece, &mut out);
        let crc = crc32c::crc32c(&out[6..]);
        out[2..6].copy_from_slice(&crc.to_le_bytes());
        out
    })
}

/// Reads the chunk that starts with the first byte; bytes behind it are left alone.
///
/// # Errors
/// If there is none, or its checksum does not hold.
pub(crate) fn read_chunk(bytes: &[u8]) -> Result<Chunk<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8("magic of chunk")? != MAGIC {
        return Err(reader.malformed("magic of chunk"));
    }
    let kind = match reader.u8("kind of chunk")? {
        b'T' => Kind::Entry,
        b'C' => Kind::Control,
        b'O' => Kind::Outcome,
        _ => return Err(reader.malformed("kind of chunk")),
    };
    let crc = u32::from_le_bytes(reader.array("checksum")?);
    let node = NodeId(reader.number("node")?);
    let group = GroupId { node, incarnation: Incarnation(reader.number("incarnation")?) };
    let index = reader.varint("index")?;
    let number = reader.number("number of chunk")?;
    let count = reader.number("count of chunks")?;
    let link = if number == 0 { reader.u64_le("link")? } else { 0 };
    let piece = reader.bytes("piece")?;
    let end = reader.position();
    if crc32c::crc32c(&bytes[6..end]) != crc {
        return Err(reader.malformed("checksum of chunk"));
    }
    if number >= count || piece.len() > PIECE_BYTES_MAX {
        return Err(reader.malformed("number of chunk"));
    }
    Ok(Chunk { place: Place { kind, group, index }, number, count, link, piece, bytes: end })
}

/// Returns the chain hash behind an entry.
pub(crate) fn chain(before: u64, index: u64, payload: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(payload, before.rotate_left(7) ^ index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(kind: Kind) -> Place {
        Place { kind, group: GroupId { node: NodeId(3), incarnation: Incarnation(9) }, index: 77 }
    }

    #[test]
    fn a_payload_comes_back_in_chunks_below_the_limit() {
        for len in [0, 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX + 5] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut joined = Vec::new();
            for (number, bytes) in chunks(place(Kind::Entry), 5, &payload).enumerate() {
                assert!(bytes.len() <= tribunal_disk::VALUE_BYTES_MAX);
                let chunk = read_chunk(&bytes).unwrap();
                assert_eq!((chunk.place, chunk.number as usize), (place(Kind::Entry), number));
                assert_eq!(chunk.link, if number == 0 { 5 } else { 0 });
                assert_eq!(chunk.bytes, bytes.len());
                joined.extend_from_slice(chunk.piece);
            }
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let bytes = chunks(place(Kind::Control), u64::MAX, b"some payload").next().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The kind is outside the checksum, but whoever reads compares the place with the key.
            let kept = read_chunk(&flipped).is_ok_and(|chunk| chunk.place == place(Kind::Control));
            assert!(!kept, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(read_chunk(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
