//! Writes the segment files.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::LogError;
use crate::files::{Files, LogFile, OpenMode};
use crate::frame::{Kind, Place, Seat, chain, pieces, put_chunk};
use crate::record::Appended;
use crate::segment_scan::End;
use crate::segments::{Segment, Segments, length_at};

/// Bytes of zeros written at once when a torn end is wiped, and bytes written again at once.
const WIPE_BYTES: usize = 1024 * 1024;
/// Bytes before the end that are written again at most: far more than one sync covers.
const REWRITTEN_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Bytes of zeros written at once while commits are in progress.
const FILL_STEP_BYTES: usize = 128 * 1024;
/// Page size of the kernel's cache, and alignment of direct writes.
const PAGE_BYTES: usize = 4096;
/// Pause of the filling thread after each step.
const FILL_PAUSE: Duration = Duration::from_millis(2);

/// Writes after the last record; it is the only writer there.
pub(crate) struct SegmentWriter {
    segments: Arc<Segments>,
    /// Segment being written.
    current: Option<Arc<Segment>>,
    /// Segments that are full and must be synced before anything is written to another one: a power cut must not leave
    /// a later record without an earlier one whose place could be taken for a segment's unused end.
    left: Vec<Arc<Segment>>,
    /// First free position.
    tail: u64,
    /// Everything below this position is durable.
    durable: u64,
    spare: Spare,
    /// First failure, final.
    failed: Option<String>,
    syncs: u64,
}

impl SegmentWriter {
    /// Continues at the end of the log; if it is torn, wipes everything after it.
    ///
    /// What is not known to be durable is written again. If the sync of an earlier process failed, the kernel keeps the
    /// data that did not reach the disk and takes it for written: it is read back, but no later sync writes it.
    pub(crate) fn start(segments: Arc<Segments>, end: End) -> Result<Self, LogError> {
        let End { position: tail, torn, durable } = end;
        let files = segments.files();
        if torn {
            // Last segment first: after a power cut, a partly wiped record still has its beginning.
            for segment in files.iter().rev().filter(|segment| segment.end() > tail) {
                let torn = tail.max(segment.base) - segment.base..segment.len;
                wipe(&*segment.file, torn).map_err(|e| LogError::io("wipe", &segment.path, &e))?;
            }
        }
        let doubtful = durable.max(tail.saturating_sub(REWRITTEN_BYTES_MAX))..tail;
        for segment in files.iter().filter(|segment| segment.base < tail && segment.end() > doubtful.start) {
            let part = doubtful.start.max(segment.base) - segment.base..tail.min(segment.end()) - segment.base;
            rewrite(&*segment.file, part).map_err(|e| LogError::io("rewrite", &segment.path, &e))?;
        }
        let files_end = files.last().map_or(0, |last| last.end());
        let current = files.iter().rfind(|segment| segment.base <= tail && tail < segment.end()).cloned();
        // After a kill, recovered data may be in the kernel's cache only: the first sync covers all of it.
        let left = files.into_iter().filter(|file| current.as_ref().is_none_or(|c| c.base != file.base)).collect();
        let mut spare = Spare::new(&segments);
        // Unless the next segment already exists.
        if let Some(current) = current.as_ref().filter(|c| files_end == c.end()) {
            spare.prepare(current.end());
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

    /// Returns the record's first position.
    fn write(&mut self, place: Place, link: u64, payload: &[u8]) -> io::Result<u64> {
        self.sync_left()?;
        let mut first = None;
        let mut buffer = Vec::with_capacity(payload.len() + 128);
        let mut at = self.tail;
        for (part, piece) in pieces(link, payload) {
            let start = buffer.len();
            let mut position = at + start as u64;
            put_chunk(place, part, Seat { position, durable: self.durable }, piece, &mut buffer);
            if self.current.as_ref().is_none_or(|segment| at + buffer.len() as u64 > segment.end()) {
                // No room: write the buffered chunks to this segment and the chunk to the next one.
                buffer.truncate(start);
                self.write_at(at, &mut buffer)?;
                let end = at + start as u64;
                buffer.clear();
                at = self.roll()?;
                self.sync_left()?;
                self.durable = end;
                position = at;
                put_chunk(place, part, Seat { position, durable: self.durable }, piece, &mut buffer);
            }
            first.get_or_insert(position);
        }
        let tail = at + buffer.len() as u64;
        self.write_at(at, &mut buffer)?;
        self.tail = tail;
        Ok(first.unwrap_or(at))
    }

    /// Writes `bytes`, padded with the zeros that follow anyway up to the end of a page. A partial write to a page that
    /// is not in the kernel's cache, like all pages of a new segment, would first have to read the page.
    fn write_at(&self, position: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        match &self.current {
            Some(segment) if !bytes.is_empty() => {
                let at = position - segment.base;
                let end = (at + bytes.len() as u64).next_multiple_of(PAGE_BYTES as u64).min(segment.len);
                bytes.resize(usize::try_from(end - at).map_err(io::Error::other)?, 0);
                segment.file.write_all_at(bytes, at)
            }
            _ => Ok(()),
        }
    }

    /// Moves on to the next segment; returns its first position.
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
                segment
            }
        };
        if self.segments.files().last().is_some_and(|last| last.base == base) {
            self.spare.prepare(segment.end());
        }
        self.current = Some(segment);
        Ok(base)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        let synced = self.sync_left().and_then(|()| {
            self.current.as_ref().map_or(Ok(()), |segment| {
                self.syncs += 1;
                segment.file.sync_data()
            })
        });
        synced.map_err(|e| self.fail(format!("fdatasync: {e}")))?;
        self.durable = self.tail;
        Ok(())
    }

    fn sync_left(&mut self) -> io::Result<()> {
        for segment in std::mem::take(&mut self.left) {
            segment.file.sync_data()?;
            self.syncs += 1;
        }
        Ok(())
    }

    /// Returns the first free position.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
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

