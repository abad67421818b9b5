//! Webhooks: a real process against a receiver that fails, hangs, redirects, loses records and rejects them.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::receiver::{Does, Post, Receiver, number, ok};
use support::{Node, eventually};

const SECRET: &str = "a secret of the receiver";

fn register(node: &Node, store: &str, more: &Value) -> support::Response {
    let mut body = json!({"kind": "webhook", "secret": SECRET});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    node.put(&format!("/v1/stores/{store}/push"), &body)
}

fn standing(node: &Node, store: &str) -> Value {
    let answer = node.get(&format!("/v1/stores/{store}/push"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.to_string().contains(SECRET), "a secret is shown");
    answer.body
}

fn until_acked(node: &Node, store: &str, lsn: u64) -> Value {
    eventually("the receiver's acknowledgement", || {
        Some(standing(node, store)).filter(|standing| number(&standing["acked_lsn"]) == lsn)
    })
}

#[test]
fn every_record_arrives_signed_and_in_order_and_a_restart_resumes_after_the_watermark() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..5 {
        node.put_row(&format!("k{n}"), n);
    }
    let receiver = Receiver::new(|_, _| ok());
    let answer = register(&node, "kv", &json!({"url": receiver.url(), "records_max": 3}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!((&answer.body["kind"], &answer.body["url"]), (&json!("webhook"), &json!(receiver.url())));
    until_acked(&node, "kv", 5);
    let posts = receiver.posts();
    let lsns: Vec<u64> = posts.iter().flat_map(Post::lsns).collect();
    assert_eq!(lsns, [1, 2, 3, 4, 5]);
    for post in &posts {
        assert!(post.is_signed(SECRET) && !post.is_signed("another secret of 16"), "{post:?}");
        assert!(post.lsns().len() <= 3 && post.target == "/hook?from=tribunal", "{post:?}");
        let body = post.json();
        assert_eq!(
            (&body["store"], body["first_lsn"].as_str()),
            (&json!("kv"), Some(post.header("tribunal-first-lsn")))
        );
    }
    let records: Vec<Value> =
        posts.iter().flat_map(|post| post.json()["records"].as_array().expect("records").clone()).collect();
    assert_eq!(records, node.log_of("kv"), "what is pushed is what is pulled");

    assert!(node.stop().success());
    let before = receiver.posts().len();
    let node = Node::start(dir.path());
    node.put_row("later", 6);
    until_acked(&node, "kv", 6);
    let after: Vec<u64> = receiver.posts()[before..].iter().flat_map(Post::lsns).collect();
    assert_eq!(after, [6], "the watermark was durable at the stop");
    node.kill();
    let node = Node::start(dir.path());
    node.put_row("last", 7);
    until_acked(&node, "kv", 7);
    assert_eq!(receiver.seen(), (1..=7).collect(), "after a kill some may come again, none is missing");

    let path = format!("{}/v1/stores/kv/push", node.url);
    assert_eq!(node.delete("/v1/stores/kv/push").status, 204, "{path}");
    assert_eq!(node.delete("/v1/stores/kv/push").status, 404);
    assert_eq!(node.get("/v1/stores/kv/push").body["code"], "push_unregistered");
    node.put_row("unseen", 8);
    assert_eq!(receiver.seen().last(), Some(&7));
}

#[test]
fn a_receiver_that_recovers_gets_everything_and_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/other", &json!({})).status, 201);
    let failing = Receiver::new(|n, _| match n % 5 {
        0 => Does::Close,
        1 => Does::Answer(503, "", "come back later".into()),
        2 => Does::Babble,
        3 => Does::Hang,
        _ => Does::Answer(429, "retry-after: 1\r\n", String::new()),
    });
    let healthy = Receiver::new(|_, _| ok());
    assert_eq!(register(&node, "kv", &json!({"url": failing.url(), "timeout_ms": 150})).status, 200);
    assert_eq!(register(&node, "other", &json!({"url": healthy.url()})).status, 200);
    let write = |store: &str| json!({"op": "put", "store": store, "key": "k", "value": 1});
    for _ in 0..10 {
        let body = json!({"ack": "applied", "writes": [write("kv"), write("other")]});
        let verdict = node.commit(&body).body;
        assert_eq!((&verdict["status"], &verdict["applied"]), (&json!("committed"), &json!(true)));
    }
    until_acked(&node, "other", 10);
    let standing = eventually("a push that backs off", || {
        Some(standing(&node, "kv")).filter(|standing| standing["state"] == "backing_off" && failing.posts().len() >= 5)
    });
    assert_eq!((&standing["acked_lsn"], &standing["lag_records"]), (&json!("0"), &json!("10")), "{standing}");
    assert!(standing["last_error"].is_string() && standing["attempts"].as_u64() > Some(0), "{standing}");
    failing.becomes(|_, _| ok());
    until_acked(&node, "kv", 10);
    assert_eq!(failing.seen(), (1..=10).collect());
}

#[test]
fn a_receiver_is_left_alone_for_as_long_as_it_asks() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|n, _| match n {
        1 => Does::Answer(503, "retry-after: 2\r\n", String::new()),
        _ => ok(),
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    let begun = Instant::now();
    node.put_row("k", 1);
    until_acked(&node, "kv", 1);
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(receiver.posts().len(), 2);
}

#[test]
fn a_receiver_that_hangs_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|_, _| Does::Hang);
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url(), "timeout_ms": 100})).status, 200);
    node.put_row("k", 1);
    let standing = eventually("a time-out", || Some(standing(&node, "kv")).filter(|s| s["last_error"].is_string()));
    assert!(standing["last_error"].as_str().expect("a text").contains("within 100 ms"), "{standing}");
    assert!(node.stop().success(), "a hanging receiver does not hold a stop back");
}

