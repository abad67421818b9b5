//! Segment files: entries and outcomes in sequence, in files of fixed length that are filled with zeros beforehand, so
//! that a sync writes only data, no file size and no block map.
//!
//! A position counts bytes since the log was created; a file is named by the position of its first byte. A record is
//! found by a sparse sample of positions and a few hops from there.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tribunal_types::GroupId;

use crate::error::LogError;
use crate::files::{self, Files, LogFile, OpenMode, name_of};
use crate::frame::{HEAD_BYTES_MAX, Head, Kind, Place, read_chunk, read_head};
use crate::record::Stored;

/// Number of records per position sample.
pub(crate) const SAMPLE_RECORDS: u32 = 16;

/// Returns the length of the segment that starts at `base`: the total length of all earlier ones, within the disk's
/// bounds.
pub(crate) fn length_at(files: &dyn Files, base: u64) -> u64 {
    let bounds = files.segment_bytes();
    base.clamp(*bounds.start(), *bounds.end())
}

/// One segment file.
pub(crate) struct Segment {
    pub base: u64,
    pub len: u64,
    pub file: Box<dyn LogFile>,
    pub path: PathBuf,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.base + self.len
    }
}

/// All segments of a log, shared by the writer and all readers.
pub(crate) struct Segments {
    pub files: Arc<dyn Files>,
    pub dir: PathBuf,
    /// The log's directory, for messages.
    pub log_dir: PathBuf,
    pub group: GroupId,
    /// Files that an interrupted truncation left.
    truncated: Vec<PathBuf>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, Arc<Segment>>,
    entries: Samples,
    outcomes: Samples,
    /// Of all groups.
    groups: Samples,
    /// The last position at which a record begins: everything before it is written.
    last_begin: u64,
}

/// Positions of some records of one kind, ascending.
#[derive(Default)]
struct Samples {
    at: VecDeque<(u64, u64)>,
    since: u32,
    /// Index and position of the last record.
    last: Option<(u64, u64)>,
}

impl Samples {
    fn push(&mut self, index: u64, position: u64) {
        if self.since == 0 {
            self.at.push_back((index, position));
        }
        self.since = (self.since + 1) % SAMPLE_RECORDS;
        self.last = Some((index, position));
    }

    /// Returns the position of the last sample at or below `index`.
    fn near(&self, index: u64) -> Option<u64> {
        let after = self.at.partition_point(|sample| sample.0 <= index);
        after.checked_sub(1).map(|ix| self.at[ix].1)
    }
}

impl State {
    fn samples(&self, kind: Kind) -> &Samples {
        match kind {
            Kind::Outcome => &self.outcomes,
            Kind::Group => &self.groups,
            _ => &self.entries,
        }
    }

    fn samples_mut(&mut self, kind: Kind) -> &mut Samples {
        match kind {
            Kind::Outcome => &mut self.outcomes,
            Kind::Group => &mut self.groups,
            _ => &mut self.entries,
        }
    }
}

impl Segments {
    /// Opens the segment files, if any. Files below position `from` are truncated and do not count.
    ///
    /// # Errors
    /// If a file in the middle is missing.
    pub(crate) fn open(disk: &Arc<dyn Files>, log_dir: &Path, group: GroupId, from: u64) -> Result<Self, LogError> {
        let dir = log_dir.join("segments");
        files::create_directory(&**disk, &dir)?;
        let (mut files, mut truncated) = (BTreeMap::new(), Vec::new());
        for path in files::list(&**disk, &dir)? {
            let Some(base) = base_of(&path) else { continue };
            if base < from {
                truncated.push(path);
                continue;
            }
            let segment = open_segment(&**disk, path, base)?;
            files.insert(base, Arc::new(segment));
        }
        let mut expected = None;
        for segment in files.values() {
            if expected.is_some_and(|end| end != segment.base) || segment.len != length_at(&**disk, segment.base) {
                let reason = format!("{} is cut, or the segment before it is missing", segment.path.display());
                return Err(LogError::damaged(log_dir, reason));
            }
            expected = Some(segment.end());
        }
        let state = RwLock::new(State { files, ..State::default() });
        Ok(Self { files: Arc::clone(disk), dir, log_dir: log_dir.to_owned(), group, truncated, state })
    }