/// Writes a part of a file with its own content.
fn rewrite(file: &dyn LogFile, part: Range<u64>) -> io::Result<()> {
    let mut bytes = vec![0; WIPE_BYTES];
    let mut at = part.start;
    while at < part.end {
        let step = usize::try_from(part.end - at).map_or(bytes.len(), |left| left.min(bytes.len()));
        file.read_exact_at(&mut bytes[..step], at)?;
        file.write_all_at(&bytes[..step], at)?;
        at += step as u64;
    }
    Ok(())
}

/// Overwrites bytes of a file with zeros, durably.
fn wipe(file: &dyn LogFile, bytes: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; WIPE_BYTES];
    let mut at = bytes.start;
    while at < bytes.end {
        let step = usize::try_from((bytes.end - at).min(WIPE_BYTES as u64)).unwrap_or(WIPE_BYTES);
        file.write_all_at(&zeros[..step], at)?;
        at += step as u64;
    }
    file.sync_all()
}

/// The next segment, created and filled with zeros by a separate thread while the current one is written. If it is
/// needed before it is filled, it is used as it is: its blocks are allocated, and the unfilled rest reads as zeros.
struct Spare {
    files: Arc<dyn Files>,
    dir: PathBuf,
    filling: Option<Filling>,
}

struct Filling {
    base: u64,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Segment>>,
}

impl Filling {
    /// Stops the thread; from here on no other thread writes the file.
    fn finish(self) -> io::Result<Segment> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that makes segments panicked")))
    }
}

impl Spare {
    fn new(segments: &Segments) -> Self {
        Self { files: Arc::clone(&segments.files), dir: segments.dir.clone(), filling: None }
    }

    /// Starts to create the segment at `base`. If that fails, it is retried when the segment is needed.
    fn prepare(&mut self, base: u64) {
        if !self.files.has_threads() {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (files, dir, stopped) = (Arc::clone(&self.files), self.dir.clone(), Arc::clone(&stop));
        let make = move || {
            let segment = create(&*files, &dir, base)?;
            // A failure leaves the rest unfilled, which only costs time.
            let _ = fill(&*files, &segment, &stopped);
            Ok(segment)
        };
        let thread = std::thread::Builder::new().name("log-segment".into()).spawn(make);
        self.filling = thread.ok().map(|thread| Filling { base, stop, thread });
    }

    /// Returns the segment at `base`, creating it now if necessary.
    fn take(&mut self, base: u64) -> io::Result<Segment> {
        match self.filling.take().filter(|filling| filling.base == base).map(Filling::finish) {
            Some(Ok(segment)) => Ok(segment),
            _ => create(&*self.files, &self.dir, base),
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let _ = self.filling.take().map(Filling::finish);
    }
}

/// Creates an empty segment, durably.
fn create(files: &dyn Files, dir: &Path, base: u64) -> io::Result<Segment> {
    let (fresh, path, len) = (dir.join("fresh"), dir.join(format!("log-{base:016x}")), length_at(files, base));
    let file = allocate(files, &fresh, len)?;
    file.sync_all()?;
    files.rename(&fresh, &path)?;
    files.sync_dir(dir)?;
    Ok(Segment { base, len, file, path })
}

/// Writes zeros over a segment's blocks in small steps: a large burst would delay concurrent commits.
fn fill(files: &dyn Files, segment: &Segment, stop: &AtomicBool) -> io::Result<()> {
    let room = vec![0; FILL_STEP_BYTES + PAGE_BYTES];
    // If alignment is impossible, the direct write fails and the fallback below is used.
    let zeros = &room[room.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES)..][..FILL_STEP_BYTES];
    // Bypass the kernel's cache, which would copy and retain data that is not read.
    let mut direct = files.open(&segment.path, OpenMode::WriteDirect).ok();
    let mut at = 0;
    while at < segment.len && !stop.load(Ordering::Relaxed) {
        let step = usize::try_from((segment.len - at).min(FILL_STEP_BYTES as u64)).unwrap_or(FILL_STEP_BYTES);
        match &direct {
            // The file system accepts the flag but cannot write with it.
            Some(file) if file.write_all_at(&zeros[..step], at).is_err() => {
                direct = None;
                continue;
            }
            Some(_) => {}
            None => {
                segment.file.write_all_at(&zeros[..step], at)?;
                segment.file.sync_data()?;
            }
        }
        at += step as u64;
        std::thread::sleep(FILL_PAUSE);
    }
    // If the segment is taken before it is filled, a commit is waiting for it; it is synced with its first record.
    if stop.load(Ordering::Relaxed) { Ok(()) } else { segment.file.sync_all() }
}

/// Creates a file whose blocks are reserved, so that a full disk shows here and not in the middle of a segment.
fn allocate(files: &dyn Files, path: &Path, len: u64) -> io::Result<Box<dyn LogFile>> {
    let file = files.open(path, OpenMode::Create)?;
    match file.allocate(len) {
        // Some file systems cannot reserve; then zeros must be written instead.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => wipe(&*file, 0..len)?,
        result => result?,
    }
    Ok(file)
}
