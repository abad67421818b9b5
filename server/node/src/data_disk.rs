//! Free space of the disk that the data directory is on. Must never block a request: the file system is asked at most once a
//! second.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Free bytes below which the node is not ready: a log segment, an image and the stores' flushes need room.
const FREE_BYTES_MIN: u64 = 128 << 20;
/// How long a reading is used.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The disk of a data directory.
#[derive(Debug)]
pub struct DataDisk {
    data: PathBuf,
    asked: Mutex<Option<(Instant, Option<u64>)>>,
}

impl DataDisk {
    /// Watches the disk of a directory.
    #[must_use]
    pub fn new(data: &Path) -> DataDisk {
        DataDisk { data: data.to_owned(), asked: Mutex::default() }
    }

    /// Returns the reason if there is too little free space to go on.
    #[must_use]
    pub fn full(&self) -> Option<String> {
        reason(self.free_bytes()?)
    }

    /// Returns the free bytes; `None` if the file system does not tell.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        let mut asked = self.asked.lock();
        if let Some((at, free)) = *asked
            && at.elapsed() < ASK_EVERY
        {
            return free;
        }
        let free = rustix::fs::statvfs(&self.data).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        *asked = Some((Instant::now(), free));
        free
    }
}

fn reason(free: u64) -> Option<String> {
    let mib = |bytes: u64| bytes >> 20;
    (free < FREE_BYTES_MIN).then(|| {
        format!(
            "the disk of the data directory is full: {} MiB are free, {} are needed; free some space",
            mib(free),
            mib(FREE_BYTES_MIN)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_almost_full_disk_is_a_reason() {
        assert_eq!(reason(FREE_BYTES_MIN), None);
        let text = reason(FREE_BYTES_MIN - 1).expect("too little");
        assert!(text.contains("127 MiB are free") && text.contains("free some space"), "{text}");
        assert!(DataDisk::new(Path::new("/")).free_bytes().is_some_and(|free| free > 0));
        assert_eq!(DataDisk::new(Path::new("/does/not/exist")).full(), None, "unknown free space is no reason");
    }
}
