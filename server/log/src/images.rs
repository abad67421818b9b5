//! State images: one file each, two generations; the older one is deleted only after the newer one is durable.
//!
//! They are separate files and not records of the log: an image is large, written once, read once and dropped as a
//! whole, and writing it must not delay commits ([`ImageWriter`] may be used from any thread).

use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_codec::{ImageAssembler, image_pieces};
use tribunal_types::{Epoch, StateImage};

use crate::error::LogError;
use crate::files::{self, Files, OpenMode, Stream, name_of};

const MAGIC: &[u8; 8] = b"TRBIMG01";
/// In place of a piece's length: the image is complete.
const END: u32 = u32::MAX;
/// A longer piece was not written by this crate.
const PIECE_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Number of images kept.
const GENERATIONS: usize = 2;

/// Writes images concurrently with the log. Clones share the directory and wait for one another.
#[derive(Clone)]
pub struct ImageWriter {
    files: Arc<dyn Files>,
    dir: PathBuf,
    /// Epochs of the images on disk, ascending. Never locked during disk I/O: the thread that writes the log reads it.
    kept: Arc<Mutex<Vec<Epoch>>>,
    /// Epochs of images that proved unreadable; the next one that is written replaces them.
    unreadable: Arc<Mutex<Vec<Epoch>>>,
    /// Held while an image is written.
    writing: Arc<Mutex<()>>,
}

fn dir_in(log_dir: &Path) -> PathBuf {
    log_dir.join("images")
}

/// Creates the directory of a new log's images. Its name is durable once the identity is stored.
pub(crate) fn create_directory(files: &dyn Files, log_dir: &Path) -> Result<(), LogError> {
    files::create_directory(files, &dir_in(log_dir))
}

impl ImageWriter {
    /// Finds the existing images.
    pub(crate) fn open(files: &Arc<dyn Files>, log_dir: &Path) -> Result<Self, LogError> {
        let dir = dir_in(log_dir);
        files::create_directory(&**files, &dir)?;
        let mut kept = Vec::new();
        for path in files::list(&**files, &dir)? {
            let name = name_of(&path);
            let epoch = name.strip_prefix("image-").and_then(|epoch| u64::from_str_radix(epoch, 16).ok());
            if let Some(epoch) = epoch {
                kept.push(Epoch(epoch));
            } else if name.ends_with(".new") {
                // The process died while it wrote this one.
                let _ = files.remove(&path);
            }
        }
        kept.sort_unstable();
        let kept = Arc::new(Mutex::new(kept));
        Ok(Self { files: Arc::clone(files), dir, kept, unreadable: Arc::default(), writing: Arc::default() })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, epoch: Epoch) -> PathBuf {
        self.dir.join(format!("image-{:016x}", epoch.0))
    }

    /// Writes an image durably, then deletes all but the newest two that are readable, as far as known.
    ///
    /// # Errors
    /// If it cannot be written; the earlier images stay.
    pub fn write(&self, image: &StateImage) -> Result<(), LogError> {
        let _one_at_a_time = self.writing.lock();
        let (path, fresh) = (self.path(image.epoch), self.dir.join(format!("image-{:016x}.new", image.epoch.0)));
        let written = store(&*self.files, &fresh, image).and_then(|()| self.files.rename(&fresh, &path));
        if let Err(error) = written {
            let _ = self.files.remove(&fresh);
            return Err(LogError::io("write", &path, &error));
        }
        files::sync_directory(&*self.files, &self.dir)?;
        let dropped: Vec<Epoch> = {
            let mut kept = self.kept.lock();
            kept.retain(|epoch| *epoch != image.epoch);
            kept.push(image.epoch);
            kept.sort_unstable();
            let more = kept.len().saturating_sub(GENERATIONS);
            let mut unreadable = std::mem::take(&mut *self.unreadable.lock());
            unreadable.retain(|epoch| *epoch != image.epoch);
            kept.drain(..more).chain(unreadable).collect()
        };
        let mut removed = Ok(());
        for path in dropped.into_iter().map(|epoch| self.path(epoch)) {
            match self.files.remove(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    removed = Err(LogError::io("remove", &path, &error))
                }
                _ => {}
            }
        }
        removed
    }

    /// Returns the epoch and the file of the newest image on disk. A newer image may replace the file at any time; a
    /// reader that has it open can continue.
    #[must_use]
    pub fn newest(&self) -> Option<(Epoch, PathBuf)> {
        self.kept.lock().last().map(|epoch| (*epoch, self.path(*epoch)))
    }

    /// Returns the epoch above which everything must stay in the log, in case the newest image proves unreadable: that of
    /// the older of two images, 0 if there is only one. `None` without an image.
    pub(crate) fn covered(&self) -> Option<Epoch> {
        let kept = self.kept.lock();
        let oldest = kept.first().copied()?;
        Some(if kept.len() < GENERATIONS { Epoch(0) } else { oldest })
    }

    /// Returns the newest readable image, and the faults of newer ones.
    pub(crate) fn load_newest(&self) -> (Option<StateImage>, Vec<String>) {
        let mut faults = Vec::new();
        while let Some((epoch, path)) = self.newest() {
            match load(&*self.files, &path) {
                Ok(image) if image.epoch == epoch => return (Some(image), faults),
                Ok(image) => faults.push(format!("{} holds epoch {}", path.display(), image.epoch)),
                Err(reason) => faults.push(format!("{}: {reason}", path.display())),
            }
            self.kept.lock().retain(|kept| *kept != epoch);
            self.unreadable.lock().push(epoch);
        }
        (None, faults)
    }
}