#[test]
fn redirects_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let elsewhere = Receiver::new(|_, _| ok());
    let to = elsewhere.url();
    let receiver = Receiver::new(move |_, _| {
        Does::Answer(307, Box::leak(format!("location: {to}\r\n").into_boxed_str()), String::new())
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("k", 1);
    let standing = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    let text = standing["last_error"].as_str().expect("a reason").to_owned();
    assert!(text.contains("307") && text.contains("redirects are not followed"), "{text}");
    assert!(elsewhere.posts().is_empty());
}

#[test]
fn a_receiver_that_replies_410_stops_the_push_and_may_be_registered_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|_, _| Does::Answer(410, "", "moved away".into()));
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("a", 1);
    let stopped = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    assert!(stopped["last_error"].as_str().expect("a reason").contains("410: moved away"), "{stopped}");
    let told = node.get("/readyz").body["reasons"].to_string();
    assert!(told.contains("the webhook of store `kv` is stopped: GET /v1/stores/kv/push says why"), "{told}");
    let figures = |wanted: &[&str]| {
        let text = node.get("/metrics").body.as_str().expect("text").to_owned();
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("tribunal_webhook_")).collect();
        wanted.iter().all(|wanted| lines.contains(wanted)).then_some(text)
    };
    let told = eventually("the metrics to say so", || {
        figures(&[
            "stopped{namespace=\"default\",store=\"kv\"} 1",
            "state{namespace=\"default\",store=\"kv\",state=\"stopped\"} 1",
            "state{namespace=\"default\",store=\"kv\",state=\"idle\"} 0",
            "lag_records{namespace=\"default\",store=\"kv\"} 1",
        ])
    });
    let lag = told
        .lines()
        .find_map(|line| line.strip_prefix("tribunal_webhook_lag_seconds{namespace=\"default\",store=\"kv\"} "));
    assert!(lag.and_then(|lag| lag.parse::<f64>().ok()).is_some_and(|lag| lag > 0.0), "{told}");
    node.put_row("b", 2);
    assert_eq!(receiver.posts().len(), 1, "it is not asked again");
    receiver.becomes(|_, _| ok());
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    until_acked(&node, "kv", 2);
    eventually("nothing to be stopped", || {
        let told = figures(&[
            "stopped{namespace=\"default\",store=\"kv\"} 0",
            "state{namespace=\"default\",store=\"kv\",state=\"stopped\"} 0",
            "state{namespace=\"default\",store=\"kv\",state=\"idle\"} 1",
            "lag_records{namespace=\"default\",store=\"kv\"} 0",
            "lag_seconds{namespace=\"default\",store=\"kv\"} 0.0",
        ]);
        (told.is_some() && node.get("/readyz").body["reasons"] == json!([])).then_some(())
    });
}

