//! The client against a service that is told what to answer: lost replies, fences, aborts and refusals.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tribunal_client::{BeginOptions, Call, Client, ClientOptions, Error, IsolationLevel, Lsn, Outcome, RetryPolicy};

/// What the service does with a request.
enum Reply {
    /// Answers with this status and body.
    Json(u16, Value),
    /// Takes the request and closes the connection.
    Lost,
}

/// A request as it arrived: method, path with query, body.
type Asked = (String, String, Value);

struct Service {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Service {
    /// Starts a service that answers by `answer`, which also gets how many requests of that kind came before.
    async fn start(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("bound");
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, log) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    async move {
                        let (method, path) = (request.method().to_string(), request.uri().to_string());
                        let body = request.into_body().collect().await.expect("the client sends whole bodies");
                        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
                        let kind = kind_of(&method, &path);
                        let before = {
                            let mut log = log.lock().expect("no test panics with it");
                            let before = log.iter().filter(|(m, p, _)| kind_of(m, p) == kind).count();
                            log.push((method, path, body));
                            before
                        };
                        match answer(kind, before) {
                            Reply::Json(status, body) => Ok(Response::builder()
                                .status(status)
                                .body(Full::new(Bytes::from(body.to_string())))
                                .expect("a response")),
                            Reply::Lost => Err("lost"),
                        }
                    }
                });
                tokio::spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Ok::<(), Infallible>(())
        });
        Service { address, asked }
    }

    fn client(&self) -> Client {
        let options = ClientOptions {
            timeout: Duration::from_secs(5),
            resolve_timeout: Duration::from_millis(300),
            retry: RetryPolicy { attempts_max: 4, ..RetryPolicy::default() },
            ..ClientOptions::default()
        };
        Client::with_options(&format!("http://{}", self.address), options).expect("a URL")
    }

    fn asked(&self, kind: &str) -> Vec<Asked> {
        let asked = self.asked.lock().expect("no test panics with it");
        asked.iter().filter(|(method, path, _)| kind_of(method, path) == kind).cloned().collect()
    }
}

fn kind_of(method: &str, path: &str) -> &'static str {
    match (method, path) {
        ("POST", "/v1/txns") => "begin",
        ("POST", "/v1/txns/batch-commit") => "batch",
        ("POST", path) if path.ends_with("/commit") => "commit",
        ("GET", path) if path.starts_with("/v1/txns/") => "status",
        ("GET", path) if path.starts_with("/v1/log") => "log",
        ("GET", path) if path.contains("/rows/") => "row",
        _ => "other",
    }
}

fn begun(number: usize) -> Reply {
    let body = json!({ "txn_id": format!("txn-{number}"), "snapshots": { "kv": "7" }, "epoch": "8",
        "expires_at": "2026-01-01T00:00:00Z", "session": "s" });
    Reply::Json(201, body)
}

fn committed() -> Reply {
    let body = json!({ "status": "committed", "txn_id": "txn-0", "epoch": "9", "csn": "77", "version": "9437184",
        "lsn": { "kv": "3" }, "session": "9" });
    Reply::Json(200, body)
}

fn aborted(reason: &str, retryable: bool) -> Reply {
    let conflict = json!({ "store": "kv", "key": "a", "op": "read", "stage": "validate", "read_version": "8388608" });
    let body = json!({ "status": "aborted", "txn_id": "txn-0", "epoch": "9", "reason": reason,
        "retryable": retryable, "conflicts": [conflict] });
    Reply::Json(200, body)
}

fn problem(status: u16, code: &str, retryable: bool) -> Reply {
    let body = json!({ "type": "about:blank", "title": "x", "status": status, "detail": "says so", "code": code,
        "retryable": retryable, "errors": [{ "pointer": "/writes/0/key", "code": code, "detail": "is wrong" }] });
    Reply::Json(status, body)
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_with_a_fence() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        ("commit", _) => Reply::Lost,
        ("status", 0) => Reply::Lost,
        ("status", 1) => Reply::Json(200, json!({ "status": "in_flight", "txn_id": "txn-0" })),
        _ => committed(),
    })
    .await;
    let mut txn = service.client().begin(BeginOptions::stores(["kv"])).await.expect("begins");
    txn.put("kv", "a", &1).expect("a value");
    let Outcome::Committed(committed) = txn.commit().await.expect("resolved") else { panic!("it committed") };
    assert_eq!((committed.epoch.0, committed.lsn["kv"]), (9, Lsn(3)));
    assert_eq!(service.asked("commit").len(), 1, "never sent twice");
    assert!(service.asked("status").iter().all(|(_, path, _)| path.contains("txn-0") && path.contains("fence=true")));
}

