//! The last line of a process that fails: why. It has the form of the lines that the process logs, and does not depend on what is
//! selected of them: a supervisor that collects JSON reads it as well.

use std::io::Write;
use std::sync::OnceLock;

use tracing::Level;
use tracing_subscriber::fmt::format::JsonFields;

use crate::commands::log_lines::JsonLines;

/// The number of the node, if it has one, of a process that logs JSON.
static JSON: OnceLock<Option<u16>> = OnceLock::new();

/// Has the reason be a JSON object, with the number of the node if it is a member of a cluster.
pub fn use_json(node: Option<u16>) {
    let _ = JSON.set(node);
}

/// Writes to standard error, which may be closed, why the process ends.
pub fn write_reason(reason: &str) {
    let Some(node) = JSON.get() else {
        let _ = writeln!(std::io::stderr(), "tribunal: {reason}");
        return;
    };
    let line = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_max_level(Level::ERROR)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .fmt_fields(JsonFields::new())
        .event_format(JsonLines::new(*node))
        .finish();
    tracing::subscriber::with_default(line, || tracing::error!(target: "tribunal", "{reason}"));
}
