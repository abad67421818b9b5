//! Hostile components: each is rejected with the reason, leaves nothing on the node, and does not affect the active
//! plugins. One that passes all checks and fails later is replaced by the native fallback, shows in health, and is
//! rolled back.

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
    // It traps if it may not grow, as an allocator does.
    let hungry = "(if (i32.eq (memory.grow (i32.const 255)) (i32.const -1)) (then (unreachable))) (i32.const 512)";
    let by_place = "(i32.store (i32.const 516) (i32.const 65536)) (i32.store (i32.const 520) (local.get $csns))
                    (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
                    (i64.store (i32.const 65536) (i64.const 7)) (i32.const 512)";
    let short = "(i32.store (i32.const 516) (i32.const 1024)) (i32.store (i32.const 520) (i32.const 2))
                 (i32.store (i32.const 524) (i32.const 1024)) (i32.store (i32.const 528) (i32.const 1))
                 (i32.const 512)";
    let component = |hostile: Hostile| hostile.component();
    vec![
        ("?", b"not a module".to_vec(), "does not begin with a WebAssembly header"),
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
        (
            "?",
            component(Hostile { rank: hungry, ..Hostile::default() }),
            "golden vectors: it ran out of memory: it requested",
        ),
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
    assert_eq!(std::fs::read_dir(dir.path().join("plugins")).unwrap().count(), 0, "no file is left over");
    assert_eq!(node.put_row("still", 1)["status"], "committed");

    let good = Hostile::default().component();
    let taken = node.put_wasm("/v1/admin/plugins/priority", &good);
    assert_eq!((taken.status, &taken.body["code"]), (422, &json!("plugin_name_taken")), "{}", taken.body);
    let kept = node.put_wasm("/v1/admin/plugins/tame", &good);
    assert_eq!(kept.status, 201, "{}", kept.body);
    assert_eq!(node.put_wasm("/v1/admin/plugins/tame", &good).status, 200, "the same bytes again change nothing");
    let twice = node.put_wasm("/v1/admin/plugins/other", &good);
    assert_eq!((twice.status, &twice.body["code"]), (422, &json!("plugin_name_taken")), "{}", twice.body);
    // Under another name, its fallback would differ wherever a release embeds another build of it.
    for builtin in tribunal_wasm::BUILTINS.iter().filter(|builtin| builtin.world != tribunal_wasm::World::LogAdaptor) {
        let copy = node.put_wasm("/v1/admin/plugins/copy", builtin.bytes);
        assert_eq!((copy.status, &copy.body["code"]), (422, &json!("plugin_built_in")), "{}", copy.body);
        let detail = copy.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(&format!("built in as \"{}\"", builtin.name)), "{detail}");
    }
    assert_eq!(node.get("/v1/admin/plugins/copy").status, 404);
    for (path, body, status, code) in [
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
        let reply = node.post(&format!("/v1/admin/plugins/{path}"), &body);
        assert_eq!((reply.status, &reply.body["code"]), (status, &json!(code)), "{path} {body}: {}", reply.body);
    }
    assert_eq!(rule(&node)["active"]["name"], "first-writer-wins");
    // A plugin that cannot be removed must not be referred from one command to the other.
    for (path, code) in [
        ("first-writer-wins/rollback", "nothing_before"),
        ("first-writer-wins/deactivate", "plugin_built_in"),
        ("redis/deactivate", "plugin_built_in"),
    ] {
        let reply = node.post(&format!("/v1/admin/plugins/{path}"), &json!({}));
        assert_eq!((reply.status, &reply.body["code"]), (422, &json!(code)), "{path}: {}", reply.body);
        assert!(
            reply.body["detail"].as_str().is_some_and(|told| told.contains("another plugin")),
            "{path}: {}",
            reply.body
        );
    }
}

fn rule(node: &Node) -> Value {
    let list = node.get("/v1/admin/plugins").body;
    list["slots"].as_array().unwrap().iter().find(|slot| slot["slot"] == "rule").unwrap().clone()
}

/// Two transactions contend for a row, so that the rule runs; the first one must win.
fn contest(node: &Node, key: &str) {
    let insert = || json!({"txn_id": new_id(), "writes": [{"op": "insert", "store": "kv", "key": key, "value": 1}]});
    let reply = node.post("/v1/txns/batch-commit", &json!({"txns": [insert(), insert()]})).body;
    assert_eq!(
        (&reply["results"][0]["status"], &reply["results"][1]["status"]),
        (&json!("committed"), &json!("aborted"))
    );
}

