//! Stores whose storage is a real Redis that dies, rejects a record or is replaced: detached by quota and reattached,
//! skipped records, redeclared stores, and the responses that clients get meanwhile.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::redis::Redis;
use support::{Node, eventually, new_id, noise};

/// Starts a node whose log retains little, and which detaches a store that holds back more than `quota` bytes.
fn serve(dir: &Path, retention: u64, quota: u64) -> Node {
    let config = dir.join("tribunal.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[log]\nretention_bytes = {retention}\nimage_every_bytes = 1048576\n\
         [push]\ndetach_after_bytes = {quota}\n",
        dir.join("data")
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

/// Starts a node that logs in at `redis` as this user with this password.
fn serve_with_login(dir: &Path, redis: &Redis, user: &str, password: &str) -> Node {
    write_password(dir, password);
    let config = dir.join("tribunal.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[push]\ncredentials = [{{ endpoint = \"{}\", protocol = \"redis\", \
         user = \"{user}\", password_file = {:?} }}]\n",
        dir.join("data"),
        redis.endpoint(),
        dir.join("password")
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

fn write_password(dir: &Path, password: &str) {
    std::fs::write(dir.join("password"), format!("{password}\n")).expect("the directory is ours");
}

#[test]
fn a_store_whose_log_was_truncated_is_not_made_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tribunal.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[log]\nretention_hours = 0\nretention_bytes = 1048576\n\
         image_every_bytes = 1048576\n",
        dir.path().join("data")
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    assert_eq!(node.put("/v1/stores/kv", &json!({})).status, 201);
    assert_eq!(node.put("/v1/stores/other", &json!({"adaptor": "kv"})).status, 201);
    put(&node, "kv", "a", json!(1));
    let first_segment = dir.path().join("data/log/segments/log-0000000000000000");
    assert!(first_segment.exists());
    eventually("the log to be truncated", || {
        (0..10).for_each(|n| drop(put(&node, "other", &format!("big/{n}"), noise(n, 200_000))));
        (!first_segment.exists()).then_some(())
    });
    // The node still has the record in memory: it would fill the store, and a kill would lose it.
    assert_eq!(node.get("/v1/log?store=kv&after=0&limit=1").status, 200);
    let refused = node.put("/v1/stores/kv", &json!({"adaptor": "kv"}));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("records_truncated")), "{}", refused.body);
    assert_eq!(store(&node, "kv")["adaptor"], Value::Null, "nothing has changed");
    put(&node, "kv", "b", json!(2));
}

fn declare_redis(node: &Node, redis: &Redis) -> u16 {
    let config = json!({"endpoint": redis.endpoint(), "prefix": "r/"});
    node.put("/v1/stores/r", &json!({"adaptor": "redis", "adaptor_config": config})).status
}

fn store(node: &Node, name: &str) -> Value {
    node.get(&format!("/v1/stores/{name}")).body
}

fn put(node: &Node, store: &str, key: &str, value: Value) -> Value {
    let answer = node.commit(&json!({"writes": [{"op": "put", "store": store, "key": key, "value": value}]}));
    assert_eq!(answer.body["status"], "committed", "{}", answer.body);
    answer.body
}

fn put_applied(node: &Node, store: &str, key: &str, value: Value) -> Value {
    let writes = json!([{"op": "put", "store": store, "key": key, "value": value}]);
    node.commit(&json!({"ack": "applied", "writes": writes})).body
}

/// Returns the LSN up to which Redis has applied the log.
fn watermark(redis: &Redis) -> String {
    let mark = redis.call(&["GET", "#watermark:r/"]);
    mark.rsplit(' ').next().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is no decimal string"))
}

/// Writes to the store until it is detached; returns the last number written.
fn write_until_detached(node: &Node) -> u64 {
    let is_detached = || store(node, "r")["push"]["state"] == "detached";
    let mut last = 0;
    for n in 0..400 {
        last = number(&put(node, "r", &format!("k{n}"), noise(n, 300_000))["lsn"]["r"]);
        if is_detached() {
            break;
        }
    }
    eventually("120 MB to be too much", || is_detached().then_some(last))
}

#[test]
fn a_storage_that_stays_dead_is_detached_and_the_log_continues() {
    let Some(mut redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 20, 4 << 20);
    assert_eq!(declare_redis(&node, &redis), 201);
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    assert_eq!(put_applied(&node, "r", "first", json!(1))["applied"], true);
    let push = &store(&node, "r")["push"];
    assert_eq!((&push["state"], &push["durability"]), (&json!("running"), &json!("always")), "{push}");

    redis.kill();
    write_until_detached(&node);
    let error = store(&node, "r")["push"]["last_error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("4194304 bytes") && error.contains("attach"), "says why and what to do: {error}");
    assert_eq!(store(&node, "r")["acked_lsn"], "1");
    assert!(
        node.get("/metrics")
            .body
            .as_str()
            .unwrap()
            .contains("tribunal_store_detached{namespace=\"default\",store=\"r\"} 1")
    );
    assert!(
        node.get("/metrics")
            .body
            .as_str()
            .unwrap()
            .contains("tribunal_store_detached{namespace=\"default\",store=\"kv\"} 0")
    );

    // The log is as short as it would be without the store.
    let mut n = 1000;
    eventually("the log to be truncated", || {
        n += 1;
        put(&node, "kv", &format!("k{n}"), noise(n, 300_000));
        let oldest = node.get("/v1/log?store=r&after=1&limit=1").body["oldest"].clone();
        (number(&oldest) > 2).then_some(())
    });
    // No other client is affected.
    assert_eq!(put_applied(&node, "kv", "seen", json!(1))["applied"], true);
    let begun = node.post("/v1/txns", &json!({}));
    assert_eq!(begun.status, 201, "{}", begun.body);
    assert!(begun.body["snapshots"]["r"].is_null() && begun.body["snapshots"]["kv"].is_string(), "{}", begun.body);
    let named = node.post("/v1/txns", &json!({"stores": ["r"]}));
    assert_eq!((named.status, &named.body["code"]), (503, &json!("store_detached")), "{}", named.body);
    // Commits are decided as usual, but not applied.
    assert_eq!(put_applied(&node, "r", "more", json!(1))["applied"], false);
    let resumed = node.post("/v1/stores/r/push/resume", &json!({}));
    assert_eq!((resumed.status, &resumed.body["code"]), (422, &json!("store_detached")));

    assert!(node.stop().success());
    let node = serve(dir.path(), 1 << 20, 4 << 20);
    assert_eq!(store(&node, "r")["push"]["state"], "detached", "a restart changes nothing");
    assert_eq!(store(&node, "r")["acked_lsn"], "1");
    assert_eq!(declare_redis(&node, &redis), 200, "the same declaration again changes nothing");
    assert_eq!(store(&node, "r")["push"]["state"], "detached");

    let dead = node.post("/v1/stores/r/push/attach", &json!({}));
    assert_eq!(dead.status, 503, "{}", dead.body);
    redis.restart();
    let lagging = node.post("/v1/stores/r/push/attach", &json!({}));
    assert_eq!((lagging.status, &lagging.body["code"]), (422, &json!("storage_behind_log")), "{}", lagging.body);
    assert_eq!(watermark(&redis), "1", "a refusal moves nothing");
    let head = number(&store(&node, "r")["head_lsn"]);
    let beyond = node.post("/v1/stores/r/push/attach", &json!({"loaded_lsn": (head + 1).to_string()}));
    assert_eq!((beyond.status, &beyond.body["code"]), (422, &json!("loaded_lsn_impossible")), "{}", beyond.body);
    // An operator has loaded it from elsewhere.
    let attached = node.post("/v1/stores/r/push/attach", &json!({"loaded_lsn": head.to_string()}));
    assert_eq!(attached.status, 200, "{}", attached.body);
    assert_eq!(put_applied(&node, "r", "back", json!("again"))["applied"], true, "{}", store(&node, "r"));
    assert!(redis.call(&["GET", "r/back"]).ends_with(" \"again\""));
    assert_eq!(watermark(&redis), (head + 1).to_string());
    let twice = node.post("/v1/stores/r/push/attach", &json!({}));
    assert_eq!((twice.status, &twice.body["code"]), (422, &json!("not_detached")));

    assert!(node.stop().success());
    let node = serve(dir.path(), 1 << 20, 4 << 20);
    assert_eq!(store(&node, "r")["push"]["state"], "running");
    assert_eq!(put_applied(&node, "r", "still", json!(1))["applied"], true);
}

#[test]
fn a_push_whose_records_are_gone_is_attached_where_its_storage_was_loaded() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    // The log retains little, and no store is detached for holding back more.
    let node = serve(dir.path(), 1 << 20, 1 << 30);
    assert_eq!(declare_redis(&node, &redis), 201);
    let attach = |body: Value| {
        let answer = node.post("/v1/stores/r/push/attach", &body);
        (answer.status, answer.body["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(put_applied(&node, "r", "first", json!(1))["applied"], true);
    assert_eq!(attach(json!({})), (422, "not_detached".to_owned()), "its push runs");
    let mut n = 0;
    eventually("the log to be truncated", || {
        n += 1;
        put_applied(&node, "r", &format!("k{n}"), noise(n, 300_000));
        let page = node.get("/v1/log?store=r&after=0&limit=1");
        (page.status == 410).then_some(())
    });

    // An operator replaces the storage with an empty one.
    redis.call(&["FLUSHALL"]);
    put(&node, "r", "after", json!(1));
    let error = eventually("the push to stop", || {
        let push = store(&node, "r")["push"].clone();
        (push["state"] == "stopped").then(|| push["last_error"].as_str().unwrap_or_default().to_owned())
    });
    assert!(error.contains("no longer has") && error.contains("loaded_lsn"), "{error}");
    assert_eq!(attach(json!({})), (422, "storage_behind_log".to_owned()));
    // The stopped store alone holds the log back.
    for n in 1000..1016 {
        put(&node, "r", &format!("k{n}"), noise(n, 300_000));
    }
    let head = number(&store(&node, "r")["head_lsn"]);
    assert_eq!(attach(json!({"loaded_lsn": (head + 1).to_string()})), (422, "loaded_lsn_impossible".to_owned()));
    assert_eq!(store(&node, "r")["push"]["state"], "stopped", "a refusal changes nothing");
    // It was loaded with everything that the log no longer has: everything else is pushed.
    let oldest = number(&node.get("/v1/log?store=r&after=0&limit=1").body["oldest"]);
    let loaded = (oldest - 1).to_string();
    let words = ["store", "attach", "r", "--loaded-lsn", &loaded, "--url", &node.url];
    let done = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(words).output().expect("the binary runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(put_applied(&node, "r", "last", json!(2))["applied"], true, "{}", store(&node, "r"));
    for (key, value) in [("after", " 1"), ("last", " 2")] {
        assert!(redis.call(&["GET", &format!("r/{key}")]).ends_with(value), "{key}");
    }
    assert_eq!(redis.call(&["GET", "r/first"]), "nil", "records up to the position are not pushed");
    assert_eq!(watermark(&redis), (head + 1).to_string());

    assert!(node.stop().success());
    let node = serve(dir.path(), 1 << 20, 1 << 30);
    assert_eq!(put_applied(&node, "r", "still", json!(1))["applied"], true, "{}", store(&node, "r"));
}

#[test]
fn a_storage_that_comes_back_in_time_loses_nothing() {
    let Some(mut redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 40, 2 << 20);
    declare_redis(&node, &redis);
    assert_eq!(put_applied(&node, "r", "first", json!(1))["applied"], true);
    redis.kill();
    write_until_detached(&node);
    redis.restart();
    let attached = node.post("/v1/stores/r/push/attach", &json!({}));
    assert_eq!(attached.status, 200, "{}", attached.body);
    assert_eq!(put_applied(&node, "r", "last", json!(1))["applied"], true);
    for record in node.log_of("r") {
        let key = record["writes"][0]["key"].as_str().unwrap();
        let row = redis.call(&["GET", &format!("r/{key}")]);
        assert!(row.starts_with(record["version"].as_str().unwrap()), "row {key} is not as in the log");
    }
}

#[test]
fn a_record_that_a_storage_can_never_take_stops_its_push_alone_and_can_be_skipped() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    declare_redis(&node, &redis);
    node.put("/v1/stores/kv", &json!({"adaptor": "kv"}));
    assert_eq!(put_applied(&node, "r", "n", json!(5))["applied"], true);
    // Change the row in Redis directly, so that an `add` to it fails.
    redis.call(&["DEL", "r/n"]);
    redis.call(&["LPUSH", "r/n", "x"]);
    let skip = |lsn: u64| node.post("/v1/stores/r/push/skip", &json!({"lsn": lsn.to_string()}));
    assert_eq!(skip(1).body["code"], "not_stopped_there");
    let add = json!({"writes": [{"op": "add", "store": "r", "key": "n", "value": 1}]});
    assert_eq!(node.commit(&add).body["lsn"]["r"], "2");
    put(&node, "r", "after", json!(1));
    let push = eventually("the push to stop", || {
        let push = store(&node, "r")["push"].clone();
        (push["state"] == "stopped").then_some(push)
    });
    assert_eq!(push["stopped_at_lsn"], "2", "{push}");
    assert!(push["last_error"].as_str().unwrap().contains("WRONGTYPE"), "{push}");
    assert_eq!(put_applied(&node, "kv", "other", json!(1))["applied"], true, "other stores go on");

    assert_eq!(node.post("/v1/stores/r/push/resume", &json!({})).status, 200);
    eventually("it to stop there again", || (store(&node, "r")["push"]["stopped_at_lsn"] == "2").then_some(()));
    assert_eq!((skip(3).status, skip(3).body["code"].as_str()), (422, Some("not_stopped_there")));
    let command = |words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(words).args(["--url", &node.url]).output();
        let done = done.expect("the binary runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    // It may be about to retry, and is not stopped then.
    eventually("the record to be skipped", || {
        let words = ["store", "skip", "r", "--lsn", "2", "--url", &node.url];
        let done = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(words).output().expect("the binary runs");
        done.status.success().then_some(())
    });
    eventually("the record after it", || redis.call(&["GET", "r/after"]).ends_with(" 1").then_some(()));
    assert_eq!(watermark(&redis), "3");
    assert!(command(&["store", "ls"]).contains("always"));

    assert!(node.stop().success());
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    let skips = node.get("/v1/stores/r/push/skips").body["skips"].clone();
    assert_eq!((skips.as_array().map(Vec::len), &skips[0]["lsn"]), (Some(1), &json!("2")), "{skips}");
    assert!(skips[0]["reason"].as_str().unwrap().contains("WRONGTYPE"), "{skips}");
    let listed =
        Command::new(env!("CARGO_BIN_EXE_tribunal")).args(["store", "skips", "r", "--url", &node.url]).output();
    assert!(String::from_utf8_lossy(&listed.unwrap().stdout).starts_with("LSN 2 at "));
    assert_eq!(node.log_of("r").len(), 3, "it stays in the log");
}

/// The quickstart's Begin names no store.
#[test]
fn a_storage_that_is_away_or_stopped_holds_up_no_begin_that_names_no_store() {
    let Some(mut redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    declare_redis(&node, &redis);
    node.put("/v1/stores/kv", &json!({"adaptor": "kv"}));
    put_applied(&node, "kv", "a", json!(1));
    put_applied(&node, "r", "n", json!(5));
    // A record that the storage can never take.
    redis.call(&["DEL", "r/n"]);
    redis.call(&["LPUSH", "r/n", "x"]);
    let add = json!({"writes": [{"op": "add", "store": "r", "key": "n", "value": 1}]});
    assert_eq!(node.commit(&add).body["status"], "committed");
    let snapshots = |node: &Node| {
        let begun = node.post("/v1/txns", &json!({"read": [{"store": "kv", "key": "a"}]}));
        (begun.status == 201).then(|| begun.body["snapshots"].clone())
    };
    assert!(node.stop().success());
    // Nothing has asked for the age of its records before.
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    let begun = eventually("a snapshot of both stores", || snapshots(&node).filter(|all| all["r"].is_string()));
    assert!(begun["kv"].is_string(), "{begun}");
    assert!(node.stop().success());

    redis.kill();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    let begun = eventually("a snapshot of the other store", || snapshots(&node));
    assert!(begun["kv"].is_string() && begun["r"].is_null(), "{begun}");
    let named = node.post("/v1/txns", &json!({"stores": ["kv", "r"]}));
    assert_eq!((named.status, &named.body["code"]), (503, &json!("store_lagging")), "{}", named.body);
    redis.restart();
    eventually("a snapshot of both stores", || snapshots(&node).filter(|all| all["r"].is_string()));
}

#[test]
fn two_stores_with_the_same_prefix_are_told_apart() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    declare_redis(&node, &redis);
    let declare = |prefix: &str| {
        let config = json!({"endpoint": redis.endpoint(), "prefix": prefix});
        let answer = node.put("/v1/stores/s", &json!({"adaptor": "redis", "adaptor_config": config}));
        assert!(matches!(answer.status, 200 | 201), "{}", answer.body);
    };
    for n in 0..5 {
        assert_eq!(put_applied(&node, "r", "k", json!(n))["applied"], true);
    }
    let config = json!({"endpoint": redis.endpoint(), "prefix": "r/"});
    let refused = node.put("/v1/stores/s", &json!({"adaptor": "redis", "adaptor_config": config}));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("storage_in_use")), "{}", refused.body);
    // The rows still belong to the first store after it has given them up.
    assert_eq!(node.put("/v1/stores/r", &json!({"log_only": true})).status, 200);
    declare("r/");
    for n in 0..7 {
        put(&node, "s", "k", json!(100 + n));
    }
    let error = eventually("the push of the second store to stop", || {
        let push = store(&node, "s")["push"].clone();
        (push["state"] == "stopped").then(|| push["last_error"].as_str().unwrap_or_default().to_owned())
    });
    assert!(error.contains("`r#") && error.contains("`s#") && error.contains("`prefix` of its own"), "{error}");
    assert_eq!(watermark(&redis), "5");
    declare("s/");
    assert_eq!(declare_redis(&node, &redis), 200);
    assert_eq!(put_applied(&node, "r", "k", json!(5))["applied"], true);
    assert!(redis.call(&["GET", "r/k"]).ends_with(" 5"));
    assert_eq!(watermark(&redis), "6");
    assert_eq!(put_applied(&node, "s", "k", json!(107))["applied"], true, "{}", store(&node, "s"));
    assert!(redis.call(&["GET", "s/k"]).ends_with(" 107") && redis.call(&["GET", "r/k"]).ends_with(" 5"));
}

#[test]
fn a_storage_stopped_by_its_operator_is_resumed() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    declare_redis(&node, &redis);
    assert_eq!(put_applied(&node, "r", "a", json!(1))["applied"], true);
    redis.call(&["DEL", "r/a"]);
    redis.call(&["LPUSH", "r/a", "x"]);
    node.commit(&json!({"writes": [{"op": "add", "store": "r", "key": "a", "value": 1}]}));
    eventually("the push to stop", || (store(&node, "r")["push"]["state"] == "stopped").then_some(()));
    let ready = node.get("/readyz");
    assert_eq!((ready.status, &ready.body["ready"]), (200, &json!(true)), "commits do not wait for it");
    assert!(ready.body["reasons"].to_string().contains("the push to store `r` is stopped"), "{}", ready.body);
    let metrics = || node.get("/metrics").body.as_str().unwrap().to_owned();
    for (state, value) in [("stopped", 1), ("running", 0)] {
        let line = format!("tribunal_store_push_state{{namespace=\"default\",store=\"r\",state=\"{state}\"}} {value}");
        assert!(metrics().contains(&line), "{line} is missing:\n{}", metrics());
    }
    eventually("the lag in seconds", || {
        let lag = "tribunal_store_push_lag_seconds{namespace=\"default\",store=\"r\"} ";
        metrics().lines().find_map(|line| line.strip_prefix(lag)?.parse::<f64>().ok()).filter(|lag| *lag > 0.0)
    });
    // The owner repairs the row; no record needs to be skipped.
    redis.call(&["DEL", "r/a"]);
    redis.call(&["SET", "r/a", "1 1"]);
    let resume =
        Command::new(env!("CARGO_BIN_EXE_tribunal")).args(["store", "resume", "r", "--url", &node.url]).status();
    assert!(resume.unwrap().success());
    eventually("the sum", || redis.call(&["GET", "r/a"]).ends_with(" 2").then_some(()));
}

#[test]
fn the_lag_of_a_storage_is_unknown_until_it_was_reached_and_then_the_age_of_what_it_lacks() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let lag = |node: &Node| {
        let text = node.get("/metrics").body.as_str().expect("text").to_owned();
        let line = "tribunal_store_push_lag_seconds{namespace=\"default\",store=\"r\"} ";
        text.lines().find_map(|found| found.strip_prefix(line)?.parse::<f64>().ok())
    };
    let until_state = |node: &Node, state: &str| {
        eventually(state, || (store(node, "r")["push"]["state"] == state).then_some(()));
    };
    let node = serve(dir.path(), 1 << 20, 4 << 20);
    assert_eq!(declare_redis(&node, &redis), 201);
    assert_eq!(put_applied(&node, "r", "k", json!(1))["applied"], true);
    assert_eq!(lag(&node), Some(0.0));
    drop(redis);
    put(&node, "r", "k", json!(2));
    until_state(&node, "backing_off");
    let before = eventually("an age of a second", || lag(&node).filter(|seconds| *seconds > 1.0));
    assert!(lag(&node) >= Some(before));
    assert!(node.stop().success());
    let node = serve(dir.path(), 1 << 20, 4 << 20);
    until_state(&node, "backing_off");
    assert_eq!(lag(&node), None, "what it has is not known, and no lag of 0 is claimed");
}

#[test]
fn a_store_redeclared_with_another_storage_uses_only_its_watermark() {
    let (Some(old), Some(new)) = (Redis::start(), Redis::start()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    declare_redis(&node, &old);
    for n in 0..50 {
        put(&node, "r", &format!("k{n}"), json!(n));
    }
    eventually("all of it in the old storage", || (store(&node, "r")["acked_lsn"] == "50").then_some(()));
    // Neither the old storage's content nor a late report of its push applies to the new one.
    new.pause(true);
    assert_eq!(declare_redis(&node, &new), 200);
    put(&node, "r", "k50", json!(50));
    assert_eq!(store(&node, "r")["acked_lsn"], "0", "the new one has said nothing yet");
    new.pause(false);
    eventually("all of it in the new storage", || (store(&node, "r")["acked_lsn"] == "51").then_some(()));
    for n in 0..=50 {
        assert!(new.call(&["GET", &format!("r/k{n}")]).ends_with(&format!(" {n}")));
    }
    assert_eq!(old.call(&["GET", "r/k50"]), "nil");
}

#[test]
fn requests_that_wait_for_a_storage_end_when_the_node_stops() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    declare_redis(&node, &redis);
    let seen = put_applied(&node, "r", "a", json!(1));
    assert_eq!(seen["applied"], true);
    redis.pause(true);
    let (id, url) = (new_id(), node.url.clone());
    std::thread::scope(|scope| {
        let (url, id) = (&url, &id);
        let writer = scope.spawn(move || {
            let body = json!({"ack": "applied", "writes": [{"op": "put", "store": "r", "key": "b", "value": 2}]});
            support::post(&format!("{url}/v1/txns/{id}/commit"), &body)
        });
        let reader = scope.spawn(move || support::get(&format!("{url}/v1/log?store=r&after=2&wait_ms=60000")));
        eventually("the commit to be in the log", || (node.log_of("r").len() == 2).then_some(()));
        // The connections of the writer, of the reader and of this thread.
        eventually("the reader to be connected", || {
            let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
            let open = metrics.lines().find_map(|line| line.strip_prefix("tribunal_http_connections_open "));
            (open?.parse::<u64>().ok()? >= 3).then_some(())
        });
        std::thread::sleep(Duration::from_millis(200));
        node.signal("TERM");
        let verdict = writer.join().unwrap();
        assert_eq!((verdict.status, &verdict.body["status"]), (200, &json!("committed")), "{}", verdict.body);
        assert_eq!(verdict.body["applied"], false, "it was not, and nobody will say any more that it is");
        assert_eq!(reader.join().unwrap().status, 200);
    });
    redis.pause(false);
    assert!(node.ended().0.success());
    let node = serve(dir.path(), 1 << 30, 1 << 30);
    assert_eq!(node.get(&format!("/v1/txns/{id}")).body["status"], "committed");
}

#[test]
fn an_embedded_store_is_flushed_when_the_log_is_to_be_shorter_and_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 20, 1 << 20);
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    let mut written = 0;
    let oldest = loop {
        let (key, value) = (format!("k{}", written % 20), json!([written, noise(written, 300_000)]));
        put(&node, "kv", &key, value);
        written += 1;
        assert_eq!(store(&node, "kv")["push"]["state"], "running", "{}", store(&node, "kv"));
        let page = node.get(&format!("/v1/log?store=kv&after={written}")).body;
        if number(&page["oldest"]) > 30 {
            break number(&page["oldest"]);
        }
        assert!(written < 400, "the log is never truncated: {page}");
    };
    let check = |node: &Node| {
        for n in written - 20..written {
            let row = node.get(&format!("/v1/stores/kv/rows/k{}", n % 20)).body;
            assert_eq!(row["value"][0], n, "the log begins at LSN {oldest}");
        }
    };
    check(&node);
    node.kill();
    check(&serve(dir.path(), 1 << 20, 1 << 20));
}

