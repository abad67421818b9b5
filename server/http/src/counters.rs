//! Counters of the HTTP surface itself. They are process-wide, because a socket has no tenant; `/metrics` reads them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::http::Response;

/// Responses, by class of status: 2xx, 3xx, 4xx, 5xx.
static ANSWERED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// Requests that got no decision, by class of status and problem code.
static PROBLEMS: Mutex<BTreeMap<(&'static str, String), u64>> = Mutex::new(BTreeMap::new());
/// Number of codes that are counted separately. There are fewer, but no complete list here: the node defines codes of
/// its own.
const PROBLEMS_MAX: usize = 200;
/// The classes of status.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
/// Connections that were accepted.
static ACCEPTED: AtomicU64 = AtomicU64::new(0);
/// Connections that ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// Connections that were cut because the client was silent or too slow.
static CUT: AtomicU64 = AtomicU64::new(0);
/// HTTP/2 responses that were cut because the client did not read them.
static UNREAD: AtomicU64 = AtomicU64::new(0);

/// Commit streams that were opened.
static STREAMS_OPENED: AtomicU64 = AtomicU64::new(0);
/// Commit streams that ended.
static STREAMS_ENDED: AtomicU64 = AtomicU64::new(0);

/// A commit stream that counts as open until this is dropped.
#[derive(Debug)]
pub struct OpenStream(());

impl OpenStream {
    /// Counts an open stream.
    #[must_use]
    pub fn new() -> OpenStream {
        STREAMS_OPENED.fetch_add(1, Ordering::Relaxed);
        OpenStream(())
    }
}

impl Default for OpenStream {
    fn default() -> Self {
        OpenStream::new()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        STREAMS_ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Code of a problem, among the extensions of its response.
#[derive(Clone, Debug)]
pub struct ProblemCode(pub String);

/// Counts a response.
pub fn answered<B>(response: &Response<B>) {
    let class = usize::from(response.status().as_u16() / 100).clamp(2, 5) - 2;
    ANSWERED[class].fetch_add(1, Ordering::Relaxed);
    if let Some(ProblemCode(code)) = response.extensions().get() {
        let mut problems = PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner);
        count_problem(&mut problems, CLASSES[class], code);
    }
}

fn count_problem(problems: &mut BTreeMap<(&'static str, String), u64>, class: &'static str, code: &str) {
    let known = (class, code.to_owned());
    if let Some(count) = problems.get_mut(&known) {
        *count += 1;
    } else {
        let told_apart = if problems.len() < PROBLEMS_MAX { known } else { (class, "other".to_owned()) };
        *problems.entry(told_apart).or_default() += 1;
    }
}

/// Counts a new connection.
pub fn accepted() {
    ACCEPTED.fetch_add(1, Ordering::Relaxed);
}

/// Counts the end of a connection.
pub fn ended() {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a connection that was cut.
pub fn cut() {
    CUT.fetch_add(1, Ordering::Relaxed);
}

/// Counts an HTTP/2 response that was cut because the client did not read it.
pub fn unread() {
    UNREAD.fetch_add(1, Ordering::Relaxed);
}

/// Writes the counters as OpenMetrics.
pub fn write(into: &mut String) {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    into.push_str("# HELP tribunal_http_responses Requests answered.\n# TYPE tribunal_http_responses counter\n");
    for (class, counter) in CLASSES.iter().zip(&ANSWERED) {
        let _ = writeln!(into, "tribunal_http_responses_total{{class=\"{class}\"}} {}", get(counter));
    }
    into.push_str("# HELP tribunal_http_problems Requests that got no decision, by the code of their problem.\n");
    into.push_str("# TYPE tribunal_http_problems counter\n");
    for ((class, code), count) in PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = writeln!(into, "tribunal_http_problems_total{{class=\"{class}\",code=\"{code}\"}} {count}");
    }
    let (accepted, ended) = (get(&ACCEPTED), get(&ENDED));
    for (name, help, number) in [
        ("tribunal_http_connections_accepted", "Connections accepted.", accepted),
        ("tribunal_http_connections_cut", "Connections cut for being silent or too slow.", get(&CUT)),
        ("tribunal_http_responses_cut", "Responses over HTTP/2 cut because their client did not read.", get(&UNREAD)),
        ("tribunal_http_commit_streams_opened", "Commit streams opened.", get(&STREAMS_OPENED)),
    ] {
        let _ = writeln!(into, "# HELP {name} {help}\n# TYPE {name} counter\n{name}_total {number}");
    }
    let streams = get(&STREAMS_OPENED).saturating_sub(get(&STREAMS_ENDED));
    for (name, help, open) in [
        ("tribunal_http_connections_open", "Connections open now.", accepted.saturating_sub(ended)),
        ("tribunal_http_commit_streams_open", "Commit streams open now.", streams),
    ] {
        let _ = writeln!(into, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {open}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_are_told_apart_are_bounded() {
        let mut problems = BTreeMap::new();
        for number in 0..=u64::from(u16::MAX) {
            count_problem(&mut problems, "4xx", &number.to_string());
        }
        count_problem(&mut problems, "4xx", "7");
        assert!(problems.len() <= PROBLEMS_MAX + CLASSES.len());
        assert_eq!(problems.get(&("4xx", "7".to_owned())), Some(&2), "one that is known goes on being counted");
        assert_eq!(problems.values().sum::<u64>(), 65_537);
    }
}
