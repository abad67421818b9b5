//! Collects a copy of another member's state, and puts it in place.
//!
//! A copy is collected in `incoming` and renamed to `copied` once it is complete and durable. From then on it counts,
//! and each step of putting it in place is repeatable: a start after a crash finishes the work. Stores go first: rows
//! ahead of the log wait for it, but a log ahead of the rows would never supply the missing ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribunal_disk::sync_directory;
use tribunal_log::{Files, RealFiles, add_image, read_image, write_image};
use tribunal_types::StateImage;

use crate::cluster::state_copy::listing::Place;
use crate::data_dir::log_dir;

const INCOMING: &str = "incoming";
const COPIED: &str = "copied";
const IMAGE: &str = "image";
const STORES: &str = "stores";

/// A copy being collected.
pub struct Incoming {
    data: PathBuf,
}

/// A file of the copy.
pub struct IncomingFile {
    file: File,
    path: PathBuf,
}

fn failed(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

fn remove_dir(path: &Path) -> Result<(), String> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", path, &error)),
        _ => Ok(()),
    }
}

fn sync(dir: &Path) -> Result<(), String> {
    sync_directory(dir).map_err(|error| failed("sync", dir, &error))
}

impl Incoming {
    /// Starts a copy in a data directory in which no copy counts; removes leftovers of an earlier one.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn restart(data: &Path) -> Result<Incoming, String> {
        remove_dir(&data.join(COPIED))?;
        Incoming::begin(data)
    }

    /// Starts a copy in a data directory; removes leftovers of an earlier one.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn begin(data: &Path) -> Result<Incoming, String> {
        let dir = data.join(INCOMING);
        remove_dir(&dir)?;
        let stores = dir.join(STORES);
        tribunal_disk::create_private_directories(&stores).map_err(|error| failed("create", &stores, &error))?;
        Ok(Incoming { data: data.to_owned() })
    }

    fn dir(&self) -> PathBuf {
        self.data.join(INCOMING)
    }

    /// Creates a file of the copy.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn create(&self, place: &Place) -> Result<IncomingFile, String> {
        let path = match place {
            Place::Image => self.dir().join(IMAGE),
            Place::Store(store, name) => {
                let dir = self.dir().join(STORES).join(store.to_string());
                tribunal_disk::create_private_directories(&dir).map_err(|error| failed("create", &dir, &error))?;
                dir.join(name)
            }
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.map(|file| IncomingFile { file, path: path.clone() }).map_err(|error| failed("create", &path, &error))
    }

    /// Writes the image of the copy, which is this node's own, and reads it back.
    ///
    /// # Errors
    /// If it cannot be written, or reads back differently.
    pub fn put_image(&self, image: &StateImage) -> Result<(), String> {
        let path = self.dir().join(IMAGE);
        write_image(&RealFiles, &path, image).map_err(|error| error.to_string())?;
        if self.image()? == *image {
            return Ok(());
        }
        Err(format!("{} is not what was written: check the disk", path.display()))
    }

    /// Returns the image of the copy.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn image(&self) -> Result<StateImage, String> {
        read_image(&RealFiles, &self.dir().join(IMAGE)).map_err(|error| error.to_string())
    }

    /// Makes the copy count; durable on return.
    ///
    /// # Errors
    /// A description of the failure; the copy does not count then.
    pub fn complete(self) -> Result<(), String> {
        let (dir, copied) = (self.dir(), self.data.join(COPIED));
        let stores = dir.join(STORES);
        for store in fs::read_dir(&stores).map_err(|error| failed("read", &stores, &error))? {
            sync(&store.map_err(|error| failed("read", &stores, &error))?.path())?;
        }
        sync(&stores)?;
        sync(&dir)?;
        fs::rename(&dir, &copied).map_err(|error| failed("rename", &dir, &error))?;
        sync(&self.data)
    }
}

