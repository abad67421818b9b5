//! The lines of a node's log: those of a cluster member begin with its number, so that the logs of all nodes can be
//! collected in one place.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats lines for people.
pub struct TextLines {
    node: Option<u16>,
    line: Format,
}

impl TextLines {
    /// Creates the format for a member of a cluster, or for a single node.
    #[must_use]
    pub fn new(node: Option<u16>) -> TextLines {
        TextLines { node, line: Format::default() }
    }
}

impl<S, N> FormatEvent<S, N> for TextLines
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

/// Formats lines as JSON objects: `timestamp`, `level`, `target`, `fields` with the `message`, and the `node`.
pub struct JsonLines {
    node: Option<u16>,
    line: Format<Json>,
}

impl JsonLines {
    /// Creates the format for a member of a cluster, or for a single node.
    #[must_use]
    pub fn new(node: Option<u16>) -> JsonLines {
        // Spans are not used.
        JsonLines { node, line: Format::default().json().with_current_span(false).with_span_list(false) }
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some(node) = self.node else { return self.line.format_event(context, writer, event) };
        let mut line = String::new();
        self.line.format_event(context, Writer::new(&mut line), event)?;
        let fields = line.strip_prefix('{').unwrap_or(&line);
        write!(writer, "{{\"node\":{node},{fields}")
    }
}
