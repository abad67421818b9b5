//! A disk that is full: nothing more is acknowledged, and what was is there on the next start.

mod fixture;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use fixture::{Dir, batch};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, LogError};
use tribunal_types::Epoch;

const CHILD: &str = "TRIBUNAL_LOG_FULL_CHILD";

/// Writes until the disk is full. A test only so that this binary can start it.
#[test]
fn child_that_fills_the_disk() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let mut opened = tribunal_log::open(dir.as_ref(), &fixture::options()).unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut out = std::io::stdout();
    for epoch in opened.recovered.next.0.. {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        match opened.writer.append(&batch).and_then(|()| opened.writer.sync()) {
            Ok(()) => writeln!(out, "acked {epoch}").unwrap(),
            Err(error) => {
                assert!(matches!(error, LogError::DurabilityInDoubt { .. }), "{error}");
                // Final: every later attempt fails the same way, whatever becomes of the disk.
                for _ in 0..3 {
                    assert!(matches!(opened.writer.sync(), Err(LogError::DurabilityInDoubt { .. })));
                }
                writeln!(out, "in doubt").unwrap();
                return;
            }
        }
    }
}

/// A directory on a file system that is small.
struct SmallDisk(Dir);

impl SmallDisk {
    /// `None` where this user may not mount.
    fn mount(mebibytes: u32) -> Option<Self> {
        let dir = Dir::new("small-disk");
        std::fs::create_dir_all(&dir.0).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&dir.0).output();
        mounted.is_ok_and(|out| out.status.success()).then_some(Self(dir))
    }

    fn resize(&self, mebibytes: u32) {
        let size = format!("remount,size={mebibytes}m");
        let out = Command::new("mount").args(["-o", &size]).arg(&self.0.0).output().unwrap();
        assert!(out.status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).output();
    }
}

#[test]
fn a_full_disk_stops_acknowledgements_and_loses_none() {
    let Some(disk) = SmallDisk::mount(40) else {
        println!("SKIPPED: mounting a small tmpfs needs root");
        return;
    };
    let log = disk.0.0.join("log");
    let mut acked = 0;
    for room in [40, 80] {
        // An operator made room.
        disk.resize(room);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_fills_the_disk", "--nocapture"])
            .env(CHILD, &log)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (before, mut in_doubt) = (acked, false);
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if let Some(epoch) = line.rsplit_once("acked ").and_then(|(_, epoch)| epoch.parse::<u64>().ok()) {
                acked = epoch;
            }
            in_doubt |= line.ends_with("in doubt");
        }
        assert!(child.wait().unwrap().success());
        assert!(in_doubt, "the disk was never full");
        assert!(acked > before, "room was made, but nothing was acknowledged after epoch {before}");
    }
    disk.resize(200);
    let opened = tribunal_log::open(&log, &fixture::options()).unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut expected = 1;
    for entry in opened.reader.entries_from(Epoch(1)) {
        assert_eq!(*entry.unwrap().0.batches[0], batch(opened.recovered.group, &keyer, expected));
        expected += 1;
    }
    assert!(expected > acked, "epoch {acked} was acknowledged, the log ends before {expected}");
    drop(opened);
}
