//! A stored chunk: checksum, where it belongs, and a piece of a payload.
//!
//! A chunk names its own place, so that a chunk found anywhere (under another key, or in the raw bytes of a damaged file)
//! can be told from the one that belongs there. Chunks are small enough that sled never moves them to a file of their own.
//!
//! Layout: magic, kind, CRC32C of position (which is not stored) and all that follows (little endian), node, incarnation,
//! index, number of the chunk, count of chunks, distance to what was durable, in the first chunk the link (eight bytes),
//! length of the piece, the piece.

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

/// Where in the log a chunk is written, and how far the log was durable then. Both are zero where chunks lie in a tree.
///
/// A chunk read back at another position fails its checksum, and a chunk tells what was durable before it was written: so
/// damage in the middle is told from a torn end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seat {
    pub position: u64,
    pub durable: u64,
}

/// Which piece of a payload a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub number: u32,
    pub count: u32,
    /// Of the first chunk: the chain hash before an entry, or the index of the entry that an outcome belongs to.
    pub link: u64,
}

/// A chunk's frame, not checked against its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub place: Place,
    pub part: Part,
    /// How far the log was durable when the chunk was written, counted back from the chunk.
    pub behind: u64,
    crc: u32,
    piece_at: usize,
    /// Bytes of the whole chunk.
    pub bytes: usize,
}

/// A chunk whose checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub head: Head,
    pub piece: &'a [u8],
}

/// Bytes within which a frame ends and its piece begins.
pub(crate) const HEAD_BYTES_MAX: usize = 6 + 3 + 5 + 10 + 5 + 5 + 10 + 8 + 4;

/// Returns the pieces of a payload, in order; at least one.
pub(crate) fn pieces(link: u64, payload: &[u8]) -> impl Iterator<Item = (Part, &[u8])> {
    let count = payload.len().div_ceil(PIECE_BYTES_MAX).max(1);
    (0..count).map(move |number| {
        let piece = &payload[number * PIECE_BYTES_MAX..payload.len().min((number + 1) * PIECE_BYTES_MAX)];
        (Part { number: number as u32, count: count as u32, link: if number == 0 { link } else { 0 } }, piece)
    })
}

/// Appends a chunk.
pub(crate) fn put_chunk(place: Place, part: Part, seat: Seat, piece: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(piece.len() + HEAD_BYTES_MAX);
    out.extend_from_slice(&[MAGIC, place.kind as u8, 0, 0, 0, 0]);
    put_varint(u64::from(place.group.node.0), out);
    put_varint(u64::from(place.group.incarnation.0), out);
    put_varint(place.index, out);
    put_varint(u64::from(part.number), out);
    put_varint(u64::from(part.count), out);
    put_varint(seat.position - seat.durable, out);
    if part.number == 0 {
        out.extend_from_slice(&part.link.to_le_bytes());
    }
    put_bytes(piece, out);
    let crc = checksum(seat.position, &out[start + 6..]);
    out[start + 2..start + 6].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(position: u64, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&position.to_le_bytes()), rest)
}

/// Reads the frame that starts with the first byte; its piece need not be there.
///
/// # Errors
/// If there is none.
pub(crate) fn read_head(bytes: &[u8]) -> Result<Head, Malformed> {
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
    let behind = reader.varint("distance to what was durable")?;
    let link = if number == 0 { reader.u64_le("link")? } else { 0 };
    let len: usize = reader.number("length of piece")?;
    if number >= count || len > PIECE_BYTES_MAX {
        return Err(reader.malformed("number of chunk"));
    }
    let piece_at = reader.position();
    let (place, part) = (Place { kind, group, index }, Part { number, count, link });
    Ok(Head { place, part, behind, crc, piece_at, bytes: piece_at + len })
}

/// Reads the chunk that starts with the first byte and was written at `position`; bytes behind it are left alone.
///
/// # Errors
/// If there is none, or its checksum does not hold.
pub(crate) fn read_chunk(bytes: &[u8], position: u64) -> Result<Chunk<'_>, Malformed> {
    let head = read_head(bytes)?;
    let rest = bytes.get(6..head.bytes).ok_or(Malformed { what: "piece", at: head.piece_at })?;
    if checksum(position, rest) != head.crc {
        return Err(Malformed { what: "checksum of chunk", at: head.bytes });
    }
    Ok(Chunk { head, piece: &rest[head.piece_at - 6..] })
}

/// Returns the chain hash behind an entry.
pub(crate) fn chain(before: u64, index: u64, payload: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(payload, before.rotate_left(7) ^ index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(kind: Kind) -> Place {
        Place { kind, group: GroupId { node: NodeId(3), incarnation: Incarnation(u32::MAX) }, index: u64::MAX }
    }

    #[test]
    fn a_payload_comes_back_in_chunks_below_the_limit() {
        for len in [0, 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX + 5] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut joined = Vec::new();
            for (part, piece) in pieces(5, &payload) {
                let mut bytes = Vec::new();
                put_chunk(place(Kind::Entry), part, Seat { position: u64::MAX, durable: 0 }, piece, &mut bytes);
                assert!(bytes.len() <= tribunal_disk::VALUE_BYTES_MAX);
                assert!(bytes.len() <= piece.len() + HEAD_BYTES_MAX);
                let chunk = read_chunk(&bytes, u64::MAX).unwrap();
                assert_eq!((chunk.head.place, chunk.head.part), (place(Kind::Entry), part));
                assert_eq!((chunk.head.bytes, chunk.head.behind), (bytes.len(), u64::MAX));
                assert!(read_chunk(&bytes, 7).is_err(), "at another position it is none");
                joined.extend_from_slice(chunk.piece);
            }
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let mut bytes = Vec::new();
        let part = Part { number: 0, count: 1, link: u64::MAX };
        put_chunk(place(Kind::Control), part, Seat::default(), b"some payload", &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The kind is outside the checksum, but whoever reads knows which kind belongs there.
            let kept = read_chunk(&flipped, 0).is_ok_and(|chunk| chunk.head.place == place(Kind::Control));
            assert!(!kept, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(read_chunk(&bytes[..cut], 0).is_err(), "cut at {cut}");
        }
    }
}
