//! Submission of a commit stream's lines to the node: lines that arrive together are submitted together, except for
//! those that would delay the others.
//!
//! Commits that need an epoch form one submission, read-only ones another, which waits for no epoch. A commit with
//! `ack: applied` waits for its stores, and a long one is parsed on another thread: each of these is a separate
//! submission.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use tokio::runtime::Handle;
use tribunal_service::{AckMode, Decided, Lane, Service, ServiceError};
use tribunal_types::{TxnId, TxnRequest};

use crate::quota::Permit;
use crate::request::body::SHORT_BYTES;
use crate::request::caller::CallerContext;
use crate::request::commit_line::{RefusedLine, commit_line};
use crate::request::lines::Line;
use crate::request::txn_body::ParsedCommit;
use crate::response::problem::ProblemResponse;

/// The threads of a commit stream: its connection's lane, except for long work.
#[derive(Clone, Debug)]
pub(crate) struct StreamThreads {
    /// The lane.
    pub lane: Option<Lane>,
    /// The work-sharing threads.
    pub shared: Handle,
}

/// The result of one commit.
pub(super) type StreamAnswer = (TxnId, Result<Decided, ProblemResponse>);

/// The results of a submission, and its share of the window.
pub(super) struct Answers {
    /// One result per commit.
    pub items: Vec<StreamAnswer>,
    /// Bytes of their lines.
    pub bytes: usize,
}

/// Commits that were submitted to the node.
pub(super) type Submission = Pin<Box<dyn Future<Output = Answers> + Send>>;

/// The target of submissions.
#[derive(Clone)]
pub(super) struct Port {
    /// The node.
    pub service: Arc<Service>,
    /// The caller.
    pub caller: CallerContext,
    /// Threads of the stream; `None` if there are no lanes.
    pub threads: Option<StreamThreads>,
}

#[derive(Default)]
struct Group {
    txns: Vec<TxnRequest>,
    bytes: usize,
}

/// Commits that are submitted together.
#[derive(Default)]
pub(super) struct Intake {
    writes: Group,
    reads: Group,
    /// Commits that are each submitted alone.
    applied: Vec<Group>,
}

impl Intake {
    /// Adds a commit whose line has `bytes` bytes.
    pub fn add(&mut self, parsed: ParsedCommit, bytes: usize) {
        let ParsedCommit { txn, ack, .. } = parsed;
        let group = if txn.is_read_only() {
            &mut self.reads
        } else if ack == AckMode::Applied {
            return self.applied.push(Group { txns: vec![txn], bytes });
        } else {
            &mut self.writes
        };
        group.txns.push(txn);
        group.bytes += bytes;
    }

    /// Returns the submissions of the added commits.
    pub fn submissions(self, port: &Port) -> impl Iterator<Item = Submission> {
        let groups = [(self.writes, AckMode::Durable), (self.reads, AckMode::Durable)];
        let applied = self.applied.into_iter().map(|group| (group, AckMode::Applied));
        let groups = groups.into_iter().chain(applied).filter(|(group, _)| !group.txns.is_empty());
        groups.map(|(group, ack)| submission(port.clone(), group, ack))
    }
}

fn submission(port: Port, Group { txns, bytes }: Group, ack: AckMode) -> Submission {
    Box::pin(async move {
        let ids: Vec<TxnId> = txns.iter().map(|txn| txn.id).collect();
        let results = port.decided(txns, ack).await;
        let catalog = port.service.stores.catalog();
        let named = |result: Result<_, _>| result.map_err(|error| ProblemResponse::of_service(error, &catalog));
        Answers { items: ids.into_iter().zip(results.into_iter().map(named)).collect(), bytes }
    })
}

impl Port {
    fn lane(&self) -> Option<Lane> {
        self.threads.as_ref().and_then(|threads| threads.lane)
    }

    /// Returns one result per transaction.
    async fn decided(&self, mut txns: Vec<TxnRequest>, ack: AckMode) -> Vec<Result<Decided, ServiceError>> {
        let count = txns.len();
        let mut results = match (count, txns.pop()) {
            (1, Some(only)) => vec![self.service.txns.commit(only, ack, self.lane()).await],
            (_, last) => {
                txns.extend(last);
                let decided = self.service.txns.commit_many(txns, ack).await;
                decided.unwrap_or_else(|error| vec![Err(error); count])
            }
        };
        let detail = "no answer came for this commit; get its status by id";
        results.resize(count, Err(ServiceError::OutcomeUnknown { detail: detail.to_owned() }));
        results
    }

    /// Submits a line that takes long to parse, or whose store is unknown on this node. `permit` covers its bytes until
    /// it is decided.
    pub fn submit_long(&self, line: Line, permit: Option<Permit>) -> Submission {
        let (number, bytes) = (line.number, line.bytes.len());
        let id = Arc::new(OnceLock::new());
        let decided = self.clone().decide_long(line, permit, Arc::clone(&id));
        let Some(threads) = &self.threads else {
            return Box::pin(async move { Answers { items: vec![decided.await], bytes } });
        };
        // Do all of it in one task, now: the stream may next be polled long after the line is parsed.
        let task = threads.shared.spawn(decided);
        Box::pin(async move {
            let item = task.await.unwrap_or_else(|ended| broken_off(number, id.get().copied(), ended.is_cancelled()));
            Answers { items: vec![item], bytes }
        })
    }

    /// Parses a line and commits it; sets its id in between.
    async fn decide_long(self, line: Line, permit: Option<Permit>, id_cell: Arc<OnceLock<TxnId>>) -> StreamAnswer {
        let mut parsed = self.parse(&line);
        if let Err(refusal) = &mut parsed
            && refusal.problem.names_unknown_store()
            && self.service.node.may_lag()
        {
            match self.service.node.catch_up().await {
                Ok(()) => parsed = self.parse(&line),
                Err(error) => {
                    let problem = ProblemResponse::of_service(error, &self.service.stores.catalog());
                    refusal.problem = problem.at_line(line.number);
                }
            }
        }
        drop(line);
        let item = match parsed {
            Err(refused) => (refused.id, Err(refused.problem)),
            Ok(ParsedCommit { txn, ack, .. }) => {
                let id = *id_cell.get_or_init(|| txn.id);
                let result = self.service.txns.commit(txn, ack, None).await;
                let catalog = self.service.stores.catalog();
                (id, result.map_err(|error| ProblemResponse::of_service(error, &catalog)))
            }
        };
        drop(permit);
        item
    }

    /// Parses a line.
    pub fn parse(&self, line: &Line) -> Result<ParsedCommit, RefusedLine> {
        commit_line(&line.bytes, line.number, &self.service.stores.catalog(), &self.caller)
    }
}

/// Returns whether a line takes long to parse.
pub(super) fn is_long(line: &Line) -> bool {
    line.bytes.len() as u64 > SHORT_BYTES
}

/// Returns the result of a long line whose task was aborted or panicked. If it has an id, the node may have received
/// it.
fn broken_off(number: u64, id: Option<TxnId>, stopped: bool) -> StreamAnswer {
    let problem = if id.is_some() {
        let detail = "the server stopped while the commit was decided; get its status by id";
        ProblemResponse::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", detail).retryable(None)
    } else if stopped {
        let detail = "the server stops and did not take this commit in; send it again";
        ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).retryable(None)
    } else {
        let detail = "the commit could not be read; please report this with the server's log";
        ProblemResponse::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    };
    (id.unwrap_or_default(), Err(problem.at_line(number)))
}
