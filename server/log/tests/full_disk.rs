//! A full disk: nothing more is acknowledged, and everything acknowledged before exists after the next start.

mod fixture;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use fixture::{Dir, batch};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, LogError, salvage};
use tribunal_types::{ControlChange, ControlIndex, Epoch, StoreId, StoreSpec};

const CHILD: &str = "TRIBUNAL_LOG_FULL_CHILD";

/// Writes until the disk is full. It is a test only so that this binary can start it.
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
                // Final: every later attempt fails the same way, even if the disk recovers.
                for _ in 0..3 {
                    assert!(matches!(opened.writer.sync(), Err(LogError::DurabilityInDoubt { .. })));
                }
                writeln!(out, "in doubt").unwrap();
                return;
            }
        }
    }
}

/// A directory on a small file system.
struct SmallDisk(Dir);

impl SmallDisk {
    /// Returns `None` if this user may not mount.
    fn mount(mebibytes: u32) -> Option<Self> {
        Self::mount_with(&format!("size={mebibytes}m"))
    }

    /// Mounts with options of tmpfs.
    fn mount_with(options: &str) -> Option<Self> {
        let dir = Dir::new("small-disk");
        std::fs::create_dir_all(&dir.0).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&dir.0).output();
        mounted.is_ok_and(|out| out.status.success()).then_some(Self(dir))
    }

    fn resize(&self, mebibytes: u32) {
        self.remount(&format!("size={mebibytes}m"));
    }

    fn remount(&self, options: &str) {
        let out = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0.0).output().unwrap();
        assert!(out.status.success());
    }

    /// Uses up all the space left.
    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.0.0.join("ballast")).unwrap();
        while ballast.write_all(&[1; 4096]).is_ok() {}
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
        // The operator made room.
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

/// Tries every limit on blocks and on files under which any write of a first start fails.
#[test]
fn a_first_start_that_finds_no_room_is_repeated_when_there_is_some() {
    let blocks = (1..=24).map(|pages| (format!("size={}k", 4 * pages), "size=40m"));
    let files = (2..=14).map(|files| (format!("size=40m,nr_inodes={files}"), "nr_inodes=1000"));
    let (mut refused, mut created) = (0, 0);
    for (limit, none) in blocks.chain(files) {
        let Some(disk) = SmallDisk::mount_with(&limit) else {
            println!("SKIPPED: mounting a small tmpfs needs root");
            return;
        };
        let log = disk.0.0.join("log");
        for _ in 0..2 {
            match tribunal_log::open(&log, &fixture::options()) {
                Ok(_) => created += 1,
                Err(LogError::Io { reason }) => {
                    assert!(reason.contains("No space left") && reason.contains("make room"), "{limit}: {reason}");
                    refused += 1;
                }
                Err(other) => panic!("{limit}: {other}"),
            }
        }
        disk.remount(none);
        write_three_epochs(&log, &limit);
    }
    assert!(refused >= 20 && created >= 2, "{refused} starts were refused, {created} were not");
}

/// Opens the files of a log repeatedly on a full disk, in every state of its control log.
#[test]
fn a_later_start_that_finds_no_room_is_repeated_when_there_is_some() {
    let Some(disk) = SmallDisk::mount_with("size=40m") else {
        println!("SKIPPED: mounting a small tmpfs needs root");
        return;
    };
    let log = disk.0.0.join("log");
    let first = write_three_epochs(&log, "a new log");
    for damage in ["nothing", "control", "control.copy", "control cut"] {
        match damage {
            "nothing" => {}
            "control cut" => std::fs::write(log.join("control"), b"").unwrap(),
            file => std::fs::remove_file(log.join(file)).unwrap(),
        }
        disk.fill();
        for _ in 0..2 {
            match tribunal_log::open(&log, &fixture::options()) {
                // Operations that need no room work, and a write is refused without harm.
                Ok(mut opened) => {
                    let large = "x".repeat(8192);
                    let spec = StoreSpec { id: StoreId(9), name: large, ..StoreSpec::default() };
                    let index = ControlIndex(opened.recovered.control.len() as u64 + 1);
                    let refused = opened.writer.append_control(index, &ControlChange::DeclareStore(spec).into());
                    assert!(matches!(refused, Err(LogError::DurabilityInDoubt { .. })), "{damage}: {refused:?}");
                }
                Err(LogError::Io { reason }) => assert!(reason.contains("make room"), "{damage}: {reason}"),
                Err(other) => panic!("{damage}: {other}"),
            }
            let full = salvage(&log).err().unwrap_or_else(|| panic!("{damage}: there was room"));
            assert!(matches!(&full, LogError::Io { reason } if reason.contains("No space")), "{damage}: {full}");
        }
        std::fs::remove_file(disk.0.0.join("ballast")).unwrap();
        assert_eq!(write_three_epochs(&log, damage), first, "{damage}: another log");
    }
}

/// Opens the log, checks its content, appends three epochs; returns the log's id.
fn write_three_epochs(log: &std::path::Path, what: &str) -> String {
    let mut opened = tribunal_log::open(log, &fixture::options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut expected = 1;
    for entry in opened.reader.entries_from(Epoch(1)) {
        assert_eq!(*entry.unwrap().0.batches[0], batch(opened.recovered.group, &keyer, expected), "{what}");
        expected += 1;
    }
    assert_eq!(opened.recovered.next, Epoch(expected), "{what}");
    for epoch in expected..expected + 3 {
        opened.writer.append(&batch(opened.recovered.group, &keyer, epoch)).unwrap();
        opened.writer.sync().unwrap();
    }
    opened.recovered.id.to_string()
}
