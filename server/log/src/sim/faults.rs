//! What is wrong with a simulated disk, or with how it is used.

use std::path::Path;

/// Calls that a log with a bug would leave out, or make too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// Files whose path contains this are never synced by [`LogFile::sync_all`](crate::LogFile::sync_all).
    SyncAll(&'static str),
    /// Files whose path contains this are never synced by [`LogFile::sync_data`](crate::LogFile::sync_data).
    SyncData(&'static str),
    /// Directories whose path ends with this are never synced.
    SyncDir(&'static str),
    /// What is appended to segments is synced after the mark, with the next sync that follows it, and not before.
    DataAfterMark,
}

/// The faults in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// The power fails once there have been so many operations.
    pub cut_at: Option<u64>,
    /// Bytes that all files together may take.
    pub room: Option<u64>,
    /// The next sync of a file with this in its path fails.
    pub failing: Option<String>,
    /// Syncs of files wait.
    pub stuck: bool,
    pub omission: Option<Omission>,
    /// Files whose sync was put off until the mark has been synced, and whether it has.
    put_off: Vec<u64>,
    marked: bool,
}

impl Faults {
    /// Tells whether this sync is the one that fails.
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
