//! The lines of a node's log: those of a member of a cluster begin with its number, so that the logs of all nodes can be
//! collected in one place.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats lines.
pub struct LogLines {
    node: Option<u16>,
    line: Format,
}

impl LogLines {
    /// Lines of a member of a cluster, or of a node that runs alone.
    #[must_use]
    pub fn new(node: Option<u16>) -> LogLines {
        LogLines { node, line: Format::default() }
    }
}

impl<S, N> FormatEvent<S, N> for LogLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if let Some(node) = self.node {
            write!(writer, "node {node} ")?;
        }
        self.line.format_event(context, writer, event)
    }
}
