//! The last line of a failing process: the reason. It has the format of the process's log lines, and is independent of
//! the log filter, so that a supervisor that collects JSON reads it as well.

use std::io::Write;
use std::sync::OnceLock;

use tracing::Level;
use tracing_subscriber::fmt::format::JsonFields;

use crate::commands::log_lines::JsonLines;
use crate::commands::output::printable;

/// Set for a process that logs JSON: the node's number, if it has one.
static JSON: OnceLock<Option<u16>> = OnceLock::new();

/// Makes the reason a JSON object, with the node's number if it is a member of a cluster.
pub fn use_json(node: Option<u16>) {
    let _ = JSON.set(node);
}

/// Returns whether the process logs JSON.
pub fn is_json() -> bool {
    JSON.get().is_some()
}

/// Writes the reason why the process ends to standard error, which may be closed.
pub fn write_reason(reason: &str) {
    let Some(node) = JSON.get() else {
        // It may quote an answer of a server.
        let lines: Vec<_> = reason.split('\n').map(printable).collect();
        let _ = writeln!(std::io::stderr(), "tribunal: {}", lines.join("\n"));
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
