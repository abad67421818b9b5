//! Writing an image, which takes as long as the disk does, does not delay the log's writers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tribunal_log::sim::SimFiles;
use tribunal_log::{DurableLog, Files, LockGuard, LogError, LogFile, LogOptions, OpenMode, open_on};
use tribunal_types::{Epoch, StateImage};

/// A disk on which one sync of an image directory blocks until it is released.
struct Stalling {
    disk: Arc<dyn Files>,
    stalls: AtomicBool,
    begun: Mutex<Sender<()>>,
    ends: Mutex<Receiver<()>>,
}

impl Files for Stalling {
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.ends_with("images") && self.stalls.swap(false, Ordering::SeqCst) {
            self.begun.lock().send(()).expect("the test waits for it");
            self.ends.lock().recv().expect("the test ends it");
        }
        self.disk.sync_dir(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn LogFile>> {
        self.disk.open(path, mode)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(dir)
    }

    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dirs(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonical(path)
    }

    fn lock(&self, dir: &Path) -> Result<LockGuard, LogError> {
        self.disk.lock(dir)
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), LogError> {
        self.disk.random(bytes)
    }

    fn has_threads(&self) -> bool {
        self.disk.has_threads()
    }
}

#[test]
fn a_log_is_truncated_while_an_image_is_written() {
    let (begun, has_begun) = channel();
    let (end, ends) = channel();
    let disk = SimFiles::new(1).as_files();
    let stalling =
        Arc::new(Stalling { disk, stalls: AtomicBool::new(false), begun: Mutex::new(begun), ends: Mutex::new(ends) });
    let files = Arc::clone(&stalling) as Arc<dyn Files>;
    let mut opened = open_on(&files, Path::new("/log"), &LogOptions::default()).unwrap();
    let image = |epoch| StateImage { epoch: Epoch(epoch), ..StateImage::default() };
    let images = opened.writer.image_writer();
    images.write(&image(1)).unwrap();
    stalling.stalls.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| images.write(&image(2)));
        has_begun.recv().unwrap();
        let (done, is_done) = channel();
        let log = &mut opened.writer;
        scope.spawn(move || done.send(log.truncate(Epoch(1))));
        let truncated = is_done.recv_timeout(Duration::from_secs(120));
        end.send(()).unwrap();
        truncated.expect("it does not wait for the image").unwrap();
        written.join().unwrap().unwrap();
    });
    assert_eq!(images.newest().map(|(epoch, _)| epoch), Some(Epoch(2)));
}
