//! Batches of Begins and of reads, against a service that holds requests back until it is told to answer.

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
use tribunal_client::{
    BeginOptions, Client, ClientOptions, Error, IsolationLevel, KeyRange, ReadOptions, RetryPolicy, RowRead, RowState,
    Transaction, Version,
};

/// Requests that are in flight at a time.
const FLIGHTS_MAX: usize = 2;
const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

/// A request that waits for its answer; without one, its connection breaks.
struct Held {
    path: String,
    body: Value,
    answer: oneshot::Sender<(u16, Value)>,
}

impl Held {
    fn with(self, status: u16, body: Value) {
        self.answer.send((status, body)).expect("the request waits");
    }

    /// Answers with all rows: key `x/7` has the value 7, `none` is absent, and one whose version is known is unchanged.
    fn read(self) {
        let rows: Vec<Value> = self.rows().iter().map(row).collect();
        let rows = if rows.is_empty() { Value::Null } else { json!(rows) };
        let status = if self.path == "/v1/txns" { 201 } else { 200 };
        let mut body = json!({ "applied": "9", "rows": rows });
        if self.path == "/v1/txns" {
            body = json!({ "txn_id": ID, "snapshots": { "kv": "9" }, "epoch": "10", "session": "s", "rows": rows,
                "expires_at": "2026-01-01T00:00:00Z" });
        }
        self.with(status, body);
    }

    fn rows(&self) -> Vec<Value> {
        self.body["read"].as_array().cloned().unwrap_or_default()
    }

    fn keys(&self) -> Vec<String> {
        self.rows().iter().map(|row| row["key"].as_str().expect("a key").to_owned()).collect()
    }
}

fn row(asked: &Value) -> Value {
    let key = asked["key"].as_str().expect("a key");
    let mut row = json!({ "store": "kv", "key": key });
    if key != "none" {
        row["version"] = json!("9437184");
        match asked["version"].as_str() {
            Some("9437184") => row["unchanged"] = json!(true),
            _ => row["value"] = json!(key.split('/').nth(1).and_then(|n| n.parse::<i64>().ok())),
        }
    }
    row
}

fn problem(status: u16, code: &str) -> Value {
    let retryable = matches!(status, 429 | 503);
    json!({ "type": "about:blank", "title": "x", "detail": "x", "status": status, "code": code, "retryable": retryable,
        "errors": [] })
}

async fn hold(
    request: Request<Incoming>,
    arrives: mpsc::UnboundedSender<Held>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("the client sends whole bodies").to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    if path.ends_with("/commit") {
        let verdict = json!({ "status": "committed", "txn_id": ID, "epoch": "9", "version": "9437184",
            "lsn": { "kv": "3" }, "session": "mine" });
        return Ok(Response::new(Full::new(verdict.to_string().into())));
    }
    let (answer, answered) = oneshot::channel();
    let _ = arrives.send(Held { path, body, answer });
    let (status, body) = answered.await.map_err(|_| "lost")?;
    Ok(Response::builder().status(status).body(Full::new(body.to_string().into())).expect("a response"))
}

/// Callers of one client whose flights are all taken.
struct Crowd {
    client: Client,
    arrived: mpsc::UnboundedReceiver<Held>,
    first: Vec<Held>,
}