    /// Deletes the files that an interrupted truncation left.
    pub(crate) fn remove_truncated(&self) -> Result<(), LogError> {
        self.truncated.iter().try_for_each(|path| remove(&*self.files, path))
    }

    /// Returns the files, ascending.
    pub(crate) fn files(&self) -> Vec<Arc<Segment>> {
        self.state.read().files.values().cloned().collect()
    }

    /// Adds a file after all others.
    pub(crate) fn add_file(&self, segment: Arc<Segment>) {
        self.state.write().files.insert(segment.base, segment);
    }

    /// Notes the position of a record; records come in order.
    pub(crate) fn note(&self, kind: Kind, index: u64, position: u64) {
        let mut state = self.state.write();
        state.samples_mut(kind).push(index, position);
        state.last_begin = position;
    }

    /// Returns the position before which everything is written, and does not change any more.
    pub(crate) fn written_before(&self) -> u64 {
        self.state.read().last_begin
    }

    /// Reads the frame head at `position` from its first bytes. Returns `None` in the unused rest of a segment, which has
    /// zeros only.
    ///
    /// # Errors
    /// If the head is damaged. A head at or after `written` may be incomplete, and counts as unused: it is being written.
    pub(crate) fn head_at(&self, position: u64, bytes: &[u8], written: u64) -> Result<Option<Head>, LogError> {
        match read_head(bytes, self.group) {
            Ok(head) => Ok(Some(head)),
            Err(reason) if position < written && bytes.iter().any(|byte| *byte != 0) => {
                Err(LogError::damaged(&self.log_dir, format!("chunk at position {position}: {reason}")))
            }
            Err(_) => Ok(None),
        }
    }

    /// Returns the largest index of a kind.
    pub(crate) fn last_index(&self, kind: Kind) -> Option<u64> {
        self.state.read().samples(kind).last.map(|(index, _)| index)
    }

