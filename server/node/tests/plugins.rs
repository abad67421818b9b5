//! External plugins on real processes: created with `tribunal plugin new` in a temporary folder, edited, built, tested,
//! uploaded and activated in each slot. The edited sources are in `tests/outside`.

mod redis;
mod support;
#[path = "support/plugin.rs"]
mod tool;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Redis;
use serde_json::{Value, json};
use support::{Node, eventually, eventually_within, new_id};
use tool::{done, plugin};

/// Creates a plugin's folder, with a source that replaces the template's.
fn write(folder: &Path, world: &str, name: &str, source: &str) {
    std::fs::write(folder.join(name).join("src/lib.rs"), source).expect("writes");
    if world == "log-adaptor" {
        let manifest = folder.join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("reads");
        std::fs::write(&manifest, text.replace("[dependencies]\n", "[dependencies]\nserde_json = \"1\"\n"))
            .expect("writes");
    }
}

/// Builds the plugins in `folder`, one after the other.
fn build(folder: &Path) {
    for (world, name, source) in [
        ("conflict-rule", "most-writes-wins", include_str!("outside/most_writes_wins.rs")),
        ("isolation-validator", "bounded-staleness", include_str!("outside/bounded_staleness.rs")),
        ("log-adaptor", "redis-hash", include_str!("outside/redis_hash.rs")),
    ] {
        done(folder, &["new", "--world", world, "--lang", "rust", name]);
        own_test_survives_an_edit(folder, world, name);
        // The unedited template builds and passes.
        assert!(done(folder, &["build", name]).contains("imports: none"));
        assert!(done(folder, &["test", name]).contains("passed"));
        write(folder, world, name, source);
        assert!(done(folder, &["build", name]).contains("imports: none"));
    }
    // Another version, which accepts no deletes.
    done(folder, &["new", "--world", "log-adaptor", "--lang", "rust", "--folder", "fewer/redis-hash", "redis-hash"]);
    let all = ".difference(Kinds::ADD)";
    let source = include_str!("outside/redis_hash.rs").replace(all, &format!("{all}.difference(Kinds::DELETE)"));
    write(&folder.join("fewer"), "log-adaptor", "redis-hash", &source);
    done(folder, &["build", "fewer/redis-hash"]);
    for (world, name, source) in [
        ("isolation-validator", "lying-validator", include_str!("outside/lying_validator.rs")),
        ("log-adaptor", "lying-adaptor", include_str!("outside/lying_adaptor.rs")),
    ] {
        done(folder, &["new", "--world", world, "--lang", "rust", name]);
        write(folder, world, name, source);
        done(folder, &["build", name]);
    }
}

/// Runs the template's own test on this machine, unedited and with an author's first edit: the inputs that the plugin
/// needs.
fn own_test_survives_an_edit(folder: &Path, world: &str, name: &str) {
    let source = folder.join(name).join("src/lib.rs");
    let text = std::fs::read_to_string(&source).expect("reads");
    let (needs, more) = match world {
        "conflict-rule" => ("= Columns::CSN;", "= Columns::all();"),
        "isolation-validator" => ("= Groups::READS;", "= Groups::all();"),
        _ => (".difference(Kinds::ADD)", ""),
    };
    assert!(text.contains(needs), "{world}: the template has this line");
    for edited in [&text, &text.replace(needs, more)] {
        std::fs::write(&source, edited).expect("writes");
        let ran = Command::new("cargo")
            .args(["test", "--quiet"])
            .current_dir(folder.join(name))
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .expect("cargo starts");
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && printed.contains("passed"), "{world}: {printed}");
    }
    std::fs::write(&source, text).expect("writes");
}

/// The environment gives both the same target folder, as a cargo configuration may.
#[test]
fn plugins_of_one_name_in_two_folders_stay_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    for team in ["a", "b"] {
        let path = format!("team-{team}/limit");
        done(folder.path(), &["new", "--world", "conflict-rule", "--lang", "rust", "--folder", &path, "limit"]);
        let source = folder.path().join(&path).join("src/lib.rs");
        let text = std::fs::read_to_string(&source).expect("reads");
        let line = text.lines().find(|line| line.contains("const ABOUT")).expect("a description");
        let own = format!("    const ABOUT: &'static str = \"The rule of team {team}.\";");
        std::fs::write(&source, text.replace(line, &own)).expect("writes");
    }
    for team in ["a", "b"] {
        let path = format!("team-{team}/limit");
        done(folder.path(), &["build", &path]);
        let told = done(folder.path(), &["test", &path]);
        assert!(told.contains(&format!("The rule of team {team}.")), "{told}");
    }
}

