//! Faults of a simulated disk, or of its use.

use std::path::Path;

/// Calls that a buggy log would omit or make too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// Files whose path contains this are never synced by [`LogFile::sync_all`](crate::LogFile::sync_all).
    SyncAll(&'static str),
    /// Files whose path contains this are never synced by [`LogFile::sync_data`](crate::LogFile::sync_data).
    SyncData(&'static str),
    /// Directories whose path ends with this are never synced.
    SyncDir(&'static str),
    /// Data appended to segments is synced only by the next sync after that of the mark, not before it.
    DataAfterMark,
}

/// The active faults.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Number of operations after which the power fails.
    pub cut_at: Option<u64>,
    /// Maximum total size of all files, bytes.
    pub room: Option<u64>,
    /// The next sync of a file whose path contains this fails.
    pub failing: Option<String>,
    /// Syncs of files block.
    pub stuck: bool,
    pub omission: Option<Omission>,
    /// Files whose sync is postponed until the mark has been synced, and whether it has.
    put_off: Vec<u64>,
    marked: bool,
}

impl Faults {
    /// Returns whether this sync must fail.
    pub(super) fn fails_sync_of(&mut self, path: &Path) -> bool {
        let path = path.to_string_lossy();
        self.failing.take_if(|part| path.contains(part.as_str())).is_some()
    }

    pub(super) fn omits_sync_of_dir(&self, dir: &Path) -> bool {
        matches!(self.omission, Some(Omission::SyncDir(end)) if dir.ends_with(end))
    }

    /// Returns the files that a sync of `file` makes durable.
    pub(super) fn synced_by(&mut self, file: u64, path: &Path, data_only: bool) -> Vec<u64> {
        let path = path.to_string_lossy();
        let data = path.contains("/segments/");
        match self.omission {
            Some(Omission::SyncAll(part)) if !data_only && path.contains(part) => Vec::new(),
            Some(Omission::SyncData(part)) if data_only && path.contains(part) => Vec::new(),
            Some(Omission::DataAfterMark) if !data_only => vec![file],
            Some(Omission::DataAfterMark) if path.ends_with("/mark") => {
                self.marked = true;
                vec![file]
            }
            Some(Omission::DataAfterMark) => {
                let mut synced =
                    if std::mem::take(&mut self.marked) { std::mem::take(&mut self.put_off) } else { Vec::new() };
                if data {
                    self.put_off.push(file)
                } else {
                    synced.push(file)
                }
                synced
            }
            _ => vec![file],
        }
    }
}