#[test]
fn the_lag_of_a_webhook_does_not_begin_again_with_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::new(|_, _| Does::Answer(503, "", String::new()));
    let lag_ms = |node: &Node| {
        let failing = eventually("a failure", || Some(standing(node, "kv")).filter(|s| s["last_error"].is_string()));
        failing["lag_ms"].as_str().and_then(|ms| ms.parse::<u64>().ok()).expect("a number")
    };
    let node = Node::start(dir.path());
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("k", 1);
    // The age of the only record rises, whichever process shows it.
    let mut before = eventually("an age of a second", || Some(lag_ms(&node)).filter(|ms| *ms > 1_000));
    assert!(node.stop().success());
    for _ in 0..2 {
        let node = Node::start(dir.path());
        let after = lag_ms(&node);
        assert!(after > before, "{after} ms after {before} ms");
        before = after;
        assert!(node.stop().success());
    }
}

#[test]
fn a_refused_record_stops_the_push_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 1..=8 {
        node.put_row(&format!("k{n}"), n);
    }
    let receiver = Receiver::new(|_, post| match post.lsns().contains(&5) {
        true => Does::Answer(422, "", "no fives".into()),
        false => ok(),
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    let stopped = eventually("a stop", || {
        Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped" && s["acked_lsn"] == "4")
    });
    let text = stopped["last_error"].as_str().expect("a reason");
    assert!(text.contains("LSN 5 ") && text.contains("422: no fives; once it"), "{text}");
    let again = register(&node, "kv", &json!({"url": receiver.url(), "after": "5"}));
    assert_eq!(again.status, 200, "{}", again.body);
    until_acked(&node, "kv", 8);
}

#[test]
fn the_receiver_can_report_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 1..=6 {
        node.put_row(&format!("k{n}"), n);
    }
    // It was set back to LSN 2 once, as from a backup.
    let receiver = Receiver::new(|n, post| match (n, post.lsns().last()) {
        (1, _) => Does::Answer(200, "tribunal-watermark: 2\r\n", String::new()),
        (_, Some(last)) => {
            Does::Answer(200, Box::leak(format!("tribunal-watermark: {last}\r\n").into_boxed_str()), "fine".into())
        }
        _ => Does::Close,
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    until_acked(&node, "kv", 6);
    let posts: Vec<_> = receiver.posts().iter().map(Post::lsns).collect();
    assert_eq!(posts, [vec![1, 2, 3, 4, 5, 6], vec![3, 4, 5, 6]]);

    // Set back again, after the records that it had acknowledged were stored; from then on it reports no position.
    std::thread::sleep(Duration::from_millis(1500));
    let before = receiver.posts().len();
    let is_first = AtomicBool::new(true);
    receiver.becomes(move |_, _| match is_first.swap(false, Ordering::Relaxed) {
        true => Does::Answer(200, "tribunal-watermark: 2\r\n", String::new()),
        false => ok(),
    });
    node.put_row("k7", 7);
    until_acked(&node, "kv", 7);
    let posts: Vec<_> = receiver.posts()[before..].iter().map(Post::lsns).collect();
    assert_eq!(posts, [vec![7], vec![3, 4, 5, 6, 7]]);

    receiver.becomes(|_, _| Does::Answer(200, "tribunal-watermark: 1000\r\n", String::new()));
    node.put_row("k8", 8);
    let stopped = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    assert!(stopped["last_error"].as_str().expect("a reason").contains("another log"), "{stopped}");
}

#[test]
fn a_receiver_that_was_ahead_of_the_log_is_not_taken_for_one_that_is_up_to_date_once_the_log_is_past_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|_, _| Does::Answer(200, "tribunal-watermark: 5\r\n", String::new()));
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("k1", 1);
    let is_stopped = |node: &Node| {
        let stopped = eventually("a stop", || Some(standing(node, "kv")).filter(|s| s["state"] == "stopped"));
        let reason = stopped["last_error"].as_str().expect("a reason");
        assert!(reason.contains("another log") && reason.contains("`after`"), "{stopped}");
    };
    is_stopped(&node);
    let posts = receiver.posts().len();
    receiver.becomes(|_, _| ok());
    for n in 2..=7 {
        node.put_row(&format!("k{n}"), n);
    }
    // Register the same webhook again, and restart after a stop and after a kill: none of these skips LSN 1 to 5 of
    // this log.
    let resumed = register(&node, "kv", &json!({"url": receiver.url()}));
    assert_eq!((resumed.status, &resumed.body["code"]), (410, &json!("log_replaced")), "{}", resumed.body);
    is_stopped(&node);
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    is_stopped(&node);
    node.kill();
    let node = Node::start(dir.path());
    is_stopped(&node);
    assert_eq!(receiver.posts().len(), posts);
    let again = register(&node, "kv", &json!({"url": receiver.url(), "after": "0"}));
    assert_eq!(again.status, 200, "{}", again.body);
    until_acked(&node, "kv", 7);
    assert_eq!(receiver.posts()[posts..].iter().flat_map(Post::lsns).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn invalid_registrations_are_rejected_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path()).env("TRIBUNAL__PUSH__ALLOW", "[]");
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    let receiver = Receiver::new(|_, _| ok());
    let port = receiver.address.port();
    for inside in [
        receiver.url(),
        format!("http://localhost:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://0.0.0.0/".into(),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://10.0.0.1/".into(),
        "https://192.168.1.1/".into(),
        "https://[fd00::1]/".into(),
        "https://[fe80::1]/".into(),
        "http://100.64.0.1/".into(),
    ] {
        let answer = register(&node, "kv", &json!({"url": inside}));
        let code = answer.body["code"].as_str().unwrap_or_default();
        // A resolver may itself refuse an odd spelling.
        assert_eq!(answer.status, 422, "{inside}: {}", answer.body);
        assert!(code == "url_refused" || code == "url_unresolved", "{inside}: {}", answer.body);
        assert_eq!(answer.body["errors"][0]["pointer"], "/url");
    }
    let good = "https://9.9.9.9/hook";
    for (fields, status, code) in [
        (json!({"url": "https://receiver.invalid/"}), 422, "url_unresolved"),
        (json!({"url": "ftp://9.9.9.9/"}), 400, "bad_url"),
        (json!({"url": "https://user:pw@9.9.9.9/"}), 400, "bad_url"),
        (json!({"url": "https://9.9.9.9/#x"}), 400, "bad_url"),
        (json!({"url": "https://9.9.9.9:0/"}), 400, "bad_url"),
        (json!({"url": "/hook"}), 400, "bad_url"),
        (json!({"url": format!("https://9.9.9.9/{}", "x".repeat(3000))}), 400, "bad_url"),
        (json!({"url": 7}), 400, "wrong_type"),
        (json!({}), 400, "missing_field"),
        (json!({"url": good, "secret": "short"}), 400, "bad_secret"),
        (json!({"url": good, "secret": "x".repeat(257)}), 400, "bad_secret"),
        (json!({"url": good, "kind": "pigeon"}), 400, "unknown_value"),
        (json!({"url": good, "after": "1"}), 422, "position_beyond_head"),
        (json!({"url": good, "after": "-1"}), 400, "bad_number"),
        (json!({"url": good, "records_max": 0}), 400, "bad_number"),
        (json!({"url": good, "records_max": 10_001}), 400, "bad_number"),
        (json!({"url": good, "timeout_ms": 99}), 400, "bad_number"),
        (json!({"url": good, "bytes_max": 1e12}), 400, "bad_number"),
        (json!({"url": good, "retries": 5}), 400, "unknown_field"),
    ] {
        let answer = register(&node, "kv", &fields);
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{fields}: {}", answer.body);
    }
    assert_eq!(register(&node, "nope", &json!({"url": good})).status, 404);
    assert_eq!(node.get("/v1/stores/kv/push").status, 404, "nothing was registered");
    node.put_row("k", 1);
    std::thread::sleep(Duration::from_millis(50));
    assert!(receiver.posts().is_empty());
}

/// Starts a node that trusts only one certificate.
fn trusting(certificate: &str, data: &Path) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.env("SSL_CERT_FILE", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(certificate));
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

#[test]
fn a_receiver_over_tls_must_have_a_certificate_for_its_name_that_the_node_trusts() {
    let receiver = Receiver::tls(|_, _| ok());
    let dir = tempfile::tempdir().unwrap();
    let node = trusting("cert.pem", &dir.path().join("trusting"));
    node.put_row("a", 1);
    assert_eq!(register(&node, "kv", &json!({"url": receiver.named_url()})).status, 200);
    until_acked(&node, "kv", 1);
    assert!(receiver.posts().iter().all(|post| post.is_signed(SECRET)));
    assert_eq!(receiver.seen(), BTreeSet::from([1]));
    let in_trouble =
        |node: &Node| eventually("trouble", || standing(node, "kv")["last_error"].as_str().map(str::to_owned));
    // Trusted, but for another name.
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("a", 2);
    let error = in_trouble(&node);
    assert!(error.contains("TLS handshake with 127.0.0.1 failed"), "{error}");
    // The right name, but from an authority that the node does not trust.
    let node = trusting("other.pem", &dir.path().join("other"));
    node.put_row("a", 1);
    assert_eq!(register(&node, "kv", &json!({"url": receiver.named_url()})).status, 200);
    let error = in_trouble(&node);
    assert!(error.contains("TLS handshake with localhost failed") && error.contains("certificate"), "{error}");
    assert_eq!(receiver.seen(), BTreeSet::from([1]), "nothing was told to somebody who may be anybody");
}

#[test]
fn the_cli_registers_shows_and_deletes_a_receiver() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|_, _| ok());
    let secret = dir.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let output =
            command.args(["webhook"]).args(words).args(["--url", &node.url]).output().expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("utf-8");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (is_shown, _, error) = run(&["show", "kv"]);
    assert!(!is_shown && error.contains("no webhook is registered for store `kv`; `tribunal webhook set`"), "{error}");
    let (is_deleted, _, error) = run(&["rm", "kv"]);
    assert!(!is_deleted && error.contains("no webhook is registered"), "{error}");

    (1..=3).for_each(|n| drop(node.put_row(&format!("k{n}"), n)));
    let set = ["set", "kv", &receiver.url(), "--secret-file", secret.to_str().expect("a path"), "--after", "1"];
    let (is_set, set_to, error) = run(&set);
    assert!(is_set && set_to.contains(&receiver.url()), "{set_to}{error}");
    until_acked(&node, "kv", 3);
    assert_eq!(receiver.seen(), BTreeSet::from([2, 3]), "it begins after LSN 1");
    assert!(receiver.posts().iter().all(|post| post.is_signed(SECRET)), "the line break of the file is no part of it");
    let (_, shown, _) = run(&["show", "kv"]);
    assert!(shown.contains("acknowledged     3 of 3") && shown.contains("at most 500 records"), "{shown}");
    let (_, json, _) = run(&["show", "kv", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["url"], &json["acked_lsn"]), (&json!(receiver.url()), &json!("3")));

    // A change keeps the settings that it omits.
    let with = |more: &[&str]| {
        run(&[&["set", "kv", &receiver.url(), "--secret-file", secret.to_str().expect("a path")], more].concat())
    };
    assert!(with(&["--records-max", "7", "--timeout-ms", "900"]).1.contains("at most 7 records"));
    let (_, changed, error) = with(&["--bytes-max", "4096"]);
    assert!(changed.contains("at most 7 records, 4096 bytes") && changed.contains(" 900\n"), "{changed}{error}");

    let (is_set, _, error) = run(&["set", "kv", "ftp://host", "--secret-file", secret.to_str().expect("a path")]);
    assert!(!is_set && error.contains("must begin with https:// or http://"), "{error}");
    let (is_set, _, error) = run(&["set", "kv", &receiver.url(), "--secret-file", "/nowhere/secret"]);
    assert!(!is_set && error.contains("`/nowhere/secret`: No such file"), "{error}");
    assert_eq!(run(&["rm", "kv"]).1, "the webhook of store `kv` is deleted\n");
    assert_eq!(node.get("/v1/stores/kv/push").status, 404);
}
