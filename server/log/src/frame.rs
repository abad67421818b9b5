//! A stored chunk: checksum, place, and a piece of a payload.
//!
//! A chunk names its own place, so that a chunk found anywhere (under another key, or in the raw bytes of a damaged
//! file) can be distinguished from the one that belongs there.
//!
//! Layout: magic; kind (high bit: one chunk of several); CRC32C (little endian); index; number and count, if one of
//! several; distance to the durable position; in the first chunk the link (eight bytes; for an outcome the distance
//! from its epoch to its entry); length of the piece; the piece. The checksum covers position, group and kind, of which
//! the first two are not stored, and everything after itself.

use tribunal_codec::{Malformed, Reader, put_bytes, put_signed, put_varint};
use tribunal_types::GroupId;

/// First byte of every chunk.
pub(crate) const MAGIC: u8 = 0xE5;
/// Maximum payload bytes per chunk; the frame around them takes less than a hundred.
pub(crate) const PIECE_BYTES_MAX: usize = CHUNK_BYTES_MAX - 128;
/// Maximum length of a chunk, including its frame.
pub(crate) const CHUNK_BYTES_MAX: usize = 96 * 1024;

/// The kind of record that a chunk is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry of a group's log.
    Entry = b'T',
    /// An entry of the control log.
    Control = b'C',
    /// Marks entries of the control log that were left out.
    Skipped = b'S',
    /// An epoch's outcome.
    Outcome = b'O',
    /// A record of a Raft group: an entry, or the group's state.
    Group = b'G',
}

/// The record that a chunk is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub kind: Kind,
    pub group: GroupId,
    /// Index of an entry (of the first one, if several were left out), epoch of an outcome, sequence of a group's
    /// record.
    pub index: u64,
}

/// Position of a chunk in the log (or in a file of the control log), and how far that was durable when the chunk was
/// written.
///
/// A chunk read back at another position fails its checksum, and a chunk records how much was durable before it was
/// written, so damage in the middle is distinguished from a torn end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seat {
    pub position: u64,
    pub durable: u64,
}

/// The piece of a payload that a chunk contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub number: u32,
    pub count: u32,
    /// Only in the first chunk. For an entry or a group's record: the chain hash before it. For an outcome: the index
    /// of its entry, or the sequence of the record that names its group entries.
    pub link: u64,
}

/// A chunk's frame; its checksum has not been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub place: Place,
    pub part: Part,
    /// Distance from the chunk back to the position up to which the log was durable when the chunk was written.
    pub durable_distance: u64,
    crc: u32,
    kind_byte: u8,
    piece_at: usize,
    /// Length of the whole chunk, bytes.
    pub bytes: usize,
}

/// A chunk with a verified checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub head: Head,
    pub piece: &'a [u8],
}

/// Maximum length of a frame.
pub(crate) const HEAD_BYTES_MAX: usize = 6 + 10 + 5 + 5 + 10 + 10 + 4;

/// Bit of the kind byte: the chunk is one of several, and contains its number.
const ONE_OF_SEVERAL: u8 = 0x80;

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
    let several = if part.count == 1 { 0 } else { ONE_OF_SEVERAL };
    let kind = place.kind as u8 | several;
    out.extend_from_slice(&[MAGIC, kind, 0, 0, 0, 0]);
    put_varint(place.index, out);
    if several != 0 {
        put_varint(u64::from(part.number), out);
        put_varint(u64::from(part.count), out);
    }
    put_varint(seat.position - seat.durable, out);
    match (part.number, place.kind) {
        (0, Kind::Outcome) => put_signed(place.index.wrapping_sub(part.link) as i64, out),
        (0, Kind::Entry | Kind::Control | Kind::Skipped | Kind::Group) => {
            out.extend_from_slice(&part.link.to_le_bytes())
        }
        _ => {}
    }
    put_bytes(piece, out);
    let crc = checksum(kind, place.group, seat.position, &out[start + 6..]);
    out[start + 2..start + 6].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(kind: u8, group: GroupId, position: u64, rest: &[u8]) -> u32 {
    let mut unstored = [kind; 15];
    unstored[1..9].copy_from_slice(&position.to_le_bytes());
    unstored[9..11].copy_from_slice(&group.node.0.to_le_bytes());
    unstored[11..15].copy_from_slice(&group.incarnation.0.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&unstored), rest)
}

