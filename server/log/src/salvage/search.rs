//! Finds every readable chunk in the raw bytes of a damaged log.
//!
//! No file is trusted about the content of another: a chunk names its place and carries a checksum over its position,
//! so a chunk that is found was written there. Must never write.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tribunal_types::GroupId;

use crate::control_log;
use crate::error::LogError;
use crate::frame::{CHUNK_BYTES_MAX, Kind, MAGIC, Part, Place, read_chunk};
use crate::record::Stored;

/// Bytes of a file searched at once.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// Location of a chunk in the damaged files.
#[derive(Clone, Copy, Debug)]
struct Located {
    source: usize,
    at: u64,
    len: usize,
    part: Part,
}

/// A damaged file.
struct Source {
    file: File,
    path: PathBuf,
    /// Position of its first byte.
    base: u64,
    is_segment: bool,
}

/// All chunks of a group in the damaged files.
pub(crate) struct Chunks {
    sources: Vec<Source>,
    group: GroupId,
    found: BTreeMap<(Place, u32), Vec<Located>>,
    /// Position below which everything was durable, according to the chunks of the segments.
    durable: u64,
    /// Last position in the segments with a byte that is neither zero nor part of a chunk.
    stray: Option<u64>,
}

impl Chunks {
    /// Searches all files of the log; bytes that are not a chunk are skipped.
    pub(crate) fn search(dir: &Path, group: GroupId) -> Result<Self, LogError> {
        let mut chunks = Self { sources: sources(dir)?, group, found: BTreeMap::new(), durable: 0, stray: None };
        let mut window = vec![0; WINDOW_BYTES + CHUNK_BYTES_MAX];
        for number in 0..chunks.sources.len() {
            let mut base = 0;
            // A chunk that extends past the end of a window is not searched again in the next one.
            let mut from = 0;
            loop {
                let source = &chunks.sources[number];
                let filled = read_up_to(source, &mut window, base)?;
                if filled == 0 {
                    break;
                }
                from = chunks.search_window(&window[..filled], number, base, from);
                if filled <= WINDOW_BYTES {
                    break;
                }
                from -= WINDOW_BYTES;
                base += WINDOW_BYTES as u64;
            }
        }
        Ok(chunks)
    }

    /// Searches from `at` on; returns the end of the search, which is past the window by one chunk at most.
    fn search_window(&mut self, window: &[u8], source: usize, base: u64, mut at: usize) -> usize {
        let Source { base: first, is_segment, .. } = self.sources[source];
        let end = if window.len() > WINDOW_BYTES { WINDOW_BYTES } else { window.len() };
        while at < end {
            let offset = base + at as u64;
            let position = first + offset;
            if window[at] == MAGIC
                && let Ok(chunk) = read_chunk(&window[at..], position, self.group)
            {
                let head = chunk.head;
                let located = Located { source, at: offset, len: head.bytes, part: head.part };
                self.found.entry((head.place, head.part.number)).or_default().push(located);
                if is_segment {
                    self.durable = self.durable.max(position.saturating_sub(head.durable_distance));
                }
                at += head.bytes;
            } else {
                if is_segment && window[at] != 0 {
                    self.stray = self.stray.max(Some(position));
                }
                at += 1;
            }
        }
        at
    }

    /// Returns the complete versions of a record.
    pub(crate) fn records(&self, kind: Kind, index: u64) -> Result<Vec<Stored>, LogError> {
        let place = Place { kind, group: self.group, index };
        let mut records: Vec<Stored> = Vec::new();
        for first in self.found.get(&(place, 0)).into_iter().flatten() {
            if records.iter().any(|known| known.link == first.part.link) {
                // The copy of the control log repeats its entries.
                continue;
            }
            let mut payload = self.piece(first)?;
            let mut complete = true;
            for number in 1..first.part.count {
                let mut candidates = self.found.get(&(place, number)).into_iter().flatten();
                match candidates.rfind(|c| c.part.count == first.part.count) {
                    Some(located) => payload.extend_from_slice(&self.piece(located)?),
                    None => complete = false,
                }
            }
            if complete {
                records.push(Stored { index, link: first.part.link, payload });
            }
        }
        Ok(records)
    }