impl Crowd {
    async fn of(options: ClientOptions) -> Crowd {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (arrives, arrived) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let arrives = arrives.clone();
                let service = service_fn(move |request| hold(request, arrives.clone()));
                let serve = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(serve.await) });
            }
            Ok::<(), Infallible>(())
        });
        let client = Client::with_options(&url, options).expect("a URL");
        Crowd { client, arrived, first: Vec::new() }
    }

    async fn new() -> Crowd {
        let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
        Crowd::of(ClientOptions { retry, ..ClientOptions::default() }).await
    }

    async fn request(&mut self) -> Held {
        let arrives = tokio::time::timeout(Duration::from_secs(30), self.arrived.recv());
        arrives.await.expect("the client sends").expect("the service runs")
    }

    /// Takes all flights of reads of the store `kv`.
    async fn reading() -> Crowd {
        let mut crowd = Crowd::new().await;
        for n in 0..FLIGHTS_MAX {
            crowd.read(&[&format!("first/{n}")]);
            let held = crowd.request().await;
            assert_eq!(held.keys(), [format!("first/{n}")], "an idle client sends at once and alone");
            crowd.first.push(held);
        }
        crowd
    }

    /// Takes all flights of Begins.
    async fn beginning() -> Crowd {
        let mut crowd = Crowd::new().await;
        for _ in 0..FLIGHTS_MAX {
            crowd.begin(BeginOptions::stores(["kv"]));
            let held = crowd.request().await;
            crowd.first.push(held);
        }
        crowd
    }

    /// Answers the requests in flight.
    fn release(&mut self) {
        self.first.drain(..).for_each(Held::read);
    }

    fn read(&self, keys: &[&str]) -> JoinHandle<String> {
        let (client, keys) = (self.client.clone(), keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>());
        tokio::spawn(async move {
            let asked: Vec<RowRead<'_>> = keys.iter().map(|key| RowRead { key: key.as_bytes(), known: None }).collect();
            match client.read_rows("kv", &asked).await {
                Ok(found) => found.rows.iter().map(shown).collect::<Vec<_>>().join(" "),
                Err(error) => told(&error),
            }
        })
    }

    fn begin(&self, options: BeginOptions) -> JoinHandle<Result<Transaction, Error>> {
        let client = self.client.clone();
        tokio::spawn(async move { client.begin(options).await })
    }
}

fn shown(state: &RowState) -> String {
    match state {
        RowState::Absent => "absent".to_owned(),
        RowState::Unchanged(_) => "unchanged".to_owned(),
        RowState::Found(row) => row.value.to_string(),
    }
}

fn told(error: &Error) -> String {
    match error {
        Error::ClientMistake(problem) => format!("mistake {}", problem.code),
        Error::Unavailable { text, .. } if text.contains("overloaded") => "overloaded".to_owned(),
        Error::Unavailable { .. } => "unavailable".to_owned(),
        error => error.to_string(),
    }
}

async fn ends(reads: Vec<JoinHandle<String>>) -> Vec<String> {
    let mut ends = Vec::new();
    for read in reads {
        ends.push(read.await.expect("no panic"));
    }
    ends
}

async fn begun(begins: Vec<JoinHandle<Result<Transaction, Error>>>) -> Vec<Result<Transaction, String>> {
    let mut ends = Vec::new();
    for begin in begins {
        ends.push(begin.await.expect("no panic").map_err(|error| told(&error)));
    }
    ends
}

