//! Commits that leave together: their form in a batch, and its reply as one reply per commit.

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tribunal_api::{Ack, Problem};

use crate::coalescer::{Bounds, Gathers};
use crate::connection::{Answer, NoAnswer};
use crate::{Client, Error, PreparedCommit};

/// Bounds of gathered commits. A second flight commits as many per second as one (measured: 1 and 2 alike, 4 fewer), fills
/// the way to a distant service, and a request that hangs does not hold up the others.
pub(crate) const BOUNDS: Bounds = Bounds { flights_max: 2, items_max: 512, bytes_max: 4 * 1024 * 1024 };

/// What came back for one commit.
pub(crate) type Reply = Result<Answer, NoAnswer>;

/// A commit, and the body of its request.
pub(crate) struct Gathered {
    txn_id: String,
    traceparent: Option<String>,
    body: Bytes,
    is_free: bool,
}

impl Gathers for Gathered {
    fn id(&self) -> &str {
        &self.txn_id
    }

    /// The length of its line, or a little more.
    fn bytes(&self) -> usize {
        self.body.len() + 6 * self.txn_id.len() + 16
    }
}

impl Gathered {
    pub(crate) fn of(prepared: &PreparedCommit) -> Result<Self, Error> {
        let body = serde_json::to_vec(&prepared.request)
            .map_err(|e| Error::misuse(format!("the commit cannot be represented in JSON: {e}")))?;
        let mut item = Gathered {
            txn_id: prepared.txn_id.clone(),
            traceparent: prepared.traceparent.clone(),
            body: Bytes::from(body),
            is_free: false,
        };
        // A batch has one trace context, and its reply waits for the slowest of its commits.
        let waits = prepared.request.ack == Some(Ack::Applied);
        item.is_free = item.traceparent.is_none() && !waits && item.bytes() <= BOUNDS.bytes_max;
        Ok(item)
    }

    /// Whether it may leave with others.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free
    }

    /// Writes its line of a batch: the body with the id before the other members.
    fn write_to(&self, lines: &mut Vec<u8>) {
        lines.extend_from_slice(b"{\"txn_id\":");
        lines.extend_from_slice(serde_json::Value::from(self.txn_id.as_str()).to_string().as_bytes());
        if self.body.len() > 2 {
            lines.push(b',');
        }
        lines.extend_from_slice(&self.body[1..]);
        lines.push(b'\n');
    }
}

impl Client {
    /// Sends a commit on its own.
    pub(crate) async fn alone(&self, item: &Gathered) -> Reply {
        let path = format!("/v1/txns/{}/commit", item.txn_id);
        let body = Some(("application/json", item.body.clone()));
        self.send(Method::POST, &path, body, item.traceparent.as_deref()).await
    }

    /// Sends gathered commits, and returns a reply to each, as if each had been sent on its own.
    pub(crate) async fn together(&self, items: &[Gathered]) -> Vec<Reply> {
        if items.len() > 1 {
            let mut lines = Vec::with_capacity(items.iter().map(Gathers::bytes).sum());
            items.iter().for_each(|item| item.write_to(&mut lines));
            let body = Some(("application/x-ndjson", Bytes::from(lines)));
            let reply = self.send(Method::POST, "/v1/txns/batch-commit", body, None).await;
            if !is_refused_as_batch(&reply) {
                return apart(&reply, items.len());
            }
        }
        let mut replies = Vec::with_capacity(items.len());
        for item in items {
            replies.push(self.alone(item).await);
        }
        replies
    }
}

/// Tells whether the service refused the form of a batch, so that each commit has to be sent on its own.
fn is_refused_as_batch(reply: &Reply) -> bool {
    let refused = |status| matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE);
    reply.as_ref().is_ok_and(|answer| refused(answer.status))
}

/// What of a line tells which kind of reply it is.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    problem: Option<&'a RawValue>,
    #[serde(default)]
    replayed: bool,
}

/// Turns the reply to a batch into one reply per commit.
fn apart(reply: &Reply, count: usize) -> Vec<Reply> {
    let answer = match reply {
        Ok(answer) if answer.status.is_success() => answer,
        Ok(answer) => return (0..count).map(|_| Ok(answer.clone())).collect(),
        Err(lost) => return (0..count).map(|_| Err(lost.clone())).collect(),
    };
    let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let replies: Result<Vec<Reply>, serde_json::Error> = lines.map(|line| single(answer, line).map(Ok)).collect();
    let unreadable = match replies {
        Ok(replies) if replies.len() == count => return replies,
        Ok(replies) => format!("{} results for {count} commits", replies.len()),
        Err(e) => format!("a line of a batch cannot be read: {e}"),
    };
    // The commits may have arrived: each is to be resolved by its id.
    (0..count).map(|_| Err(NoAnswer::lost(unreadable.clone()))).collect()
}

fn single(answer: &Answer, line: &[u8]) -> Result<Answer, serde_json::Error> {
    let Line { problem, replayed } = serde_json::from_slice(line)?;
    let Some(problem) = problem else {
        return Ok(Answer { replayed, body: answer.body.slice_ref(line), ..answer.clone() });
    };
    let body = answer.body.slice_ref(problem.get().as_bytes());
    let Problem { status, .. } = serde_json::from_slice(&body)?;
    let status = StatusCode::from_u16(status).map_err(serde::de::Error::custom)?;
    Ok(Answer { status, body, ..answer.clone() })
}