    fn piece(&self, located: &Located) -> Result<Vec<u8>, LogError> {
        let source = &self.sources[located.source];
        let mut bytes = vec![0; located.len];
        source.file.read_exact_at(&mut bytes, located.at).map_err(|e| LogError::io("read", &source.path, &e))?;
        let chunk = read_chunk(&bytes, source.base + located.at, self.group)
            .map_err(|e| LogError::Io { reason: format!("{} changes while it is read: {e}", source.path.display()) })?;
        Ok(chunk.piece.to_vec())
    }

    /// Returns the indices of records whose first chunk was found, ascending.
    pub(crate) fn indices(&self, kind: Kind) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.found.keys().filter(move |(place, number)| place.kind == kind && *number == 0).map(|(p, _)| p.index)
    }

    /// Returns the last entry that some chunk proves to have been durable.
    pub(crate) fn last_durable_entry(&self) -> Option<u64> {
        let durable = |located: &Located| self.position(located) < self.durable;
        let mut entries =
            self.found.iter().rev().filter(|((place, number), _)| place.kind == Kind::Entry && *number == 0);
        entries.find(|(_, located)| located.iter().any(durable)).map(|((place, _), _)| place.index)
    }

    /// Returns whether unreadable bytes follow the entry `index` in the segments (or are anywhere in them, if there is no
    /// such entry).
    pub(crate) fn has_stray_bytes_after(&self, index: Option<u64>) -> bool {
        let place = |index| Place { kind: Kind::Entry, group: self.group, index };
        let at = index.and_then(|index| self.found.get(&(place(index), 0))?.last().map(|at| self.position(at)));
        self.stray.is_some_and(|stray| at.is_none_or(|at| stray > at))
    }

    fn position(&self, located: &Located) -> u64 {
        self.sources[located.source].base + located.at
    }
}

/// Fills the window from `base` on, as far as the file reaches. Blocks that the disk cannot read count as zeros.
fn read_up_to(source: &Source, window: &mut [u8], base: u64) -> Result<usize, LogError> {
    let failed = |e: &std::io::Error| LogError::io("read", &source.path, e);
    let len = source.file.metadata().map_err(|e| failed(&e))?.len();
    let filled = usize::try_from(len.saturating_sub(base)).unwrap_or(usize::MAX).min(window.len());
    match source.file.read_exact_at(&mut window[..filled], base) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            for (number, block) in window[..filled].chunks_mut(4096).enumerate() {
                if source.file.read_exact_at(block, base + (number * 4096) as u64).is_err() {
                    block.fill(0);
                }
            }
        }
        Err(error) => return Err(failed(&error)),
    }
    Ok(filled)
}

/// Finds the files that may contain chunks, segments in order.
fn sources(dir: &Path) -> Result<Vec<Source>, LogError> {
    let mut found = Vec::new();
    let mut add = |path: PathBuf, base, is_segment| -> Result<(), LogError> {
        let file = File::open(&path).map_err(|e| LogError::io("open", &path, &e))?;
        found.push(Source { file, path, base, is_segment });
        Ok(())
    };
    let segments = dir.join("segments");
    if segments.exists() {
        for entry in fs::read_dir(&segments).map_err(|e| LogError::io("read", &segments, &e))? {
            let entry = entry.map_err(|e| LogError::io("read", &segments, &e))?;
            let name = entry.file_name();
            let base = name.to_str().and_then(|n| n.strip_prefix("log-")).and_then(|n| u64::from_str_radix(n, 16).ok());
            if let Some(base) = base {
                add(entry.path(), base, true)?;
            }
        }
    }
    for name in control_log::COPIES {
        let path = dir.join(name);
        if path.exists() {
            add(path, 0, false)?;
        }
    }
    found.sort_by_key(|source| (!source.is_segment, source.base));
    Ok(found)
}
