//! The client against a service that is newer: names that it does not know must not hide what is certain.

#[path = "support/scripted.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod scripted;

use scripted::{Reply, Service, begun, committed};
use serde_json::{Value, json};
use tribunal_client::{Aborted, BeginOptions, Client, Error, IsolationLevel, Outcome, PreparedCommit, Transaction};

/// A verdict with names that this client does not know.
fn aborted_as_never_before() -> Value {
    let conflict = json!({ "store": "kv", "key": "a", "op": "lease", "stage": "negotiate", "holder": "x" });
    json!({ "status": "aborted", "txn_id": "txn-0", "epoch": "9", "reason": "lease_lost", "retryable": true,
        "retry_after_ms": 3, "conflicts": [conflict], "advice": { "wait": true } })
}

fn check_aborted(outcome: &Result<Outcome, Error>) {
    let Ok(Outcome::Aborted(aborted)) = outcome else { panic!("it aborted: {outcome:?}") };
    let Aborted { reason, retryable, retry_after, conflicts, .. } = &**aborted;
    assert_eq!((reason.as_str(), *retryable, retry_after.as_millis()), ("lease_lost", true, 3));
    let [conflict] = &conflicts[..] else { panic!("one conflict: {conflicts:?}") };
    assert_eq!((conflict.op.as_str(), conflict.stage.as_str(), &conflict.key[..]), ("lease", "negotiate", &b"a"[..]));
}

fn prepared(client: &Client) -> PreparedCommit {
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    txn.put("kv", "a", &1).expect("a value");
    txn.prepare()
}

#[tokio::test]
async fn a_transaction_that_aborts_for_an_unknown_reason_has_aborted() {
    let service = Service::start(|kind, _| match kind {
        "batch" => Reply::Json(200, json!({ "results": [aborted_as_never_before(), aborted_as_never_before()] })),
        "stream" => Reply::Lost,
        _ => Reply::Json(200, aborted_as_never_before()),
    })
    .await;
    let client = service.client();
    check_aborted(&client.commit(&prepared(&client)).await);
    for outcome in client.batch(&[prepared(&client), prepared(&client)]).await.expect("two results") {
        check_aborted(&outcome);
    }
    check_aborted(&client.abort("txn-0").await);
    let status = client.status("txn-0", false, 0).await.expect("a status");
    let tribunal_client::TxnStatus::Decided(outcome) = status else { panic!("it has its verdict: {status:?}") };
    check_aborted(&Ok(outcome));
}

#[tokio::test]
async fn run_repeats_after_an_unknown_reason_if_the_service_says_that_it_may_help() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        ("commit", 0) => Reply::Json(200, aborted_as_never_before()),
        _ => committed(),
    })
    .await;
    let put = async |txn: &mut Transaction| txn.put("kv", "a", &1);
    service.client().run(BeginOptions::stores(["kv"]), put).await.expect("the second attempt commits");
    assert_eq!(service.asked("commit").len(), 2);
}

#[tokio::test]
async fn an_unknown_status_is_named_and_the_outcome_unknown() {
    let service = Service::start(|kind, _| {
        let parked = json!({ "status": "parked", "txn_id": "txn-0" });
        let results = || json!({ "results": [parked, { "status": "committed", "txn_id": "x", "epoch": "9" }] });
        Reply::Json(200, if kind == "batch" { results() } else { parked })
    })
    .await;
    let client = service.client();
    let mut outcomes = client.batch(&[prepared(&client), prepared(&client)]).await.expect("two results");
    assert!(matches!(outcomes.pop(), Some(Ok(Outcome::Committed(_)))), "the other one is as certain as ever");
    outcomes.push(client.commit(&prepared(&client)).await);
    for outcome in outcomes {
        let Err(unknown @ Error::OutcomeUnknown { .. }) = outcome else { panic!("nobody knows: {outcome:?}") };
        let text = unknown.to_string();
        assert!(text.contains("`parked`") && text.contains("older than the server"), "{text}");
    }
    assert!(service.asked("status").len() <= 2, "asking again does not help");
    let status = client.status("txn-0", false, 0).await;
    let Err(Error::ServerMisbehaved(text)) = status else { panic!("no status: {status:?}") };
    assert!(text.contains("`parked`") && text.contains("older than the server"), "{text}");
}
