//! Coalesced commits, against a service that holds requests back until the test answers them.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tribunal_client::{Ack, Client, ClientOptions, Error, IsolationLevel, Outcome, PreparedCommit};

/// Requests in flight at the same time.
const IN_FLIGHT_MAX: usize = 2;

/// A commit request that waits for its answer.
struct Held {
    batch: bool,
    traceparent: Option<String>,
    ids: Vec<String>,
    answer: oneshot::Sender<(u16, String)>,
}

impl Held {
    fn with(self, status: u16, lines: &[Value]) {
        let text = lines.iter().map(|line| format!("{line}\n")).collect();
        self.answer.send((status, text)).expect("the request waits");
    }

    fn commit(self) {
        let lines: Vec<Value> = self.ids.iter().map(|id| committed(id)).collect();
        self.with(200, &lines);
    }
}

/// Starts a service. A request for a status is answered at once: committed.
async fn holding() -> (String, mpsc::UnboundedReceiver<Held>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (arrives, arrived) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let arrives = arrives.clone();
            let service = service_fn(move |request| hold(request, arrives.clone()));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, arrived)
}

async fn hold(
    request: Request<Incoming>,
    arrives: mpsc::UnboundedSender<Held>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let name = request.uri().path().split('/').nth(3).unwrap_or_default().to_owned();
    let traceparent = request.headers().get("traceparent").and_then(|text| text.to_str().ok()).map(str::to_owned);
    let (status, text) = if request.method() == "GET" {
        (200, committed(&name).to_string())
    } else {
        let body = request.into_body().collect().await.expect("the client sends whole bodies").to_bytes();
        let batch = name == "batch-commit";
        let id =
            |line: &[u8]| serde_json::from_slice::<Value>(line).expect("JSON")["txn_id"].as_str().map(str::to_owned);
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let ids = if batch { lines.filter_map(id).collect() } else { vec![name] };
        let (answer, answered) = oneshot::channel();
        let _ = arrives.send(Held { batch, traceparent, ids, answer });
        answered.await.unwrap_or((500, String::new()))
    };
    Ok(Response::builder().status(status).body(Full::new(text.into())).expect("a response"))
}

fn committed(id: &str) -> Value {
    json!({ "status": "committed", "txn_id": id, "epoch": "9", "version": "9437184", "lsn": { "kv": "3" }, "session": "s" })
}

fn aborted(id: &str) -> Value {
    json!({ "status": "aborted", "txn_id": id, "epoch": "9", "reason": "read_conflict", "retryable": true, "conflicts": [] })
}

fn problem(status: u16, code: &str) -> Value {
    let retryable = matches!(status, 429 | 503);
    json!({ "type": "about:blank", "title": "x", "detail": "x", "status": status, "code": code, "retryable": retryable,
        "errors": [] })
}

fn refused(id: &str, status: u16, code: &str) -> Value {
    json!({ "status": "problem", "txn_id": id, "problem": problem(status, code) })
}

/// Callers of one client that has as many requests in flight as it may.
struct Crowd {
    client: Client,
    arrived: mpsc::UnboundedReceiver<Held>,
    first: Vec<(Held, JoinHandle<String>)>,
}

impl Crowd {
    async fn new(coalesce: bool) -> Crowd {
        let (url, arrived) = holding().await;
        let options = ClientOptions { coalesce, ..ClientOptions::default() };
        let client = Client::with_options(&url, options).expect("a URL");
        let mut crowd = Crowd { client, arrived, first: Vec::new() };
        for _ in 0..IN_FLIGHT_MAX {
            let commit = crowd.commit(crowd.prepared());
            let held = crowd.request().await;
            assert!(!held.batch, "an idle client sends a commit at once, by itself");
            crowd.first.push((held, commit));
        }
        crowd
    }

    /// Answers the requests in flight.
    async fn release(&mut self) {
        for (held, commit) in self.first.drain(..) {
            held.commit();
            assert_eq!(commit.await.expect("no panic"), "committed");
        }
    }

    async fn request(&mut self) -> Held {
        let arrives = tokio::time::timeout(Duration::from_secs(30), self.arrived.recv());
        arrives.await.expect("the client sends").expect("the service runs")
    }

    fn prepared(&self) -> PreparedCommit {
        self.with_value("x")
    }

    fn with_value(&self, value: &str) -> PreparedCommit {
        let mut txn = self.client.begin_local(IsolationLevel::Serializable);
        txn.put("kv", "a", &value).expect("JSON");
        txn.prepare()
    }

    /// Commits, and returns the outcome.
    fn commit(&self, prepared: PreparedCommit) -> JoinHandle<String> {
        let client = self.client.clone();
        tokio::spawn(async move {
            match client.commit(&prepared).await {
                Ok(Outcome::Committed(won)) if won.replayed => "committed again".to_owned(),
                Ok(Outcome::Committed(_)) => "committed".to_owned(),
                Ok(Outcome::Aborted(lost)) => format!("aborted {}", lost.reason),
                Err(Error::ClientMistake(problem)) => format!("mistake {}", problem.code),
                Err(Error::Unavailable { text, .. }) => format!("unavailable {text}"),
                Err(error) => error.to_string(),
            }
        })
    }

