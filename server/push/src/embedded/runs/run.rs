//! A run: an immutable file of rows in key order.
//!
//! ```text
//! blocks   entries, then their crc32c u32
//! index    per block: len u32 (with its checksum), key_len u16, its first key
//! filter   words u64
//! footer   magic 8 bytes, index_at u64, filter_at u64, rows u64, blocks u32, crc32c of index and filter u32,
//!          crc32c of the footer before it u32
//! ```
//!
//! All integers are little-endian. The index and the filter are in memory, two to three bytes per row; blocks are read
//! through the kernel's page cache, which all stores share. The checksum of a block is verified on every read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entry::Entry;
use super::filter::Filter;
use crate::embedded::EmbeddedError;
use crate::embedded::files::StoreFile;
use crate::embedded::stored::Stored;

/// Magic bytes at the start of a footer.
pub(super) const MAGIC: &[u8; 8] = b"tribrun1";
/// Size of a footer.
pub(super) const FOOTER_BYTES: usize = 8 + 8 + 8 + 8 + 4 + 4 + 4;
/// Maximum plausible size of a block, bytes: a row of the largest size and its neighbours.
const BLOCK_BYTES_MAX: u32 = 4 << 20;

/// An entry of the manifest: identifies a run's file, and detects another or a truncated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::embedded) struct RunName {
    pub number: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the footer, which covers the index and thereby the order and lengths of blocks.
    pub crc: u32,
}

/// Location of a block.
#[derive(Debug)]
pub(super) struct BlockPlace {
    pub at: u64,
    /// Length, including the checksum.
    pub len: u32,
    pub first_key: Box<[u8]>,
}

/// An open run.
#[derive(Debug)]
pub(in crate::embedded) struct Run {
    pub(super) name: RunName,
    pub(super) rows: u64,
    path: PathBuf,
    file: File,
    blocks: Vec<BlockPlace>,
    filter: Filter,
}

/// Returns the path of a run's file.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("run-{number}"))
}

impl Run {
    /// Opens a run that the manifest lists, and checks that the file is complete and is that run. Blocks are checked
    /// when they are read.
    pub(super) fn open(dir: &Path, name: RunName) -> Result<Self, EmbeddedError> {
        let path = path_of(dir, name.number);
        let damaged = |what: &str| EmbeddedError::Damaged(format!("{}: {what}", path.display()));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("the file is missing")),
            Err(error) => return Err(EmbeddedError::io(&path, error)),
        };
        let bytes = file.metadata().map_err(|error| EmbeddedError::io(&path, error))?.len();
        if bytes != name.bytes || bytes < FOOTER_BYTES as u64 {
            return Err(damaged(&format!("the file has {bytes} bytes, according to the manifest {}", name.bytes)));
        }
        let mut footer = [0; FOOTER_BYTES];
        let footer_at = bytes - FOOTER_BYTES as u64;
        file.read_exact_at(&mut footer, footer_at).map_err(|error| EmbeddedError::io(&path, error))?;
        let Footer { index_at, filter_at, rows, blocks, tail_crc, crc } =
            Footer::decode(&footer).ok_or_else(|| damaged("no footer"))?;
        if crc != name.crc || index_at > filter_at || filter_at > footer_at {
            return Err(damaged("it is not the run that the manifest lists"));
        }
        let mut tail = vec![0; usize::try_from(footer_at - index_at).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut tail, index_at).map_err(|error| EmbeddedError::io(&path, error))?;
        if crc32c::crc32c(&tail) != tail_crc {
            return Err(damaged("the index does not match its checksum"));
        }
        let (index, filter) = tail.split_at((filter_at - index_at) as usize);
        let blocks = decode_index(index, blocks, index_at).ok_or_else(|| damaged("malformed index"))?;
        let filter = Filter::decode(filter).ok_or_else(|| damaged("malformed filter"))?;
        Ok(Run { name, rows, path, file, blocks, filter })
    }

    /// Returns the file, for a copy.
    pub(super) fn copied(&self) -> Result<StoreFile, EmbeddedError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let file = self.file.try_clone().map_err(|error| EmbeddedError::io(&self.path, error))?;
        Ok(StoreFile::of_file(&name, file, self.name.bytes))
    }

    /// Returns the state of a row: `Some(None)` if it is deleted, `None` if the run does not contain it.
    pub(in crate::embedded) fn get(&self, key: &[u8]) -> Result<Option<Option<Stored>>, EmbeddedError> {
        if !self.filter.may_contain(key) {
            return Ok(None);
        }
        let Some(block) = self.block_of(key) else { return Ok(None) };
        let mut bytes = Vec::new();
        self.read_block(block, &mut bytes)?;
        let mut at = 0;
        while at < bytes.len() {
            let (entry, len) = Entry::decode(&bytes[at..]).ok_or_else(|| self.damaged(block))?;
            match entry.key.cmp(key) {
                std::cmp::Ordering::Less => at += len,
                std::cmp::Ordering::Equal => return Ok(Some(entry.stored())),
                std::cmp::Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    /// Returns the only block that can contain `key`.
    fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.blocks.partition_point(|block| &*block.first_key <= key).checked_sub(1)
    }

    /// Reads a block's entries into `bytes`.
    fn read_block(&self, block: usize, bytes: &mut Vec<u8>) -> Result<(), EmbeddedError> {
        let BlockPlace { at, len, .. } = self.blocks[block];
        bytes.resize(len as usize, 0);
        self.file.read_exact_at(bytes, at).map_err(|error| EmbeddedError::io(&self.path, error))?;
        let entries = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..entries]).to_le_bytes();
        if bytes[entries..] != crc {
            return Err(self.damaged(block));
        }
        bytes.truncate(entries);
        Ok(())
    }

    fn damaged(&self, block: usize) -> EmbeddedError {
        let at = self.blocks[block].at;
        EmbeddedError::Damaged(format!("{}: the block at byte {at} does not match its checksum", self.path.display()))
    }
}