#[tokio::test]
async fn what_nobody_can_tell_is_said_to_be_unknown() {
    let service = Service::start(|kind, before| match kind {
        "begin" => begun(before),
        "commit" => problem(504, "outcome_unknown", true),
        _ => problem(503, "unavailable", true),
    })
    .await;
    let txn = service.client().begin(BeginOptions::default()).await.expect("begins");
    let unknown = txn.commit().await;
    assert!(matches!(&unknown, Err(Error::OutcomeUnknown { txn_id, .. }) if txn_id == "txn-0"), "{unknown:?}");
}

#[tokio::test]
async fn a_commit_that_may_not_be_asked_for_is_unknown_and_no_mistake() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("commit" | "batch", _) => Reply::Lost,
        ("status", 0) => committed(),
        _ => problem(401, "unauthenticated", false),
    })
    .await;
    let client = service.client();
    let commits: Vec<_> = (0..2)
        .map(|n| {
            let mut txn = client.begin_local(IsolationLevel::Serializable);
            txn.add("kv", "n", n).expect("a number");
            txn.prepare()
        })
        .collect();
    let outcomes = client.batch(&commits).await.expect("one answer each");
    assert!(matches!(&outcomes[0], Ok(Outcome::Committed(_))), "{:?}", outcomes[0]);
    for unknown in [&outcomes[1], &client.commit(&commits[1]).await] {
        let Err(Error::OutcomeUnknown { text, .. }) = unknown else { panic!("nobody knows: {unknown:?}") };
        assert!(text.contains("unauthenticated"), "{text}");
    }
    assert_eq!(service.asked("status").len(), 3, "asking again does not help");
}

#[tokio::test]
async fn a_call_cannot_change_the_host() {
    let client = Client::new("http://127.0.0.1:1").expect("a URL");
    for path in ["", "@localhost/", ".localhost/", "2/v1/log"] {
        let call = Call { method: "GET", path, query: &[], body: None, timeout: Duration::from_secs(5) };
        let refused = client.call(call).await;
        assert!(matches!(refused, Err(Error::Misuse(_))), "{path}: {refused:?}");
    }
}

#[tokio::test]
async fn run_repeats_the_work_on_fresh_reads_and_under_new_ids() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        ("row", n) => Reply::Json(200, json!({ "key": "a", "value": n, "version": (8_388_608 + n).to_string() })),
        ("commit", 0) => aborted("read_conflict", true),
        ("commit", 1) => Reply::Lost,
        ("status", _) => aborted("fenced", false),
        ("commit", 2) => problem(503, "overloaded", true),
        _ => committed(),
    })
    .await;
    let client = service.client();
    let running = tokio::spawn(async move {
        client
            .run(BeginOptions::stores(["kv"]), async |txn| {
                let row = txn.get("kv", "a").await?.expect("the row is there");
                txn.put("kv", "a", &(row.value.as_i64().unwrap_or(0) + 10))?;
                Ok::<_, Error>(row.value)
            })
            .await
    });
    let (value, _) = running.await.expect("no panic").expect("commits");
    assert_eq!(value, json!(2), "what the attempt that committed had read");
    let commits = service.asked("commit");
    let paths: Vec<&str> = commits.iter().map(|(_, path, _)| path.as_str()).collect();
    let of = |txn: &str| format!("/v1/txns/{txn}/commit");
    assert_eq!(paths, [of("txn-0"), of("txn-1"), of("txn-2"), of("txn-2")], "a refused one keeps its id");
    assert_eq!(commits[3].2["writes"][0]["value"], json!(12));
    assert_eq!(commits[3].2["reads"][0]["version"], json!("8388610"));
}

