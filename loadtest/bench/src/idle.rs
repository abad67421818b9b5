//! One client that commits occasionally, against bare fdatasyncs of the same disk in the same run: the cost that the
//! service adds to that of durability.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::engine::{Traffic as _, latencies};
use crate::error::BenchError;
use crate::measure::Bench;
use crate::options::Common;
use crate::report::Percentiles;
use crate::traffic::{Counts, Mode};

/// Bytes of one bare write: about the size of a small epoch in the log.
const WRITE_BYTES: usize = 4096;
/// Bytes of the file that is written in place.
const FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Durations of idle commits and bare syncs.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// One commit at a time, microseconds.
    pub commit_us: Percentiles,
    /// Write in place in a file with allocated blocks, then fdatasync: the minimum for a disk.
    pub sync_in_place_us: Percentiles,
    /// Append, then fdatasync, which also has to record the file's new length.
    pub sync_append_us: Percentiles,
    /// Ratio of the median commit to the median sync in place.
    pub ratio_in_place: f64,
    /// Ratio of the median commit to the median sync of an append.
    pub ratio_append: f64,
    /// Outcomes of the transactions.
    pub counts: Counts,
}

impl Idle {
    /// Returns the figures as lines of text.
    #[must_use]
    pub fn text(&self, samples: usize, pause: Duration) -> String {
        format!(
            "idle: {samples} commits, one at a time, {} ms apart\n  commit p50 {} us, p99 {} us\n  fdatasync of {WRITE_BYTES} bytes in \
             place p50 {} us, p99 {} us: commit takes {:.2} of it\n  fdatasync of {WRITE_BYTES} bytes appended p50 {} us, p99 {} us: \
             commit takes {:.2} of it\n",
            pause.as_millis(),
            self.commit_us.p50,
            self.commit_us.p99,
            self.sync_in_place_us.p50,
            self.sync_in_place_us.p99,
            self.ratio_in_place,
            self.sync_append_us.p50,
            self.sync_append_us.p99,
            self.ratio_append,
        )
    }
}

/// Measures a commit and both syncs alternately.
///
/// # Errors
/// If the server, the traffic or the disk fails.
pub fn measure(common: &Common, samples: usize, pause: Duration) -> Result<Idle, BenchError> {
    let mut bench = Bench::prepare(common)?;
    let mut rpc = bench.server().rpc()?;
    let mut disk = Disk::create(&common.data_dir)?;
    let traffic = bench.traffic();
    traffic.post_as(Mode::Commit, 1);
    let (mut commits, mut in_place, mut appended) = (latencies(), latencies(), latencies());
    let mut request = Vec::new();
    // A fifth more, uncounted, warms up both sides.
    let warmup = samples / 5;
    for sample in 0..samples + warmup {
        std::thread::sleep(pause);
        request.clear();
        let Some(pending) = traffic.request(&mut request) else { break };
        let start = Instant::now();
        let (status, body) = rpc.exchange(&request)?;
        let commit = start.elapsed();
        traffic.reply(pending, status, body);
        // The server syncs its own mark within milliseconds of a commit; let that finish before using the disk.
        std::thread::sleep(pause);
        let (placed, added) = (disk.sync_in_place()?, disk.sync_append()?);
        if sample >= warmup {
            for (histogram, time) in [(&mut commits, commit), (&mut in_place, placed), (&mut appended, added)] {
                histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            }
        }
    }
    let counts = traffic.take_counts();
    let p50 = |histogram: &Histogram<u64>| histogram.value_at_quantile(0.5).max(1) as f64;
    Ok(Idle {
        commit_us: Percentiles::of(&commits),
        sync_in_place_us: Percentiles::of(&in_place),
        sync_append_us: Percentiles::of(&appended),
        ratio_in_place: p50(&commits) / p50(&in_place),
        ratio_append: p50(&commits) / p50(&appended),
        counts,
    })
}

/// Two temporary files, removed at the end.
struct Disk {
    folder: std::path::PathBuf,
    placed: File,
    appended: File,
    at: u64,
    piece: Vec<u8>,
}

impl Disk {
    fn create(parent: &Path) -> Result<Disk, BenchError> {
        let folder = parent.join(format!("tribunal-bench-sync-{}", std::process::id()));
        let make = || {
            std::fs::create_dir_all(&folder)?;
            let open = |name| OpenOptions::new().create(true).truncate(true).write(true).open(folder.join(name));
            let mut placed = open("placed")?;
            let zeros = vec![0_u8; 1024 * 1024];
            for _ in 0..FILE_BYTES / zeros.len() as u64 {
                placed.write_all(&zeros)?;
            }
            placed.sync_all()?;
            let appended = open("appended")?;
            appended.sync_all()?;
            Ok((placed, appended))
        };
        let (placed, appended) = make().map_err(BenchError::io(format!("write in {}", folder.display())))?;
        Ok(Disk { folder, placed, appended, at: 0, piece: vec![0x5a; WRITE_BYTES] })
    }

    fn sync_in_place(&mut self) -> Result<Duration, BenchError> {
        self.at = (self.at + WRITE_BYTES as u64) % FILE_BYTES;
        self.placed.seek(SeekFrom::Start(self.at)).map_err(BenchError::io("seek"))?;
        timed_sync(&mut self.placed, &self.piece)
    }

    fn sync_append(&mut self) -> Result<Duration, BenchError> {
        timed_sync(&mut self.appended, &self.piece)
    }
}

fn timed_sync(file: &mut File, piece: &[u8]) -> Result<Duration, BenchError> {
    let start = Instant::now();
    file.write_all(piece).and_then(|()| file.sync_data()).map_err(BenchError::io("sync a file"))?;
    Ok(start.elapsed())
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("could not remove {}: {error}", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_written_and_removed() {
        let parent = std::env::temp_dir();
        let mut disk = Disk::create(&parent).unwrap();
        let folder = disk.folder.clone();
        disk.sync_in_place().unwrap();
        disk.sync_append().unwrap();
        disk.sync_append().unwrap();
        assert_eq!(folder.join("placed").metadata().unwrap().len(), FILE_BYTES);
        assert_eq!(folder.join("appended").metadata().unwrap().len(), 2 * WRITE_BYTES as u64);
        drop(disk);
        assert!(!folder.exists());
    }
}
