//! Hostile components: each is refused with its reason, nothing of it stays behind, and what was there goes on deciding.
//! One that passes all checks and fails later is stood in for, is seen, and is rolled back.

#[path = "../../wasm/tests/hostile/mod.rs"]
mod hostile;
mod support;

use hostile::Hostile;
use serde_json::{Value, json};
use support::{Node, eventually, new_id};

fn components() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let parsed = |text: &str| wat::parse_str(text).expect("parses");
    let looping = "(loop $again (br $again)) (unreachable)";
    let recursing = "(call $recurse (i32.const 0)) (unreachable)";
    // It gives up when it may not grow, as an allocator does.
    let hungry = "(if (i32.eq (memory.grow (i32.const 255)) (i32.const -1)) (then (unreachable))) (i32.const 512)";
    let by_place = "(i32.store (i32.const 516) (i32.const 65536)) (i32.store (i32.const 520) (local.get $csns))
                    (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
                    (i64.store (i32.const 65536) (i64.const 7)) (i32.const 512)";
    let short = "(i32.store (i32.const 516) (i32.const 1024)) (i32.store (i32.const 520) (i32.const 2))
                 (i32.store (i32.const 524) (i32.const 1024)) (i32.store (i32.const 528) (i32.const 1))
                 (i32.const 512)";
    let component = |hostile: Hostile| hostile.component();
    vec![
        ("?", b"not a module".to_vec(), "first bytes are not those of WebAssembly"),
        ("?", b"\x7fELF\x02\x01\x01".to_vec(), "precompiled code"),
        ("?", parsed("(module)"), "core module"),
        ("?", parsed("(component)"), "exports none of"),
        ("?", parsed(r#"(component (import "wasi:clocks/wall-clock@0.2.0" (instance)))"#), "imports wasi:clocks"),
        ("?world=log-adaptor", component(Hostile::default()), "of world conflict-rule, not of log-adaptor"),
        ("?world=rule", component(Hostile::default()), "there is no world"),
        ("?", component(Hostile { pages: 257, ..Hostile::default() }), "bytes of memory from the start"),
        ("?", parsed(&format!("(component {})", "(core module)".repeat(9))), "9 core modules, 8 are allowed"),
        ("?", parsed("(component (core module (memory 1)) (core module (memory 1)))"), "more than one memory"),
        ("?", component(Hostile { start: looping, ..Hostile::default() }), "does not start: it ran out of fuel"),
        ("?", component(Hostile { init: looping, ..Hostile::default() }), "configuration: it ran out of fuel"),
        ("?", component(Hostile { rank: looping, ..Hostile::default() }), "golden vectors: it ran out of fuel"),
        ("?", component(Hostile { rank: "(unreachable)", ..Hostile::default() }), "golden vectors: it trapped"),
        ("?", component(Hostile { rank: recursing, ..Hostile::default() }), "golden vectors: its stack overflowed"),
        ("?", component(Hostile { rank: hungry, ..Hostile::default() }), "golden vectors: it trapped"),
        ("?", component(Hostile { rank: short, ..Hostile::default() }), "2 high and 1 low ranks"),
        (
            "?",
            component(Hostile { rank: by_place, pages: 64, top: 1 << 21, ..Hostile::default() }),
            "shuffled batches: ",
        ),
    ]
}

#[test]
fn refusals_name_their_reason_and_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for (query, bytes, expected) in components() {
        let reply = node.put_wasm(&format!("/v1/admin/plugins/evil{query}"), &bytes);
        let detail = reply.body["detail"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.status, &reply.body["code"]), (422, &json!("plugin_refused")), "{expected}: {}", reply.body);
        assert!(detail.contains(expected), "{expected}: {detail}");
    }
    assert_eq!(node.get("/v1/admin/plugins/evil").status, 404);
    assert_eq!(std::fs::read_dir(dir.path().join("plugins")).unwrap().count(), 0, "no file stays behind");
    assert_eq!(node.put_row("still", 1)["status"], "committed");

    let good = Hostile::default().component();
    let taken = node.put_wasm("/v1/admin/plugins/priority", &good);
    assert_eq!((taken.status, &taken.body["code"]), (422, &json!("plugin_name_taken")), "{}", taken.body);
    let kept = node.put_wasm("/v1/admin/plugins/tame", &good);
    assert_eq!(kept.status, 201, "{}", kept.body);
    assert_eq!(node.put_wasm("/v1/admin/plugins/tame", &good).status, 200, "the same bytes again change nothing");
    let twice = node.put_wasm("/v1/admin/plugins/other", &good);
    assert_eq!((twice.status, &twice.body["code"]), (422, &json!("plugin_name_taken")), "{}", twice.body);
    for (path, wish, status, code) in [
        ("nobody/activate", json!({}), 404, "not_found"),
        ("tame/activate", json!({"digest": "00".repeat(32)}), 404, "not_found"),
        ("tame/activate", json!({"slot": "validator:snapshot"}), 422, "slot_misfit"),
        ("tame/activate", json!({"slot": "adaptor:tame"}), 422, "slot_misfit"),
        ("snapshot/activate", json!({"slot": "validator:serializable"}), 422, "slot_misfit"),
        ("redis/activate", json!({"slot": "adaptor:kv"}), 422, "slot_misfit"),
        ("redis/activate", json!({"config": {"a": 1}}), 422, "plugin_config"),
        ("fair-rotation/activate", json!({"config": {"turns": -1}}), 422, "plugin_refused"),
        ("tame/rollback", json!({}), 422, "not_active"),
    ] {
        let reply = node.post(&format!("/v1/admin/plugins/{path}"), &wish);
        assert_eq!((reply.status, &reply.body["code"]), (status, &json!(code)), "{path} {wish}: {}", reply.body);
    }
    assert_eq!(rule(&node)["active"]["name"], "first-writer-wins");
}

