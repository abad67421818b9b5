//! Batches of commits: encodes commits as lines of a batch, and splits its response into one reply per commit.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use tribunal_api::Ack;
use tribunal_types::limits::BODY_BYTES_MAX;

use crate::answer::{Answer, NoAnswer};
use crate::coalescer::{Batchable, Bounds, HEAD_START};
use crate::commit_body::write_text;
use crate::failover::{Failure, Repeat};
use crate::sent::Sent;
use crate::wire_outcome::WireOutcome;
use crate::{Client, Committed, Error, PreparedCommit};

/// Bounds of coalesced commits. A second request in flight hides the latency of a distant service, and prevents one
/// slow response from stalling every session. It has to wait for the head start, because its commits meet those of the
/// first one in another epoch, where they cannot be reordered.
pub(crate) const BOUNDS: Bounds =
    Bounds { in_flight_max: 2, head_start: HEAD_START, items_max: 512, bytes_max: 4 * 1024 * 1024 };

/// The result of one commit, or the reason why there is none.
pub(crate) type Reply = Result<Verdict, NoAnswer>;

/// The result of one commit.
#[derive(Clone)]
pub(crate) enum Verdict {
    /// The response to a separate request, or to a batch that failed as a whole.
    Response(Answer),
    /// Its line of a batch, which states that it is durable.
    Committed(Box<Committed>),
    /// Its line of a batch or a stream.
    Line(Box<WireOutcome>, Option<String>),
}

/// Group of the commits with writes.
pub(crate) const WRITES: &str = "writes";

/// Determines which commits share a batch. A commit without writes is judged without a sync of the log, and would wait
/// for one in a batch with other commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitKind {
    ReadOnly,
    Writes,
}

/// A commit and the body of its request.
pub(crate) struct CommitItem {
    kind: CommitKind,
    txn_id: String,
    traceparent: Option<String>,
    pub(crate) body: Bytes,
    /// Whether it is answered only after its stores have applied it.
    waits: bool,
    is_batchable: bool,
}

impl Batchable for CommitItem {
    fn group(&self) -> &str {
        match self.kind {
            CommitKind::ReadOnly => "reads",
            CommitKind::Writes => WRITES,
        }
    }

    fn id(&self) -> Option<&str> {
        Some(&self.txn_id)
    }

    /// Returns an upper bound of the length of the commit's line.
    fn bytes(&self) -> usize {
        self.body.len() + 6 * self.txn_id.len() + 16
    }
}

/// How long the service waits for the stores of a commit with [`Ack::Applied`].
pub(crate) const APPLY_WAIT: Duration = Duration::from_secs(30);

/// Checks the length of a body. The service closes the connection when it refuses a body in transit, which may lose the
/// refusal: the outcome would be unknown.
///
/// # Errors
/// [`Error::Misuse`] if it is longer than the service accepts.
pub(crate) fn check_length(body: &[u8]) -> Result<(), Error> {
    if body.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    Err(Error::misuse(format!(
        "a request of {} bytes is too large, {BODY_BYTES_MAX} is the limit: split it",
        body.len()
    )))
}

impl CommitItem {
    /// Creates an item from a commit and its body.
    pub(crate) fn new(
        txn_id: String,
        traceparent: Option<String>,
        ack: Option<Ack>,
        kind: CommitKind,
        body: Vec<u8>,
    ) -> Result<Self, Error> {
        check_length(&body)?;
        let waits = ack == Some(Ack::Applied);
        let mut item = CommitItem { kind, txn_id, traceparent, body: Bytes::from(body), waits, is_batchable: false };
        // A batch has one trace context, and is answered only with its slowest commit.
        item.is_batchable = item.traceparent.is_none() && !waits && item.bytes() <= BOUNDS.bytes_max;
        Ok(item)
    }

    pub(crate) fn of(prepared: &PreparedCommit) -> Result<Self, Error> {
        let (txn_id, traceparent) = (prepared.txn_id.clone(), prepared.traceparent.clone());
        let body = serde_json::to_vec(&prepared.request).map_err(CommitItem::unrepresentable)?;
        let kind = if prepared.request.writes.is_empty() { CommitKind::ReadOnly } else { CommitKind::Writes };
        CommitItem::new(txn_id, traceparent, prepared.request.ack, kind, body)
    }

    pub(crate) fn unrepresentable(error: serde_json::Error) -> Error {
        Error::misuse(format!("the commit cannot be represented in JSON: {error}"))
    }

    pub(crate) fn txn_id(&self) -> &str {
        &self.txn_id
    }

    /// Returns how long the service may wait before it responds.
    pub(crate) fn wait(&self) -> Duration {
        if self.waits { APPLY_WAIT } else { Duration::ZERO }
    }

    /// Returns whether the commit may be sent in a batch.
    pub(crate) fn is_batchable(&self) -> bool {
        self.is_batchable
    }

    /// Writes the commit's line of a batch: its body with the id as the first member.
    pub(crate) fn write_to(&self, lines: &mut Vec<u8>) {
        lines.extend_from_slice(b"{\"txn_id\":");
        write_text(lines, &self.txn_id);
        if self.body.len() > 2 {
            lines.push(b',');
        }
        lines.extend_from_slice(&self.body[1..]);
        lines.push(b'\n');
    }
}

