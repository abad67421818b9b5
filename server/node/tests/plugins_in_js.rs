//! Plugins in JavaScript: created with `tribunal plugin new --lang js`, edited, built together with a JavaScript
//! engine, tested, and activated. Compiling that engine takes most of a minute of CPU time, so only the rule and the
//! adaptor are tested end to end; the validator's source runs in Node.js. Without Node.js, the tests print that they
//! are skipped.

mod support;
#[path = "support/plugin.rs"]
mod tool;

use std::path::Path;
use std::process::Command;

use support::redis::Redis;
use support::{Node, eventually};
use tool::{done, plugin};

fn write(folder: &Path, world: &str, name: &str) {
    done(folder, &["new", "--world", world, "--lang", "js", name]);
}

/// Returns whether Node.js and npm are installed.
fn has_node() -> bool {
    ["node", "npm"].iter().all(|tool| Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success()))
}

#[test]
fn a_rule_in_javascript_decides() {
    if !has_node() {
        println!("SKIPPED: Node.js with npm is needed for plugins in JavaScript");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write(folder, "conflict-rule", "most-writes");
    let source = folder.join("most-writes/src/plugin.js");
    let edited = std::fs::read_to_string(&source)
        .expect("reads")
        .replace("return { csn: true };", "return { csn: true, writes: true };")
        .replace(
            "new BigUint64Array(batch.count);",
            "new BigUint64Array(batch.count);
    // The lower halves, so that no BigInt is created.
    const low = new Uint32Array(hi.buffer);
    for (let t = 0; t < batch.count; t += 1) low[2 * t] = 0xffffffff - batch.writes[t];",
        );
    assert!(edited.contains("writes: true") && edited.contains("batch.writes"), "the template has these lines");
    std::fs::write(&source, edited).expect("writes");
    let (ok, text) = plugin(folder, &["build", "most-writes"]);
    if !ok && text.contains("npm failed") {
        println!("SKIPPED: npm cannot install here: {}", text.trim());
        return;
    }
    assert!(ok && text.contains("imports: none"), "{text}");

    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    assert!(!node.contest("before").1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let tested = done(folder, &["test", "most-writes"]);
            assert!(tested.contains("subsets of a batch") && tested.contains("fresh instances"), "{tested}");
            assert!(tested.contains(" a call (") && tested.contains(" % of the budget)"), "{tested}");
        });
        done(folder, &["push", "--url", &node.url, "most-writes"]);
    });
    done(folder, &["activate", "--url", &node.url, "most-writes"]);
    assert!(node.contest("after").1, "the JavaScript decides");
    let list = node.get("/v1/admin/plugins").body;
    let rule = list["slots"].as_array().expect("slots").iter().find(|slot| slot["slot"] == "rule").expect("is there");
    assert_eq!((&rule["active"]["name"], &rule["health"]["fallbacks"]), (&"most-writes".into(), &"0".into()), "{rule}");

    assert!(node.stop().success());
    let node = Node::start(dir.path());
    assert!(node.contest("again").1);
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(
        metrics.contains("tribunal_plugin_loads_total{code=\"compiled\"} 0"),
        "nothing is compiled again: {metrics}"
    );
    assert!(metrics.contains("tribunal_plugin_loads_total{code=\"kept\"} 1"), "{metrics}");
}

#[test]
fn an_adaptor_in_javascript_pushes() {
    if !has_node() {
        println!("SKIPPED: Node.js with npm is needed for plugins in JavaScript");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write(folder, "log-adaptor", "js-strings");
    let (ok, text) = plugin(folder, &["build", "js-strings"]);
    if !ok && text.contains("npm failed") {
        println!("SKIPPED: npm cannot install here: {}", text.trim());
        return;
    }
    assert!(ok && text.contains("imports: none"), "{text}");
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    // The upload runs the kit; every further run would compile the engine again.
    done(folder, &["push", "--url", &node.url, "js-strings"]);
    done(folder, &["activate", "--url", &node.url, "js-strings"]);
    node.push_rows_to("js-strings", &redis.endpoint());
    eventually("the watermark", || (redis.call(&["GET", "#watermark:p:"]) == "502").then_some(()));
    assert_eq!((&*redis.call(&["GET", "p:row/7"]), &*redis.call(&["GET", "p:row/3"])), ("499", "nil"));
    let list = node.get("/v1/admin/plugins").body;
    let slots = list["slots"].as_array().expect("slots");
    let slot = slots.iter().find(|slot| slot["slot"] == "adaptor:js-strings").expect("is there");
    assert_eq!(slot["health"]["faults"], serde_json::json!([]), "{slot}");
}

/// In Node.js, and with an author's first edit: the inputs that the plugin needs.
#[test]
fn each_templates_own_test_survives_an_edit_of_what_it_needs() {
    if !has_node() {
        println!("SKIPPED: Node.js with npm is needed for plugins in JavaScript");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (world, needs, more) in [
        ("conflict-rule", "{ csn: true }", "{ csn: true, writes: true, firstAttempt: true }"),
        ("isolation-validator", "{ reads: true }", "{ reads: true, txns: true, writes: true, epochs: true }"),
        ("log-adaptor", "add: false", "add: true"),
    ] {
        write(folder.path(), world, world);
        let own = folder.path().join(world);
        let tested = || {
            let ran = Command::new("npm").arg("test").current_dir(&own).output().expect("npm starts");
            let text = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success() && text.contains("fail 0") && !text.contains("pass 0"), "{world}: {text}");
        };
        tested();
        let source = own.join("src/plugin.js");
        let text = std::fs::read_to_string(&source).expect("reads");
        assert!(text.contains(needs), "{world}: the template has this line");
        std::fs::write(&source, text.replace(needs, more)).expect("writes");
        tested();
    }
}
