//! The journal: every push since the last checkpoint, folded, synced before it is acknowledged.
//!
//! Files `journal-<n>`, appended one after the other; record = `length u32, crc32c u32, command in the raw format`,
//! little-endian. A record that is cut or does not check ends its file: it was never acknowledged. Should an
//! acknowledged one be damaged, what follows the gap is dropped and the store stands at an earlier watermark: the
//! pusher brings the rest again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tribunal_types::{Lsn, WriteKind};

use super::fold::Folded;
use super::raw::RawCommand;

/// The open journal.
pub(super) struct Journal {
    dir: PathBuf,
    file: File,
    number: u64,
    /// Files that hold what is newer than the last checkpoint, the open one last.
    files: Vec<PathBuf>,
    /// Bytes in them.
    bytes: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Hands every whole push in `dir` to `replay`, oldest first, and opens a new file behind them. `replay` returns
    /// false for a push that does not follow; it and what is behind it is removed.
    pub(super) fn open(dir: &Path, mut replay: impl FnMut(&RawCommand<'_>) -> bool) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(number) = name.and_then(|name| name.strip_prefix("journal-")?.parse::<u64>().ok()) {
                found.push((number, path));
            }
        }
        found.sort();
        let number = found.last().map_or(0, |(number, _)| number + 1);
        let (mut files, mut bytes, mut follows) = (Vec::new(), 0, true);
        for (_, path) in found {
            if follows {
                let content = fs::read(&path)?;
                let mut whole = 0;
                follows = records(&content).all(|(command, end)| {
                    let follows = replay(&command);
                    whole = if follows { end } else { whole };
                    follows
                });
                if whole == 0 {
                    fs::remove_file(&path)?;
                    continue;
                }
                // What was not read must not be found there the next time, in front of what is pushed now.
                if whole < content.len() {
                    let file = OpenOptions::new().write(true).open(&path)?;
                    file.set_len(whole as u64)?;
                    file.sync_all()?;
                }
                bytes += whole as u64;
                files.push(path);
            } else {
                tracing::warn!(path = %path.display(), "journal behind a gap removed; the log brings its rows again");
                fs::remove_file(&path)?;
            }
        }
        let (file, path) = create(dir, number)?;
        files.push(path);
        Ok(Journal { dir: dir.to_owned(), file, number, files, bytes, buffer: Vec::new() })
    }

    /// Appends a push and syncs it.
    pub(super) fn append(&mut self, folded: &Folded<'_>, from: Lsn, to: Lsn) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; 8]);
        encode(folded, from, to, &mut self.buffer);
        let crc = crc32c::crc32c(&self.buffer[8..]);
        let len = u32::try_from(self.buffer.len() - 8).map_err(|_| io::Error::other("a push above 4 GiB"))?;
        self.buffer[..4].copy_from_slice(&len.to_le_bytes());
        self.buffer[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all(&self.buffer)?;
        self.file.sync_data()?;
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Returns the bytes of all files since the last checkpoint.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts a new file and returns the others, which a finished checkpoint may remove.
    pub(super) fn turn(&mut self) -> io::Result<Vec<PathBuf>> {
        let (file, path) = create(&self.dir, self.number + 1)?;
        self.file = file;
        self.number += 1;
        self.bytes = 0;
        Ok(std::mem::replace(&mut self.files, vec![path]))
    }
}

fn create(dir: &Path, number: u64) -> io::Result<(File, PathBuf)> {
    let path = dir.join(format!("journal-{number}"));
    let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
    File::open(dir)?.sync_all()?;
    Ok((file, path))
}

/// Returns the whole records at the start of `content`, each with the place where it ends.
fn records(content: &[u8]) -> impl Iterator<Item = (RawCommand<'_>, usize)> {
    let mut left = content;
    std::iter::from_fn(move || {
        let (head, rest) = left.split_first_chunk::<8>()?;
        let (len, crc) = head.split_first_chunk::<4>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        if crc32c::crc32c(record).to_le_bytes() != *crc {
            return None;
        }
        left = rest;
        Some((RawCommand::parse(record).ok()?, content.len() - left.len()))
    })
}

fn encode(folded: &Folded<'_>, from: Lsn, to: Lsn, into: &mut Vec<u8>) {
    into.extend_from_slice(&from.0.to_le_bytes());
    into.extend_from_slice(&to.0.to_le_bytes());
    into.extend_from_slice(&(folded.rows.len() as u32).to_le_bytes());
    for (key, (version, value)) in &folded.rows {
        let (kind, value) = match value {
            Some(value) => (WriteKind::Put, value.as_ref()),
            None => (WriteKind::Delete, &b""[..]),
        };
        into.push(kind as u8);
        into.extend_from_slice(&version.bits().to_le_bytes());
        for piece in [key, value] {
            into.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            into.extend_from_slice(piece);
        }
    }
}