/// Writes an image to a file and makes its content durable.
fn store(files: &dyn Files, path: &Path, image: &StateImage) -> std::io::Result<()> {
    let file = Stream::new(files.open(path, OpenMode::Create)?);
    let mut file = BufWriter::with_capacity(1 << 20, file);
    file.write_all(MAGIC)?;
    let mut sum = 0;
    for piece in image_pieces(image) {
        let crc = crc32c::crc32c(&piece);
        file.write_all(&(piece.len() as u32).to_le_bytes())?;
        file.write_all(&crc.to_le_bytes())?;
        file.write_all(&piece)?;
        sum = crc32c::crc32c_append(sum, &crc.to_le_bytes());
    }
    file.write_all(&END.to_le_bytes())?;
    file.write_all(&sum.to_le_bytes())?;
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.file.sync_all()
}

/// Writes an image to any file. Makes its content durable, but not its name.
///
/// # Errors
/// If it cannot be written.
pub fn write_image(files: &dyn Files, path: &Path, image: &StateImage) -> Result<(), LogError> {
    store(files, path, image).map_err(|error| LogError::io("write", path, &error))
}

/// Reads an image from any file.
///
/// # Errors
/// If it is not an image, or is damaged.
pub fn read_image(files: &dyn Files, path: &Path) -> Result<StateImage, LogError> {
    load(files, path).map_err(|reason| LogError::Io { reason: format!("{} cannot be used: {reason}", path.display()) })
}

/// Adds another member's image to the log in `dir`, durably, so that the log is opened with it. The log may be a new
/// one.
///
/// # Errors
/// [`LogError::Locked`] if the log is open; [`LogError::Io`].
pub fn add_image(files: &Arc<dyn Files>, dir: &Path, image: &StateImage) -> Result<(), LogError> {
    files::create_directory(&**files, dir)?;
    let _lock = files.lock(dir)?;
    ImageWriter::open(files, dir)?.write(image)
}

/// Returns the epoch of the newest image in the log in `dir`; `None` without one.
///
/// # Errors
/// [`LogError::Locked`] if the log is open; [`LogError::Io`].
pub fn newest_image(files: &Arc<dyn Files>, dir: &Path) -> Result<Option<Epoch>, LogError> {
    files::create_directory(&**files, dir)?;
    let _lock = files.lock(dir)?;
    Ok(ImageWriter::open(files, dir)?.newest().map(|(epoch, _)| epoch))
}

fn load(files: &dyn Files, path: &Path) -> Result<StateImage, String> {
    let file = files.open(path, OpenMode::Read).map_err(|e| e.to_string())?;
    let mut file = BufReader::with_capacity(1 << 20, Stream::new(file));
    let mut assembler = ImageAssembler::new();
    let mut sum = 0;
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(|e| e.to_string())?;
    if magic != *MAGIC {
        return Err("not an image".into());
    }
    loop {
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|e| e.to_string())?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if len == END {
            if crc != sum {
                return Err("pieces are missing".into());
            }
            return assembler.finish().map_err(|e| e.to_string());
        }
        if len > PIECE_BYTES_MAX {
            return Err("a piece is too long".into());
        }
        let mut piece = vec![0; len as usize];
        file.read_exact(&mut piece).map_err(|e| e.to_string())?;
        if crc32c::crc32c(&piece) != crc {
            return Err("a checksum does not hold".into());
        }
        assembler.add(&piece).map_err(|e| e.to_string())?;
        sum = crc32c::crc32c_append(sum, &crc.to_le_bytes());
    }
}