/// One test, because all stories need the same three builds.
#[test]
fn external_plugins_work_in_every_slot() {
    let folder = tempfile::tempdir().expect("a folder");
    build(folder.path());
    std::thread::scope(|scope| {
        for story in [
            a_rule_decides_from_its_epoch_on_under_load_and_back,
            a_version_that_accepts_fewer_writes_names_the_stores_to_declare_again,
            what_is_active_survives_a_stop_and_a_kill,
            a_validator_adds_a_bound_to_its_level,
            what_is_activated_is_what_was_checked,
            an_adaptor_writes_another_data_model,
            a_deactivated_plugin_leaves_its_slot,
            a_deactivated_adaptor_leaves_its_slot,
            contract_violations_are_found_before_an_upload,
            an_upload_that_is_refused_leaves_what_decides,
        ] {
            let folder = folder.path();
            scope.spawn(move || story(folder));
        }
    });
}

/// The configuration with which the lying validator keeps its promises.
const NOTHING: &str = r#"{"breaks": "nothing"}"#;

/// An upload is checked with one configuration; activated with another one, it would be another validator.
fn what_is_activated_is_what_was_checked(folder: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let pushed = done(folder, &["push", "--url", &node.url, "--config", NOTHING, "lying-validator"]);
    assert!(pushed.contains("validator:repeatable-read"), "it is honest under this configuration: {pushed}");
    let activate = |body: Value| node.post("/v1/admin/plugins/lying-validator/activate", &body);
    let dishonest = activate(json!({"slot": "validator:repeatable-read"}));
    assert_eq!((dishonest.status, &dishonest.body["code"]), (422, &json!("too_weak")), "{}", dishonest.body);
    let seen = node.put_row("x", 1);
    node.put_row("x", 2);
    let stale = |key: &str| {
        json!({"isolation": "repeatable-read", "reads": [{"store": "kv", "key": "x", "version": seen["version"]}],
            "writes": [{"op": "put", "store": "kv", "key": key, "value": 1}]})
    };
    assert_eq!(node.commit(&stale("a")).body["reason"], "read_conflict");
    let honest: Value = serde_json::from_str(NOTHING).expect("JSON");
    assert_eq!(activate(json!({"slot": "validator:repeatable-read", "config": honest})).status, 200);
    assert_eq!(node.commit(&stale("b")).body["reason"], "read_conflict");
    // The same bytes again, to be checked with another configuration: the result replaces the earlier one.
    let again = done(folder, &["push", "--url", &node.url, "lying-validator"]);
    assert!(!again.contains("validator:repeatable-read"), "{again}");
}

fn slot(node: &Node, name: &str) -> Value {
    let list = node.get("/v1/admin/plugins").body;
    let slots = list["slots"].as_array().expect("slots").clone();
    slots.into_iter().find(|slot| slot["slot"] == name).unwrap_or(Value::Null)
}

fn epoch(node: &Node) -> u64 {
    node.get("/version").body["epoch"].as_str().and_then(|epoch| epoch.parse().ok()).expect("an epoch")
}

