//! Which directories a start syncs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_log::sim::{Operation, SimFiles};
use tribunal_log::{DurableLog, LogOptions, open_on};
use tribunal_types::{Epoch, StateImage};

const DIR: &str = "/data/tribunal/log";

/// Returns the directories that `run` syncs, in order.
fn synced(disk: &SimFiles, run: impl FnOnce()) -> Vec<PathBuf> {
    let synced = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&synced);
    disk.observe(move |operation, path| {
        if operation == Operation::SyncDir {
            seen.lock().push(path.to_owned());
        }
    });
    run();
    disk.observe(|_, _| {});
    std::mem::take(&mut synced.lock())
}

#[test]
fn a_start_syncs_no_directory_without_need() {
    let disk = SimFiles::new(1);
    let mut opened = None;
    let mut open = || opened = Some(open_on(&disk.as_files(), Path::new(DIR), &LogOptions::default()).unwrap());
    let [log, tribunal, data, root] = [DIR, "/data/tribunal", "/data", "/"].map(PathBuf::from);
    // For a new log: all names but that of the identity, then the identity's, then those of the
    // directories above.
    assert_eq!(synced(&disk, &mut open), [&log, &log, &tribunal, &data, &root].map(PathBuf::clone));
    opened.as_mut().unwrap().writer.write_image(&StateImage { epoch: Epoch(1), ..StateImage::default() }).unwrap();
    drop(opened.take());
    let open = || opened = Some(open_on(&disk.as_files(), Path::new(DIR), &LogOptions::default()).unwrap());
    let found = synced(&disk, open);
    assert_eq!(found, [tribunal, data, root, log.clone(), log.join("segments"), log.join("images")]);
}
