//! Writes runs: rows in key order, synced completely before the manifest lists the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::filter::Filter;
use super::run::{FOOTER_BYTES, Footer, RunName, path_of};

/// Size of entries after which a block ends.
const BLOCK_BYTES: usize = 8 * 1024;
/// Size of a write, which is then synced: a large amount of unsynced data would delay the syncs of the log.
const WRITE_BYTES: usize = 4 * 1024 * 1024;

/// A run that is being written. If dropped before [`RunWriter::finish`], removes its file.
pub(super) struct RunWriter {
    path: PathBuf,
    file: File,
    number: u64,
    /// Blocks that are not written yet; the last one is the current block.
    buffer: Vec<u8>,
    /// Offset of the current block in `buffer`.
    block_at: usize,
    /// Bytes written.
    written: u64,
    index: Vec<u8>,
    first_key: Vec<u8>,
    blocks: u32,
    rows: u64,
    filter: Filter,
    finished: bool,
}

impl RunWriter {
    /// Creates the file of run `number` for up to `rows_max` rows.
    pub(super) fn create(dir: &Path, number: u64, rows_max: u64) -> io::Result<Self> {
        let path = path_of(dir, number);
        // An existing file with this number is a leftover that no manifest lists.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        Ok(RunWriter {
            path,
            file,
            number,
            buffer: Vec::new(),
            block_at: 0,
            written: 0,
            index: Vec::new(),
            first_key: Vec::new(),
            blocks: 0,
            rows: 0,
            filter: Filter::for_keys(rows_max),
            finished: false,
        })
    }

    /// Returns whether the run has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Appends an entry; keys must ascend. Returns true if data was synced: a good moment to do other work.
    pub(super) fn push(&mut self, entry: &Entry<'_>) -> io::Result<bool> {
        if self.buffer.len() == self.block_at {
            self.first_key.clear();
            self.first_key.extend_from_slice(entry.key);
        }
        entry.encode(&mut self.buffer);
        self.filter.insert(entry.key);
        self.rows += 1;
        if self.buffer.len() - self.block_at < BLOCK_BYTES {
            return Ok(false);
        }
        self.end_block();
        if self.buffer.len() < WRITE_BYTES {
            return Ok(false);
        }
        self.write()?;
        self.file.sync_data()?;
        Ok(true)
    }

    fn end_block(&mut self) {
        let crc = crc32c::crc32c(&self.buffer[self.block_at..]);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        let len = (self.buffer.len() - self.block_at) as u32;
        self.index.extend_from_slice(&len.to_le_bytes());
        self.index.extend_from_slice(&(self.first_key.len() as u16).to_le_bytes());
        self.index.extend_from_slice(&self.first_key);
        self.blocks += 1;
        self.block_at = self.buffer.len();
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.block_at = 0;
        Ok(())
    }

    /// Writes the rest and syncs the file. Does not sync the directory.
    pub(super) fn finish(mut self) -> io::Result<RunName> {
        if self.buffer.len() > self.block_at {
            self.end_block();
        }
        self.write()?;
        let index_at = self.written;
        let filter_at = index_at + self.index.len() as u64;
        let mut tail = std::mem::take(&mut self.index);
        self.filter.encode(&mut tail);
        let tail_crc = crc32c::crc32c(&tail);
        let footer = Footer { index_at, filter_at, rows: self.rows, blocks: self.blocks, tail_crc, crc: 0 };
        let (footer, crc) = footer.encode();
        self.file.write_all(&tail)?;
        self.file.write_all(&footer)?;
        self.file.sync_all()?;
        self.finished = true;
        let bytes = index_at + (tail.len() + FOOTER_BYTES) as u64;
        Ok(RunName { number: self.number, bytes, crc })
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
