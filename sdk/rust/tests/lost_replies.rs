//! The client against a service that replies by a script: lost replies, fences, aborts, refusals, sessions, traces.

#[path = "support/scripted.rs"]
mod scripted;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use scripted::{Reply, Service, aborted, begun, begun_as, committed, problem};
use serde_json::{Value, json};
use tribunal_client::{
    AttemptEnd, AttemptHook, BeginOptions, Call, Client, ClientOptions, Error, IsolationLevel, Lsn, Outcome,
    PreparedCommit, RetryPolicy, Transaction,
};

#[tokio::test]
async fn a_lost_reply_is_requested_with_a_fence() {
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

/// A client that gives an outcome up before long.
fn hasty(service: &Service) -> Client {
    service.client_with(ClientOptions { resolve_timeout: Duration::from_secs(3), ..ClientOptions::default() })
}

#[tokio::test]
async fn an_outcome_that_cannot_be_determined_is_unknown() {
    let service = Service::start(|kind, before| match kind {
        "begin" => begun(before),
        "commit" => problem(504, "outcome_unknown", true),
        _ => problem(503, "unavailable", true),
    })
    .await;
    let txn = hasty(&service).begin(BeginOptions::default()).await.expect("begins");
    let unknown = txn.commit().await;
    assert!(matches!(&unknown, Err(Error::OutcomeUnknown { txn_id, .. }) if txn_id == "txn-0"), "{unknown:?}");
}

#[tokio::test]
async fn a_commit_whose_status_is_denied_is_unknown_and_not_a_mistake() {
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
    let id = |n: usize| format!("019{n}163d-8694-7000-8000-000000000000");
    let service = Service::start(move |kind, before| match (kind, before) {
        ("begin", n) => begun_as(&id(n)),
        ("rows", n) => {
            let row = json!({ "store": "kv", "key": "a", "value": n, "version": (8_388_608 + n).to_string() });
            Reply::Json(200, json!({ "applied": "9", "rows": [row] }))
        }
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
    let of = |n| format!("/v1/txns/{}/commit", id(n));
    assert_eq!(paths, [of(0), of(1), of(2), of(2)], "a refused one keeps its id");
    let first_attempts: Vec<&Value> = commits.iter().map(|(_, _, body)| &body["first_attempt_ms"]).collect();
    let first = json!("1718360049300");
    assert_eq!(first_attempts, [&Value::Null, &first, &first, &first], "retries tell when the first attempt was");
    assert_eq!(commits[3].2["writes"][0]["value"], json!(12));
    assert_eq!(commits[3].2["reads"][0]["version"], json!("8388610"));
}

#[tokio::test]
async fn final_aborts_and_mistakes_are_not_retried() {
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
async fn a_batch_returns_the_result_of_each_commit() {
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
async fn a_commit_of_a_batch_with_an_unknown_outcome_is_resolved_by_its_id() {
    let statuses = [504, 409, 500, 502, 503, 404];
    let service = Service::start(move |kind, _| {
        if kind == "status" {
            return committed();
        }
        let results: Vec<Value> = statuses
            .iter()
            .map(|status| {
                let Reply::Json(_, problem) = problem(*status, "code", *status != 404) else { unreachable!() };
                json!({ "status": "problem", "txn_id": "1", "problem": problem })
            })
            .collect();
        Reply::Json(200, json!({ "results": results }))
    })
    .await;
    let client = service.client();
    let commits: Vec<_> = statuses
        .iter()
        .map(|_| {
            let mut txn = client.begin_local(IsolationLevel::Serializable);
            txn.put("kv", "a", &1).expect("a number");
            txn.prepare()
        })
        .collect();
    let outcomes = client.batch(&commits).await.expect("an answer");
    for outcome in &outcomes[..4] {
        assert!(matches!(outcome, Ok(Outcome::Committed(committed)) if committed.replayed), "{outcome:?}");
    }
    assert!(matches!(&outcomes[4], Err(Error::Unavailable { .. })), "{:?}", outcomes[4]);
    assert!(matches!(&outcomes[5], Err(Error::ClientMistake(_))), "{:?}", outcomes[5]);
    let asked = service.asked("status");
    assert_eq!(asked.len(), 4);
    for ((_, path, _), commit) in asked.iter().zip(&commits) {
        assert!(path.contains(&commit.txn_id) && path.contains("fence=true"), "{path}");
    }
}

/// Three commits of one client.
fn three(client: &Client) -> Vec<PreparedCommit> {
    let prepared = |n: i64| {
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        txn.add("kv", "n", n).expect("a number");
        txn.prepare()
    };
    (0..3).map(prepared).collect()
}

#[tokio::test]
async fn the_commits_of_a_lost_batch_are_resolved_together() {
    let service = Service::start(|kind, _| match kind {
        "batch" => Reply::Lost,
        _ => Reply::Json(200, json!({ "status": "in_flight", "txn_id": "txn-0" })),
    })
    .await;
    let client = hasty(&service);
    let commits = three(&client);
    let outcomes = client.batch(&commits).await.expect("one result each");
    for (commit, outcome) in commits.iter().zip(&outcomes) {
        assert!(
            matches!(outcome, Err(Error::OutcomeUnknown { txn_id, .. }) if *txn_id == commit.txn_id),
            "{outcome:?}"
        );
    }
    let asked = service.asked("status");
    for commit in &commits {
        let first = asked.iter().take(3).filter(|(_, path, _)| path.contains(&commit.txn_id));
        assert_eq!(first.count(), 1, "nobody waits for the outcome of another: {asked:?}");
    }
}

#[tokio::test]
async fn a_response_without_readable_outcomes_is_a_lost_one() {
    for unreadable in [json!({ "results": [] }), json!({ "results": [1, 2, 3] }), json!({ "login": "please" })] {
        let body = unreadable.clone();
        let service = Service::start(move |kind, _| match kind {
            "batch" | "commit" => Reply::Json(200, body.clone()),
            _ => committed(),
        })
        .await;
        let client = service.client();
        let commits = three(&client);
        let mut outcomes = client.batch(&commits).await.expect("one result each");
        outcomes.push(client.commit(&commits[0]).await);
        for outcome in &outcomes {
            let Ok(Outcome::Committed(committed)) = outcome else { panic!("{unreadable}: {outcome:?}") };
            assert!(committed.replayed);
        }
        assert_eq!(service.asked("status").len(), 4);
    }
}

#[tokio::test]
async fn no_duration_is_too_long() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("commit", 0) => Reply::Lost,
        ("status", 0) => problem(503, "unavailable", true),
        _ => committed(),
    })
    .await;
    let forever = Duration::MAX;
    let options = ClientOptions {
        timeout: forever,
        resolve_timeout: forever,
        endpoint_timeout: forever,
        endpoint_cool_down: forever,
        retry: RetryPolicy { wait_min: Duration::from_millis(1), wait_max: forever, attempts_max: 4 },
        ..ClientOptions::default()
    };
    let url = format!("http://{}", service.address);
    let client = Client::with_endpoints([&url], options.clone()).expect("a URL");
    let commits = three(&client);
    assert!(matches!(client.commit(&commits[0]).await, Ok(Outcome::Committed(_))));
    let call = Call { method: "GET", path: "/v1/x", query: &[], body: None, timeout: forever };
    client.call(call).await.expect("an answer");
    let client = Client::with_endpoints(["http://127.0.0.1:1", &url], options).expect("two URLs");
    assert!(matches!(client.commit(&commits[1]).await, Ok(Outcome::Committed(_))));
}

#[tokio::test]
async fn rows_read_at_begin_need_no_further_request_and_count_as_read_once_get_returns_them() {
    let service = Service::start(|kind, before| match (kind, begun(before)) {
        ("begin", Reply::Json(status, mut body)) => {
            body["rows"] = json!([
                { "store": "kv", "key": "a", "value": null, "version": "8388608" },
                { "store": "kv", "key": "b" },
                { "store": "kv", "key": "c", "value": 3, "version": "8388608" },
            ]);
            Reply::Json(status, body)
        }
        _ => Reply::Json(200, json!({ "applied": "9", "rows": [{ "store": "kv", "key": "d" }] })),
    })
    .await;
    let mut txn =
        service.client().begin(BeginOptions::stores(["kv"]).read("kv", ["a", "b", "c"])).await.expect("begins");
    assert!(txn.is_blind(), "rows that get has not returned are no reads");
    for _ in 0..2 {
        assert_eq!(txn.get("kv", "a").await.expect("known").expect("a row").value, Value::Null);
        assert_eq!(txn.get("kv", "b").await.expect("known"), None);
    }
    let reads = txn.prepare().request.reads;
    let reads: Vec<_> = reads.iter().map(|read| (read.key.as_deref(), read.version.as_deref())).collect();
    assert_eq!(reads, [(Some("a"), Some("8388608")), (Some("b"), None)]);
    assert_eq!(service.asked("begin")[0].2["read"][2], json!({ "store": "kv", "key": "c" }));
    assert_eq!((service.asked("begin").len(), service.asked("rows").len()), (1, 0));

    txn.put("kv", "own", &5).expect("a number");
    for _ in 0..2 {
        let rows = txn.get_many("kv", &["own", "d", "c", "d"]).await.expect("rows");
        let values: Vec<_> = rows.into_iter().map(|row| row.map(|row| row.value)).collect();
        assert_eq!(values, [Some(json!(5)), None, Some(json!(3)), None]);
    }
    let rows = service.asked("rows");
    assert_eq!((rows.len(), &rows[0].2), (1, &json!({ "read": [{ "key": "d" }] })));
}

async fn read_and_insert(txn: &mut Transaction) -> Result<(), Error> {
    txn.get("kv", "b").await?;
    txn.insert("kv", "a", &1)
}

fn row() -> Reply {
    let row = json!({ "store": "kv", "key": "b", "value": 1, "version": "8388608" });
    Reply::Json(200, json!({ "applied": "9", "rows": [row] }))
}

#[tokio::test]
async fn each_attempt_is_reported_and_a_read_is_retried_in_place() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin" | "rows", 0) => problem(503, "overloaded", true),
        ("begin", n) => begun(n),
        ("rows", _) => row(),
        ("commit", 0) => aborted("read_conflict", true),
        _ => committed(),
    })
    .await;
    type Attempts = Arc<Mutex<Vec<(u32, &'static str, bool)>>>;
    let attempts = Attempts::default();
    let seen = Arc::clone(&attempts);
    let hook = AttemptHook::new(move |attempt| {
        let end = match attempt.end {
            AttemptEnd::Committed(_) => "committed",
            AttemptEnd::Aborted(_) => "aborted",
            AttemptEnd::Failed(_) => "failed",
            AttemptEnd::WorkFailed => "work failed",
        };
        seen.lock().expect("no panic").push((attempt.number, end, attempt.wait.is_none()));
    });
    let client = service.client_with(ClientOptions { on_attempt: Some(hook), ..ClientOptions::default() });
    client.run(BeginOptions::stores(["kv"]), read_and_insert).await.expect("commits");
    let expected = [(1, "failed", false), (2, "aborted", false), (3, "committed", true)];
    assert_eq!(*attempts.lock().expect("no panic"), expected);
    assert_eq!(service.asked("rows").len(), 3);
}

