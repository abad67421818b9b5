//! State images: one file each, two generations, the older deleted only after the newer is durable.
//!
//! Files of their own rather than rows of the database: an image is large, written once, read once and dropped as a whole,
//! and writing it must not delay commits ([`ImageWriter`] may be used from any thread).

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_codec::{ImageAssembler, image_pieces};
use tribunal_types::{Epoch, StateImage};

use crate::error::LogError;
use crate::files;

const MAGIC: &[u8; 8] = b"TRBIMG01";
/// Stands where a piece's length would: the image is complete.
const END: u32 = u32::MAX;
/// A piece above this is none of ours.
const PIECE_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Images that are kept.
const GENERATIONS: usize = 2;

/// Writes images beside the log. Clones share the directory and wait for one another.
#[derive(Clone)]
pub struct ImageWriter {
    dir: PathBuf,
    /// Epochs of the images on disk, ascending.
    kept: Arc<Mutex<Vec<Epoch>>>,
}

impl ImageWriter {
    /// Looks at what is there.
    pub(crate) fn open(log_dir: &Path) -> Result<Self, LogError> {
        let dir = log_dir.join("images");
        fs::create_dir_all(&dir).map_err(|e| LogError::io("create", &dir, &e))?;
        let mut kept = Vec::new();
        let entries = fs::read_dir(&dir).map_err(|e| LogError::io("read", &dir, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| LogError::io("read", &dir, &e))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let epoch = name.strip_prefix("image-").and_then(|epoch| u64::from_str_radix(epoch, 16).ok());
            if let Some(epoch) = epoch {
                kept.push(Epoch(epoch));
            } else if name.ends_with(".new") {
                // The process died while it wrote this one.
                let _ = fs::remove_file(entry.path());
            }
        }
        kept.sort_unstable();
        Ok(Self { dir, kept: Arc::new(Mutex::new(kept)) })
    }

    fn path(&self, epoch: Epoch) -> PathBuf {
        self.dir.join(format!("image-{:016x}", epoch.0))
    }

    /// Writes an image durably, then deletes all but the newest two.
    ///
    /// # Errors
    /// If it cannot be written; the images before it stay.
    pub fn write(&self, image: &StateImage) -> Result<(), LogError> {
        let mut kept = self.kept.lock();
        let (path, fresh) = (self.path(image.epoch), self.dir.join(format!("image-{:016x}.new", image.epoch.0)));
        let write = || -> std::io::Result<()> {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&fresh)?);
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
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&fresh, &path)
        };
        if let Err(error) = write() {
            let _ = fs::remove_file(&fresh);
            return Err(LogError::io("write", &path, &error));
        }
        files::sync_directory(&self.dir)?;
        kept.retain(|epoch| *epoch != image.epoch);
        kept.push(image.epoch);
        kept.sort_unstable();
        while kept.len() > GENERATIONS {
            let oldest = kept.remove(0);
            let path = self.path(oldest);
            fs::remove_file(&path).map_err(|e| LogError::io("remove", &path, &e))?;
        }
        Ok(())
    }

    /// Returns the epoch of the oldest image kept: what is above it must stay in the log, should the newer image prove
    /// unreadable.
    pub(crate) fn oldest(&self) -> Option<Epoch> {
        self.kept.lock().first().copied()
    }

    /// Returns the newest image that can be read, and what was wrong with newer ones.
    pub(crate) fn load_newest(&self) -> (Option<StateImage>, Vec<String>) {
        let mut faults = Vec::new();
        for epoch in self.kept.lock().iter().rev() {
            let path = self.path(*epoch);
            match load(&path) {
                Ok(image) if image.epoch == *epoch => return (Some(image), faults),
                Ok(image) => faults.push(format!("{} holds epoch {}", path.display(), image.epoch)),
                Err(reason) => faults.push(format!("{}: {reason}", path.display())),
            }
        }
        (None, faults)
    }
}

fn load(path: &Path) -> Result<StateImage, String> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(|e| e.to_string())?);
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
