//! Plugins in C: created with `tribunal plugin new --lang c`, edited, built with a C compiler for WebAssembly, tested,
//! and activated. If the machine has no such compiler, the tests print that they are skipped.

mod support;
#[path = "support/plugin.rs"]
mod tool;

use std::process::Command;

use serde_json::json;
use support::redis::Redis;
use support::{Node, eventually};
use tool::{done, plugin};

#[test]
fn a_rule_and_a_validator_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    done(folder, &["new", "--world", "conflict-rule", "--lang", "c", "most-writes"]);
    let (ok, text) = plugin(folder, &["build", "most-writes"]);
    if !ok && text.contains("there is no C compiler for WebAssembly") {
        println!("SKIPPED: {}", text.trim());
        return;
    }
    assert!(ok && text.contains("imports: none"), "{text}");
    let tested = done(folder, &["test", "most-writes"]);
    assert!(tested.contains("subsets of a batch"), "{tested}");

    done(folder, &["new", "--world", "isolation-validator", "--lang", "c", "strict-reads"]);
    done(folder, &["build", "strict-reads"]);
    let tested = done(folder, &["test", "strict-reads"]);
    assert!(tested.contains("levels  read-committed, repeatable-read"), "{tested}");

    let source = folder.join("most-writes/src/plugin.c");
    let edited = std::fs::read_to_string(&source)
        .expect("reads")
        .replace("RULE_COLUMNS_CSN;", "RULE_COLUMNS_CSN | EXPORTS_TRIBUNAL_PLUGIN_RULE_COLUMNS_WRITES;")
        .replace(
            "ret->lo.ptr =",
            "for (uint32_t t = 0; t < batch->count; t++) ret->hi.ptr[t] = UINT32_MAX - batch->writes.ptr[t];\n  ret->lo.ptr =",
        );
    std::fs::write(&source, edited).expect("writes");
    done(folder, &["build", "most-writes"]);
    done(folder, &["test", "most-writes"]);
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    for name in ["most-writes", "strict-reads"] {
        done(folder, &["push", "--url", &node.url, name]);
    }
    assert!(!node.contest("before").1);
    done(folder, &["activate", "--url", &node.url, "most-writes"]);
    assert!(node.contest("after").1, "the C code decides");
    done(folder, &["activate", "--url", &node.url, "--slot", "validator:repeatable-read", "strict-reads"]);
}

/// On this machine, and with an author's first edit: the inputs that the plugin needs.
#[test]
fn each_templates_own_test_survives_an_edit_of_what_it_needs() {
    let chosen = std::env::var("TRIBUNAL_CC").unwrap_or_else(|_| "cc".into());
    let words: Vec<&str> = chosen.split_whitespace().collect();
    if !Command::new(words[0]).args(&words[1..]).arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no C compiler `{chosen}`");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (world, needs, more) in [
        ("conflict-rule", "RULE_COLUMNS_CSN;", "RULE_COLUMNS_CSN | EXPORTS_TRIBUNAL_PLUGIN_RULE_COLUMNS_WRITES;"),
        (
            "isolation-validator",
            "VALIDATOR_GROUPS_READS;",
            "VALIDATOR_GROUPS_READS | EXPORTS_TRIBUNAL_PLUGIN_VALIDATOR_GROUPS_WRITES;",
        ),
        ("log-adaptor", "KINDS_DELETE;", "KINDS_DELETE | EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_KINDS_ADD;"),
    ] {
        done(folder.path(), &["new", "--world", world, "--lang", "c", world]);
        let own = folder.path().join(world);
        let test = std::fs::read_to_string(own.join("test/plugin_test.c")).expect("reads");
        assert!(test.contains("cc -I bindings -o plugin-test test/plugin_test.c && ./plugin-test"), "{world}: {test}");
        let tested = || {
            let mut compile = Command::new(words[0]);
            compile.current_dir(&own).args(&words[1..]).args(["-Wall", "-Wextra", "-Werror", "-I", "bindings"]);
            let built = compile.args(["-o", "plugin-test", "test/plugin_test.c"]).output().expect("it starts");
            assert!(built.status.success(), "{world}: {}", String::from_utf8_lossy(&built.stderr));
            let ran = Command::new(own.join("plugin-test")).output().expect("it was built");
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(ran.status.success() && text.contains("ok: ") && !text.contains("FAILED"), "{world}: {text}");
        };
        tested();
        let source = own.join("src/plugin.c");
        let text = std::fs::read_to_string(&source).expect("reads");
        assert!(text.contains(needs), "{world}: the template has this line");
        std::fs::write(&source, text.replace(needs, more)).expect("writes");
        tested();
    }
}

#[test]
fn an_adaptor_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    done(folder, &["new", "--world", "log-adaptor", "--lang", "c", "c-strings"]);
    let (ok, text) = plugin(folder, &["build", "c-strings"]);
    if !ok && text.contains("there is no C compiler for WebAssembly") {
        println!("SKIPPED: {}", text.trim());
        return;
    }
    assert!(ok && text.contains("imports: none"), "{text}");
    assert!(done(folder, &["test", "c-strings"]).contains("the same records again"));
    let (ok, text) = plugin(folder, &["test", "c-strings", "--config", r#"{"prefix": 7}"#]);
    assert!(!ok && text.contains("`prefix` must be a string"), "{text}");
    let Some(redis) = Redis::start() else { return };
    let config = r#"{"prefix": "kit:"}"#;
    let tested = done(folder, &["test", "c-strings", "--storage", &redis.endpoint(), "--config", config]);
    assert!(tested.contains("a replay is answered as moved and moves nothing"), "{tested}");

    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    done(folder, &["push", "--url", &node.url, "c-strings"]);
    done(folder, &["activate", "--url", &node.url, "c-strings"]);
    node.push_rows_to("c-strings", &redis.endpoint());
    eventually("the watermark", || (redis.call(&["GET", "#watermark:p:"]) == "502").then_some(()));
    assert_eq!(redis.call(&["GET", "p:row/7"]), "499");
    assert_eq!(redis.call(&["GET", "p:row/3"]), "nil", "it was deleted");
    // An operation that it does not accept is refused before it commits, so the push never encounters it.
    let add = json!({"writes": [{"op": "add", "store": "rows", "key": "row/7", "value": 1}]});
    let refused = node.commit(&add);
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("write_not_supported")), "{}", refused.body);
    assert!(refused.body.to_string().contains("c-strings"), "it names the adaptor: {}", refused.body);
    assert_eq!(node.get("/v1/stores/rows").body["push"]["state"], "running");
}
