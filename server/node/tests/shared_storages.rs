//! No two stores get one storage: declared one after the other, at the same time, in two namespaces, or attached again.

mod support;

use std::sync::Barrier;

use serde_json::{Value, json};
use support::keyed::{AUTH, call, make_key, operator, serve};
use support::{Node, Response, eventually, noise};

/// Nothing listens here, which a declaration does not need.
const NOWHERE: &str = "127.0.0.1:1";

fn declare(node: &Node, store: &str, config: &Value) -> Response {
    node.put(&format!("/v1/stores/{store}"), &json!({"adaptor": "redis", "adaptor_config": config}))
}

fn refused(answer: &Response) -> &str {
    assert_eq!((answer.status, &answer.body["code"]), (422, &json!("storage_in_use")), "{}", answer.body);
    answer.body["errors"][0]["detail"].as_str().or(answer.body["detail"].as_str()).expect("a reason")
}

#[test]
fn a_storage_is_given_to_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let first = json!({"endpoint": NOWHERE, "prefix": "tribunal:"});
    assert_eq!(declare(&node, "a", &first).status, 201);
    assert_eq!(declare(&node, "a", &first).status, 200, "it has it already");
    // The prefix is the default one, and which user logs in makes no other storage.
    for same in [first.clone(), json!({"endpoint": NOWHERE}), json!({"user": "u", "endpoint": NOWHERE})] {
        let reason = declare(&node, "b", &same);
        let reason = refused(&reason);
        assert!(reason.contains("store 'a' already fills") && reason.contains("of its own"), "{reason}");
    }
    assert_eq!(node.get("/v1/stores/b").status, 404, "nothing was declared");
    for own in [json!({"endpoint": NOWHERE, "prefix": "b:"}), json!({"endpoint": "127.0.0.1:2"})] {
        assert!(declare(&node, "b", &own).status < 300, "{own}");
    }
    refused(&declare(&node, "b", &first));
    // Once the first store has another storage, this one is free.
    assert_eq!(node.put("/v1/stores/a", &json!({"log_only": true})).status, 200);
    assert_eq!(declare(&node, "b", &first).status, 200);
    refused(&declare(&node, "a", &first));
}

#[test]
fn a_tenant_keeps_no_other_one_from_a_storage() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let [shop, bank] = ["shop", "bank"].map(|tenant| make_key(&node, &root, tenant, &["store", "operator"]));
    let store = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "storage.example:6379"}});
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/orders", Some(&store)).status, 201);
    // The first store has never reached its storage; and if both reach it, the storage itself knows whose it is.
    assert_eq!(call(&node, &bank, "PUT", "/v1/stores/accounts", Some(&store)).status, 201);
    let again = call(&node, &bank, "PUT", "/v1/stores/others", Some(&store));
    assert!(refused(&again).contains("store 'accounts' already fills"), "{}", again.body);
}

#[test]
fn of_two_stores_declared_at_once_one_gets_the_storage() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for round in 0..10 {
        let both = Barrier::new(2);
        let config = json!({"endpoint": NOWHERE, "prefix": format!("r{round}:")});
        let names = ["a", "b"].map(|name| format!("{name}{round}"));
        let answers = std::thread::scope(|scope| {
            let calls = names.each_ref().map(|name| {
                scope.spawn(|| {
                    both.wait();
                    declare(&node, name, &config)
                })
            });
            calls.map(|call| call.join().expect("an answer"))
        });
        let (given, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
        assert_eq!(given.len(), 1, "round {round}");
        refused(others[0]);
        let pushed = names.iter().filter(|name| {
            let store = node.get(&format!("/v1/stores/{name}"));
            store.status == 200 && store.body["push"]["state"] != "detached"
        });
        assert_eq!(pushed.count(), 1, "round {round}");
    }
}

#[test]
fn a_detached_store_is_not_attached_to_the_storage_of_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tribunal.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[log]\nretention_bytes = 1048576\nimage_every_bytes = 1048576\n\
         [push]\ndetach_after_bytes = 4194304\n",
        dir.path().join("data")
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    let storage = json!({"endpoint": NOWHERE});
    assert_eq!(declare(&node, "a", &storage).status, 201);
    let mut n = 0;
    eventually("the store to be detached", || {
        n += 1;
        let write = json!({"op": "put", "store": "a", "key": format!("k{n}"), "value": noise(n, 300_000)});
        assert_eq!(node.commit(&json!({"writes": [write]})).status, 200);
        (node.get("/v1/stores/a").body["push"]["state"] == "detached").then_some(())
    });
    assert_eq!(declare(&node, "b", &storage).status, 201, "nothing is pushed to it now");
    let attached = node.post("/v1/stores/a/push/attach", &json!({}));
    assert!(refused(&attached).contains("store 'b' already fills"), "{}", attached.body);
}