/// A rule that behaves in every epoch that the kit tries, and traps in epochs of a running node.
fn sleeper() -> Vec<u8> {
    let rank =
        "(if (i32.and (i64.gt_u (local.get $epoch) (i64.const 60)) (i64.lt_u (local.get $epoch) (i64.const 1000000)))
                   (then (unreachable)))
                (i32.store (i32.const 516) (local.get $csn)) (i32.store (i32.const 520) (local.get $csns))
                (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
                (i32.const 512)";
    Hostile { rank, pages: 64, ..Hostile::default() }.component()
}

#[test]
fn a_slot_rolls_back_automatically_after_consecutive_faults() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put_wasm("/v1/admin/plugins/sleeper", &sleeper()).status, 201);
    for n in 0..70 {
        node.put_row("x", n);
    }
    assert_eq!(node.post("/v1/admin/plugins/sleeper/activate", &json!({})).status, 200);
    for n in 0..15 {
        contest(&node, &format!("k{n}"));
    }
    assert_eq!(rule(&node)["active"]["name"], "sleeper", "fifteen faults are not enough");
    contest(&node, "the sixteenth");
    let back = eventually("the slot to go back", || {
        let rule = rule(&node);
        (rule["active"]["by"] == "faults").then_some(rule)
    });
    assert_eq!(back["active"]["name"], "first-writer-wins", "{back}");
    let history: Vec<_> = back["history"].as_array().unwrap().iter().map(|entry| entry["by"].clone()).collect();
    assert_eq!(history, ["faults", "activate", "configuration"], "{back}");
    let (faulty, since) = (&back["history"][1], &back["history"][0]["since_epoch"]);
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    assert_eq!(number(&faulty["until_epoch"]) + 1, number(since), "{back}");
    assert!(number(&faulty["since_epoch"]) < number(since) && number(&faulty["at_ms"]) > 0, "{back}");
    assert!(faulty["who"].is_string(), "{back}");
    contest(&node, "after");
    assert_eq!(rule(&node)["health"]["fallbacks"], "0");
    let why = rule(&node)["health"]["last_fault"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("sleeper, which was rolled back: "), "{why}");
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(metrics.contains("plugin_rollbacks_total{slot=\"rule\"} 1"), "{metrics}");
    // The history survives the process, with its epochs.
    let before = rule(&node)["history"].clone();
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    assert_eq!(rule(&node)["history"], before);
    contest(&node, "again");
}

#[test]
fn an_activation_takes_effect_on_an_idle_node() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let epoch = |node: &Node| node.get("/version").body["epoch"].as_str().unwrap().parse::<u64>().unwrap();
    let seen = node.put_row("x", 1);
    let (next, first) = (epoch(&node) + 1500, epoch(&node) + 700);
    let activate = |name: &str, slot: &str, from: u64| {
        let body = json!({"slot": slot, "at_epoch": from.to_string()});
        assert_eq!(node.post(&format!("/v1/admin/plugins/{name}/activate"), &body).status, 200);
    };
    activate("priority", "rule", next);
    activate("snapshot", "validator:snapshot", first);
    let fills = |slot: Value| (slot["active"]["name"] == "priority").then_some(slot);
    let decides = eventually("the epoch to come", || fills(rule(&node)));
    assert_eq!(decides["since_epoch"], next.to_string(), "{decides}");
    assert_eq!(epoch(&node), next, "the epochs before it were sealed, and no more");
    // Those epochs are complete: Begin returns snapshots of them, and reads are judged against them.
    let snapshot = node.get("/v1/snapshot?store=kv").body;
    assert_eq!(snapshot["applied"], (next - 1).to_string(), "{snapshot}");
    let reads = json!([{"store": "kv", "key": "x", "version": seen["version"]}]);
    let read_only = json!({"isolation": "serializable", "snapshots": {"kv": snapshot["applied"]}, "reads": reads});
    let verdict = node.commit(&read_only).body;
    assert_eq!((&verdict["read_only"], &verdict["epoch"]), (&json!(true), &snapshot["applied"]), "{verdict}");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(epoch(&node), next, "nothing waits any more, so nothing is sealed");
    let slots = |node: &Node| node.get("/v1/admin/plugins").body["slots"].clone();
    let before = slots(&node);
    // A replay passes over the same epochs.
    node.kill();
    let node = Node::start(dir.path());
    assert_eq!(epoch(&node), next);
    let histories = |slots: &Value| -> Vec<Value> {
        slots
            .as_array()
            .unwrap()
            .iter()
            .map(|slot| json!([slot["slot"], slot["since_epoch"], slot["history"]]))
            .collect()
    };
    assert_eq!(histories(&slots(&node)), histories(&before));
    contest(&node, "still decides");
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    assert_eq!(epoch(&node), next + 1);
    assert_eq!(histories(&slots(&node)), histories(&before));
}

