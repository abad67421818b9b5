//! Batches of commits: encodes commits as lines of a batch, and splits its response into one reply per commit.

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tribunal_api::{Ack, Problem};

use crate::coalescer::{Batchable, Bounds};
use crate::connection::{Answer, NoAnswer};
use crate::{Client, Error, PreparedCommit};

/// Bounds of coalesced commits. A second request in flight hides the latency of a distant service, and keeps one slow
/// response from stalling every session.
pub(crate) const BOUNDS: Bounds = Bounds { in_flight_max: 2, items_max: 512, bytes_max: 4 * 1024 * 1024 };

/// The response to one commit, or why there is none.
pub(crate) type Reply = Result<Answer, NoAnswer>;

/// A commit and the body of its request.
pub(crate) struct CommitItem {
    txn_id: String,
    traceparent: Option<String>,
    body: Bytes,
    is_batchable: bool,
}

impl Batchable for CommitItem {
    fn id(&self) -> Option<&str> {
        Some(&self.txn_id)
    }

    /// An upper bound of the length of the commit's line.
    fn bytes(&self) -> usize {
        self.body.len() + 6 * self.txn_id.len() + 16
    }
}

impl CommitItem {
    pub(crate) fn new(prepared: &PreparedCommit) -> Result<Self, Error> {
        let body = serde_json::to_vec(&prepared.request)
            .map_err(|e| Error::misuse(format!("the commit cannot be represented in JSON: {e}")))?;
        let mut item = CommitItem {
            txn_id: prepared.txn_id.clone(),
            traceparent: prepared.traceparent.clone(),
            body: Bytes::from(body),
            is_batchable: false,
        };
        // A batch has one trace context, and is answered only when the slowest of its commits is.
        let waits = prepared.request.ack == Some(Ack::Applied);
        item.is_batchable = item.traceparent.is_none() && !waits && item.bytes() <= BOUNDS.bytes_max;
        Ok(item)
    }

    /// Whether the commit may be sent in a batch.
    pub(crate) fn is_batchable(&self) -> bool {
        self.is_batchable
    }

    /// Writes the commit's line of a batch: its body with the id as the first member.
    pub(crate) fn write_to(&self, lines: &mut Vec<u8>) {
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
    /// Sends a commit as a request of its own.
    pub(crate) async fn send_commit(&self, item: &CommitItem) -> Reply {
        let path = format!("/v1/txns/{}/commit", item.txn_id);
        let body = Some(("application/json", item.body.clone()));
        self.send(Method::POST, &path, body, item.traceparent.as_deref()).await
    }

    /// Sends commits as one batch. Returns a reply to each, as if each had been a request of its own.
    pub(crate) async fn send_batch(&self, items: &[CommitItem]) -> Vec<Reply> {
        if items.len() > 1 {
            let mut lines = Vec::with_capacity(items.iter().map(Batchable::bytes).sum());
            items.iter().for_each(|item| item.write_to(&mut lines));
            let body = Some(("application/x-ndjson", Bytes::from(lines)));
            let reply = self.send(Method::POST, "/v1/txns/batch-commit", body, None).await;
            if !is_refused_as_batch(&reply) {
                return split_reply(&reply, items.len());
            }
        }
        let mut replies = Vec::with_capacity(items.len());
        for item in items {
            replies.push(self.send_commit(item).await);
        }
        replies
    }
}

/// Returns whether the service rejected the batch as such, so that each commit has to be sent as a request of its own.
fn is_refused_as_batch(reply: &Reply) -> bool {
    let refused = |status| matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE);
    reply.as_ref().is_ok_and(|answer| refused(answer.status))
}

/// The members of a line that determine its kind.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    problem: Option<&'a RawValue>,
    #[serde(default)]
    replayed: bool,
}

/// Splits the reply to a batch into one reply per commit.
fn split_reply(reply: &Reply, count: usize) -> Vec<Reply> {
    let answer = match reply {
        Ok(answer) if answer.status.is_success() => answer,
        Ok(answer) => return (0..count).map(|_| Ok(answer.clone())).collect(),
        Err(lost) => return (0..count).map(|_| Err(lost.clone())).collect(),
    };
    let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let replies: Result<Vec<Reply>, serde_json::Error> =
        lines.map(|line| reply_of_line(answer, line).map(Ok)).collect();
    let unreadable = match replies {
        Ok(replies) if replies.len() == count => return replies,
        Ok(replies) => format!("{} results for {count} commits", replies.len()),
        Err(e) => format!("a line of the batch's response cannot be parsed: {e}"),
    };
    // The commits may have taken effect: each must be resolved by its id.
    (0..count).map(|_| Err(NoAnswer::lost(unreadable.clone()))).collect()
}

/// Returns the reply that the commit of a line would have got on its own.
pub(crate) fn reply_of_line(answer: &Answer, line: &[u8]) -> Result<Answer, serde_json::Error> {
    let Line { problem, replayed } = serde_json::from_slice(line)?;
    let Some(problem) = problem else {
        return Ok(Answer { replayed, body: answer.body.slice_ref(line), ..answer.clone() });
    };
    let body = answer.body.slice_ref(problem.get().as_bytes());
    let Problem { status, .. } = serde_json::from_slice(&body)?;
    let status = StatusCode::from_u16(status).map_err(serde::de::Error::custom)?;
    Ok(Answer { status, body, ..answer.clone() })
}