    /// Returns the length of all files, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.read().files.values().map(|segment| segment.len).sum()
    }

    pub(crate) fn damaged(&self, kind: Kind, index: u64, reason: impl std::fmt::Display) -> LogError {
        let what = match kind {
            Kind::Outcome => "outcome of epoch",
            Kind::Group => "record of a group",
            _ => "entry",
        };
        LogError::damaged(&self.log_dir, format!("{what} {index}: {reason}"))
    }

    /// Returns the segment that contains a position.
    pub(crate) fn segment_at(&self, position: u64) -> Option<Arc<Segment>> {
        let state = self.state.read();
        let (_, segment) = state.files.range(..=position).next_back()?;
        (position < segment.end()).then(|| Arc::clone(segment))
    }

    /// Reads the next frame at or after `position`, skipping the unused rest of a segment.
    fn head_from(&self, mut position: u64) -> Result<Option<(u64, Head)>, LogError> {
        let written = self.written_before();
        while let Some(segment) = self.segment_at(position) {
            let mut bytes = [0; HEAD_BYTES_MAX];
            let room = usize::try_from(segment.end() - position).unwrap_or(usize::MAX).min(HEAD_BYTES_MAX);
            segment
                .file
                .read_exact_at(&mut bytes[..room], position - segment.base)
                .map_err(|e| LogError::io("read", &segment.path, &e))?;
            match self.head_at(position, &bytes[..room], written)? {
                Some(head) => return Ok(Some((position, head))),
                None => position = segment.end(),
            }
        }
        Ok(None)
    }

    /// Returns a position at or shortly before the record; `None` if there is no such record.
    pub(crate) fn near(&self, kind: Kind, index: u64) -> Option<u64> {
        let state = self.state.read();
        let samples = state.samples(kind);
        if samples.last.is_none_or(|(last, _)| index > last) {
            return None;
        }
        // After a truncation the next sample may be past the record: start from the first file.
        samples.near(index).or_else(|| state.files.keys().next().copied())
    }

    /// Returns the record's first position.
    pub(crate) fn find(&self, kind: Kind, index: u64) -> Result<Option<u64>, LogError> {
        let Some(mut position) = self.near(kind, index) else { return Ok(None) };
        while let Some((at, head)) = self.head_from(position)? {
            if head.place.kind == kind && head.part.number == 0 {
                if head.place.index == index {
                    return Ok(Some(at));
                }
                if head.place.index > index {
                    break;
                }
            }
            position = at + head.bytes as u64;
        }
        Ok(None)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it exists but is damaged.
    pub(crate) fn read(&self, kind: Kind, index: u64) -> Result<Option<Stored>, LogError> {
        let Some(position) = self.find(kind, index)? else { return Ok(None) };
        self.read_at(position, Place { kind, group: self.group, index }).map(Some)
    }

    fn read_at(&self, mut position: u64, place: Place) -> Result<Stored, LogError> {
        let damaged = |reason: &dyn std::fmt::Display| self.damaged(place.kind, place.index, reason);
        let mut stored = Stored { index: place.index, link: 0, payload: Vec::new() };
        let mut number = 0;
        loop {
            let (at, head) = self.head_from(position)?.ok_or_else(|| damaged(&"a chunk is missing"))?;
            let segment = self.segment_at(at).ok_or_else(|| damaged(&"its segment is gone"))?;
            if at + head.bytes as u64 > segment.end() {
                return Err(damaged(&"a chunk is too long"));
            }
            let mut bytes = vec![0; head.bytes];
            segment
                .file
                .read_exact_at(&mut bytes, at - segment.base)
                .map_err(|e| LogError::io("read", &segment.path, &e))?;
            let chunk = read_chunk(&bytes, at, self.group).map_err(|e| damaged(&e))?;
            if chunk.head.place != place || chunk.head.part.number != number {
                return Err(damaged(&"another record lies in its place"));
            }
            if number == 0 {
                stored.link = chunk.head.part.link;
            }
            stored.payload.extend_from_slice(chunk.piece);
            number += 1;
            if number == chunk.head.part.count {
                return Ok(stored);
            }
            position = at + head.bytes as u64;
        }
    }

    /// Returns the first retained position if everything below `position` may be deleted: segments are deleted as a
    /// whole.
    pub(crate) fn cut_below(&self, position: u64) -> Option<u64> {
        let state = self.state.read();
        let first = state.files.keys().next()?;
        let kept = state.files.range(..=position).next_back()?.0;
        (kept > first).then_some(*kept)
    }

    /// Returns the index of the first record of a kind that begins at or after `position`. Does not read the log in search
    /// of a kind that it does not contain there: commits wait while it is truncated.
    pub(crate) fn first_index_from(&self, kind: Kind, mut position: u64) -> Result<Option<u64>, LogError> {
        {
            let state = self.state.read();
            let Samples { at, last, .. } = state.samples(kind);
            if last.is_none_or(|(_, last)| last < position) {
                return Ok(None);
            }
            // The first record of its kind is a sample.
            if let Some((1, first)) = at.front()
                && *first >= position
            {
                return Ok(Some(1));
            }
        }
        while let Some((at, head)) = self.head_from(position)? {
            if head.place.kind == kind && head.part.number == 0 {
                return Ok(Some(head.place.index));
            }
            position = at + head.bytes as u64;
        }
        Ok(None)
    }

    /// Deletes the segments below `position`, which is already noted as truncated.
    pub(crate) fn remove_below(&self, position: u64) -> Result<(), LogError> {
        let gone: Vec<Arc<Segment>> = {
            let state = &mut *self.state.write();
            let kept = state.files.split_off(&position);
            let gone = std::mem::replace(&mut state.files, kept);
            for samples in [&mut state.entries.at, &mut state.outcomes.at, &mut state.groups.at] {
                let old = samples.partition_point(|sample| sample.1 < position);
                samples.drain(..old);
            }
            gone.into_values().collect()
        };
        for segment in gone {
            remove(&*self.files, &segment.path)?;
        }
        files::sync_directory(&*self.files, &self.dir)
    }
}

fn remove(disk: &dyn Files, path: &Path) -> Result<(), LogError> {
    disk.remove(path).map_err(|e| LogError::io("remove", path, &e))
}

/// Returns the position of a segment's first byte, taken from its name; `None` for any other file.
pub(crate) fn base_of(path: &Path) -> Option<u64> {
    u64::from_str_radix(name_of(path).strip_prefix("log-")?, 16).ok()
}

fn open_segment(disk: &dyn Files, path: PathBuf, base: u64) -> Result<Segment, LogError> {
    let file = disk.open(&path, OpenMode::Write).map_err(|e| LogError::io("open", &path, &e))?;
    let len = file.size().map_err(|e| LogError::io("look at", &path, &e))?;
    Ok(Segment { base, len, file, path })
}