fn a_rule_decides_from_its_epoch_on_under_load_and_back(folder: &Path) {
    assert!(done(folder, &["test", "most-writes-wins"]).contains("subsets of a batch"));
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let url = node.url.clone();
    let pushed = done(folder, &["push", "--url", &url, "most-writes-wins"]);
    assert!(pushed.contains("is kept as"), "{pushed}");
    assert!(!node.contest("before").1, "an upload changes nothing");

    let stop = AtomicBool::new(false);
    let contests = std::thread::scope(|scope| {
        let load: Vec<_> = (0..4)
            .map(|thread| {
                let (node, stop) = (&node, &stop);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        seen.push(node.contest(&format!("k/{thread}/{}", seen.len())));
                    }
                    seen
                })
            })
            .collect();
        // Far enough ahead that the command arrives in time on a busy machine.
        let from = epoch(&node) + 2_000;
        let said = done(folder, &["activate", "--url", &url, "--at-epoch", &from.to_string(), "most-writes-wins"]);
        assert!(said.contains(&format!("from epoch {from} on")), "{said}");
        assert_eq!(slot(&node, "rule")["pending"]["name"], "most-writes-wins");
        eventually_within(Duration::from_secs(600), "the epoch to come", || (epoch(&node) > from + 100).then_some(()));
        stop.store(true, Ordering::Relaxed);
        let contests: Vec<_> = load.into_iter().flat_map(|thread| thread.join().expect("the load runs")).collect();
        (from, contests)
    });
    let (from, contests) = contests;
    for &(epoch, second_won) in &contests {
        assert_eq!(second_won, epoch >= from, "epoch {epoch}, activated from {from} on");
    }
    assert!(contests.iter().any(|(epoch, _)| *epoch < from) && contests.iter().any(|(epoch, _)| *epoch >= from));

    let rule = slot(&node, "rule");
    assert_eq!((&rule["active"]["name"], &rule["since_epoch"]), (&json!("most-writes-wins"), &json!(from.to_string())));
    let number = |name: &str| rule["health"][name].as_str().and_then(|n| n.parse::<u64>().ok()).expect("a number");
    assert!(number("calls") > 0 && number("items") >= 2 * number("calls"), "{rule}");
    assert!(number("fuel_per_item") > 0 && number("ns_per_item") > 0, "{rule}");
    let listed = done(folder, &["ls", "--url", &url]);
    assert!(listed.contains("most-writes-wins") && listed.contains("built in: "), "{listed}");
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(metrics.contains("plugin_calls_total{slot=\"rule\"}"), "{metrics}");

    let back = done(folder, &["rollback", "--url", &url, "most-writes-wins"]);
    assert!(back.contains("first-writer-wins"), "{back}");
    assert!(!node.contest("after").1);
    let history = slot(&node, "rule")["history"].clone();
    let by: Vec<_> = history.as_array().expect("a list").iter().map(|entry| entry["by"].as_str().unwrap()).collect();
    assert_eq!(by, ["rollback", "activate", "configuration"]);
    let (ok, again) = plugin(folder, &["rollback", "--url", &url, "first-writer-wins"]);
    assert!(!ok && again.contains("slot rule has no earlier activation"), "{again}");
}

