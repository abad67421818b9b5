//! Damage to the files of a log.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns where the chunks of entries (`T`) or outcomes (`O`) begin in the first segment.
pub fn chunks(data: &Path, kind: u8) -> (PathBuf, Vec<usize>) {
    let segment = data.join("log/segments/log-0000000000000000");
    let bytes = fs::read(&segment).unwrap();
    let found = bytes.windows(2).enumerate().filter(|(_, pair)| *pair == [0xE5, kind]).map(|(at, _)| at).collect();
    (segment, found)
}

/// Flips a bit.
pub fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}