#[tokio::test]
async fn reads_that_wait_leave_together_and_each_gets_its_rows() {
    let mut crowd = Crowd::reading().await;
    let mut reads = vec![crowd.read(&["a/1", "b/2"]), crowd.read(&["none"]), crowd.read(&["b/2", "c/3", "a/1"])];
    let client = crowd.client.clone();
    reads.push(tokio::spawn(async move {
        let row = client.row("kv", "a/1").await.expect("an answer").expect("a row");
        row.value.to_string()
    }));
    yield_now().await;
    crowd.release();
    let held = crowd.request().await;
    assert_eq!((held.path.as_str(), held.keys()), ("/v1/stores/kv/rows/read", keys(&["a/1", "b/2", "none", "c/3"])));
    held.read();
    assert_eq!(ends(reads).await, ["1 2", "absent", "2 3 1", "1"]);
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

#[tokio::test]
async fn a_row_is_asked_for_once_for_each_version_that_callers_have() {
    let mut crowd = Crowd::reading().await;
    let versions = [None, Version::from_bits(9_437_184), Version::from_bits(8_388_608), None];
    let reads = versions.map(|known| {
        let client = crowd.client.clone();
        tokio::spawn(async move {
            let found = client.read_rows("kv", &[RowRead { key: b"a/1", known }]).await.expect("an answer");
            shown(&found.rows[0])
        })
    });
    yield_now().await;
    crowd.release();
    let held = crowd.request().await;
    assert_eq!(held.rows().len(), 3);
    held.read();
    assert_eq!(ends(reads.into()).await, ["1", "unchanged", "1", "1"]);
}

#[tokio::test]
async fn what_must_be_included_is_sent_and_shared_only_by_those_that_ask_for_the_same() {
    let mut crowd = Crowd::reading().await;
    let options = [ReadOptions::fresh(), ReadOptions { wait_ms: Some(70), ..ReadOptions::fresh() }];
    let reads = options.map(|options| {
        let client = crowd.client.clone();
        tokio::spawn(async move {
            let row = RowRead { key: b"a/1", known: None };
            let found = client.read_rows_with("kv", &[row], options).await.expect("an answer");
            shown(&found.rows[0])
        })
    });
    // They neither wait for the reads in flight, which include less, nor for each other.
    let (first, second) = (crowd.request().await, crowd.request().await);
    let waits = [&first.body["wait_ms"], &second.body["wait_ms"]];
    assert!(waits.contains(&&Value::Null) && waits.contains(&&json!(70)), "{waits:?}");
    for held in [first, second] {
        assert_eq!(held.body["consistency"], "fresh");
        held.read();
    }
    assert_eq!(ends(reads.into()).await, ["1"; 2]);
    let client = crowd.client.clone();
    let ranges = tokio::spawn(async move {
        let options = ReadOptions { session: Some("v1-7".to_owned()), ..ReadOptions::default() };
        client.read_ranges_with("kv", &[KeyRange::new("a", "b", 1)], options).await.expect("an answer").ranges.len()
    });
    let held = crowd.request().await;
    assert_eq!((&held.body["session"], held.body.get("consistency")), (&json!("v1-7"), None));
    held.with(200, json!({ "applied": "9", "ranges": [{ "store": "kv", "rows": [], "more": false }] }));
    assert_eq!(ranges.await.expect("no panic"), 1);
    crowd.release();

    let mut crowd = Crowd::beginning().await;
    let begin = crowd.begin(BeginOptions::stores(["kv"]).fresh());
    let held = crowd.request().await;
    assert_eq!(held.body["consistency"], "fresh");
    held.read();
    begin.await.expect("no panic").expect("an answer");
    crowd.release();
}

#[tokio::test]
async fn reads_of_other_stores_wait_for_nobody() {
    let mut crowd = Crowd::reading().await;
    let client = crowd.client.clone();
    let other = tokio::spawn(async move { client.row("other", "a/1").await.expect("an answer").is_some() });
    let held = crowd.request().await;
    assert_eq!(held.path, "/v1/stores/other/rows/read");
    held.read();
    assert!(other.await.expect("no panic"));
    crowd.release();
}

#[tokio::test]
async fn a_refusal_of_what_is_read_sends_each_alone_and_other_failures_reach_each() {
    for (status, code) in [(422, "read_too_large"), (400, "bad_request")] {
        let mut crowd = Crowd::reading().await;
        let reads = vec![crowd.read(&["a/1"]), crowd.read(&["b/2"])];
        yield_now().await;
        crowd.release();
        crowd.request().await.with(status, problem(status, code));
        let (first, second) = (crowd.request().await, crowd.request().await);
        // One of the two is refused by itself as well.
        let (good, bad) = if first.keys() == ["a/1"] { (first, second) } else { (second, first) };
        assert_eq!((good.keys(), bad.keys()), (keys(&["a/1"]), keys(&["b/2"])));
        bad.with(status, problem(status, code));
        good.read();
        assert_eq!(ends(reads).await, ["1".to_owned(), format!("mistake {code}")]);
    }

    let mut crowd = Crowd::reading().await;
    let reads = vec![crowd.read(&["a/1"]), crowd.read(&["b/2"])];
    yield_now().await;
    crowd.release();
    crowd.request().await.with(503, problem(503, "overloaded"));
    assert_eq!(ends(reads).await, ["overloaded"; 2]);

    let reads = {
        let mut crowd = Crowd::reading().await;
        let reads = vec![crowd.read(&["a/1"]), crowd.read(&["b/2"])];
        yield_now().await;
        crowd.release();
        drop(crowd.request().await);
        reads
    };
    assert_eq!(ends(reads).await, ["unavailable"; 2]);
}

#[tokio::test]
async fn an_answer_with_another_number_of_rows_is_refused_for_each() {
    let mut crowd = Crowd::reading().await;
    let reads = vec![crowd.read(&["a/1"]), crowd.read(&["b/2"])];
    yield_now().await;
    crowd.release();
    crowd.request().await.with(200, json!({ "applied": "9", "rows": [{ "store": "kv", "key": "a/1" }] }));
    assert_eq!(ends(reads).await, ["unexpected response: 1 rows returned where 2 were requested"; 2]);
}

#[tokio::test]
async fn a_failed_read_is_asked_for_again_together() {
    let mut crowd = Crowd::of(ClientOptions::default()).await;
    for n in 0..FLIGHTS_MAX {
        crowd.read(&[&format!("first/{n}")]);
        let held = crowd.request().await;
        crowd.first.push(held);
    }
    let reads = vec![crowd.read(&["a/1"]), crowd.read(&["b/2"])];
    yield_now().await;
    crowd.release();
    drop(crowd.request().await);
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let held = crowd.request().await;
        asked.extend(held.keys());
        held.read();
    }
    asked.sort();
    assert_eq!((ends(reads).await, asked), (keys(&["1", "2"]), keys(&["a/1", "b/2"])));
}