#[test]
fn an_idle_embedded_store_that_cannot_flush_is_out_of_use_and_then_detached_at_the_quota() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 20, 16 << 20);
    assert_eq!(node.put("/v1/stores/idle", &json!({"adaptor": "kv"})).status, 201);
    let mut stores = std::fs::read_dir(dir.path().join("data/stores")).unwrap();
    let files = stores.next().expect("the rows of the only store").unwrap().path();
    assert_eq!(node.put("/v1/stores/busy", &json!({"adaptor": "kv"})).status, 201);
    put(&node, "idle", "k", json!(1));
    // A directory of this name makes every flush fail.
    std::fs::create_dir(files.join("manifest.new")).unwrap();
    let mut written = 0;
    let mut write = || {
        put(&node, "busy", "k", noise(written, 300_000));
        written += 1;
        written
    };
    // Three images; each makes the store flush.
    while write() < 12 {}
    let push = eventually("the store to be out of use", || {
        let push = store(&node, "idle")["push"].clone();
        if push["state"] != "backing_off" {
            // On a slow disk, an image takes longer than the writes between two of them.
            std::thread::sleep(Duration::from_secs(1));
            write();
        }
        (push["state"] == "backing_off").then_some(push)
    });
    assert!(push["last_error"].as_str().unwrap().contains("Is a directory"), "{push}");
    let ready = node.get("/readyz").body;
    assert!(ready["reasons"].to_string().contains("the push to store `idle` is backing_off"), "{ready}");
    while store(&node, "idle")["push"]["state"] != "detached" {
        assert!(write() < 400, "the log holds 120 MB for a broken store: {}", store(&node, "idle"));
    }
    let error = store(&node, "idle")["push"]["last_error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("16777216 bytes") && error.contains("Is a directory"), "names quota and cause: {error}");
    put(&node, "idle", "k", json!(2));
    let state = node.get("/v1/stores/idle/state");
    assert_eq!(state.status, 200, "the rows that it had when it was detached: {}", state.body);
    eventually("a lag: nobody applies the last row", || {
        let stats = node.get("/v1/stats").body;
        let mut stores = stats["stores"].as_array().unwrap().iter();
        let told = stores.find(|told| told["store"] == "idle").expect("it is listed");
        assert_eq!(told["push"]["state"], "detached");
        (number(&told["push"]["lag_ms"]) > 0).then_some(())
    });
    let metrics = node.get("/metrics").body;
    let line =
        metrics.as_str().unwrap().lines().find_map(|line| {
            line.strip_prefix("tribunal_store_push_lag_seconds{namespace=\"default\",store=\"idle\"} ")
        });
    assert!(line.and_then(|lag| lag.parse::<f64>().ok()).is_some_and(|lag| lag > 0.0), "{line:?}");
    // The log no longer waits for it.
    while number(&node.get("/v1/log?store=busy&after=1&limit=1").body["oldest"]) <= 2 {
        assert!(write() < 400, "the log is never truncated");
    }
    eventually("its own log to be truncated", || {
        write();
        (number(&node.get("/v1/log?store=idle&after=1&limit=1").body["oldest"]) > 2).then_some(())
    });
    let state = node.get("/v1/stores/idle/state");
    assert_eq!((state.status, &state.body["code"]), (503, &json!("store_detached")), "the log does not continue there");
    assert_eq!(store(&node, "busy")["push"]["state"], "running");
    node.signal("TERM");
    let (_, log) = node.ended();
    let detached = log.lines().find(|line| line.contains("store detached")).expect("it was logged");
    assert!(detached.contains("store=\"idle\""), "{detached}");
    assert!(
        log.lines()
            .any(|line| line.contains("the disk has failed an embedded store") && line.contains("store=\"idle\"")),
        "{log}"
    );
}