#[tokio::test]
async fn a_refused_insert_gets_one_fresh_read() {
    let service = Service::start(|kind, before| match (kind, before) {
        // The snapshots of the first two attempts do not have epoch 9, which refused the row.
        ("begin", 0 | 1) => begun(before),
        ("begin", n) => Reply::Json(
            201,
            json!({ "txn_id": format!("txn-{n}"), "snapshots": { "kv": "9" }, "epoch": "10",
                "expires_at": "2026-01-01T00:00:00Z", "session": "s" }),
        ),
        ("rows", _) => row(),
        _ => aborted("row_exists", true),
    })
    .await;
    let refused = service.client().run(BeginOptions::stores(["kv"]), read_and_insert).await;
    assert!(matches!(&refused, Err(Error::Aborted(aborted)) if aborted.reason == "row_exists"), "{refused:?}");
    assert_eq!(service.asked("commit").len(), 3);
}

#[tokio::test]
async fn a_row_that_is_missing_because_of_a_further_commit_does_not_end_the_retries() {
    // As in a move between two entries of an index, which other moves of the same document overtake.
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => Reply::Json(
            201,
            json!({ "txn_id": format!("txn-{n}"), "snapshots": { "kv": (9 + n).to_string() }, "epoch": "20",
                "expires_at": "2026-01-01T00:00:00Z", "session": "s" }),
        ),
        ("rows", n) => {
            let row = json!({ "store": "kv", "key": "b", "value": n, "version": (8_388_608 + n).to_string() });
            Reply::Json(200, json!({ "applied": "9", "rows": [row] }))
        }
        ("commit", 0..3) => aborted("row_missing", true),
        _ => committed(),
    })
    .await;
    let work = async |txn: &mut Transaction| {
        let at = txn.get("kv", "b").await?.expect("it exists").value;
        txn.delete("kv", format!("index/{at}"))
    };
    service.client().run(BeginOptions::stores(["kv"]), work).await.expect("the fourth attempt commits");
    assert_eq!(service.asked("commit").len(), 4);
}

