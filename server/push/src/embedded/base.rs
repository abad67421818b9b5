//! The rows in sled, as of the last checkpoint. Only the checkpoint writes here.
//!
//! One tree. Key `01 ++ key` holds `version u64 BE ++ JSON`. A value that a tree does not take in one piece is cut:
//! its row holds `version | 1 << 63` and the number of chunks as u32 BE, and chunk *i* lies under
//! `02 ++ key length u16 BE ++ key ++ i u32 BE`. Key `00` holds the watermark as u64 BE.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tribunal_disk::{Disk, DiskOptions, Scan, Tree};
use tribunal_types::{Lsn, Version};

use super::EmbeddedError;
use super::recent::{Rows, Stored};

/// Longest piece of a value, bytes; leaves room for the version.
const PIECE_BYTES_MAX: usize = tribunal_disk::VALUE_BYTES_MAX - 16;
/// Key of the watermark.
const WATERMARK: &[u8] = &[0];
/// First byte of a row's key.
const ROW: u8 = 1;
/// First byte of a chunk's key.
const CHUNK: u8 = 2;
/// Bit of the version that marks a chunked value.
const CHUNKED: u64 = 1 << 63;

/// The checkpointed rows.
pub(super) struct Base {
    disk: Disk,
    tree: Tree,
    /// Whether a chunked value may exist, so that overwrites must look for one.
    chunked: AtomicBool,
}

impl Base {
    pub(super) fn open(dir: &Path, cache_bytes: u64) -> Result<(Self, Lsn), EmbeddedError> {
        let disk = Disk::open(dir, &DiskOptions { cache_bytes })?;
        let tree = disk.tree("rows")?;
        let applied = match tree.get(WATERMARK)? {
            None => Lsn(0),
            Some(bytes) => Lsn(u64::from_be_bytes(bytes.try_into().map_err(|_| damaged("watermark"))?)),
        };
        let chunked = tree.scan(&[CHUNK][..]..).next().transpose()?.is_some();
        Ok((Base { disk, tree, chunked: AtomicBool::new(chunked) }, applied))
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Stored>, EmbeddedError> {
        self.tree.get(&row_key(key))?.map(|bytes| self.stored(key, &bytes)).transpose()
    }

    /// Returns keys of `start..end` with their rows' undecoded bytes; an empty `end` means to the last row.
    pub(super) fn scan(&self, start: &[u8], end: &[u8]) -> BaseScan {
        let first = row_key(start);
        let last = if end.is_empty() { vec![ROW + 1] } else { row_key(end) };
        BaseScan { pairs: self.tree.scan((Bound::Included(&first[..]), Bound::Excluded(&last[..]))) }
    }

    /// Decodes what a scan returned.
    pub(super) fn stored(&self, key: &[u8], bytes: &[u8]) -> Result<Stored, EmbeddedError> {
        let wrong = || damaged(&format!("row {}", key.escape_ascii()));
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
        let head = u64::from_be_bytes(*head);
        let version = Version::from_bits(head & !CHUNKED).ok_or_else(wrong)?;
        if head & CHUNKED == 0 {
            return Ok(Stored { version, value: rest.into() });
        }
        let count = u32::from_be_bytes(rest.try_into().map_err(|_| wrong())?);
        let mut value = Vec::new();
        for chunk in 0..count {
            value.extend_from_slice(&self.tree.get(&chunk_key(key, chunk))?.ok_or_else(wrong)?);
        }
        Ok(Stored { version, value: value.into() })
    }

    /// Writes rows in key order, neighbours into the same page, then the watermark; durable on return.
    ///
    /// Returns false if `stop` was raised meanwhile: then some rows are written, the watermark is not.
    pub(super) fn checkpoint(&self, rows: &Rows, to: Lsn, stop: &AtomicBool) -> Result<bool, EmbeddedError> {
        for (key, row) in rows.range(b"", b"") {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.write(key, row)?;
        }
        // The watermark must not become durable before the rows that it vouches for.
        let _rows = self.disk.sync()?;
        self.tree.put(WATERMARK, &to.0.to_be_bytes())?;
        let _watermark = self.disk.sync()?;
        Ok(true)
    }

    fn write(&self, key: &[u8], row: Option<&Stored>) -> Result<(), EmbeddedError> {
        let name = row_key(key);
        if self.chunked.load(Ordering::Relaxed) {
            self.remove_chunks(key, &name)?;
        }
        let Some(row) = row else { return Ok(self.tree.delete(&name)?) };
        let head = row.version.bits();
        if row.value.len() <= PIECE_BYTES_MAX {
            return Ok(self.tree.put(&name, &[&head.to_be_bytes()[..], &row.value].concat())?);
        }
        self.chunked.store(true, Ordering::Relaxed);
        let mut count = 0u32;
        for piece in row.value.chunks(PIECE_BYTES_MAX) {
            self.tree.put(&chunk_key(key, count), piece)?;
            count += 1;
        }
        Ok(self.tree.put(&name, &[&(head | CHUNKED).to_be_bytes()[..], &count.to_be_bytes()].concat())?)
    }

    fn remove_chunks(&self, key: &[u8], name: &[u8]) -> Result<(), EmbeddedError> {
        let Some(bytes) = self.tree.get(name)? else { return Ok(()) };
        if bytes.first().is_some_and(|first| first & 0x80 != 0) {
            let count = bytes.get(8..).and_then(|count| <[u8; 4]>::try_from(count).ok());
            for chunk in 0..count.map_or(0, u32::from_be_bytes) {
                self.tree.delete(&chunk_key(key, chunk))?;
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.tree.scan(&[CHUNK][..]..).count()
    }
}

/// Rows of a [`Base::scan`], undecoded.
pub(super) struct BaseScan {
    pairs: Scan,
}

impl Iterator for BaseScan {
    type Item = Result<(Vec<u8>, Vec<u8>), EmbeddedError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.pairs.next()?;
        Some(pair.map(|(mut key, bytes)| (key.split_off(1), bytes)).map_err(EmbeddedError::from))
    }
}

fn damaged(what: &str) -> EmbeddedError {
    EmbeddedError::Damaged(what.to_owned())
}

fn row_key(key: &[u8]) -> Vec<u8> {
    [&[ROW], key].concat()
}

fn chunk_key(key: &[u8], chunk: u32) -> Vec<u8> {
    // Keys are at most 10 KiB (checked when the command is parsed), so their length fits.
    let len = (key.len() as u16).to_be_bytes();
    [&[CHUNK], &len[..], key, &chunk.to_be_bytes()].concat()
}