fn what_is_active_survives_a_stop_and_a_kill(folder: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    done(folder, &["push", "--url", &node.url, "most-writes-wins"]);
    done(folder, &["activate", "--url", &node.url, "most-writes-wins"]);
    assert!(node.contest("a").1);
    let log = node.log_of("kv");
    // For some of these epochs, the outcomes may not have been recorded.
    node.kill();
    let node = Node::start(dir.path());
    assert_eq!(node.log_of("kv"), log);
    assert!(node.contest("b").1, "the rule came back");
    assert!(node.stop().success());
    // From the image this time; an activation that waits for its epoch continues to wait.
    let node = Node::start(dir.path());
    let waiting = json!({"at_epoch": "1000000"});
    assert_eq!(node.post("/v1/admin/plugins/priority/activate", &waiting).status, 200);
    node.put_row("x", 1);
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    let rule = slot(&node, "rule");
    assert_eq!((&rule["active"]["name"], &rule["pending"]["name"]), (&json!("most-writes-wins"), &json!("priority")));
    assert!(node.contest("c").1);
    let dropped = node.post("/v1/admin/plugins/priority/rollback", &json!({}));
    assert_eq!((dropped.status, &dropped.body["name"]), (200, &json!("most-writes-wins")), "{}", dropped.body);
    assert!(slot(&node, "rule").get("pending").is_none());
    let back = node.post("/v1/admin/plugins/most-writes-wins/rollback", &json!({}));
    assert_eq!(back.body["name"], "first-writer-wins", "{}", back.body);
    assert!(!node.contest("d").1);
    // Without a plugin's component, a node does not improvise; the error contains the remedy.
    done(folder, &["activate", "--url", &node.url, "most-writes-wins"]);
    assert!(node.contest("e").1);
    assert!(node.stop().success());
    for file in std::fs::read_dir(dir.path().join("plugins")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let refusal = Node::try_start(dir.path(), &[]).err().expect("must not start");
    assert!(refusal.contains("`most-writes-wins`") && refusal.contains("native"), "{refusal}");
    let node = Node::try_start(dir.path(), &["--plugins", "native"]).expect("starts with native policies");
    assert!(!node.contest("f").1);
}

fn a_validator_adds_a_bound_to_its_level(folder: &Path) {
    let tested = done(folder, &["test", "bounded-staleness"]);
    assert!(tested.contains("levels  read-committed, snapshot"), "{tested}");
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    done(folder, &["push", "--url", &node.url, "bounded-staleness"]);
    let x = node.put_row("x", 1);
    let old = x["epoch"].clone();
    for n in 0..6 {
        node.put_row("other", n);
    }
    // Reads of an old snapshot whose rows are all still current.
    let body = |n: i64| {
        json!({"isolation": "snapshot", "snapshots": {"kv": old}, "reads": [{"store": "kv", "key": "none"}],
            "writes": [{"op": "put", "store": "kv", "key": format!("new{n}"), "value": n}]})
    };
    assert_eq!(node.commit(&body(1)).body["status"], "committed");
    let activate = |body: Value| node.post("/v1/admin/plugins/bounded-staleness/activate", &body);
    let missing = activate(json!({}));
    assert_eq!((missing.status, &missing.body["code"]), (422, &json!("slot_required")), "{}", missing.body);
    let weak = activate(json!({"slot": "validator:serializable"}));
    assert_eq!((weak.status, &weak.body["code"]), (422, &json!("too_weak")), "{}", weak.body);
    assert!(weak.body["detail"].as_str().unwrap().contains("write skew"), "{}", weak.body);
    let bad = activate(json!({"slot": "validator:snapshot", "config": {"epochs": 3}}));
    assert_eq!((bad.status, &bad.body["code"]), (422, &json!("plugin_refused")), "{}", bad.body);
    assert!(bad.body["detail"].as_str().unwrap().contains("unknown field"), "{}", bad.body);
    let rule = activate(json!({"slot": "rule"}));
    assert_eq!((rule.status, &rule.body["code"]), (422, &json!("slot_misfit")), "{}", rule.body);
    assert_eq!(activate(json!({"slot": "validator:snapshot", "config": {"epochs_max": 3}})).status, 200);
    let verdict = node.commit(&body(2)).body;
    assert_eq!(
        (&verdict["status"], &verdict["reason"], &verdict["plugin_code"]),
        (&json!("aborted"), &json!("plugin"), &json!(1)),
        "{verdict}"
    );
    // It blames no operation: no other transaction is named, although the first row read here has a writer.
    let mut innocent = body(4);
    innocent["reads"] = json!([{"store": "kv", "key": "x", "version": x["version"]}]);
    let verdict = node.commit(&innocent).body;
    assert_eq!((&verdict["plugin_code"], &verdict["conflicts"][0]["key"]), (&json!(1), &json!("x")), "{verdict}");
    assert!(verdict["conflicts"][0].get("by_txn").is_none(), "{verdict}");
    let fresh = node.get("/v1/snapshot?store=kv").body["committed"].clone();
    let mut body = body(3);
    body["snapshots"]["kv"] = fresh;
    assert_eq!(node.commit(&body).body["status"], "committed");
    // Lost updates are still defeated.
    let seen = node.put_row("x", 2);
    node.put_row("x", 3);
    let stale = json!({"isolation": "snapshot", "snapshots": {"kv": seen["epoch"]},
        "reads": [{"store": "kv", "key": "x", "version": seen["version"]}],
        "writes": [{"op": "put", "store": "kv", "key": "x", "value": 9}]});
    assert_eq!(node.commit(&stale).body["reason"], "write_conflict");
    // Removed from its slot from an epoch on, which a node without traffic reaches by itself.
    let listed = done(folder, &["ls", "--url", &node.url]);
    assert!(listed.contains(r#"configuration {"epochs_max":3}"#), "{listed}");
    let from = (epoch(&node) + 5).to_string();
    let off = done(folder, &["deactivate", "--url", &node.url, "--at-epoch", &from, "bounded-staleness"]);
    assert!(
        off.contains("slot validator:snapshot: snapshot (") && off.contains(&format!("from epoch {from} on")),
        "{off}"
    );
    eventually("the built-in validator", || {
        (slot(&node, "validator:snapshot")["active"]["name"] == "snapshot").then_some(())
    });
    assert_eq!(node.commit(&innocent).body["status"], "committed");
    let history = done(folder, &["history", "--url", &node.url, "--slot", "validator:snapshot"]);
    assert!(history.contains(r#") {"epochs_max":3}, activate"#), "{history}");
}

/// A plugin that was activated first, or several times, can be removed from its slot and then deleted.
fn a_deactivated_plugin_leaves_its_slot(folder: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let run = |node: &Node, command: &str, arguments: &[&str]| {
        plugin(folder, &[&[command, "--url", &node.url][..], arguments].concat())
    };
    let works = |node: &Node, command: &str, arguments: &[&str]| {
        let (ok, text) = run(node, command, arguments);
        assert!(ok, "{command} {arguments:?}: {text}");
        text
    };
    works(&node, "push", &["most-writes-wins"]);
    works(&node, "activate", &["most-writes-wins"]);
    works(&node, "activate", &["priority"]);
    let digest = node.get("/v1/admin/plugins/most-writes-wins").body["versions"][0]["digest"].clone();
    works(&node, "activate", &["most-writes-wins", "--digest", &digest.as_str().unwrap()[..8]]);
    assert!(node.contest("on").1);
    // A scheduled deactivation is cancelled under the name of the plugin that it concerns.
    let later = works(&node, "deactivate", &["most-writes-wins", "--at-epoch", "+900000"]);
    assert!(later.contains("slot rule: priority ("), "{later}");
    let kept = works(&node, "rollback", &["most-writes-wins"]);
    assert!(kept.contains("slot rule: most-writes-wins (") && kept.contains("this replaces priority ("), "{kept}");
    assert!(slot(&node, "rule").get("pending").is_none() && node.contest("kept").1);
    works(&node, "activate", &["fair-rotation", "--config", r#"{"turns": 3}"#, "--at-epoch", "+900000"]);
    let off = works(&node, "deactivate", &["most-writes-wins"]);
    assert!(off.contains("slot rule: priority (") && off.contains("this replaces fair-rotation ("), "{off}");
    assert!(!node.contest("off").1);
    let (ok, again) = run(&node, "deactivate", &["most-writes-wins"]);
    assert!(!ok && again.contains("is not active there"), "{again}");
    // It is recorded as what it is, and can be undone.
    let history = || works(&node, "history", &["--slot", "rule"]);
    assert!(
        history().lines().any(|line| line.contains("priority (") && line.contains(", deactivate")),
        "{}",
        history()
    );
    let back = works(&node, "rollback", &["most-writes-wins"]);
    assert!(back.contains("slot rule: most-writes-wins (") && node.contest("back").1, "{back}");
    assert!(history().lines().any(|line| line.contains("most-writes-wins (") && line.contains(", rollback")));
    assert!(works(&node, "rollback", &["most-writes-wins"]).contains("slot rule: priority ("));
    works(&node, "activate", &["most-writes-wins", "--digest", &digest.as_str().unwrap()[..8]]);
    works(&node, "deactivate", &["most-writes-wins"]);
    assert!(!node.contest("off again").1);
    let (ok, built_in) = run(&node, "deactivate", &["priority"]);
    assert!(!ok && built_in.contains("is built in"), "{built_in}");
    let (ok, unknown) = run(&node, "rm", &["most-writes-wins", "--digest", "00000000"]);
    assert!(!ok && unknown.contains("begins with 00000000"), "{unknown}");
    works(&node, "rm", &["most-writes-wins", "--digest", &digest.as_str().unwrap()[..12]]);
}

fn a_deactivated_adaptor_leaves_its_slot(folder: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let run = |node: &Node, command: &str, arguments: &[&str]| {
        plugin(folder, &[&[command, "--url", &node.url][..], arguments].concat())
    };
    let works = |node: &Node, command: &str, arguments: &[&str]| {
        let (ok, text) = run(node, command, arguments);
        assert!(ok, "{command} {arguments:?}: {text}");
        text
    };
    works(&node, "push", &["--config", r#"{"prefix": "any:"}"#, "redis-hash"]);
    works(&node, "activate", &["redis-hash"]);
    let (ok, first) = run(&node, "rollback", &["redis-hash"]);
    assert!(!ok && first.contains("`deactivate` removes"), "{first}");
    let store = json!({"adaptor": "redis-hash", "adaptor_config": {"endpoint": "127.0.0.1:1", "prefix": "p:"}});
    let declare = |node: &Node, body: &Value| node.put("/v1/stores/people", body);
    assert_eq!(declare(&node, &store).status, 201);
    let (ok, used) = run(&node, "deactivate", &["redis-hash"]);
    assert!(!ok && used.contains("is used by store \"people\""), "{used}");
    assert_eq!(declare(&node, &json!({"log_only": true})).status, 200);
    let at = node.post("/v1/admin/plugins/redis-hash/deactivate", &json!({"at_epoch": "999"}));
    assert_eq!((at.status, &at.body["errors"][0]["pointer"]), (422, &json!("/at_epoch")), "{}", at.body);
    let off = works(&node, "deactivate", &["redis-hash"]);
    assert!(off.contains("slot adaptor:redis-hash: nothing from the next epoch on"), "{off}");
    let is_gone = |node: &Node| {
        let refused = declare(node, &store);
        assert!(refused.status == 422 && refused.body.to_string().contains("activate it first"), "{}", refused.body);
        assert!(!works(node, "ls", &[]).contains("adaptor:redis-hash"));
        let history = works(node, "history", &["--slot", "adaptor:redis-hash"]);
        assert!(history.contains("nothing, deactivate"), "{history}");
    };
    is_gone(&node);
    node.kill();
    let node = Node::start(dir.path());
    is_gone(&node);
    let back = works(&node, "rollback", &["redis-hash"]);
    assert!(back.contains("slot adaptor:redis-hash: redis-hash ("), "{back}");
    assert_eq!(declare(&node, &store).status, 200);
    assert_eq!(declare(&node, &json!({"log_only": true})).status, 200);
    works(&node, "deactivate", &["redis-hash"]);
    works(&node, "rm", &["redis-hash"]);
    let (ok, nothing) = run(&node, "rollback", &["redis-hash"]);
    assert!(!ok && nothing.contains("has no earlier activation"), "{nothing}");
    assert!(node.stop().success());
    is_gone(&Node::start(dir.path()));
}

fn a_version_that_accepts_fewer_writes_names_the_stores_to_declare_again(folder: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let works = |arguments: &[&str]| done(folder, &[&[arguments[0], "--url", &node.url][..], &arguments[1..]].concat());
    works(&["push", "--config", r#"{"prefix": "any:"}"#, "redis-hash"]);
    let first = works(&["activate", "redis-hash"]);
    assert!(!first.contains("declare again"), "{first}");
    let store = |prefix: &str| json!({"adaptor": "redis-hash", "adaptor_config": {"endpoint": "127.0.0.1:1", "prefix": prefix}});
    for name in ["people", "places"] {
        assert_eq!(node.put(&format!("/v1/stores/{name}"), &store(name)).status, 201);
    }
    let delete = json!({"writes": [{"op": "delete", "store": "people", "key": "ada"}]});
    works(&["push", "--config", r#"{"prefix": "any:"}"#, "fewer/redis-hash"]);
    let fewer = works(&["activate", "redis-hash"]);
    assert!(fewer.contains("declare again: people, places. This version accepts other kinds"), "{fewer}");
    assert_eq!(node.put("/v1/stores/people", &store("people")).status, 200);
    let refused = node.commit(&delete);
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("write_not_supported")), "{}", refused.body);
    let back = works(&["rollback", "redis-hash"]);
    assert!(back.contains("declare again: people. "), "{back}");
}

fn an_adaptor_writes_another_data_model(folder: &Path) {
    let Some(redis) = Redis::start() else { return };
    let tested =
        done(folder, &["test", "redis-hash", "--storage", &redis.endpoint(), "--config", r#"{"prefix": "kit:"}"#]);
    assert!(tested.contains("a replay is answered as moved and moves nothing"), "{tested}");
    assert!(tested.contains("traces of records"), "it takes them along: {tested}");
    let args = ["test", "redis-hash", "--storage", &redis.endpoint(), "--config", r#"{"prefix": "kit:"}"#];
    let (ok, refused) = plugin(folder, &args);
    assert!(!ok && refused.contains("has applied LSN 8") && refused.contains("with nothing in it"), "{refused}");
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    done(folder, &["push", "--url", &node.url, "--config", r#"{"prefix": "any:"}"#, "redis-hash"]);
    let store = json!({"adaptor": "redis-hash", "adaptor_config": {"endpoint": redis.endpoint(), "prefix": "p:"}});
    let early = node.put("/v1/stores/people", &store);
    assert_eq!(early.status, 422, "{}", early.body);
    assert!(early.body["detail"].as_str().unwrap().contains("activate it first"), "{}", early.body);
    done(folder, &["activate", "--url", &node.url, "redis-hash"]);
    assert_eq!(node.put("/v1/stores/people", &store).status, 201);
    let put = |node: &Node, key: &str, value: Value| {
        let write = json!({"op": "put", "store": "people", "key": key, "value": value});
        node.commit(&json!({"writes": [write]})).body
    };
    let first = put(&node, "ada", json!({"name": "Ada", "born": 1815}));
    put(&node, "bob", json!({"name": "Bob"}));
    let gone = json!({"writes": [{"op": "delete", "store": "people", "key": "bob"}]});
    assert_eq!(node.commit(&gone).body["status"], "committed");
    // Operations that the adaptor does not declare never get into the log.
    let add = json!({"op": "add", "store": "people", "key": "ada", "value": 1});
    let refused = node.commit(&json!({"writes": [add]}));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("write_not_supported")), "{}", refused.body);
    assert_eq!(refused.body["errors"][0]["pointer"], "/writes/0/op", "{}", refused.body);
    assert!(refused.body.to_string().contains("takes no add"), "{}", refused.body);
    let hash = |key: &str| redis.hash(&format!("p:{key}"));
    eventually("the watermark", || (redis.text("#watermark:p:").as_deref() == Some("3")).then_some(()));
    let version = first["version"].as_str().unwrap();
    assert_eq!(
        hash("ada"),
        [("_version", version), ("born", "1815"), ("name", "Ada")].map(|(f, v)| (f.into(), v.into()))
    );
    assert!(hash("bob").is_empty());
    let health = slot(&node, "adaptor:redis-hash")["health"].clone();
    assert!(health["items"].as_str().unwrap().parse::<u64>().unwrap() >= 3, "{health}");

    // It exists again after a restart, and continues from the storage's own watermark. The caller's trace goes into the
    // storage with the record.
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let write = json!({"op": "put", "store": "people", "key": "cyd", "value": {"name": "Cyd", "tags": ["a", 1]}});
    let sent = ureq::post(format!("{}/v1/txns/{}/commit", node.url, new_id()))
        .header("content-type", "application/json")
        .header("traceparent", traceparent)
        .send(json!({"writes": [write]}).to_string());
    assert_eq!(sent.expect("an answer").status(), 200);
    eventually("the next hash", || (redis.text("#watermark:p:").as_deref() == Some("4")).then_some(()));
    assert_eq!(hash("cyd")[0], ("_traceparent".to_owned(), traceparent.to_owned()));
    assert_eq!(hash("cyd")[3], ("tags".to_owned(), "[\"a\",1]".to_owned()));
    // A row that is not a hash stops this store's push, which reports the row.
    put(&node, "eve", json!("text"));
    let stopped = eventually("the push to stop", || {
        let push = node.get("/v1/stores/people").body["push"].clone();
        (push["state"] == "stopped").then_some(push)
    });
    let why = stopped["last_error"].as_str().unwrap();
    assert!(why.contains("row eve: a hash needs an object") && why.contains('5'), "{why}");
    assert_eq!(put(&node, "fay", json!({}))["status"], "committed", "commits go on");
}

/// Plugins with the right types that violate their contract. Rules and validators cannot give different results for the
/// same batch, because every call gets a fresh instance; so there is no case for that.
fn contract_violations_are_found_before_an_upload(folder: &Path) {
    let (ok, refused) = plugin(folder, &["test", "most-writes-wins", "--storage", "127.0.0.1:1"]);
    assert!(!ok && refused.contains("--storage is for a log-adaptor"), "{refused}");
    let cases = [
        ("validator", "init", "rejects its configuration: it ran out of fuel"),
        ("validator", "length", "golden vectors: it returned 1 codes and 1 witnesses for 2 transactions"),
        ("validator", "reasons", "it returned code 255, which is not the code of a reason"),
        ("validator", "witnesses", "it blamed operation 1000 of a transaction with 2 operations"),
        ("validator", "everybody", "golden vectors: it rejects a transaction without conflicts"),
        ("validator", "shuffles", "shuffled batches: a transaction gets code"),
        ("validator", "subsets", "subsets of a batch: a transaction gets code"),
        ("validator", "splits", "operations spread over shards: a transaction is rejected as a whole and accepted"),
        ("adaptor", "trap", "golden vectors: it trapped"),
        ("adaptor", "everything", "golden vectors: it accepts no record of any kind"),
        ("adaptor", "gap", "golden vectors: it left out the records from 3"),
        ("adaptor", "overlap", "golden vectors: it encoded records 2..=3 where 3 was next, of records up to 3"),
        ("adaptor", "columns", "golden vectors: its RESP columns do not fit together"),
        ("adaptor", "no key", "the same records again: a request has no idempotency key"),
        ("adaptor", "one key", "the same records again: two requests of one batch share an idempotency key"),
        ("adaptor", "key of a batch", "the same records again: different records share an idempotency key"),
        ("adaptor", "used", "a used instance encodes the same records differently than a fresh one"),
        ("adaptor", "record", "the last record: it reads the record RecordId"),
        ("adaptor", "success", "errors of the storage: it classifies"),
        ("adaptor", "watermark", "errors of the storage: it reads the watermark 0 out of"),
    ];
    for (world, breaks, expected) in cases {
        let config = json!({"breaks": breaks}).to_string();
        let (ok, text) = plugin(folder, &["test", &format!("lying-{world}"), "--config", &config]);
        assert!(!ok && text.contains("fails the conformance kit") && text.contains(expected), "{breaks}: {text}");
    }
    for (name, config) in [("lying-validator", NOTHING), ("lying-adaptor", "")] {
        let tested = done(folder, &["test", name, "--config", config]);
        assert!(tested.contains("passed"), "it can keep its promises: {tested}");
    }
    // The failing input is shown, also to programs.
    let config = json!({"breaks": "splits"}).to_string();
    let (_, text) = plugin(folder, &["test", "lying-validator", "--config", &config]);
    assert!(text.contains("input: {") && text.contains("\"reads.ends\":["), "{text}");
    let (ok, text) = plugin(folder, &["test", "lying-validator", "--json", "--config", &config]);
    let told: Value = serde_json::from_str(text.lines().next().unwrap_or_default()).expect("one line of JSON");
    assert!(!ok && told["refused"].as_str().is_some_and(|why| why.contains("spread over shards")), "{text}");
    let ends = told["input"]["reads.ends"].as_array().expect("a column");
    assert_eq!(told["input"]["count"], json!(ends.len()), "{text}");
}

/// A version that is refused, as an upload or for its configuration, changes nothing: the previous one remains active.
fn an_upload_that_is_refused_leaves_what_decides(folder: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let url = node.url.clone();
    done(folder, &["push", "--url", &url, "most-writes-wins"]);
    done(folder, &["activate", "--url", &url, "most-writes-wins"]);
    done(folder, &["push", "--url", &url, "--config", NOTHING, "lying-validator"]);
    let slot = "validator:read-committed";
    done(folder, &["activate", "--url", &url, "--slot", slot, "--config", NOTHING, "lying-validator"]);
    assert!(node.contest("before").1);
    let before = node.get("/v1/admin/plugins").body["slots"].clone();
    let held = || {
        let active = |slots: &Value| slots.as_array().unwrap().iter().map(|slot| slot["active"].clone()).collect();
        let (then, now): (Vec<_>, Vec<_>) = (active(&before), active(&node.get("/v1/admin/plugins").body["slots"]));
        assert_eq!(then, now);
    };
    let body = |breaks: &str| json!({"slot": "validator:read-committed", "config": {"breaks": breaks}});
    for breaks in ["init", "length", "splits", "everybody"] {
        let reply = node.post("/v1/admin/plugins/lying-validator/activate", &body(breaks));
        assert_eq!((reply.status, &reply.body["code"]), (422, &json!("plugin_refused")), "{breaks}: {}", reply.body);
        held();
    }
    let mut cut = std::fs::read(folder.join("most-writes-wins/most-writes-wins.wasm")).expect("was built");
    cut.truncate(cut.len() / 2);
    assert_eq!(node.put_wasm("/v1/admin/plugins/most-writes-wins", &cut).status, 422);
    let other_world = std::fs::read(folder.join("redis-hash/redis-hash.wasm")).expect("was built");
    let taken = node.put_wasm("/v1/admin/plugins/most-writes-wins?config=%7B%22prefix%22%3A%22p%22%7D", &other_world);
    assert_eq!((taken.status, &taken.body["code"]), (422, &json!("plugin_name_taken")), "{}", taken.body);
    let lying = node.put_wasm("/v1/admin/plugins/most-writes-wins?world=isolation-validator", &other_world);
    assert_eq!((lying.status, &lying.body["code"]), (422, &json!("plugin_refused")), "{}", lying.body);
    held();
    assert!(node.contest("after").1, "the version before still decides");
}