#[tokio::test]
async fn own_commits_are_visible_to_later_transactions_of_their_stores() {
    for read_own_writes in [true, false] {
        let service = Service::start(|kind, before| if kind == "begin" { begun(before) } else { committed() }).await;
        let client = service.client_with(ClientOptions { read_own_writes, ..ClientOptions::default() });
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        txn.put("kv", "a", &1).expect("a value");
        txn.commit().await.expect("commits");
        let given = BeginOptions::stores(["kv"]).session("given");
        for options in [BeginOptions::stores(["kv"]), BeginOptions::stores(["other"]), given] {
            client.begin(options).await.expect("begins");
        }
        let sessions: Vec<Value> =
            service.asked("begin").into_iter().map(|(_, _, body)| body["session"].clone()).collect();
        let own = if read_own_writes { json!("9") } else { Value::Null };
        assert_eq!(sessions, [own, Value::Null, json!("given")]);
    }
}

#[tokio::test]
async fn a_trace_context_is_sent_with_the_commit_and_returned_with_the_verdict() {
    let service = Service::start(|kind, before| if kind == "begin" { begun(before) } else { committed() }).await;
    let options = BeginOptions { traceparent: Some("00-mine".into()), ..BeginOptions::stores(["kv"]) };
    let put = async |txn: &mut Transaction| txn.put("kv", "a", &1);
    let ((), committed) = service.client().run(options, put).await.expect("commits");
    assert_eq!(*service.traceparents.lock().expect("no panic"), ["00-mine"]);
    assert_eq!(committed.traceparent.as_deref(), Some("00-server"));
}

