//! Marks a member that has lost entries which it had acknowledged, as after the restore of an older copy of its directory.
//!
//! Its votes and acknowledgements cannot be relied on: with them, a majority may agree on something that another majority has
//! agreed on otherwise. It learns of its loss when a leader counts on what it lacks. Then it stops, and no process starts with
//! its directory any more, or it would vote until a leader counts on it again. Only `tribunal cluster recover` takes the mark
//! back: an operator who runs it accepts the loss, and keeps no other member.

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

/// Refuses to start a node that has the mark.
///
/// # Errors
/// If it has, or that cannot be found out.
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

/// Removes the mark, if it is there.
///
/// # Errors
/// If it stays.
pub fn remove_mark(data: &Path) -> Result<(), String> {
    let file = data.join(MARK);
    tribunal_disk::remove(&file)
        .map_err(|error| format!("cannot remove {}; repeat the command: {error}", file.display()))
}
