//! One client on several runtimes, of which some do not run.

#[path = "support/scripted.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod scripted;

use std::time::Duration;

use scripted::{Reply, Service, begun, committed};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tribunal_client::{BeginOptions, Client, Error, IsolationLevel};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Begins, reads and commits, within half a minute.
async fn transact(client: &Client) -> Result<(), Error> {
    let mut txn = client.begin(BeginOptions::stores(["kv"])).await?;
    txn.get("kv", "b").await?;
    txn.put("kv", "a", &1)?;
    txn.commit().await?;
    let mut read = client.begin_local(IsolationLevel::Serializable);
    read.observe("kv", "a", None);
    read.commit().await.map(drop)
}

#[test]
fn a_runtime_that_does_not_run_holds_up_no_other() {
    let serving = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let row = json!({ "store": "kv", "key": "b", "value": 1, "version": "8388608" });
    let service = serving.block_on(Service::start(move |kind, before| match kind {
        "begin" => begun(before),
        "rows" => Reply::Json(200, json!({ "applied": "9", "rows": [row] })),
        _ => committed(),
    }));
    let client = service.client();
    // The first ones still exist, but nothing runs their tasks and connections.
    let runtimes: Vec<Runtime> = (0..4).map(|_| current_thread()).collect();
    for (n, runtime) in runtimes.iter().chain(&runtimes).enumerate() {
        let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), transact(&client)).await });
        done.expect("it ends").unwrap_or_else(|error| panic!("turn {n}: {error}"));
    }
    assert!(service.asked("status").is_empty(), "no reply was lost");
    drop(runtimes);
    current_thread().block_on(transact(&client)).expect("commits after their end");
}