/// The id of a log.
const LOG: &str = "8f14e45fceea167a5a36dedd4bea2543";

#[tokio::test]
async fn a_gap_in_the_log_is_detected() {
    let record = |lsn: u64| {
        json!({ "lsn": lsn.to_string(), "prev_lsn": (lsn - 1).to_string(), "epoch": "9", "csn": "7",
            "version": "9437184", "txn_id": "t", "store": "kv",
            "writes": [{ "op": "put", "key": "a", "value": lsn }] })
    };
    let service = Service::start(move |_, before| {
        let event = json!({ "event": "heartbeat", "log": LOG, "next": "4", "head_lsn": "8" });
        let lsns: &[u64] = if before == 0 { &[5, 6] } else { &[8] };
        Reply::Lines([event].into_iter().chain(lsns.iter().map(|lsn| record(*lsn))).collect())
    })
    .await;
    let mut log = service.client().log("kv", Lsn(4));
    for lsn in [5, 6] {
        assert_eq!(log.next().await.expect("a record").map(|record| record.lsn), Some(Lsn(lsn)));
    }
    assert_eq!((log.offset(), log.head()), (Lsn(6), Lsn(8)));
    let gap = log.next().await;
    assert!(matches!(gap, Err(Error::ServerMisbehaved(_))), "{gap:?}");
    assert!(!service.asked("log")[0].1.contains("log="), "no log is known at first");
    let second = &service.asked("log")[1].1;
    assert!(second.contains("after=6") && second.contains(&format!("log={LOG}")), "{second}");
}
