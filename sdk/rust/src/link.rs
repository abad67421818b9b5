//! One connection of a commit stream: lines out, replies in, each to the caller who waits for it.
//!
//! Callers append to one buffer, which the connection takes whenever it has room: lines that are written at the same
//! time leave together. Invariant: every line that was written is answered exactly once, at the latest when the link
//! is over.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame, Incoming};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tribunal_api::CommitEventKind;

use crate::Client;
use crate::commit_batch::{Reply, reply_of_line};
use crate::connection::{Answer, NoAnswer};

const PATH: &str = "/v1/txns/stream";
/// Bytes of a refusal.
const REFUSAL_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a line of the response.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The service certainly did not take the line in, for this reason.
pub(crate) struct NotTaken(pub String);

/// What comes back for one line.
pub(crate) type Delivered = Result<Reply, NotTaken>;

/// What became of a line.
pub(crate) enum Delivery {
    /// It leaves, and its reply comes.
    Written(oneshot::Receiver<Delivered>),
    /// Its id waits for a reply already.
    Repeated,
    /// The link takes nothing any more.
    Over,
}

/// A connection.
pub(crate) struct Link {
    state: Mutex<State>,
}

struct State {
    /// Lines that the connection has not taken yet.
    lines: Vec<u8>,
    /// Lines that were written, and those of them that the connection took.
    written: u64,
    taken: u64,
    /// Callers by the id of their commit, with the number of its line.
    waiting: HashMap<String, (u64, oneshot::Sender<Delivered>)>,
    /// The connection, when it has nothing to send.
    idle: Option<Waker>,
    finished: bool,
    over: bool,
    received_at: Instant,
    task: Option<AbortHandle>,
}

/// How a link ended, for what is still waiting.
struct End {
    /// The reply to lines that the service may have taken in.
    reply: Reply,
    /// The last line that it may have taken in.
    upto: u64,
}

/// The fields of a response line that identify the commit that it answers.
#[derive(Deserialize)]
struct Head<'a> {
    txn_id: Option<String>,
    event: Option<CommitEventKind>,
    reason: Option<String>,
    lines: Option<String>,
    #[serde(borrow)]
    problem: Option<&'a RawValue>,
}

/// The field of a problem that identifies the request line that caused it.
#[derive(Deserialize)]
struct OfLine {
    line: Option<u64>,
}