fn decode_index(mut bytes: &[u8], blocks: u32, index_at: u64) -> Option<Vec<BlockPlace>> {
    let mut places = Vec::with_capacity((blocks as usize).min(bytes.len() / 6));
    let mut at = 0;
    for _ in 0..blocks {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (key_len, rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
        let len = u32::from_le_bytes(*len);
        if !(4..=BLOCK_BYTES_MAX).contains(&len) {
            return None;
        }
        places.push(BlockPlace { at, len, first_key: key.into() });
        at += u64::from(len);
        bytes = rest;
    }
    (bytes.is_empty() && at == index_at).then_some(places)
}

/// The footer of a run.
pub(super) struct Footer {
    pub index_at: u64,
    pub filter_at: u64,
    pub rows: u64,
    pub blocks: u32,
    pub tail_crc: u32,
    /// Checksum of the footer itself; `tail_crc` is that of the index and the filter.
    pub crc: u32,
}

impl Footer {
    /// Encodes the footer. Returns it with its checksum.
    pub(super) fn encode(&self) -> ([u8; FOOTER_BYTES], u32) {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        bytes.extend_from_slice(MAGIC);
        for number in [self.index_at, self.filter_at, self.rows] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.blocks.to_le_bytes());
        bytes.extend_from_slice(&self.tail_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        (bytes.try_into().expect("the fields above are FOOTER_BYTES long"), crc)
    }

    fn decode(bytes: &[u8; FOOTER_BYTES]) -> Option<Footer> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (index_at, rest) = rest.split_first_chunk::<8>()?;
        let (filter_at, rest) = rest.split_first_chunk::<8>()?;
        let (rows, rest) = rest.split_first_chunk::<8>()?;
        let (blocks, rest) = rest.split_first_chunk::<4>()?;
        let (tail_crc, rest) = rest.split_first_chunk::<4>()?;
        let crc = u32::from_le_bytes(rest.try_into().ok()?);
        let whole = magic == MAGIC && crc32c::crc32c(&bytes[..FOOTER_BYTES - 4]) == crc;
        whole.then_some(Footer {
            index_at: u64::from_le_bytes(*index_at),
            filter_at: u64::from_le_bytes(*filter_at),
            rows: u64::from_le_bytes(*rows),
            blocks: u32::from_le_bytes(*blocks),
            tail_crc: u32::from_le_bytes(*tail_crc),
            crc,
        })
    }
}

/// A position in a run that moves forward entry by entry.
pub(in crate::embedded) struct Cursor {
    run: Arc<Run>,
    block: usize,
    /// Entries of the current block; empty after the last block.
    bytes: Vec<u8>,
    at: usize,
}

impl Cursor {
    /// Creates a cursor at the first entry whose key is not below `start`.
    pub(super) fn new(run: Arc<Run>, start: &[u8]) -> Result<Self, EmbeddedError> {
        let block = run.block_of(start).unwrap_or(0);
        let mut cursor = Cursor { run, block, bytes: Vec::new(), at: 0 };
        cursor.load()?;
        while cursor.entry().is_some_and(|entry| entry.key < start) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    /// Returns the current entry; `None` after the last one.
    pub(super) fn entry(&self) -> Option<Entry<'_>> {
        Entry::decode(self.bytes.get(self.at..)?).map(|(entry, _)| entry)
    }

    /// Moves to the next entry.
    pub(super) fn advance(&mut self) -> Result<(), EmbeddedError> {
        let Some((_, len)) = Entry::decode(&self.bytes[self.at..]) else { return Ok(()) };
        self.at += len;
        if self.at < self.bytes.len() {
            return if self.entry().is_some() { Ok(()) } else { Err(self.run.damaged(self.block)) };
        }
        self.block += 1;
        self.load()
    }

    fn load(&mut self) -> Result<(), EmbeddedError> {
        self.at = 0;
        if self.block >= self.run.blocks.len() {
            self.bytes.clear();
            return Ok(());
        }
        self.run.read_block(self.block, &mut self.bytes)?;
        if self.entry().is_some() { Ok(()) } else { Err(self.run.damaged(self.block)) }
    }
}