/// Reads the frame at the start of `bytes` as one of `group`; the piece may be missing.
///
/// # Errors
/// If there is no frame.
pub(crate) fn read_head(bytes: &[u8], group: GroupId) -> Result<Head, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8("magic of chunk")? != MAGIC {
        return Err(reader.malformed("magic of chunk"));
    }
    let kind_byte = reader.u8("kind of chunk")?;
    let kind = match kind_byte & !ONE_OF_SEVERAL {
        b'T' => Kind::Entry,
        b'C' => Kind::Control,
        b'S' => Kind::Skipped,
        b'O' => Kind::Outcome,
        b'G' => Kind::Group,
        _ => return Err(reader.malformed("kind of chunk")),
    };
    let crc = u32::from_le_bytes(reader.array("checksum")?);
    let index = reader.varint("index")?;
    let (number, count) = if kind_byte & ONE_OF_SEVERAL == 0 {
        (0, 1)
    } else {
        (reader.number("number of chunk")?, reader.number("count of chunks")?)
    };
    let durable_distance = reader.varint("distance to what was durable")?;
    let link = match (number, kind) {
        (0, Kind::Outcome) => index.wrapping_sub(reader.signed("entry of outcome")? as u64),
        (0, Kind::Entry | Kind::Control | Kind::Skipped | Kind::Group) => reader.u64_le("link")?,
        _ => 0,
    };
    let len: usize = reader.number("length of piece")?;
    if number >= count || len > PIECE_BYTES_MAX {
        return Err(reader.malformed("number of chunk"));
    }
    let piece_at = reader.position();
    let (place, part) = (Place { kind, group, index }, Part { number, count, link });
    Ok(Head { place, part, durable_distance, crc, kind_byte, piece_at, bytes: piece_at + len })
}

/// Reads the chunk of `group` at the start of `bytes` that was written at `position`; bytes after it are ignored.
///
/// # Errors
/// If there is no chunk, or its checksum does not match: it is damaged, or belongs to another place or group.
pub(crate) fn read_chunk(bytes: &[u8], position: u64, group: GroupId) -> Result<Chunk<'_>, Malformed> {
    let head = read_head(bytes, group)?;
    let rest = bytes.get(6..head.bytes).ok_or(Malformed { what: "piece", at: head.piece_at })?;
    if checksum(head.kind_byte, group, position, rest) != head.crc {
        return Err(Malformed { what: "checksum of chunk", at: head.bytes });
    }
    Ok(Chunk { head, piece: &rest[head.piece_at - 6..] })
}

/// Returns the chain hash after an entry.
pub(crate) fn chain(before: u64, index: u64, payload: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(payload, before.rotate_left(7) ^ index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::{Incarnation, NodeId};

    const GROUP: GroupId = GroupId { node: NodeId(3), incarnation: Incarnation(u32::MAX) };

    fn place(kind: Kind) -> Place {
        Place { kind, group: GROUP, index: u64::MAX }
    }

    #[test]
    fn a_payload_comes_back_in_chunks_below_the_limit() {
        for len in [0, 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX + 5] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut joined = Vec::new();
            for (part, piece) in pieces(5, &payload) {
                let mut bytes = Vec::new();
                put_chunk(place(Kind::Entry), part, Seat { position: u64::MAX, durable: 0 }, piece, &mut bytes);
                assert!(bytes.len() <= CHUNK_BYTES_MAX);
                assert!(bytes.len() <= piece.len() + HEAD_BYTES_MAX);
                let chunk = read_chunk(&bytes, u64::MAX, GROUP).unwrap();
                assert_eq!((chunk.head.place, chunk.head.part), (place(Kind::Entry), part));
                assert_eq!((chunk.head.bytes, chunk.head.durable_distance), (bytes.len(), u64::MAX));
                assert!(read_chunk(&bytes, 7, GROUP).is_err(), "at another position it is none");
                let other = GroupId { node: NodeId(4), ..GROUP };
                assert!(read_chunk(&bytes, u64::MAX, other).is_err(), "to another group neither");
                joined.extend_from_slice(chunk.piece);
            }
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn an_outcome_finds_its_entry_however_far() {
        for (index, link) in [(7, 7), (1_000_000, 3), (3, 1_000_000), (u64::MAX, 0), (0, u64::MAX)] {
            let mut bytes = Vec::new();
            let place = Place { index, ..place(Kind::Outcome) };
            put_chunk(place, Part { number: 0, count: 1, link }, Seat::default(), b"o", &mut bytes);
            assert_eq!(read_chunk(&bytes, 0, GROUP).unwrap().head.part.link, link);
        }
    }

    /// The exact bytes that this version writes; later versions must read them, or refuse the log by its identity.
    #[test]
    fn frames_of_format_2_are_read_and_written() {
        let kept = [
            (Kind::Entry, 1, "e5547e8582edac02c8012b01000000000000057069656365"),
            (Kind::Outcome, 1, "e54fb0ea072eac02c80102057069656365"),
            (Kind::Entry, 3, "e5d4f9dd600cac020003c8012b01000000000000057069656365"),
        ];
        for (kind, count, kept) in kept {
            let mut bytes = Vec::new();
            let place = Place { index: 300, ..place(kind) };
            let part = Part { number: 0, count, link: 299 };
            put_chunk(place, part, Seat { position: 5000, durable: 4800 }, b"piece", &mut bytes);
            let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(written, kept);
            let chunk = read_chunk(&bytes, 5000, GROUP).unwrap();
            assert_eq!((chunk.head.place, chunk.head.part, chunk.head.durable_distance), (place, part, 200));
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
            assert!(read_chunk(&flipped, 0, GROUP).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(read_chunk(&bytes[..cut], 0, GROUP).is_err(), "cut at {cut}");
        }
    }
}