#[tokio::test]
async fn large_reads_and_reads_of_a_client_that_does_not_gather_leave_at_once() {
    let mut crowd = Crowd::reading().await;
    let many: Vec<String> = (0..1_001).map(|n| format!("x/{n}")).collect();
    let large = crowd.read(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let held = crowd.request().await;
    assert_eq!(held.rows().len(), 1_001);
    held.read();
    assert!(large.await.expect("no panic").ends_with(" 1000"));
    crowd.release();

    let mut crowd = Crowd::of(ClientOptions { coalesce: false, ..ClientOptions::default() }).await;
    let reads: Vec<_> = (0..4).map(|n| crowd.read(&[&format!("x/{n}")])).collect();
    let begins: Vec<_> = (0..4).map(|_| crowd.begin(BeginOptions::stores(["kv"]))).collect();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(crowd.request().await);
    }
    held.into_iter().for_each(Held::read);
    assert_eq!(ends(reads).await, ["0", "1", "2", "3"]);
    assert!(begun(begins).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_request_has_at_most_512_callers_and_10_000_rows() {
    let mut crowd = Crowd::reading().await;
    let reads: Vec<_> = (0..600).map(|n| crowd.read(&[&format!("x/{n}")])).collect();
    yield_now().await;
    crowd.release();
    let (first, second) = (crowd.request().await, crowd.request().await);
    let sizes = [first.rows().len(), second.rows().len()];
    assert_eq!((sizes.iter().max(), sizes.iter().sum::<usize>()), (Some(&512), 600));
    first.read();
    second.read();
    assert!(ends(reads).await.iter().enumerate().all(|(n, end)| *end == n.to_string()));

    let mut crowd = Crowd::reading().await;
    let names: Vec<Vec<String>> = (0..14).map(|n| (0..900).map(|m| format!("x/{}", n * 900 + m)).collect()).collect();
    let reads: Vec<_> =
        names.iter().map(|names| crowd.read(&names.iter().map(String::as_str).collect::<Vec<_>>())).collect();
    yield_now().await;
    crowd.release();
    let (first, second) = (crowd.request().await, crowd.request().await);
    let sizes = [first.rows().len(), second.rows().len()];
    assert!(sizes.iter().all(|size| *size <= 10_000) && sizes.iter().sum::<usize>() == 14 * 900, "{sizes:?}");
    first.read();
    second.read();
    assert!(ends(reads).await.iter().all(|end| end.split(' ').count() == 900));
}

#[tokio::test]
async fn a_caller_that_goes_away_disturbs_nobody() {
    let mut crowd = Crowd::reading().await;
    let mut reads = vec![crowd.read(&["a/1"]), crowd.read(&["b/2"]), crowd.read(&["c/3"])];
    yield_now().await;
    // The first goes while it waits, the second while it is in flight.
    let gone = reads.remove(0);
    gone.abort();
    assert!(gone.await.is_err_and(|error| error.is_cancelled()));
    let flies = reads.remove(0);
    crowd.release();
    let held = crowd.request().await;
    assert_eq!(held.keys(), ["b/2", "c/3"]);
    flies.abort();
    held.read();
    assert_eq!(ends(reads).await, ["3"]);
    let again = crowd.read(&["d/4"]);
    crowd.request().await.read();
    assert_eq!(again.await.expect("no panic"), "4");
}

#[tokio::test]
async fn begins_that_wait_leave_together_with_an_id_each() {
    let mut crowd = Crowd::beginning().await;
    let kv = || BeginOptions::stores(["kv"]);
    let begins = vec![
        crowd.begin(kv().read("kv", ["a/1", "b/2"])),
        crowd.begin(kv()),
        crowd.begin(kv().read("kv", ["b/2", "none"]).isolation(IsolationLevel::Snapshot)),
    ];
    yield_now().await;
    crowd.release();
    let held = crowd.request().await;
    assert_eq!((&held.body["stores"], held.keys()), (&json!(["kv"]), keys(&["a/1", "b/2", "none"])));
    held.read();
    let mut txns: Vec<Transaction> = begun(begins).await.into_iter().map(|txn| txn.expect("begins")).collect();
    let ids: Vec<&str> = txns.iter().map(Transaction::id).collect();
    assert_eq!(ids[0], ID);
    assert!(ids[1] != ids[2] && ids[1..].iter().all(|id| *id != ID && id[..15] == ID[..15]), "{ids:?}");
    assert!(txns.iter().all(|txn| txn.snapshot("kv").is_ok_and(|at| at.is_some_and(|at| at.0 == 9))));
    // What each asked for is known without another request.
    assert_eq!(txns[0].get("kv", "a/1").await.expect("known").expect("a row").value, json!(1));
    assert_eq!(txns[2].get("kv", "b/2").await.expect("known").expect("a row").value, json!(2));
    assert_eq!(txns[2].get("kv", "none").await.expect("known"), None);
    let levels: Vec<_> = txns.iter().map(|txn| txn.prepare().request.isolation).collect();
    assert_eq!(levels[2], Some(IsolationLevel::Snapshot));
    assert!(txns[1].is_blind(), "rows of others are no reads");
}

#[tokio::test]
async fn begins_with_other_stores_sessions_or_waits_leave_apart() {
    let mut crowd = Crowd::beginning().await;
    let others = [
        BeginOptions::default(),
        BeginOptions::default().read("nope", ["a/1"]),
        BeginOptions::stores(["other"]),
        BeginOptions::stores(["kv"]).read("other", ["a/1"]),
        BeginOptions::stores(["kv"]).session("s"),
        BeginOptions { wait_ms: Some(7), ..BeginOptions::stores(["kv"]) },
        BeginOptions::stores(["kv"]).range("kv", KeyRange::new("a", "b", 1)),
    ];
    for options in others {
        let ranges = options.ranges.len();
        let begin = crowd.begin(options);
        let held = crowd.request().await;
        if ranges > 0 {
            assert_eq!(held.body["ranges"], json!([{ "store": "kv", "start": "a", "end": "b", "limit": 1 }]));
            held.with(503, problem(503, "overloaded"));
            assert!(begin.await.expect("no panic").is_err());
        } else {
            held.read();
            assert!(begin.await.expect("no panic").is_ok());
        }
    }
    crowd.release();
}

#[tokio::test]
async fn begins_are_sent_with_the_session_of_the_moment_when_they_leave() {
    let mut crowd = Crowd::beginning().await;
    let before = vec![crowd.begin(BeginOptions::stores(["kv"]))];
    yield_now().await;
    let mut txn = crowd.client.begin_local(IsolationLevel::Serializable);
    txn.put("kv", "a/1", &1).expect("a number");
    txn.commit().await.expect("commits");
    let later = crowd.begin(BeginOptions::stores(["kv"]));
    yield_now().await;
    crowd.release();
    let held = crowd.request().await;
    assert_eq!(held.body["session"], json!("mine"));
    held.read();
    assert!(begun(before).await[0].is_ok() && later.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn begins_that_are_refused_together_are_sent_alone_and_other_failures_reach_each() {
    let mut crowd = Crowd::beginning().await;
    let kv = || BeginOptions::stores(["kv"]);
    let begins = vec![crowd.begin(kv().read("kv", ["a/1"])), crowd.begin(kv().read("kv", ["b/2"]))];
    yield_now().await;
    crowd.release();
    crowd.request().await.with(422, problem(422, "read_too_large"));
    for _ in 0..2 {
        let held = crowd.request().await;
        match held.keys()[0].as_str() {
            "a/1" => held.read(),
            _ => held.with(422, problem(422, "read_too_large")),
        }
    }
    let ends = begun(begins).await;
    assert!(ends[0].as_ref().is_ok_and(|txn| txn.id() == ID));
    assert_eq!(ends[1].as_ref().err().map(String::as_str), Some("mistake read_too_large"));

    let mut crowd = Crowd::beginning().await;
    let begins = vec![crowd.begin(kv()), crowd.begin(kv())];
    yield_now().await;
    crowd.release();
    drop(crowd.request().await);
    assert!(begun(begins).await.iter().all(|end| end.as_ref().is_err_and(|text| text == "unavailable")));
}
