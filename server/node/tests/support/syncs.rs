//! A node whose disk is as slow, or as broken, as a test wants: a preloaded library has its syncs wait or fail.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// What happens to a sync.
#[derive(Clone, Copy)]
pub enum Syncs {
    Succeed,
    Wait,
    Fail,
}

/// The disk of one node.
pub struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// Builds the library; returns `None` without a C compiler.
    pub fn build() -> Option<Disk> {
        let disk = Disk { dir: tempfile::tempdir().expect("a directory") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/sync.c");
        let built = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(disk.library()).arg(source).status();
        match built {
            Ok(status) => assert!(status.success(), "the library does not compile"),
            Err(_) => return None,
        }
        disk.set(Syncs::Succeed);
        Some(disk)
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("sync.so")
    }

    fn order(&self) -> PathBuf {
        self.dir.path().join("order")
    }

    /// Makes a node that is about to start use the disk.
    pub fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.library()).env("TRIBUNAL_TEST_SYNC", self.order());
    }

    /// Sets what happens to syncs, with immediate effect, also for those that wait.
    pub fn set(&self, syncs: Syncs) {
        let order = match syncs {
            Syncs::Succeed => b"s",
            Syncs::Wait => b"w",
            Syncs::Fail => b"f",
        };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.order());
        file.expect("it can be written").write_all_at(order, 0).expect("it is written");
    }
}
