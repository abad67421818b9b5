//! One connection of a commit stream: sends lines, and delivers each reply to its caller.
//!
//! Callers append to one buffer, which the connection takes whenever it has room: lines that are written at the same
//! time are sent together. Invariant: every written line is answered exactly once, at the latest when the link ends,
//! and keeps its place in the stream's window until then, even if its caller has stopped waiting.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use serde::Deserialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use crate::Client;
use crate::answer::{NoAnswer, collected, foreign_type, within};
use crate::commit_batch::{Reply, Verdict};
use crate::failover::Failure;
use crate::wire_outcome::WireOutcome;

const PATH: &str = "/v1/txns/stream";
/// Bytes of a refusal.
const REFUSAL_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a line of the response.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Interval of the service's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A line's share of the window of its stream.
pub(crate) struct Place {
    pub _commit: OwnedSemaphorePermit,
    pub _bytes: OwnedSemaphorePermit,
}

/// The service certainly did not accept the line, for this reason.
pub(crate) struct NotTaken(pub String, pub Place);

/// The result of one line.
pub(crate) type Delivered = Result<Reply, NotTaken>;

/// The result of writing a line.
pub(crate) enum Delivery {
    /// The line will be sent, and its reply arrives here.
    Written(oneshot::Receiver<Delivered>),
    /// A line with this id already awaits its reply.
    Repeated,
    /// The link accepts no more lines.
    Over(Place),
}

/// A connection to one endpoint.
pub(crate) struct Link {
    endpoint: usize,
    state: Mutex<State>,
    /// Ends the link immediately.
    cut: Notify,
}

struct State {
    /// Lines that the connection has not taken yet.
    lines: Vec<u8>,
    /// Number of lines written, and the number of those that the connection took.
    written: u64,
    taken: u64,
    /// Lines without a reply, by the id of their commit in lower case, as the service writes it.
    waiting: HashMap<String, Waiting>,
    /// The connection's waker, when it has nothing to send.
    idle: Option<Waker>,
    finished: bool,
    over: bool,
    /// When something last arrived.
    arrived_at: Instant,
}

struct Waiting {
    /// Number of the line, from 1.
    line: u64,
    caller: oneshot::Sender<Delivered>,
    place: Place,
}

/// The end of a link, for the lines without a reply.
struct End {
    /// The reply to lines that the service may have accepted.
    reply: Reply,
    /// The last line that it may have accepted.
    upto: u64,
}

impl End {
    /// Returns whether the endpoint failed, so that another one is to be used.
    fn is_failure(&self) -> bool {
        match &self.reply {
            Ok(Verdict::Response(answer)) => Failure::of_reply(&Ok(answer.clone())).is_some(),
            Ok(_) => false,
            Err(_) => true,
        }
    }
}

/// A line that is not an outcome.
#[derive(Deserialize)]
struct Event {
    event: String,
    #[serde(default)]
    reason: String,
    lines: Option<String>,
}

impl Link {
    /// Connects to the endpoint in use, in a separate task.
    pub(crate) fn start(client: Client) -> Arc<Link> {
        let link = Link::idle(client.connection().endpoints().in_use());
        let guard = OverOnDrop(Arc::clone(&link));
        tokio::spawn(async move {
            let silent = "nothing has arrived for too long".to_owned();
            let end = tokio::select! {
                end = guard.0.exchange(&client) => end,
                () = guard.0.cut.notified() => End { reply: Err(NoAnswer::lost(silent)), upto: u64::MAX },
            };
            // Record the failure before the link's callers continue on another endpoint. The end of a link that its
            // stream has finished is not a failure.
            if end.is_failure() && !guard.0.state().finished {
                client.connection().failed(guard.0.endpoint);
            }
            guard.0.end(&end);
        });
        link
    }

    fn idle(endpoint: usize) -> Arc<Link> {
        let state = State {
            lines: Vec::new(),
            written: 0,
            taken: 0,
            waiting: HashMap::new(),
            idle: None,
            finished: false,
            over: false,
            arrived_at: Instant::now(),
        };
        Arc::new(Link { endpoint, state: Mutex::new(state), cut: Notify::new() })
    }