    /// Commits one after the other, until all are queued: tasks of a current-thread runtime run in the order in which they start.
    async fn queued(&self, commits: &[PreparedCommit]) -> Vec<JoinHandle<String>> {
        let commits = commits.iter().map(|prepared| self.commit(prepared.clone())).collect();
        yield_now().await;
        commits
    }

    async fn alone(&mut self) {
        let held = self.request().await;
        assert!(!held.batch);
        held.commit();
    }
}

async fn ends(commits: Vec<JoinHandle<String>>) -> Vec<String> {
    let mut ends = Vec::new();
    for commit in commits {
        ends.push(commit.await.expect("no panic"));
    }
    ends
}

#[tokio::test]
async fn queued_commits_are_sent_as_one_batch_and_each_gets_its_own_verdict() {
    let mut crowd = Crowd::new(true).await;
    let waiting: Vec<PreparedCommit> = (0..6).map(|_| crowd.prepared()).collect();
    let commits = crowd.queued(&waiting).await;
    crowd.release().await;
    let held = crowd.request().await;
    assert!(held.batch);
    let ids = held.ids.clone();
    assert_eq!(ids, waiting.iter().map(|prepared| prepared.txn_id.clone()).collect::<Vec<_>>(), "in order");
    let mut repeated = committed(&ids[5]);
    repeated["replayed"] = json!(true);
    // The service loses the reply to the third, which is resolved by its id.
    held.with(
        200,
        &[
            committed(&ids[0]),
            aborted(&ids[1]),
            refused(&ids[2], 504, "outcome_unknown"),
            refused(&ids[3], 404, "unknown_store"),
            refused(&ids[4], 429, "quota"),
            repeated,
        ],
    );
    let expected = [
        "committed",
        "aborted read_conflict",
        "committed again",
        "mistake unknown_store",
        "unavailable quota: x",
        "committed again",
    ];
    assert_eq!(ends(commits).await, expected);
}

#[tokio::test]
async fn a_batch_never_contains_the_same_id_twice() {
    let mut crowd = Crowd::new(true).await;
    let (twice, other) = (crowd.prepared(), crowd.prepared());
    let commits = crowd.queued(&[twice.clone(), twice.clone(), other.clone()]).await;
    crowd.release().await;
    // Both are in flight at the same time, and may arrive in any order.
    let (mut first, mut second) = (crowd.request().await, crowd.request().await);
    if second.batch {
        std::mem::swap(&mut first, &mut second);
    }
    assert_eq!(first.ids, [twice.txn_id.clone(), other.txn_id]);
    assert_eq!((second.batch, &second.ids), (false, &vec![twice.txn_id]));
    first.commit();
    second.commit();
    assert_eq!(ends(commits).await, ["committed"; 3]);
}

#[tokio::test]
async fn a_batch_has_at_most_512_commits_and_4_mib() {
    let mut crowd = Crowd::new(true).await;
    let mib = "x".repeat(1 << 20);
    let mut waiting: Vec<PreparedCommit> = (0..5).map(|_| crowd.with_value(&mib)).collect();
    waiting.extend((0..600).map(|_| crowd.prepared()));
    let commits = crowd.queued(&waiting).await;
    crowd.release().await;
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < waiting.len() {
        let held = crowd.request().await;
        sizes.push(held.ids.len());
        held.commit();
    }
    assert_eq!((sizes.iter().max(), sizes.contains(&3)), (Some(&512), true), "{sizes:?}");
    assert!(ends(commits).await.iter().all(|end| end == "committed"));
}

#[tokio::test]
async fn commits_with_a_trace_context_or_ack_applied_are_sent_at_once_by_themselves() {
    let mut crowd = Crowd::new(true).await;
    let (mut traced, mut applied) = (crowd.prepared(), crowd.prepared());
    traced.traceparent = Some("00-mine".to_owned());
    applied.request.ack = Some(Ack::Applied);
    for prepared in [traced, applied] {
        let commit = crowd.commit(prepared.clone());
        let held = crowd.request().await;
        assert_eq!((held.batch, &held.traceparent), (false, &prepared.traceparent));
        held.commit();
        assert_eq!(commit.await.expect("no panic"), "committed");
    }
    crowd.release().await;
}

