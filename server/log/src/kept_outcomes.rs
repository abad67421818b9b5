//! Outcomes that a salvage could read but not put in their place because an earlier one is missing.
//!
//! Outcomes are stored in epoch order, and the missing one is known only after its epoch has been resolved again. Until
//! then the later ones are kept in a separate file, in the frames of the segments: a recorded outcome stays
//! authoritative. The node appends each of them when it replays its epoch; the next start removes the file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tribunal_types::{Epoch, GroupId};

use crate::error::LogError;
use crate::files::{Files, LogFile, OpenMode};
use crate::frame::{CHUNK_BYTES_MAX, Kind, Place, Seat, pieces, put_chunk, read_chunk};
use crate::outcomes::{StoredOutcome, outcome_of};
use crate::record::Stored;

fn path_in(dir: &Path) -> PathBuf {
    dir.join("outcomes")
}

/// Reads the file once, in ascending epoch order.
pub(crate) struct KeptOutcomes {
    dir: PathBuf,
    group: GroupId,
    file: Box<dyn LogFile>,
    position: u64,
    /// The next outcome, already read.
    next: Option<Stored>,
}

impl KeptOutcomes {
    /// Opens the file; `None` if it does not exist.
    pub(crate) fn open(files: &dyn Files, dir: &Path, group: GroupId) -> Result<Option<Self>, LogError> {
        let path = path_in(dir);
        match files.open(&path, OpenMode::Read) {
            Ok(file) => Ok(Some(Self { dir: dir.to_owned(), group, file, position: 0, next: None })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LogError::io("open", &path, &error)),
        }
    }

    /// Returns the outcome of `epoch`, and drops earlier ones. An unreadable outcome ends the file: the epochs from
    /// there on are resolved again.
    pub(crate) fn take(&mut self, epoch: Epoch) -> Option<StoredOutcome> {
        loop {
            let next = self.next.take().or_else(|| self.read())?;
            if next.index > epoch.0 {
                self.next = Some(next);
                return None;
            }
            if next.index == epoch.0 {
                return outcome_of(&next, &self.dir).ok();
            }
        }
    }

    fn read(&mut self) -> Option<Stored> {
        let mut stored: Option<Stored> = None;
        let mut bytes = vec![0; CHUNK_BYTES_MAX];
        loop {
            let filled = self.file.read_at(&mut bytes, self.position).ok()?;
            let chunk = read_chunk(&bytes[..filled], self.position, self.group).ok()?;
            let (place, part) = (chunk.head.place, chunk.head.part);
            let record =
                stored.get_or_insert_with(|| Stored { index: place.index, link: part.link, payload: Vec::new() });
            if place.kind != Kind::Outcome || place.index != record.index {
                return None;
            }
            record.payload.extend_from_slice(chunk.piece);
            self.position += chunk.head.bytes as u64;
            if part.number + 1 == part.count {
                return stored;
            }
        }
    }

    /// Returns the last epoch in the file.
    fn last(mut self) -> Option<Epoch> {
        std::iter::from_fn(|| self.read()).last().map(|stored| Epoch(stored.index))
    }
}

/// Removes the file if the log has all of its outcomes.
pub(crate) fn remove_if_appended(
    files: &dyn Files,
    dir: &Path,
    group: GroupId,
    last_in_log: Option<u64>,
) -> Result<(), LogError> {
    let Some(kept) = KeptOutcomes::open(files, dir, group)? else { return Ok(()) };
    if kept.last().is_none_or(|last| last_in_log.is_some_and(|in_log| last.0 <= in_log)) {
        let path = path_in(dir);
        files.remove(&path).map_err(|e| LogError::io("remove", &path, &e))?;
    }
    Ok(())
}

/// Writes the file. For a salvage, which is offline and works on real files.
pub(crate) struct KeptWriter {
    path: PathBuf,
    group: GroupId,
    file: BufWriter<File>,
    position: u64,
}

impl KeptWriter {
    pub(crate) fn create(dir: &Path, group: GroupId) -> Result<Self, LogError> {
        let path = path_in(dir);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| LogError::io("create", &path, &e))?;
        Ok(Self { path, group, file: BufWriter::new(file), position: 0 })
    }

    /// Adds an outcome; its epoch must be above those of all earlier ones.
    pub(crate) fn add(&mut self, stored: &Stored) -> Result<(), LogError> {
        let place = Place { kind: Kind::Outcome, group: self.group, index: stored.index };
        for (part, piece) in pieces(stored.link, &stored.payload) {
            let mut chunk = Vec::with_capacity(piece.len() + 64);
            put_chunk(place, part, Seat { position: self.position, durable: 0 }, piece, &mut chunk);
            self.file.write_all(&chunk).map_err(|e| LogError::io("write", &self.path, &e))?;
            self.position += chunk.len() as u64;
        }
        Ok(())
    }

    /// Makes the file durable.
    pub(crate) fn finish(self) -> Result<(), LogError> {
        let synced = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        synced.and_then(|file| file.sync_all()).map_err(|e| LogError::io("sync", &self.path, &e))
    }
}