impl IncomingFile {
    /// Writes a part.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn write(&self, offset: u64, part: &[u8]) -> Result<(), String> {
        self.file.write_all_at(part, offset).map_err(|error| failed("write", &self.path, &error))
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn sync(&self) -> Result<(), String> {
        self.file.sync_all().map_err(|error| failed("sync", &self.path, &error))
    }
}

/// Puts a complete copy in place, if there is one. Nothing in the data directory may be open.
///
/// # Errors
/// A description of the failure; the next start tries again.
pub fn put_in_place(data: &Path) -> Result<(), String> {
    remove_dir(&data.join(INCOMING))?;
    let copied = data.join(COPIED);
    if !copied.is_dir() {
        return Ok(());
    }
    let (from, to) = (copied.join(STORES), data.join(STORES));
    tribunal_disk::create_private_directories(&to).map_err(|error| failed("create", &to, &error))?;
    for entry in fs::read_dir(&from).map_err(|error| failed("read", &from, &error))? {
        let entry = entry.map_err(|error| failed("read", &from, &error))?;
        let target = to.join(entry.file_name());
        remove_dir(&target)?;
        fs::rename(entry.path(), &target).map_err(|error| failed("rename", &entry.path(), &error))?;
    }
    sync(&to)?;
    sync(data)?;
    let image = read_image(&RealFiles, &copied.join(IMAGE)).map_err(|error| error.to_string())?;
    let epoch = image.epoch.0;
    let files = Arc::new(RealFiles) as Arc<dyn Files>;
    add_image(&files, &log_dir(data), &image).map_err(|error| error.to_string())?;
    // A partially removed copy must not count.
    let done = data.join(INCOMING);
    fs::rename(&copied, &done).map_err(|error| failed("rename", &copied, &error))?;
    sync(data)?;
    remove_dir(&done)?;
    tracing::info!(epoch, "the copied state of another node is in place");
    Ok(())
}

#[cfg(test)]
mod tests {
    use tribunal_types::{Epoch, StoreId};

    use super::*;

    fn gathered(data: &Path) -> Incoming {
        let incoming = Incoming::begin(data).unwrap();
        let write = |place: Place, content: &[u8]| {
            let file = incoming.create(&place).unwrap();
            let (first, rest) = content.split_at(content.len() / 2);
            file.write(first.len() as u64, rest).unwrap();
            file.write(0, first).unwrap();
            file.sync().unwrap();
        };
        // A file as written by the log.
        let files = Arc::new(RealFiles) as Arc<dyn Files>;
        let elsewhere = tempfile::tempdir().unwrap();
        add_image(&files, elsewhere.path(), &StateImage { epoch: Epoch(7), ..StateImage::default() }).unwrap();
        write(Place::Image, &fs::read(elsewhere.path().join("images/image-0000000000000007")).unwrap());
        write(Place::Store(StoreId(3), "run-1".into()), b"new");
        incoming
    }

    #[test]
    fn a_copy_counts_once_it_is_complete_and_a_start_finishes_it() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        for store in ["3", "4"] {
            fs::create_dir_all(data.join(STORES).join(store)).unwrap();
            fs::write(data.join(STORES).join(store).join("run-9"), "old").unwrap();
        }
        let image = data.join("log/images/image-0000000000000007");
        // An incomplete copy is dropped.
        assert_eq!(gathered(data).image().unwrap().epoch, Epoch(7));
        put_in_place(data).unwrap();
        assert!(!data.join(INCOMING).exists() && data.join("stores/3/run-9").exists() && !image.exists());
        gathered(data).complete().unwrap();
        // The process died after the stores were moved.
        fs::remove_dir_all(data.join("stores/3")).unwrap();
        fs::rename(data.join("copied/stores/3"), data.join("stores/3")).unwrap();
        put_in_place(data).unwrap();
        assert_eq!(fs::read(data.join("stores/3/run-1")).unwrap(), b"new");
        assert!(!data.join("stores/3/run-9").exists() && data.join("stores/4/run-9").exists());
        assert!(image.exists() && !data.join(COPIED).exists());
        put_in_place(data).unwrap();
    }
}
