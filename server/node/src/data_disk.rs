//! Free space on the data directory's disk. Must never block a request: the file system is queried at most once a
//! second. Each time the disk becomes low is logged once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Free bytes below which the node is not ready: a log segment, an image and the stores' flushes need room.
const FREE_BYTES_MIN: u64 = 128 << 20;
/// Free bytes below which the node takes no commits, because a write that fails ends it. Far fewer than those above: with
/// more commits it may yet take an image and truncate its log.
const WRITE_BYTES_MIN: u64 = 32 << 20;
/// Free bytes below which a large disk is low.
const LOW_BYTES: u64 = 1 << 30;
/// A disk is low if less than one part in this many is free, or less than [`LOW_BYTES`] if that is smaller.
const LOW_PART: u64 = 10;
/// Every disk is low with fewer free bytes than this: a node about to become unready has then logged it before.
const LOW_BYTES_MIN: u64 = 2 * FREE_BYTES_MIN;
/// How long a reading is cached.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The disk of a data directory.
#[derive(Debug)]
pub struct DataDisk {
    data: PathBuf,
    seen: Mutex<Seen>,
    /// The free bytes of the last reading, [`UNKNOWN`] without one: commits must not wait for the file system.
    last_free: AtomicU64,
}

/// Free bytes of a file system that returns none.
const UNKNOWN: u64 = u64::MAX;

/// The file system's last reading.
#[derive(Debug, Default)]
struct Seen {
    asked: Option<(Instant, Option<Space>)>,
    is_low: bool,
}

/// Sizes of a disk in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// What this process may still write.
    pub free: u64,
    /// The whole file system.
    pub total: u64,
}

impl DataDisk {
    /// Watches the disk of a directory.
    #[must_use]
    pub fn new(data: &Path) -> DataDisk {
        DataDisk { data: data.to_owned(), seen: Mutex::default(), last_free: AtomicU64::new(UNKNOWN) }
    }

    /// Creates a watch as [`DataDisk::new`] does, and queries the file system regularly even without requests.
    #[must_use]
    pub fn watched(data: &Path, runtime: &Handle) -> Arc<DataDisk> {
        let disk = Arc::new(DataDisk::new(data));
        let watched = Arc::clone(&disk);
        runtime.spawn(async move {
            loop {
                let disk = Arc::clone(&watched);
                // A disk that hangs holds up nothing but this.
                let _ = tokio::task::spawn_blocking(move || disk.space()).await;
                tokio::time::sleep(ASK_EVERY).await;
            }
        });
        disk
    }

    /// Returns the reason if there is too little free space to continue.
    #[must_use]
    pub fn full(&self) -> Option<String> {
        reason(self.space()?.free, FREE_BYTES_MIN)
    }

    /// Returns the reason if there was too little free space for commits at the last reading. Never waits.
    #[must_use]
    pub fn too_full_for_commits(&self) -> Option<String> {
        reason(self.last_free.load(Ordering::Relaxed), WRITE_BYTES_MIN)
    }

    /// Returns whether this many bytes may be written, after which there is still enough space for commits; true if the
    /// file system returns none.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.space().is_none_or(|space| space.free >= bytes.saturating_add(WRITE_BYTES_MIN))
    }

    /// Returns the free and total bytes; `None` if the file system returns none.
    #[must_use]
    pub fn space(&self) -> Option<Space> {
        let mut seen = self.seen.lock();
        if let Some((at, space)) = seen.asked
            && at.elapsed() < ASK_EVERY
        {
            return space;
        }
        let space = rustix::fs::statvfs(&self.data).ok().map(|stat| Space {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        });
        seen.asked = Some((Instant::now(), space));
        self.last_free.store(space.map_or(UNKNOWN, |space| space.free), Ordering::Relaxed);
        if let Some(space) = space
            && let Some(is_low) = change(seen.is_low, space)
        {
            seen.is_low = is_low;
            self.log_change(is_low, space);
        }
        space
    }

    fn log_change(&self, is_low: bool, space: Space) {
        let (data, free_mib) = (self.data.display(), space.free >> 20);
        if is_low {
            tracing::warn!(
                %data,
                free_mib,
                "the disk of the data directory is running full: free some space, or lower `log.retention_hours` or \
                 `log.retention_bytes`. Below {} MiB the node is not ready, and below {} MiB it takes no commits",
                FREE_BYTES_MIN >> 20,
                WRITE_BYTES_MIN >> 20
            );
        } else {
            tracing::info!(%data, free_mib, "the disk of the data directory has enough free space again");
        }
    }
}

/// Returns whether the disk is low from now on, if that changes. It stays low until clearly more is free, so that a
/// disk at the bound is logged once.
fn change(was_low: bool, space: Space) -> Option<bool> {
    let bound = LOW_BYTES.min(space.total / LOW_PART).max(LOW_BYTES_MIN);
    let is_low = space.free < if was_low { bound + bound / 4 } else { bound };
    (is_low != was_low).then_some(is_low)
}

fn reason(free: u64, needed: u64) -> Option<String> {
    let mib = |bytes: u64| bytes >> 20;
    (free < needed).then(|| {
        format!(
            "the disk of the data directory is almost full: {} MiB are free, {} are needed; free some space",
            mib(free),
            mib(needed)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_runs_full_is_logged_once_until_it_has_recovered() {
        let run = |total_mib: u64, free_mib: &[u64]| {
            let mut is_low = false;
            let mut changes = Vec::new();
            for free in free_mib {
                if let Some(now) = change(is_low, Space { free: free << 20, total: total_mib << 20 }) {
                    is_low = now;
                    changes.push((*free, now));
                }
            }
            changes
        };
        let large = run(1 << 20, &[2000, 1024, 1023, 900, 1100, 1023, 1279, 1280, 1024, 10]);
        assert_eq!(large, [(1023, true), (1280, false), (10, true)]);
        assert_eq!(run(5000, &[501, 499, 600, 625]), [(499, true), (625, false)], "a tenth of a small disk");
        assert_eq!(run(1000, &[256, 255, 400]), [(255, true), (400, false)], "twice what a ready node needs");
    }

    #[test]
    fn only_an_almost_full_disk_is_a_reason() {
        assert_eq!(reason(FREE_BYTES_MIN, FREE_BYTES_MIN), None);
        let text = reason(FREE_BYTES_MIN - 1, FREE_BYTES_MIN).expect("too little");
        assert!(text.contains("127 MiB are free") && text.contains("free some space"), "{text}");
        assert!(DataDisk::new(Path::new("/")).space().is_some_and(|space| 0 < space.free && space.free <= space.total));
        assert_eq!(DataDisk::new(Path::new("/does/not/exist")).full(), None, "unknown free space is no reason");
    }
}
