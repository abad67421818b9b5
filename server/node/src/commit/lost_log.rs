//! A data directory without its log, for example because the log's disk is not mounted. With an empty log, a node would
//! decide every id again, and replace the first operator's key.

use std::path::Path;

use crate::auth::access::OPERATOR_KEY_FILE;
use crate::auth::last_use::LAST_USE_FILE;
use crate::data_dir::log_dir;

/// Entries of a data directory that are written only after its log has been created.
const LATER_THAN_LOG: [&str; 3] = ["stores", OPERATOR_KEY_FILE, LAST_USE_FILE];

/// Refuses a data directory that was in use and has no log.
///
/// # Errors
/// A description of the problem and its remedy.
pub fn check_log_is_present(data: &Path) -> Result<(), String> {
    let log = log_dir(data);
    // Opening it tells what a log with files lacks, and that a salvage was interrupted.
    if is_filled(&log) || is_filled(&tribunal_log::unfinished_salvage(&log)) {
        return Ok(());
    }
    let Some(found) = LATER_THAN_LOG.iter().map(|name| data.join(name)).find(|path| is_filled(path)) else {
        return Ok(());
    };
    Err(format!(
        "{} is empty, but the node has run before with the directory that it is in: {} exists. If the log is on a disk of its own, mount \
         that; if it is lost, restore the data directory from a backup. For a new node, use an empty data directory",
        log.display(),
        found.display()
    ))
}

/// Returns whether a path is a file, or a directory that is not empty: a new file system may have one entry of its own.
fn is_filled(path: &Path) -> bool {
    let has_entries =
        || path.read_dir().is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name() != "lost+found"));
    path.is_file() || has_entries()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_that_was_never_used_gets_a_new_log() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        assert_eq!(check_log_is_present(&data.join("missing")), Ok(()));
        std::fs::create_dir_all(data.join("plugins")).unwrap();
        std::fs::create_dir_all(data.join("stores")).unwrap();
        assert_eq!(check_log_is_present(data), Ok(()), "a start that was interrupted");
        for name in ["stores/8", OPERATOR_KEY_FILE] {
            std::fs::write(data.join(name), "x").unwrap();
            let refused = check_log_is_present(data).unwrap_err();
            assert!(refused.contains("mount") && refused.contains("has run before"), "{refused}");
            std::fs::remove_file(data.join(name)).unwrap();
        }
        std::fs::write(data.join("keys.used"), "x").unwrap();
        assert!(check_log_is_present(data).is_err());
        std::fs::create_dir_all(log_dir(data).join("lost+found")).unwrap();
        assert!(check_log_is_present(data).is_err(), "a new file system");
        std::fs::create_dir_all(data.join("log.salvaged/segments")).unwrap();
        assert_eq!(check_log_is_present(data), Ok(()), "opening it tells how to go on");
        std::fs::remove_dir_all(data.join("log.salvaged")).unwrap();
        drop(tribunal_log::open(&log_dir(data), &tribunal_log::LogOptions::default()).unwrap());
        assert_eq!(check_log_is_present(data), Ok(()));
    }
}
