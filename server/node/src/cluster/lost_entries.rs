//! Marks a member that has lost acknowledged entries, for example after an older copy of its directory was restored.
//!
//! Its votes and acknowledgements are unreliable: with them, a majority may agree on something that contradicts an
//! earlier majority. The member learns of the loss when a leader relies on a missing entry. It then stops, and no
//! process starts with its directory any more, or it would vote until a leader relies on it again. Only `tribunal
//! cluster recover` removes the mark: an operator who runs it accepts the loss, and keeps no other member.

use std::io::ErrorKind;
use std::path::Path;

/// The mark, in the data directory. Its content is the reason.
const MARK: &str = "lost-entries";

/// Makes the mark durable.
///
/// # Errors
/// If it cannot be written.
pub fn mark(data: &Path, reason: &str) -> Result<(), String> {
    let file = data.join(MARK);
    tribunal_disk::replace(&file, format!("{reason}\n").as_bytes())
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Refuses to start a node with the mark.
///
/// # Errors
/// If the mark exists, or that cannot be determined.
pub fn must_be_unmarked(data: &Path) -> Result<(), String> {
    let file = data.join(MARK);
    match std::fs::read_to_string(&file) {
        Ok(reason) => Err(format!(
            "this node must not be started again, and {} gives the reason: {}",
            file.display(),
            reason.trim_end()
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// Removes the mark, if it exists.
///
/// # Errors
/// If the mark cannot be removed.
pub fn remove_mark(data: &Path) -> Result<(), String> {
    let file = data.join(MARK);
    tribunal_disk::remove(&file)
        .map_err(|error| format!("cannot remove {}; repeat the command: {error}", file.display()))
}