#[test]
fn plugins_are_deleted_once_no_slot_uses_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let files = || {
        let entries = std::fs::read_dir(dir.path().join("plugins")).unwrap().flatten();
        entries.filter(|entry| entry.path().is_file()).count()
    };
    let tame = Hostile::default().component();
    let other = Hostile { pages: 3, ..Hostile::default() }.component();
    let digest = |reply: support::Response| reply.body["version"]["digest"].as_str().unwrap().to_owned();
    let first = digest(node.put_wasm("/v1/admin/plugins/tame", &tame));
    let second = digest(node.put_wasm("/v1/admin/plugins/tame", &other));
    let refused = |path: &str, status: u16, code: &str, text: &str| {
        let reply = node.delete(&format!("/v1/admin/plugins/{path}"));
        assert_eq!((reply.status, &reply.body["code"]), (status, &json!(code)), "{path}: {}", reply.body);
        assert!(reply.body.to_string().contains(text), "{path}: {}", reply.body);
    };
    refused("priority", 422, "plugin_built_in", "is built in");
    refused("nobody", 404, "not_found", "nobody");
    refused("tame/versions/12", 400, "unknown_value", "64 hexadecimal digits");
    refused(&format!("tame/versions/{}", "00".repeat(32)), 404, "not_found", "tame");
    let activate = |digest: &str, at: &str| {
        let body = json!({"digest": digest, "at_epoch": at});
        assert_eq!(node.post("/v1/admin/plugins/tame/activate", &body).status, 200);
    };
    activate(&first, "0");
    contest(&node, "decided by the first");
    refused("tame", 422, "plugin_in_use", "`tribunal plugin deactivate tame --slot rule`");
    activate(&second, "900000000");
    refused(&format!("tame/versions/{second}"), 422, "plugin_in_use", "`tribunal plugin rollback tame --slot rule`");
    activate(&second, "0");
    contest(&node, "decided by the second");
    // A slot would fall back to the first one; once that is deleted, the slot skips it.
    let gone = node.delete(&format!("/v1/admin/plugins/tame/versions/{first}"));
    assert_eq!((gone.status, &gone.body["digests"]), (200, &json!([first])), "{}", gone.body);
    assert_eq!(files(), 2, "a component and what is known of it");
    let back = node.post("/v1/admin/plugins/tame/rollback", &json!({}));
    assert_eq!(back.body["name"], "first-writer-wins", "{}", back.body);
    let gone = node.delete("/v1/admin/plugins/tame");
    assert_eq!((gone.status, &gone.body["digests"]), (200, &json!([second])), "{}", gone.body);
    assert_eq!(node.get("/v1/admin/plugins/tame").status, 404);
    assert_eq!(files(), 0);
    let compiled = std::fs::read_dir(dir.path().join("plugins/compiled")).map_or(0, Iterator::count);
    assert_eq!(compiled, 0, "compiled code goes too");
    let log = node.log_of("kv");
    // Their decisions are replayed without them.
    node.kill();
    let node = Node::start(dir.path());
    assert_eq!(node.log_of("kv"), log);
    assert_eq!(rule(&node)["active"]["name"], "first-writer-wins");
    assert_eq!(node.put_wasm("/v1/admin/plugins/tame", &tame).status, 201, "it can come back");
}

#[test]
fn the_native_fallback_decides_after_a_fault_and_health_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put_wasm("/v1/admin/plugins/sleeper", &sleeper()).status, 201);
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
