//! State images, against a service that streams by a script, and as copies of a live store.

#[path = "support/log_service.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod log_service;
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use log_service::{LOG, Script, Service, problem};
use serde_json::json;
use support::Server;
use tribunal_client::{
    Client, Error, IsolationLevel, LogWrite, Lsn, Outcome, StateImage, StateKind, StoreDeclaration, WriteOp,
};

const TIMEOUT: Duration = Duration::from_secs(20);

fn head() -> String {
    format!("{}\n", json!({ "event": "state", "store": "kv", "kind": "rows", "log": LOG, "lsn": "7", "detail": "x" }))
}

fn rows() -> String {
    let first = r#"{"key":"a","value":{"n": 1.50},"version":"8"}"#;
    let later = r#"{"event":"later"}"#;
    let second = r#"{"key_b64":"/w==","value_b64":"AAE=","version":"9437184"}"#;
    format!("{first}\n{later}\n{second}\n")
}

fn end() -> String {
    format!("{}\n", json!({ "event": "end", "rows": "2" }))
}

async fn keys(image: &mut StateImage) -> Result<Vec<Vec<u8>>, Error> {
    let mut keys = Vec::new();
    while let Some(row) = image.next().await? {
        keys.push(row.key);
    }
    Ok(keys)
}

/// Reads a state from a service with a script.
async fn read(scripts: impl IntoIterator<Item = Script>) -> Result<Vec<Vec<u8>>, Error> {
    let service = Service::start(scripts).await;
    let mut image = service.client(3, TIMEOUT).state("kv").await?;
    assert_eq!((image.store(), image.kind(), image.lsn()), ("kv", StateKind::Rows, Lsn(7)));
    assert_eq!(image.log_id().to_string(), LOG);
    let found = keys(&mut image).await;
    match &found {
        Ok(_) => assert_eq!(image.next().await.expect("its end"), None),
        Err(_) => assert!(matches!(image.next().await, Err(Error::Misuse(_))), "rows are missing: it has no end"),
    }
    found
}