impl Client {
    /// Returns the request of one or several commits.
    pub(crate) fn commit_request<'a>(
        &self,
        path: &'a str,
        body: (&'static str, Bytes),
        traceparent: Option<&'a str>,
        wait: Duration,
        timeout: Duration,
    ) -> Sent<'a> {
        let repeat = Repeat::Commit;
        Sent { method: Method::POST, path, body: Some(body), traceparent, wait, timeout, repeat }
    }

    /// Sends a commit as a separate request.
    pub(crate) async fn send_commit(&self, item: &CommitItem) -> Reply {
        self.send_commit_within(item, self.timeout()).await
    }

    /// Sends a commit as a separate request that may take `timeout`, in addition to the time that the service may wait.
    pub(crate) async fn send_commit_within(&self, item: &CommitItem, timeout: Duration) -> Reply {
        let path = format!("/v1/txns/{}/commit", item.txn_id);
        let body = ("application/json", item.body.clone());
        let sent = self.commit_request(&path, body, item.traceparent.as_deref(), item.wait(), timeout);
        self.connection().ask(&sent).await.map(Verdict::Response)
    }

    /// Sends commits as one batch. Returns one reply per commit, as if each had been a separate request. A batch that
    /// is too large, for example for a proxy, is split in half; a batch whose form is refused is sent as single
    /// commits.
    pub(crate) async fn send_batch(&self, items: &[CommitItem]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(items.len());
        let mut parts = vec![items];
        while let Some(part) = parts.pop() {
            if let [item] = part {
                replies.push(self.send_commit(item).await);
                continue;
            }
            match self.send_lines(part).await {
                Ok(found) => replies.extend(found),
                Err(StatusCode::PAYLOAD_TOO_LARGE) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(_) => parts.extend(part.chunks(1).rev()),
            }
        }
        replies
    }

    /// Sends commits as one batch; commits that an endpoint could not decide go to the next one. Returns the status if
    /// the batch as such is refused.
    async fn send_lines(&self, items: &[CommitItem]) -> Result<Vec<Reply>, StatusCode> {
        let mut call = self.connection().failover(Repeat::Commit, Duration::ZERO, self.timeout());
        let mut replies: Vec<Option<Reply>> = items.iter().map(|_| None).collect();
        let mut maybe_taken = vec![false; items.len()];
        let mut open: Vec<usize> = (0..items.len()).collect();
        while !open.is_empty() {
            let mut lines = Vec::with_capacity(open.iter().map(|at| items[*at].bytes()).sum());
            open.iter().for_each(|at| items[*at].write_to(&mut lines));
            let body = ("application/x-ndjson", Bytes::from(lines));
            let sent = self.commit_request("/v1/txns/batch-commit", body, None, Duration::ZERO, self.timeout());
            let reply = self.connection().ask_on(&mut call, &sent).await;
            if let Ok(answer) = &reply
                && matches!(answer.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::BAD_REQUEST)
                && open.len() == items.len()
                // What an endpoint may have taken keeps that mark.
                && !maybe_taken.contains(&true)
            {
                return Err(answer.status);
            }
            let count = open.len();
            let mut failed = None;
            for (at, reply) in std::mem::take(&mut open).into_iter().zip(split_reply(reply, count)) {
                maybe_taken[at] |= call.maybe_taken();
                let failure = if call.is_single() { None } else { failure_of_line(&reply) };
                replies[at] = Some(in_doubt(reply, maybe_taken[at]));
                if let Some(failure) = failure {
                    maybe_taken[at] |= failure.maybe_taken;
                    open.push(at);
                    failed = Some(failure);
                }
            }
            if failed.is_some() {
                call.is_over(failed);
            }
        }
        Ok(replies.into_iter().flatten().collect())
    }
}

/// Returns why an endpoint could not decide one commit of a batch.
pub(crate) fn failure_of_line(reply: &Reply) -> Option<Failure> {
    match reply {
        Ok(Verdict::Line(outcome, _)) => outcome.problem.as_ref().and_then(Failure::of_problem),
        _ => None,
    }
}

/// Returns the reply to a commit of which another copy may have been accepted elsewhere: a refusal of this copy does
/// not reveal the outcome of the other one.
pub(crate) fn in_doubt(reply: Reply, maybe_taken: bool) -> Reply {
    let refused = match &reply {
        Ok(Verdict::Response(answer)) if !answer.status.is_success() => answer.status.to_string(),
        Ok(Verdict::Line(outcome, _)) => match &outcome.problem {
            Some(problem) => format!("{}: {}", problem.code, problem.detail),
            None => return reply,
        },
        Err(lost) if lost.never_sent => lost.text.clone(),
        _ => return reply,
    };
    if maybe_taken { Err(NoAnswer::lost(refused)) } else { reply }
}

/// Splits the reply to a batch into one reply per commit.
fn split_reply(reply: Result<Answer, NoAnswer>, count: usize) -> Vec<Reply> {
    let answer = match reply {
        Ok(answer) if answer.status.is_success() => answer,
        reply => return vec![reply.map(Verdict::Response); count],
    };
    let verdict = |line| match Committed::of_line(line, answer.traceparent.as_deref()) {
        Some(committed) => Ok(Verdict::Committed(Box::new(committed))),
        None => serde_json::from_str(line).map(|outcome| Verdict::Line(outcome, answer.traceparent.clone())),
    };
    // Validated as a whole, which is faster than line by line.
    let text = std::str::from_utf8(&answer.body).map_err(|e| e.to_string());
    let verdicts = text.and_then(|text| {
        let lines = text.split('\n').filter(|line| !line.is_empty());
        lines.map(verdict).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())
    });
    let unreadable = match verdicts {
        Ok(verdicts) if verdicts.len() == count => return verdicts.into_iter().map(Ok).collect(),
        Ok(verdicts) => format!("{} results for {count} commits", verdicts.len()),
        Err(e) => format!("a line of the batch's response cannot be parsed: {e}"),
    };
    // The commits may have taken effect: each must be resolved by its id.
    vec![Err(NoAnswer::lost(unreadable)); count]
}
