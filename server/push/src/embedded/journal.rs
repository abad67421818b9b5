//! The journal: every push since the last checkpoint, folded, synced before it is acknowledged.
//!
//! Files `journal-<n>`, appended one after the other and created with their first record;
//! record = `length u32, crc32c u32, watermark, command in the raw
//! format`, little-endian. A record that is cut or does not match
//! its checksum ends its file: it was never acknowledged. Should an acknowledged one be damaged, what follows the gap
//! is dropped and the store is at an earlier watermark: the pusher brings the rest again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use tribunal_types::{Lsn, Watermark, WriteKind};

use super::fold::Folded;
use super::raw::{self, RawCommand};

/// Bytes of a record before its command.
const HEAD_BYTES: usize = 8;

/// The open journal.
pub(super) struct Journal {
    dir: PathBuf,
    /// The file that is appended to; none before the first record.
    file: Option<File>,
    /// Number of that file, or of the one to come.
    number: u64,
    /// Files that hold what is newer than the last checkpoint, oldest first.
    files: Vec<PathBuf>,
    /// Bytes in them.
    bytes: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Hands every whole push in `dir` to `replay`, oldest first. `replay` returns false for a push that does not
    /// follow; it and what comes after it is removed. Writes nothing new, so that a full disk does not hinder a start.
    pub(super) fn open(dir: &Path, mut replay: impl FnMut(&Watermark, &RawCommand<'_>) -> bool) -> io::Result<Self> {
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
            if !follows {
                tracing::warn!(path = %path.display(), "journal after a gap removed; the log brings its rows again");
                fs::remove_file(&path)?;
                continue;
            }
            let len = fs::metadata(&path)?.len();
            let whole;
            (whole, follows) = replay_file(&path, len, &mut replay)?;
            if whole == 0 {
                fs::remove_file(&path)?;
                continue;
            }
            // What was not read must not be found there the next time, in front of what is pushed now.
            if whole < len {
                let file = OpenOptions::new().write(true).open(&path)?;
                file.set_len(whole)?;
                file.sync_all()?;
            }
            bytes += whole;
            files.push(path);
        }
        Ok(Journal { dir: dir.to_owned(), file: None, number, files, bytes, buffer: Vec::new() })
    }

    /// Appends a push and syncs it.
    pub(super) fn append(&mut self, folded: &Folded<'_>, from: Lsn, to: &Watermark) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; HEAD_BYTES]);
        encode(folded, from, to, &mut self.buffer);
        let crc = crc32c::crc32c(&self.buffer[HEAD_BYTES..]);
        let len = u32::try_from(self.buffer.len() - HEAD_BYTES).map_err(|_| io::Error::other("a push above 4 GiB"))?;
        self.buffer[..4].copy_from_slice(&len.to_le_bytes());
        self.buffer[4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let path = self.dir.join(format!("journal-{}", self.number));
                let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
                File::open(&self.dir)?.sync_all()?;
                self.files.push(path);
                self.file.insert(file)
            }
        };
        file.write_all(&self.buffer)?;
        file.sync_data()?;
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Returns the bytes of all files since the last checkpoint.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the present file and returns all, which a finished checkpoint may remove.
    pub(super) fn turn(&mut self) -> Vec<PathBuf> {
        if self.file.take().is_some() {
            self.number += 1;
        }
        self.bytes = 0;
        std::mem::take(&mut self.files)
    }
}

/// Hands the whole records at the start of a file to `replay`. Returns where they end, and whether what comes next may
/// follow.
fn replay_file(
    path: &Path,
    len: u64,
    replay: &mut impl FnMut(&Watermark, &RawCommand<'_>) -> bool,
) -> io::Result<(u64, bool)> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let (mut whole, mut record) = (0, Vec::new());
    loop {
        let left = len - whole;
        if left < HEAD_BYTES as u64 {
            return Ok((whole, true));
        }
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head)?;
        let [len, crc] = [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|i| head[at + i])));
        if u64::from(len) > left - HEAD_BYTES as u64 {
            return Ok((whole, true));
        }
        record.resize(len as usize, 0);
        file.read_exact(&mut record)?;
        if crc32c::crc32c(&record) != crc {
            return Ok((whole, true));
        }
        let mut rest = &record[..];
        let parsed = raw::take_watermark(&mut rest).and_then(|to| Ok((to, RawCommand::parse(rest)?)));
        let Ok((to, command)) = parsed else { return Ok((whole, true)) };
        if !replay(&to, &command) {
            return Ok((whole, false));
        }
        whole += HEAD_BYTES as u64 + u64::from(len);
    }
}

fn encode(folded: &Folded<'_>, from: Lsn, to: &Watermark, into: &mut Vec<u8>) {
    raw::encode_watermark(to, into);
    into.extend_from_slice(&from.0.to_le_bytes());
    into.extend_from_slice(&to.lsn.0.to_le_bytes());
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
