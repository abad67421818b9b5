//! Nodes whose system clock is wrong by a chosen amount: a preloaded library shifts their clock readings.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// The clocks of a cluster's nodes.
pub struct Clocks {
    dir: tempfile::TempDir,
}

impl Clocks {
    /// Builds the library, and clocks for this number of nodes, set to the true time; returns `None` without a C
    /// compiler.
    pub fn build(nodes: u16) -> Option<Clocks> {
        let clocks = Clocks { dir: tempfile::tempdir().expect("a directory") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/clock.c");
        let built =
            Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(clocks.library()).arg(source).status();
        match built {
            Ok(status) => assert!(status.success(), "the library does not compile"),
            Err(_) => return None,
        }
        (1..=nodes).for_each(|node| clocks.set(node, 0));
        Some(clocks)
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    fn offset_of(&self, node: u16) -> PathBuf {
        self.dir.path().join(format!("node-{node}"))
    }

    /// Makes a node that is about to start use its clock.
    pub fn give(&self, node: u16, command: &mut Command) {
        command.env("LD_PRELOAD", self.library()).env("TRIBUNAL_TEST_CLOCK", self.offset_of(node));
    }

    /// Sets the offset of a node's clock from the true time, with immediate effect.
    pub fn set(&self, node: u16, seconds: i64) {
        let path = self.offset_of(node);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).expect("it can be written");
        file.write_all_at(&(seconds * 1_000_000_000).to_le_bytes(), 0).expect("it is written");
    }
}