#[tokio::test]
async fn a_rejected_batch_fails_each_commit_and_a_refused_one_is_halved() {
    let mut crowd = Crowd::new(true).await;
    let commits = crowd.queued(&[crowd.prepared(), crowd.prepared()]).await;
    crowd.release().await;
    crowd.request().await.with(503, &[problem(503, "overloaded")]);
    assert_eq!(ends(commits).await, ["unavailable overloaded: x"; 2]);

    let mut crowd = Crowd::new(true).await;
    let commits = crowd.queued(&[crowd.prepared(), crowd.prepared()]).await;
    crowd.release().await;
    crowd.request().await.with(413, &[problem(413, "too_large")]);
    crowd.alone().await;
    crowd.alone().await;
    assert_eq!(ends(commits).await, ["committed"; 2]);

    // A batch that is too large for a proxy is halved.
    let mut crowd = Crowd::new(true).await;
    let waiting: Vec<PreparedCommit> = (0..8).map(|_| crowd.prepared()).collect();
    let commits = crowd.queued(&waiting).await;
    crowd.release().await;
    crowd.request().await.with(413, &[problem(413, "too_large")]);
    let mut sent = Vec::new();
    for _ in 0..2 {
        let half = crowd.request().await;
        assert_eq!(half.ids.len(), 4);
        sent.extend(half.ids.clone());
        half.commit();
    }
    assert_eq!(sent, waiting.iter().map(|prepared| prepared.txn_id.clone()).collect::<Vec<_>>(), "in order");
    assert_eq!(ends(commits).await, ["committed"; 8]);
}

#[tokio::test]
async fn an_unreadable_reply_to_a_batch_is_resolved_for_each_commit() {
    for lines in [json!([committed("one")]), json!([]), json!([1, 2])] {
        let mut crowd = Crowd::new(true).await;
        let commits = crowd.queued(&[crowd.prepared(), crowd.prepared()]).await;
        crowd.release().await;
        crowd.request().await.with(200, lines.as_array().expect("a list"));
        assert_eq!(ends(commits).await, ["committed again"; 2], "{lines}");
    }
}

#[tokio::test]
async fn names_that_a_newer_service_uses_concern_only_the_commits_that_have_them() {
    let mut crowd = Crowd::new(true).await;
    let waiting: Vec<PreparedCommit> = (0..3).map(|_| crowd.prepared()).collect();
    let commits = crowd.queued(&waiting).await;
    crowd.release().await;
    let held = crowd.request().await;
    let ids = held.ids.clone();
    let mut lost = aborted(&ids[1]);
    lost["reason"] = json!("lease_lost");
    // The service knows the third one's outcome by its id.
    held.with(200, &[committed(&ids[0]), lost, json!({ "status": "parked", "txn_id": ids[2] })]);
    assert_eq!(ends(commits).await, ["committed", "aborted lease_lost", "committed again"]);
}

#[tokio::test]
async fn a_cancelled_caller_does_not_affect_others() {
    let mut crowd = Crowd::new(true).await;
    let waiting: Vec<PreparedCommit> = (0..4).map(|_| crowd.prepared()).collect();
    let mut commits = crowd.queued(&waiting).await;
    // The first is cancelled while queued, the second while in flight.
    commits.remove(0).abort();
    let flies = commits.remove(0);
    crowd.release().await;
    let held = crowd.request().await;
    assert_eq!(held.ids, waiting[1..].iter().map(|prepared| prepared.txn_id.clone()).collect::<Vec<_>>());
    flies.abort();
    held.commit();
    assert_eq!(ends(commits).await, ["committed"; 2]);
    // A request whose caller was cancelled no longer counts as in flight.
    let again = crowd.commit(crowd.prepared());
    crowd.alone().await;
    assert_eq!(again.await.expect("no panic"), "committed");
}

#[tokio::test]
async fn without_coalesce_every_commit_is_a_request_of_its_own() {
    let mut crowd = Crowd::new(false).await;
    for _ in 0..3 {
        let commit = crowd.commit(crowd.prepared());
        crowd.alone().await;
        assert_eq!(commit.await.expect("no panic"), "committed");
    }
    crowd.release().await;
}

#[tokio::test]
async fn commits_that_write_nothing_share_no_batch_with_those_that_write() {
    let mut crowd = Crowd::new(true).await;
    let read_only = || {
        let mut txn = crowd.client.begin_local(IsolationLevel::Serializable);
        txn.observe("kv", "a", None);
        txn.prepare()
    };
    let (reads, writes) = ([read_only(), read_only(), read_only()], [crowd.prepared(), crowd.prepared()]);
    // No request of their own kind is in flight.
    let reading = crowd.queued(&reads).await;
    let writing = crowd.queued(&writes).await;
    let held = crowd.request().await;
    assert_eq!(held.ids, reads.each_ref().map(|prepared| prepared.txn_id.clone()));
    held.commit();
    assert_eq!(ends(reading).await, ["committed"; 3], "while commits that write wait for theirs");
    crowd.release().await;
    let held = crowd.request().await;
    assert_eq!(held.ids, writes.each_ref().map(|prepared| prepared.txn_id.clone()));
    held.commit();
    assert_eq!(ends(writing).await, ["committed"; 2]);
}
