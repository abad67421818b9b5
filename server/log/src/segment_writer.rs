//! The writing end of the segment files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::error::LogError;
use crate::frame::{Kind, Place, Seat, chain, pieces, put_chunk};
use crate::segments::{Segment, Segments, length_at};
use crate::tree_records::Appended;

/// Bytes of zeros that are written at once.
const FILL_BYTES: usize = 1024 * 1024;

/// Writes behind the last record; the only one who does.
pub(crate) struct SegmentWriter {
    segments: Arc<Segments>,
    /// Segment that is written.
    current: Option<Arc<Segment>>,
    /// Segments left since the last sync that still must be synced.
    left: Vec<Arc<Segment>>,
    /// First free position.
    tail: u64,
    /// Everything below is durable.
    durable: u64,
    spare: Spare,
    /// First failure, final.
    failed: Option<String>,
    syncs: u64,
}

impl SegmentWriter {
    /// Goes on at `tail`; wipes what lies behind it if `torn`.
    pub(crate) fn start(segments: Arc<Segments>, tail: u64, torn: bool) -> Result<Self, LogError> {
        let files = segments.files();
        if torn {
            for segment in files.iter().filter(|segment| segment.end() > tail) {
                wipe(segment, tail.max(segment.base)).map_err(|e| LogError::io("wipe", &segment.path, &e))?;
            }
        }
        let current = files.iter().rfind(|segment| segment.base <= tail && tail < segment.end()).cloned();
        // After a kill, what was found may be in the kernel's cache only: the first sync covers all of it.
        let left = files.into_iter().filter(|file| current.as_ref().is_none_or(|c| c.base != file.base)).collect();
        let mut spare = Spare::new(&segments.dir);
        if let Some(current) = &current {
            spare.prepare(length_at(current.end()));
        }
        Ok(Self { segments, current, left, tail, durable: 0, spare, failed: None, syncs: 0 })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn append(&mut self, kind: Kind, index: u64, link: u64, payload: &[u8]) -> Result<Appended, LogError> {
        self.check()?;
        let place = Place { kind, group: self.segments.group, index };
        let start = self.tail;
        let first = self.write(place, link, payload).map_err(|e| self.fail(format!("write: {e}")))?;
        self.segments.note(kind, index, first);
        Ok(Appended { chain: chain(link, index, payload), bytes: self.tail - start })
    }

    /// Returns where the record begins.
    fn write(&mut self, place: Place, link: u64, payload: &[u8]) -> io::Result<u64> {
        let mut first = None;
        let mut buffer = Vec::with_capacity(payload.len() + 128);
        let mut at = self.tail;
        for (part, piece) in pieces(link, payload) {
            let start = buffer.len();
            let mut position = at + start as u64;
            put_chunk(place, part, Seat { position, durable: self.durable }, piece, &mut buffer);
            if self.current.as_ref().is_none_or(|segment| at + buffer.len() as u64 > segment.end()) {
                // No room: what is there goes into this segment, the chunk into the next.
                buffer.truncate(start);
                self.write_at(at, &buffer)?;
                buffer.clear();
                at = self.roll()?;
                position = at;
                put_chunk(place, part, Seat { position, durable: self.durable }, piece, &mut buffer);
            }
            first.get_or_insert(position);
        }
        self.write_at(at, &buffer)?;
        self.tail = at + buffer.len() as u64;
        Ok(first.unwrap_or(at))
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        match &self.current {
            Some(segment) if !bytes.is_empty() => segment.file.write_all_at(bytes, position - segment.base),
            _ => Ok(()),
        }
    }

    /// Goes on in the next segment; returns its first position.
    fn roll(&mut self) -> io::Result<u64> {
        let base = match self.current.take() {
            Some(full) => {
                let end = full.end();
                self.left.push(full);
                end
            }
            None => self.segments.files().last().map_or(0, |last| last.end()),
        };
        let known = self.segments.files().into_iter().find(|segment| segment.base == base);
        let segment = match known {
            Some(segment) => segment,
            None => {
                let segment = Arc::new(self.spare.take(base)?);
                self.segments.add_file(Arc::clone(&segment));
                self.spare.prepare(length_at(segment.end()));
                segment
            }
        };
        self.current = Some(segment);
        Ok(base)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        let left = std::mem::take(&mut self.left);
        for segment in left.into_iter().chain(self.current.clone()) {
            rustix::fs::fdatasync(&segment.file).map_err(|e| self.fail(format!("fdatasync: {e}")))?;
            self.syncs += 1;
        }
        self.durable = self.tail;
        Ok(())
    }

    /// Returns the number of `fdatasync` calls so far.
    pub(crate) fn fdatasyncs(&self) -> u64 {
        self.syncs
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(LogError::DurabilityInDoubt { reason: reason.clone() }),
        }
    }

    fn fail(&mut self, reason: String) -> LogError {
        LogError::DurabilityInDoubt { reason: self.failed.get_or_insert(reason).clone() }
    }
}

/// Overwrites everything from `position` on with zeros, durably.
fn wipe(segment: &Segment, position: u64) -> io::Result<()> {
    let zeros = vec![0; FILL_BYTES];
    let mut at = position - segment.base;
    while at < segment.len {
        let step = usize::try_from((segment.len - at).min(FILL_BYTES as u64)).unwrap_or(FILL_BYTES);
        segment.file.write_all_at(&zeros[..step], at)?;
        at += step as u64;
    }
    segment.file.sync_all()
}

/// The next segment, filled with zeros by a thread of its own while the current one is written.
struct Spare {
    dir: PathBuf,
    thread: Option<(u64, JoinHandle<io::Result<File>>)>,
}

impl Spare {
    fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), thread: None }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("spare")
    }

    /// Starts to fill a file.
    fn prepare(&mut self, len: u64) {
        let path = self.path();
        let thread = std::thread::Builder::new().name("log-spare".into()).spawn(move || fill(&path, len));
        self.thread = thread.ok().map(|thread| (len, thread));
    }

    /// Makes a segment of the spare, or of a new file if there is none.
    fn take(&mut self, base: u64) -> io::Result<Segment> {
        let (spare, path, len) = (self.path(), self.dir.join(format!("log-{base:016x}")), length_at(base));
        let prepared = match self.thread.take() {
            Some((prepared, thread)) if prepared == len => thread.join().ok().and_then(Result::ok),
            Some((_, thread)) => {
                let _ = thread.join();
                None
            }
            None => None,
        };
        let file = match prepared {
            Some(file) => file,
            None => fill(&spare, len)?,
        };
        fs::rename(&spare, &path)?;
        File::open(&self.dir)?.sync_all()?;
        Ok(Segment { base, len, file, path })
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some((_, thread)) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Creates a file of zeros whose blocks are written, durably.
fn fill(path: &Path, len: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let zeros = vec![0; FILL_BYTES];
    let mut at = 0;
    while at < len {
        let step = usize::try_from((len - at).min(FILL_BYTES as u64)).unwrap_or(FILL_BYTES);
        file.write_all_at(&zeros[..step], at)?;
        at += step as u64;
        // A little at a time: a flood of zeros would hold up the commits beside it.
        file.sync_data()?;
    }
    file.sync_all()?;
    Ok(file)
}