#[test]
fn a_storage_with_a_password_gets_the_one_of_the_configuration_only() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), 1 << 20, 4 << 20);
    let config = json!({"endpoint": redis.endpoint(), "password": "right"});
    let refused = node.put("/v1/stores/r", &json!({"adaptor": "redis", "adaptor_config": config}));
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.to_string().contains("`push.credentials`"), "{}", refused.body);
    let config = json!({"endpoint": redis.endpoint(), "prefx": "r/"});
    let refused = node.put("/v1/stores/r", &json!({"adaptor": "redis", "adaptor_config": config}));
    let told = refused.body.to_string();
    assert!(refused.status == 422 && told.contains("`prefx`") && told.contains("`user`, `prefix`"), "{told}");
    assert_eq!(redis.call(&["CONFIG", "SET", "requirepass", "right"]), "OK");
    assert_eq!(declare_redis(&node, &redis), 201);
    let complaint = |node: &Node, text: &str| {
        eventually("a complaint", || {
            let error = store(node, "r")["push"]["last_error"].as_str().unwrap_or_default().to_owned();
            error.contains(text).then_some(())
        });
    };
    complaint(&node, "the storage asks for a password: `push.credentials`");
    put(&node, "r", "a", json!(1));
    assert!(node.stop().success());
    let node = serve_with_login(dir.path(), &redis, "default", "wrong");
    complaint(&node, "the storage refuses the login with `push.credentials`");
    assert!(node.stop().success());
    let node = serve_with_login(dir.path(), &redis, "default", "right");
    assert_eq!(put_applied(&node, "r", "b", json!(2))["applied"], true);
    assert_eq!(store(&node, "r")["acked_lsn"], "2");
}