    /// Returns the endpoint that it connects to.
    pub(crate) fn endpoint(&self) -> usize {
        self.endpoint
    }

    /// Returns whether nothing has arrived since a time.
    pub(crate) fn is_silent_since(&self, time: Instant) -> bool {
        self.state().arrived_at < time
    }

    /// Ends the link immediately. Lines without a reply are lost.
    pub(crate) fn cut(&self) {
        self.cut.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Writes a line.
    pub(crate) fn write(&self, txn_id: &str, line: &[u8], place: Place) -> Delivery {
        let mut state = self.state();
        if state.over {
            return Delivery::Over(place);
        }
        let number = state.written + 1;
        let (caller, comes) = oneshot::channel();
        match state.waiting.entry(txn_id.to_ascii_lowercase()) {
            // Its caller may have stopped waiting, but its reply is still to come.
            Entry::Occupied(_) => return Delivery::Repeated,
            Entry::Vacant(free) => free.insert(Waiting { line: number, caller, place }),
        };
        state.written = number;
        state.lines.extend_from_slice(line);
        if let Some(idle) = state.idle.take() {
            drop(state);
            idle.wake();
        }
        Delivery::Written(comes)
    }

    /// Ends the request. Replies to written lines still arrive.
    pub(crate) fn finish(&self) {
        let idle = {
            let mut state = self.state();
            state.finished = true;
            state.idle.take()
        };
        idle.into_iter().for_each(Waker::wake);
    }

    async fn exchange(self: &Arc<Self>, client: &Client) -> End {
        let body = LinkBody(Arc::clone(self));
        let opened = client.connection().open_stream(self.endpoint, PATH, "application/x-ndjson", body);
        let response = match within(client.timeout(), opened).await {
            Ok(response) => response,
            Err(lost) => return End { reply: Err(lost), upto: u64::MAX },
        };
        if response.status().is_success() && foreign_type(&response).is_none() {
            self.state().arrived_at = Instant::now();
            client.connection().works(self.endpoint);
            return self.read(response.into_body(), client.timeout() + HEARTBEAT).await;
        }
        let url = client.connection().endpoints().urls().get(self.endpoint).map_or("", String::as_str);
        let reply = collected(response, url, REFUSAL_BYTES_MAX).await.map(Verdict::Response);
        End { reply, upto: u64::MAX }
    }

    /// Reads replies until the end, or until a silence of `silence_max`.
    async fn read(&self, mut body: Incoming, silence_max: Duration) -> End {
        let lost = |text: String| End { reply: Err(NoAnswer::lost(text)), upto: u64::MAX };
        let mut begun: Vec<u8> = Vec::new();
        loop {
            let frame = async { Ok(body.frame().await) };
            let mut chunk = match within(silence_max, frame).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(e))) => return lost(e.to_string()),
                Ok(None) => return lost("the stream broke off".to_owned()),
                Err(silent) => return lost(silent.text),
            };
            while let Some(at) = chunk.iter().position(|byte| *byte == b'\n') {
                let rest = chunk.split_to(at + 1).slice(..at);
                let line = if begun.is_empty() {
                    rest
                } else {
                    begun.extend_from_slice(&rest);
                    Bytes::from(std::mem::take(&mut begun))
                };
                match self.arrived(&line) {
                    Ok(None) => {}
                    Ok(Some(end)) => return end,
                    Err(e) => return lost(format!("a line of the stream cannot be read: {e}")),
                }
            }
            begun.extend_from_slice(&chunk);
            if begun.len() > LINE_BYTES_MAX {
                return lost(format!("a line of the stream has more than {LINE_BYTES_MAX} bytes"));
            }
        }
    }

    /// Delivers a line to its caller. Returns the end if the line is the end event.
    fn arrived(&self, line: &[u8]) -> Result<Option<End>, serde_json::Error> {
        self.state().arrived_at = Instant::now();
        let outcome: Box<WireOutcome> = match serde_json::from_slice(line) {
            Ok(outcome) => outcome,
            Err(no_outcome) => return serde_json::from_slice(line).map(Event::end).map_err(|_| no_outcome),
        };
        let waiting = {
            let mut state = self.state();
            match &outcome.txn_id {
                Some(id) => state.waiting.remove(id),
                // The service could not parse the id, so it names the line.
                None => {
                    let line = outcome.problem.as_ref().and_then(|problem| problem.line).map(u64::from);
                    state.waiting.extract_if(|_, waiting| Some(waiting.line) == line).next().map(|(_, waiting)| waiting)
                }
            }
        };
        if let Some(Waiting { caller, .. }) = waiting {
            // The caller may have stopped waiting.
            let _ = caller.send(Ok(Ok(Verdict::Line(outcome, None))));
        }
        Ok(None)
    }

    /// Answers all remaining lines, and accepts no more.
    fn end(&self, end: &End) {
        let (waiting, taken) = {
            let mut state = self.state();
            state.over = true;
            state.lines = Vec::new();
            (std::mem::take(&mut state.waiting), state.taken)
        };
        // Without a connection, nothing was accepted, and the reason is more useful than another attempt.
        let refused = matches!(&end.reply, Err(lost) if lost.never_sent) || end.reply.is_ok();
        for Waiting { line, caller, place } in waiting.into_values() {
            let may_be_taken = line <= taken && line <= end.upto;
            let delivered = match &end.reply {
                Err(lost) if !refused && !may_be_taken => Err(NotTaken(lost.text.clone(), place)),
                reply => Ok(reply.clone()),
            };
            let _ = caller.send(delivered);
        }
    }
}