#[tokio::test]
async fn final_aborts_and_mistakes_are_not_repeated() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        ("commit", 0) => aborted("row_exists", false),
        _ => problem(422, "bad_write", false),
    })
    .await;
    let client = service.client();
    let insert = async |txn: &mut tribunal_client::Transaction| txn.insert("kv", "a", &1);
    let first = client.run(BeginOptions::stores(["kv"]), insert).await;
    assert!(matches!(&first, Err(Error::Aborted(aborted)) if aborted.reason == "row_exists"), "{first:?}");
    let second = client.run(BeginOptions::stores(["kv"]), insert).await;
    assert!(matches!(&second, Err(Error::ClientMistake(_))), "{second:?}");
    assert!(second.expect_err("a mistake").to_string().contains("/writes/0/key: is wrong"));
    assert_eq!(service.asked("commit").len(), 2);
}

#[tokio::test]
async fn run_gives_up_within_its_bounds() {
    let service = Service::start(|kind, before| match kind {
        "begin" => begun(before),
        _ => aborted("read_conflict", true),
    })
    .await;
    let given_up = service.client().run(BeginOptions::default(), async |_| Ok::<_, Error>(())).await;
    assert!(matches!(given_up, Err(Error::Aborted(_))));
    assert_eq!(service.asked("commit").len(), 4);
    let nobody = Client::new("http://127.0.0.1:1").expect("a URL").begin(BeginOptions::default()).await;
    assert!(matches!(nobody, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn a_batch_gives_each_its_own_answer() {
    let service = Service::start(|_, _| {
        let problem = json!({ "type": "about:blank", "title": "x", "status": 404, "detail": "no such store",
            "code": "unknown_store", "retryable": false, "errors": [] });
        let results = json!([
            { "status": "committed", "txn_id": "1", "epoch": "9", "version": "9437184", "lsn": { "kv": "3" } },
            { "status": "aborted", "txn_id": "2", "reason": "write_conflict", "retryable": true },
            { "status": "problem", "txn_id": "3", "problem": problem },
        ]);
        Reply::Json(200, json!({ "results": results }))
    })
    .await;
    let client = service.client();
    let commits: Vec<_> = (0..3)
        .map(|n| {
            let mut txn = client.begin_local(IsolationLevel::Serializable);
            txn.add("kv", "n", n).expect("a number");
            txn.observe("kv", [0xff], None);
            txn.prepare()
        })
        .collect();
    let outcomes = client.batch(&commits).await.expect("an answer");
    assert!(matches!(&outcomes[0], Ok(Outcome::Committed(_))), "{:?}", outcomes[0]);
    assert!(matches!(&outcomes[1], Ok(Outcome::Aborted(aborted)) if aborted.retryable), "{:?}", outcomes[1]);
    assert!(matches!(&outcomes[2], Err(Error::ClientMistake(_))), "{:?}", outcomes[2]);
    let sent = &service.asked("batch")[0].2["txns"];
    assert_eq!(sent[1]["reads"][0]["key_b64"], json!("/w=="));
    assert_eq!(sent[2]["writes"][0], json!({ "op": "add", "store": "kv", "key": "n", "value": 2 }));
}

#[tokio::test]
async fn a_gap_in_the_log_is_noticed() {
    let record = |lsn: u64| {
        json!({ "lsn": lsn.to_string(), "prev_lsn": (lsn - 1).to_string(), "epoch": "9", "csn": "7",
            "version": "9437184", "txn_id": "t", "store": "kv",
            "writes": [{ "op": "put", "key": "a", "value": lsn }] })
    };
    let service = Service::start(move |_, before| {
        let lsns: &[u64] = if before == 0 { &[5, 6] } else { &[8] };
        let records: Vec<Value> = lsns.iter().map(|lsn| record(*lsn)).collect();
        Reply::Json(
            200,
            json!({ "records": records, "next": "6", "head_lsn": "8", "durable_upto": "8", "oldest": "1" }),
        )
    })
    .await;
    let mut log = service.client().log("kv", Lsn(4));
    for lsn in [5, 6] {
        assert_eq!(log.next().await.expect("a record").map(|record| record.lsn), Some(Lsn(lsn)));
    }
    assert_eq!(log.checkpoint(), Lsn(6));
    let gap = log.next().await;
    assert!(matches!(gap, Err(Error::ServerMisbehaved(_))), "{gap:?}");
    assert!(service.asked("log")[1].1.contains("after=6"));
}