#[test]
fn a_new_password_takes_effect_with_the_next_connection() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(redis.call(&["ACL", "SETUSER", "pusher", "on", ">first", "~*", "&*", "+@all"]), "OK");
    let node = serve_with_login(dir.path(), &redis, "pusher", "first");
    assert_eq!(declare_redis(&node, &redis), 201);
    assert_eq!(put_applied(&node, "r", "a", json!(1))["applied"], true);
    let complaint = |text: &str| {
        eventually("a complaint", || {
            let error = store(&node, "r")["push"]["last_error"].as_str().unwrap_or_default().to_owned();
            error.contains(text).then_some(())
        });
    };
    let acked = |lsn: &str| eventually("an acknowledgement", || (store(&node, "r")["acked_lsn"] == lsn).then_some(()));

    // The open connection stays open.
    assert_eq!(redis.call(&["ACL", "SETUSER", "pusher", "<first", ">second"]), "OK");
    assert_eq!(put_applied(&node, "r", "b", json!(2))["applied"], true);
    assert_eq!(redis.call(&["CLIENT", "KILL", "USER", "pusher"]), "1");
    put(&node, "r", "c", json!(3));
    complaint("the storage refuses the login with `push.credentials`");
    write_password(dir.path(), "second");
    acked("3");

    // A file that is missing for a moment is waited for.
    std::fs::remove_file(dir.path().join("password")).expect("it exists");
    assert_eq!(redis.call(&["CLIENT", "KILL", "USER", "pusher"]), "1");
    put(&node, "r", "d", json!(4));
    complaint("`password_file` of `push.credentials`: cannot read");
    write_password(dir.path(), "second");
    acked("4");
    assert_eq!(redis.call(&["GET", "r/d"]).split_once(' ').map(|(_, value)| value.to_owned()), Some("4".to_owned()));
}