impl Event {
    /// Returns the end of the stream if the event is one.
    fn end(self) -> Option<End> {
        // Other events are heartbeats, or unknown events of a newer service.
        if self.event != "end" {
            return None;
        }
        let upto = self.lines.as_deref().and_then(|lines| lines.parse().ok()).unwrap_or(u64::MAX);
        Some(End { reply: Err(NoAnswer::lost(format!("the service ended the stream: {}", self.reason))), upto })
    }
}

/// Ends a link whose task was cancelled with its runtime.
struct OverOnDrop(Arc<Link>);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        let text = "the runtime that held the stream has ended".to_owned();
        self.0.end(&End { reply: Err(NoAnswer::lost(text)), upto: u64::MAX });
    }
}

/// The request body: the lines that callers write.
pub(crate) struct LinkBody(Arc<Link>);

impl Body for LinkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut state = self.0.state();
        if !state.lines.is_empty() {
            let lines = std::mem::take(&mut state.lines);
            state.taken = state.written;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(lines)))));
        }
        if state.finished || state.over {
            return Poll::Ready(None);
        }
        state.idle = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn place(window: &Arc<Semaphore>) -> Place {
        let permit = || Arc::clone(window).try_acquire_owned().expect("room");
        Place { _commit: permit(), _bytes: permit() }
    }

    #[test]
    fn a_line_keeps_its_place_until_its_reply_comes_or_the_link_ends() {
        let (link, window) = (Link::idle(0), Arc::new(Semaphore::new(6)));
        for id in ["A", "b", "c"] {
            let Delivery::Written(comes) = link.write(id, b"{}\n", place(&window)) else { panic!("a new line") };
            drop(comes);
        }
        assert_eq!(window.available_permits(), 0, "callers that left do not make room");
        assert!(link.arrived(br#"{"status":"committed","txn_id":"a","epoch":"1"}"#).is_ok_and(|end| end.is_none()));
        assert_eq!(window.available_permits(), 2, "the service writes ids in lower case");
        let of_line_2 = br#"{"status":"problem","problem":{"type":"about:blank","title":"","status":400,"detail":"","code":"x","retryable":false,"line":2}}"#;
        assert!(link.arrived(of_line_2).is_ok_and(|end| end.is_none()));
        assert_eq!(window.available_permits(), 4);
        assert!(link.arrived(br#"{"event":"heartbeat"}"#).is_ok_and(|end| end.is_none()));
        assert!(link.arrived(br#"{"neither":1}"#).is_err());
        let end = link.arrived(br#"{"event":"end","reason":"stop","lines":"3"}"#).expect("readable");
        link.end(&end.expect("the end"));
        assert_eq!(window.available_permits(), 6);
    }
}