impl Link {
    /// Connects, in a task of its own.
    pub(crate) fn start(client: Client) -> Arc<Link> {
        let state = State {
            lines: Vec::new(),
            written: 0,
            taken: 0,
            waiting: HashMap::new(),
            idle: None,
            finished: false,
            over: false,
            received_at: Instant::now(),
            task: None,
        };
        let link = Arc::new(Link { state: Mutex::new(state) });
        let guard = OverOnDrop(Arc::clone(&link));
        let task = tokio::spawn(async move {
            let end = guard.0.exchange(&client).await;
            guard.0.end(&end);
        });
        link.state().task = Some(task.abort_handle());
        link
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Writes a line.
    pub(crate) fn write(&self, txn_id: &str, line: &[u8]) -> Delivery {
        let mut state = self.state();
        if state.over {
            return Delivery::Over;
        }
        let number = state.written + 1;
        let (reply, comes) = oneshot::channel();
        match state.waiting.entry(txn_id.to_owned()) {
            // Its caller may have left, but its answer is on its way.
            Entry::Occupied(_) => return Delivery::Repeated,
            Entry::Vacant(free) => free.insert((number, reply)),
        };
        state.written = number;
        state.lines.extend_from_slice(line);
        if let Some(idle) = state.idle.take() {
            drop(state);
            idle.wake();
        }
        Delivery::Written(comes)
    }

    /// Ends the request. Replies to what was written still come.
    pub(crate) fn finish(&self) {
        let idle = {
            let mut state = self.state();
            state.finished = true;
            state.idle.take()
        };
        idle.into_iter().for_each(Waker::wake);
    }

    /// Ends the link if nothing came from the service since `moment`, neither replies nor heartbeats.
    pub(crate) fn end_if_silent_since(&self, moment: Instant) {
        let mut state = self.state();
        if state.received_at <= moment
            && let Some(task) = state.task.take()
        {
            // Further commits need another link at once.
            state.over = true;
            task.abort();
        }
    }

    async fn exchange(self: &Arc<Self>, client: &Client) -> End {
        let opened = client.connection().open_stream(PATH, "application/x-ndjson", LinkBody(Arc::clone(self))).await;
        let response = match opened {
            Ok(response) => response,
            Err(lost) => return End { reply: Err(lost), upto: u64::MAX },
        };
        let status = response.status();
        if status.is_success() {
            return self.read(response.into_body()).await;
        }
        let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
        let reply = match body {
            Ok(body) => Ok(Answer { status, replayed: false, traceparent: None, body: body.to_bytes() }),
            Err(e) => Err(NoAnswer::lost(e.to_string())),
        };
        End { reply, upto: u64::MAX }
    }

    /// Reads replies up to the end.
    async fn read(&self, mut body: Incoming) -> End {
        let lost = |text: String| End { reply: Err(NoAnswer::lost(text)), upto: u64::MAX };
        let mut begun: Vec<u8> = Vec::new();
        loop {
            let mut chunk = match body.frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(e)) => return lost(e.to_string()),
                None => return lost("the stream broke off".to_owned()),
            };
            self.state().received_at = Instant::now();
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

    /// Hands a line to who waits for it. Returns the end, if it is that.
    fn arrived(&self, line: &Bytes) -> Result<Option<End>, serde_json::Error> {
        let head: Head<'_> = serde_json::from_slice(line)?;
        match head.event {
            Some(CommitEventKind::Heartbeat) => return Ok(None),
            Some(CommitEventKind::End) => {
                let upto = head.lines.as_deref().and_then(|lines| lines.parse().ok()).unwrap_or(u64::MAX);
                let reason = head.reason.unwrap_or_default();
                let reply = Err(NoAnswer::lost(format!("the service ended the stream: {reason}")));
                return Ok(Some(End { reply, upto }));
            }
            None => {}
        }
        let template = Answer { status: StatusCode::OK, replayed: false, traceparent: None, body: line.clone() };
        let reply = reply_of_line(&template, line)?;
        let mut state = self.state();
        let id = match head.txn_id {
            Some(id) => Some(id),
            // The service could not read the id, so it tells the line.
            None => {
                let number = head.problem.and_then(|problem| serde_json::from_str::<OfLine>(problem.get()).ok()?.line);
                state.waiting.iter().find(|(_, (line, _))| Some(*line) == number).map(|(id, _)| id.clone())
            }
        };
        let waiting = id.and_then(|id| state.waiting.remove(&id));
        drop(state);
        if let Some((_, caller)) = waiting {
            // The caller may have gone.
            let _ = caller.send(Ok(Ok(reply)));
        }
        Ok(None)
    }

    /// Answers what still waits, and takes nothing any more.
    fn end(&self, end: &End) {
        let (waiting, taken) = {
            let mut state = self.state();
            state.over = true;
            state.lines = Vec::new();
            (std::mem::take(&mut state.waiting), state.taken)
        };
        // Without a connection nothing was taken, and the reason is worth more than another attempt.
        let refused = matches!(&end.reply, Err(lost) if lost.never_sent) || end.reply.is_ok();
        for (number, caller) in waiting.into_values() {
            let may_be_taken = number <= taken && number <= end.upto;
            let delivered = match &end.reply {
                Err(lost) if !refused && !may_be_taken => Err(NotTaken(lost.text.clone())),
                reply => Ok(reply.clone()),
            };
            let _ = caller.send(delivered);
        }
    }
}

/// Ends a link whose task was cancelled, with its runtime or because the service is silent.
struct OverOnDrop(Arc<Link>);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.end(&End { reply: Err(NoAnswer::lost("the service is silent".to_owned())), upto: u64::MAX });
    }
}

/// The lines that callers write.
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