#[test]
fn an_embedded_store_that_its_log_cannot_fill_is_attached_without_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let config = (1 << 20, 1 << 30);
    let node = serve(dir.path(), config.0, config.1);
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    put(&node, "kv", "old", json!(1));
    let mut n = 0;
    eventually("the log to be truncated", || {
        n += 1;
        put_applied(&node, "kv", &format!("k{n}"), noise(n, 300_000));
        (node.get("/v1/log?store=kv&after=0&limit=1").status == 410).then_some(())
    });
    let attach = |node: &Node, body: Value| {
        let answer = node.post("/v1/stores/kv/push/attach", &body);
        (answer.status, answer.body["code"].as_str().unwrap_or_default().to_owned())
    };
    let stopped = |node: &Node| {
        eventually("the store to stop", || {
            let push = store(node, "kv")["push"].clone();
            (push["state"] == "stopped").then(|| push["last_error"].as_str().unwrap_or_default().to_owned())
        })
    };
    let row = |node: &Node, key: &str| {
        let answer = node.get(&format!("/v1/stores/kv/rows/{key}"));
        (answer.status, answer.body["value"].clone())
    };
    assert_eq!(attach(&node, json!({})), (422, "not_detached".to_owned()), "it runs");
    assert!(node.stop().success());
    let stores = dir.path().join("data/stores");
    let files = std::fs::read_dir(&stores).expect("stores").next().expect("one").expect("readable").path();

    // Damaged files, which are moved away while the node runs.
    std::fs::write(files.join("manifest"), "damage").expect("the directory is ours");
    let node = serve(dir.path(), config.0, config.1);
    let error = stopped(&node);
    assert!(error.contains("tribunal store attach STORE --loaded-lsn LSN"), "{error}");
    assert_eq!(attach(&node, json!({})), (422, "storage_refuses".to_owned()), "the damage is still there");
    std::fs::rename(&files, stores.join("damaged")).expect("the directory is ours");
    assert_eq!(attach(&node, json!({})), (422, "storage_behind_log".to_owned()));
    stopped(&node);
    let at_head = |node: &Node| json!({"loaded_lsn": store(node, "kv")["head_lsn"]});
    assert_eq!(attach(&node, at_head(&node)).0, 200, "{}", store(&node, "kv"));
    assert_eq!(store(&node, "kv")["push"]["state"], "running");
    assert_eq!(row(&node, "old").0, 404);
    assert_eq!(put_applied(&node, "kv", "old", json!(2))["applied"], true);
    assert_eq!(row(&node, "old"), (200, json!(2)));
    assert!(node.stop().success());
    let node = serve(dir.path(), config.0, config.1);
    assert_eq!((row(&node, "old"), store(&node, "kv")["push"]["state"].clone()), ((200, json!(2)), json!("running")));
    assert!(node.stop().success());

    // A directory that is missing.
    std::fs::remove_dir_all(&files).expect("the directory is ours");
    let node = serve(dir.path(), config.0, config.1);
    let error = stopped(&node);
    assert!(error.contains("no longer has"), "{error}");
    assert_eq!(attach(&node, json!({})), (422, "storage_behind_log".to_owned()));
    assert_eq!(stopped(&node), error, "a refusal changes nothing");
    assert_eq!(attach(&node, at_head(&node)).0, 200, "{}", store(&node, "kv"));
    assert_eq!(put_applied(&node, "kv", "new", json!(3))["applied"], true);
    assert_eq!((row(&node, "old").0, row(&node, "new")), (404, (200, json!(3))));
    assert_eq!(attach(&node, json!({})), (422, "not_detached".to_owned()));
}
