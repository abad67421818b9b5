//! Marks a node whose `tribunal cluster recover` has started to change its logs and has not finished.
//!
//! Such a node must not start: some of its groups have it as their only member and others do not, and the other nodes
//! may be running. The command can be repeated, and removes the mark once all of its changes are durable.

use std::path::Path;

/// The mark, in the data directory.
const MARK: &str = "recover-unfinished";

const CONTENT: &[u8] =
    b"tribunal cluster recover was interrupted: repeat it with --accept-loss before the node starts.\n";

/// Makes the mark durable.
///
/// # Errors
/// If it cannot be written.
pub fn mark(data: &Path) -> Result<(), String> {
    let file = data.join(MARK);
    tribunal_disk::replace(&file, CONTENT)
        .map_err(|error| format!("cannot write {}, so nothing was changed: {error}", file.display()))
}

/// Returns whether the mark exists.
pub fn is_marked(data: &Path) -> bool {
    data.join(MARK).exists()
}

/// Removes the mark.
///
/// # Errors
/// If the mark cannot be removed.
pub fn remove_mark(data: &Path) -> Result<(), String> {
    let file = data.join(MARK);
    tribunal_disk::remove(&file)
        .map_err(|error| format!("cannot remove {}; repeat the command: {error}", file.display()))
}

/// Refuses to start a node with the mark.
///
/// # Errors
/// If the mark exists.
pub fn must_be_unmarked(data: &Path) -> Result<(), String> {
    if !is_marked(data) {
        return Ok(());
    }
    Err(format!(
        "`tribunal cluster recover` was interrupted while it changed the logs in {}: repeat it with --accept-loss, then start the node. \
         If the other nodes run after all, remove this node with `tribunal cluster remove`, and add a new one",
        data.display()
    ))
}
