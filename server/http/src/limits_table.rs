//! The limits of the API as a table, for the OpenAPI document and for `/docs`. Its numbers are the enforced constants.

use tribunal_types::limits::*;

use crate::app::RouterOptions;
use crate::listener::http1_head::{FIELDS_MAX, HEAD_BYTES_MAX};
use crate::listener::options::{STREAMS_MAX, STREAMS_PER_CONNECTION_MAX, ServerOptions};
use crate::request::read_body::{LIMIT_DEFAULT, LIMIT_MAX};

/// Returns each limited quantity with its limit.
fn rows() -> Vec<(&'static str, String)> {
    let ServerOptions { header_timeout, idle_timeout, .. } = ServerOptions::default();
    let body_timeout = RouterOptions::default().body_timeout;
    let number = |number: usize| thousands(number as u64);
    vec![
        ("request body", format!("{} bytes", number(BODY_BYTES_MAX))),
        ("head of a request", format!("{} bytes, {FIELDS_MAX} fields", number(HEAD_BYTES_MAX))),
        ("key", format!("1 to {} bytes", number(KEY_BYTES_MAX))),
        (
            "value",
            format!(
                "{} bytes of JSON; nested at most {JSON_DEPTH_MAX} deep, with the transaction around it",
                number(VALUE_BYTES_MAX)
            ),
        ),
        (
            "operations of a transaction",
            format!(
                "{} reads, ranges and writes in all; {RANGES_PER_TXN_MAX} ranges; {STORES_PER_TXN_MAX} stores",
                number(OPS_PER_TXN_MAX)
            ),
        ),
        ("transactions of a batch", number(TXNS_PER_REQUEST_MAX)),
        (
            "commits of a stream that wait for their verdicts",
            format!("{}, with {} bytes; more are read later", number(STREAM_COMMITS_MAX), number(STREAM_BYTES_MAX)),
        ),
        (
            "rows of a request that reads",
            format!(
                "{} rows and {RANGES_PER_TXN_MAX} ranges, with {} bytes",
                number(OPS_PER_TXN_MAX),
                number(READ_BYTES_MAX)
            ),
        ),
        ("rows of a range or page", format!("{}; {LIMIT_DEFAULT} by default", number(LIMIT_MAX))),
        ("records of a page of the log", number(LOG_PAGE_RECORDS_MAX)),
        ("transaction id", format!("a UUIDv7 within {} minutes of the service's time", ID_WINDOW_MS / 60_000)),
        ("snapshot", format!("its history is kept for {} seconds", FLOOR_AGE_MS / 1000)),
        (
            "stored verdicts",
            format!(
                "{} hours; less if there are more ids than `resolver.status_bytes_max` permits, or if the log is truncated \
                 earlier",
                STATUS_AGE_MS / 3_600_000
            ),
        ),
        ("long poll (`wait_ms`)", format!("{} seconds", WAIT_MS_MAX / 1000)),
        ("name of a store, consumer or plugin", format!("{NAME_BYTES_MAX} bytes")),
        ("stores", format!("{}; {STORES_PER_TENANT_MAX} of a namespace other than `default`", number(STORES_MAX))),
        (
            "rows of the tracked stores of a namespace",
            "10,000,000, or what the operator set; none in `default`, unless the operator set one".to_owned(),
        ),
        ("component of a plugin", format!("{} bytes", number(PLUGIN_BYTES_MAX))),
        (
            "HTTP/2 connection",
            format!("{STREAMS_MAX} concurrent requests, {STREAMS_PER_CONNECTION_MAX} of them streams of commits"),
        ),
        (
            "time to send a request",
            format!(
                "{} seconds for its head, {} for its body; the operator can change both",
                header_timeout.as_secs(),
                body_timeout.as_secs()
            ),
        ),
        ("idle connection", format!("closed after {} seconds; the operator can change that", idle_timeout.as_secs())),
    ]
}

/// Returns the table in Markdown.
#[must_use]
pub fn markdown() -> String {
    let rows = rows().into_iter().map(|(what, limit)| format!("| {what} | {limit} |\n"));
    format!("| limit of | is |\n|---|---|\n{}", rows.collect::<String>())
}

/// Returns the rows of the table in HTML.
#[must_use]
pub fn html() -> String {
    let coded = |text: &str| {
        let parts = text.split('`').enumerate();
        parts
            .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
            .collect::<String>()
    };
    rows().iter().map(|(what, limit)| format!("<tr><td>{}</td><td>{}</td></tr>\n", coded(what), coded(limit))).collect()
}

/// Formats a number with thousands separators.
fn thousands(number: u64) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (more, rest) => format!("{},{rest:03}", thousands(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_and_readable() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (10_485_760, "10,485,760"), (1_000_001, "1,000,001")]
        {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn both_forms_have_the_same_rows() {
        let (markdown, html) = (markdown(), html());
        assert!(markdown.contains("| request body | 10,485,760 bytes |\n"), "{markdown}");
        assert!(html.contains("<tr><td>long poll (<code>wait_ms</code>)</td><td>60 seconds</td></tr>\n"), "{html}");
        assert_eq!(markdown.lines().count() - 2, html.lines().count());
        assert!(!html.contains('`'), "{html}");
    }
}
