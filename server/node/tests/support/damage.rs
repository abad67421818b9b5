//! Damage to the files of a log.

use std::fs;
use std::path::{Path, PathBuf};

use tribunal_codec::Reader;

/// Returns the offsets at which the chunks of entries (`T`) or outcomes (`O`) begin in the first segment.
pub fn chunks(data: &Path, kind: u8) -> (PathBuf, Vec<usize>) {
    let segment = data.join("log/segments/log-0000000000000000");
    let bytes = fs::read(&segment).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    // From chunk to chunk: the content and checksum of one may look like the beginning of another.
    while at < bytes.len() {
        let length = length(&bytes[at..]);
        if length.is_some() && bytes[at + 1] == kind {
            found.push(at);
        }
        at += length.unwrap_or(1);
    }
    (segment, found)
}

/// Returns the length of the chunk at the start of the bytes; `None` if it is not the chunk of a whole payload.
fn length(bytes: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(bytes);
    let [magic, kind, ..]: [u8; 6] = reader.array("frame").ok()?;
    let (_index, _distance) = (reader.varint("index").ok()?, reader.varint("distance").ok()?);
    match kind {
        b'O' => _ = reader.varint("entry of outcome").ok()?,
        _ => _ = reader.u64_le("link").ok()?,
    }
    let piece: usize = reader.number("length of piece").ok()?;
    (magic == 0xE5 && b"TCSOG".contains(&kind)).then(|| reader.position() + piece)
}

/// Flips a bit.
pub fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}
