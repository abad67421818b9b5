//! Many commits in one request of the caller's. Each has its own outcome; refused commits are sent again, and lost ones
//! are resolved, all concurrently.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tribunal_api::{Ack, BatchCommitRequest, BatchTxn};

use crate::answer::read;
use crate::commit_batch::{APPLY_WAIT, CommitItem, Verdict, check_length, in_doubt};
use crate::failover::{Failure, Repeat};
use crate::told::{Told, is_settled};
use crate::wire_outcome::WireOutcome;
use crate::{Client, Error, Outcome, PreparedCommit};

/// Number of commits of a batch that are resent or resolved concurrently.
const BESIDE_MAX: usize = 64;

/// The response to a batch.
#[derive(Deserialize)]
struct Results {
    results: Vec<WireOutcome>,
}

impl Client {
    /// Requests many verdicts in one request. The results are in the order of the commits. A trace context is sent if
    /// all commits have the same one.
    ///
    /// # Errors
    /// The whole request was refused; see [`Error`].
    pub async fn batch(&self, commits: &[PreparedCommit]) -> Result<Vec<Result<Outcome, Error>>, Error> {
        let request = BatchCommitRequest { txns: commits.iter().map(batch_txn).collect() };
        let traceparent = commits.first().and_then(|first| first.traceparent.as_ref());
        let traceparent =
            traceparent.filter(|one| commits.iter().all(|commit| commit.traceparent.as_ref() == Some(*one)));
        let path = "/v1/txns/batch-commit";
        let waits = commits.iter().any(|commit| commit.request.ack == Some(Ack::Applied));
        let wait = if waits { APPLY_WAIT } else { Duration::ZERO };
        let body = serde_json::to_vec(&request).map_err(CommitItem::unrepresentable)?;
        check_length(&body)?;
        let body = ("application/json", body.into());
        let sent = self.commit_request(path, body, traceparent.map(String::as_str), wait, self.timeout());
        let mut call = self.connection().failover(Repeat::Commit, wait, self.timeout());
        let lost = match self.connection().ask_on(&mut call, &sent).await {
            Ok(answer) if is_settled(&answer) => match read::<Results>(&answer) {
                Ok(Results { results }) if results.len() == commits.len() => {
                    let traceparent = answer.traceparent.as_deref();
                    return Ok(self.outcomes_of_batch(commits, results, traceparent, call.maybe_taken()).await);
                }
                Ok(Results { results }) => format!("{} results for {} commits", results.len(), commits.len()),
                // A success: the commits may have taken effect.
                Err(Error::ServerMisbehaved(text)) if answer.status.is_success() => text,
                Err(refused) => return Err(refused),
            },
            Ok(answer) => answer.refusal_text(),
            Err(lost) if lost.never_sent => return Err(Error::of_no_answer(lost)),
            Err(lost) => lost.text,
        };
        Ok(self.settled_together(commits, commits.iter().map(|_| Told::Lost(lost.clone())).collect()).await)
    }

    /// Returns the outcome of each commit of a batch. Commits that the endpoint could not decide are sent again, if
    /// there are other endpoints, within one timeout for all. If another endpoint may have accepted the batch earlier,
    /// a refusal does not reveal the outcome of a commit.
    async fn outcomes_of_batch(
        &self,
        commits: &[PreparedCommit],
        results: Vec<WireOutcome>,
        traceparent: Option<&str>,
        maybe_taken: bool,
    ) -> Vec<Result<Outcome, Error>> {
        let several = self.connection().endpoints().urls().len() > 1;
        let (deadline, places) = (Instant::now() + self.timeout(), &Semaphore::new(BESIDE_MAX));
        let each = commits.iter().zip(results).map(|(commit, result)| async move {
            let failure = result.problem.as_ref().filter(|_| several).and_then(Failure::of_problem);
            let refused = Ok(Verdict::Line(Box::new(result), traceparent.map(str::to_owned)));
            let Some(failure) = failure else { return Told::of(in_doubt(refused, maybe_taken)) };
            let item = match CommitItem::of(commit) {
                Ok(item) => item,
                Err(error) => return Told::Decided(Err(error)),
            };
            // The semaphore is never closed.
            let _place = places.acquire().await.ok();
            let left = deadline.saturating_duration_since(Instant::now());
            let reply = if left.is_zero() { refused } else { self.send_commit_within(&item, left).await };
            Told::of(in_doubt(reply, maybe_taken || failure.maybe_taken))
        });
        let each = join_all(each).await;
        self.settled_together(commits, each).await
    }

    /// Returns the outcome of each commit. Lost outcomes are requested concurrently, within one deadline.
    async fn settled_together(&self, commits: &[PreparedCommit], each: Vec<Told>) -> Vec<Result<Outcome, Error>> {
        let deadline = Instant::now() + self.options().resolve_timeout;
        let places = &Semaphore::new(BESIDE_MAX);
        let outcomes = commits.iter().zip(each).map(|(commit, told)| async move {
            // Only lost outcomes need a permit. The semaphore is never closed.
            let _place = if matches!(told, Told::Lost(_)) { places.acquire().await.ok() } else { None };
            self.settled_by(&commit.txn_id, told, deadline).await
        });
        join_all(outcomes).await
    }
}

fn batch_txn(prepared: &PreparedCommit) -> BatchTxn {
    let request = prepared.request.clone();
    BatchTxn {
        txn_id: prepared.txn_id.clone(),
        isolation: request.isolation,
        snapshots: request.snapshots,
        priority: request.priority,
        ack: request.ack,
        epoch: request.epoch,
        first_attempt_ms: request.first_attempt_ms,
        reads: request.reads,
        ranges: request.ranges,
        writes: request.writes,
    }
}