fn rule(node: &Node) -> Value {
    let list = node.get("/v1/admin/plugins").body;
    list["slots"].as_array().unwrap().iter().find(|slot| slot["slot"] == "rule").unwrap().clone()
}

/// Two transactions contend for a row, so that the rule is asked; the first one must win.
fn contest(node: &Node, key: &str) {
    let insert = || json!({"txn_id": new_id(), "writes": [{"op": "insert", "store": "kv", "key": key, "value": 1}]});
    let reply = node.post("/v1/txns/batch-commit", &json!({"txns": [insert(), insert()]})).body;
    assert_eq!(
        (&reply["results"][0]["status"], &reply["results"][1]["status"]),
        (&json!("committed"), &json!("aborted"))
    );
}

#[test]
fn a_fault_after_activation_is_stood_in_for_and_seen() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    // It behaves in every epoch that the kit tries, and traps in those of a living node.
    let rank =
        "(if (i32.and (i64.gt_u (local.get $epoch) (i64.const 60)) (i64.lt_u (local.get $epoch) (i64.const 1000000)))
                   (then (unreachable)))
                (i32.store (i32.const 516) (local.get $csn)) (i32.store (i32.const 520) (local.get $csns))
                (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
                (i32.const 512)";
    let sleeper = Hostile { rank, pages: 64, ..Hostile::default() }.component();
    assert_eq!(node.put_wasm("/v1/admin/plugins/sleeper", &sleeper).status, 201);
    for n in 0..70 {
        node.put_row("x", n);
    }
    contest(&node, "before");
    assert_eq!(node.post("/v1/admin/plugins/sleeper/activate", &json!({})).status, 200);
    for n in 0..3 {
        contest(&node, &format!("k{n}"));
    }
    let health = rule(&node)["health"].clone();
    assert_eq!(
        (&health["fallbacks"], &health["faults"]),
        (&json!("3"), &json!([{"kind": "trap", "count": "3"}])),
        "{health}"
    );
    assert!(health["last_fault"].as_str().unwrap().contains("unreachable"), "{health}");
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(metrics.contains("plugin_call_faults_total{slot=\"rule\",kind=\"trap\"} 3"), "{metrics}");
    assert!(metrics.contains("plugin_fallbacks_total{slot=\"rule\"} 3"), "{metrics}");
    assert_eq!(node.post("/v1/admin/plugins/sleeper/rollback", &json!({})).body["name"], "first-writer-wins");
    contest(&node, "after");
    let health = eventually("the counters of the rule that is back", || Some(rule(&node)["health"].clone()));
    assert_eq!((&health["fallbacks"], &health["calls"]), (&json!("0"), &json!("1")), "{health}");
}