#[tokio::test]
async fn a_state_is_whole_however_it_is_cut_into_pieces() {
    let text = head() + &rows() + &end();
    let pieces = text.as_bytes().chunks(11).map(|piece| String::from_utf8(piece.to_vec()).expect("ASCII")).collect();
    let broken = Script::Break(vec![head()[..20].to_owned()]);
    let found = read([Script::Refuse(503, "overloaded"), broken, Script::Stream(pieces)]).await;
    assert_eq!(found.expect("all rows"), [&b"a"[..], b"\xff"]);
    let asked = Service::start([Script::Stream(vec![head() + &rows() + &end()])]).await;
    let mut image = asked.client(1, TIMEOUT).state("k v").await.expect("a state");
    assert!(asked.asked()[0].starts_with("get /v1/stores/k%20v/state http"), "{:?}", asked.asked());
    let first = image.next().await.expect("a row").expect("a row");
    assert_eq!((first.value.get(), first.version.bits()), (r#"{"n": 1.50}"#, 8));
    let second = image.next().await.expect("a row").expect("a row");
    assert_eq!(second.value.get(), r#"{"$b64":"AAE="}"#);
}

#[tokio::test]
async fn a_state_that_is_cut_short_is_an_error() {
    let failed = json!({ "event": "failed", "problem": problem(503, "unavailable") });
    for script in [
        Script::Stream(vec![head() + &rows()]),
        Script::Break(vec![head() + &rows()]),
        Script::Stream(vec![head() + &rows()[..40]]),
        Script::Stream(vec![head() + &rows() + &format!("{failed}\n")]),
    ] {
        let found = read([script]).await;
        assert!(matches!(&found, Err(Error::Unavailable { .. })), "{found:?}");
    }
    let failed = "{\"event\":\"failed\"}\n".to_owned();
    let uncounted = "{\"event\":\"end\"}\n".to_owned();
    for text in [
        head() + &end(),
        head() + &rows() + &uncounted,
        head() + "x\n",
        head() + "{}\n",
        head() + "{\"key\":\"a\",\"value\":1}\n",
        head() + &failed,
        rows() + &end(),
        "{}\n".to_owned(),
    ] {
        let found = read([Script::Stream(vec![text.clone()])]).await;
        assert!(matches!(&found, Err(Error::ServerMisbehaved(_))), "{text}: {found:?}");
    }
    let found = read([Script::Refuse(410, "log_truncated")]).await;
    assert!(matches!(&found, Err(Error::ClientMistake(problem)) if problem.code == "log_truncated"), "{found:?}");
}

#[tokio::test]
async fn a_state_is_requested_for_as_long_as_the_timeout() {
    let silent = || Script::Stay(Vec::new());
    let service = Service::start([silent(), silent()]).await;
    let state = service.client(50, Duration::from_millis(300)).state("kv").await;
    assert!(matches!(state, Err(Error::Unavailable { .. })));
    assert_eq!(service.asked().len(), 1);
}

#[tokio::test]
async fn dropped_futures_lose_no_row_and_a_dropped_image_ends_its_stream() {
    let text = head() + &rows();
    let pieces = text.as_bytes().chunks(9).map(|piece| String::from_utf8(piece.to_vec()).expect("ASCII")).collect();
    let service = Service::start([Script::Stay(pieces)]).await;
    let mut image = service.client(1, TIMEOUT).state("kv").await.expect("a state");
    let mut found = Vec::new();
    while found.len() < 2 {
        if let Ok(row) = tokio::time::timeout(Duration::from_micros(300), image.next()).await {
            found.push(row.expect("a row").expect("a row").key);
        }
    }
    assert_eq!(found, [&b"a"[..], b"\xff"]);
    drop(image);
    while service.left.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Applies a record of the log to a copy.
fn apply(copy: &mut BTreeMap<Vec<u8>, String>, write: LogWrite) {
    let value = write.value.map(|value| value.get().to_owned());
    match (write.op, value) {
        (WriteOp::Delete, _) => drop(copy.remove(&write.key)),
        (WriteOp::Add, Some(delta)) => {
            let before: i64 = copy.get(&write.key).map_or(0, |value| value.parse().expect("a number"));
            copy.insert(write.key, (before + delta.parse::<i64>().expect("a number")).to_string());
        }
        (_, value) => drop(copy.insert(write.key, value.expect("a value"))),
    }
}

/// Commits to some rows of a store.
async fn write_all(client: Client) {
    for n in 0..150 {
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        txn.put("copied", format!("row/{}/{n}", n % 20), &n).expect("a number");
        txn.add("copied", format!("n/{}", n % 20), n).expect("a number");
        match n % 3 {
            0 => txn.put("copied", format!("deleted/{n}"), &1).expect("a number"),
            1 => txn.delete("copied", format!("deleted/{}", n - 1)).expect("a write"),
            _ => {}
        }
        let outcome = txn.commit().await.expect("a verdict");
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_copy_from_the_state_and_the_log_is_that_of_the_store() {
    let Some(server) = Server::start("state") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let embedded = StoreDeclaration { adaptor: Some("kv".to_owned()), ..StoreDeclaration::default() };
    client.declare_store("copied", &embedded).await.expect("declared");
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    for n in 0..2_000 {
        txn.put("copied", format!("row/{}/{n}", n % 20), &json!("first")).expect("JSON");
    }
    for n in 0..20 {
        txn.put("copied", format!("n/{n}"), &0).expect("a number");
    }
    assert!(matches!(txn.commit().await, Ok(Outcome::Committed(_))));
    let writing = tokio::spawn(write_all(client.clone()));
    let mut image = client.state("copied").await.expect("a state");
    let mut copy = BTreeMap::new();
    while let Some(row) = image.next().await.expect("a row") {
        assert!(copy.insert(row.key, row.value.get().to_owned()).is_none(), "each row once");
    }
    writing.await.expect("no panic");
    let mut log = client.log("copied", image.lsn()).of_log(image.log_id()).wait_ms(0);
    while let Some(record) = log.next().await.expect("an answer") {
        assert_eq!(record.store, "copied");
        record.writes.into_iter().for_each(|write| apply(&mut copy, write));
    }
    assert_eq!(log.offset(), Lsn(151));
    let page = client.rows("copied", "", "", 10_000).await.expect("rows");
    let stored: BTreeMap<_, _> = page.rows.into_iter().map(|row| (row.key, row.value.to_string())).collect();
    assert!(!page.more && stored.len() > 2_000);
    assert_eq!(copy, stored);
    let unknown = client.state("none").await.map(|image| image.lsn());
    assert!(matches!(&unknown, Err(Error::ClientMistake(problem)) if problem.code == "unknown_store"), "{unknown:?}");
}
