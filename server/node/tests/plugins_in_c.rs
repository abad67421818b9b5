//! Plugins in C: written by `tribunal plugin new --lang c`, edited, built by a C compiler for WebAssembly, tested, and
//! activated. Without such a compiler on the machine there is nothing to test, and the test says so.

mod support;
#[path = "support/plugin.rs"]
mod tool;

use support::Node;
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
    let (ok, text) = plugin(folder, &["new", "--world", "log-adaptor", "--lang", "c", "none"]);
    assert!(!ok && text.contains("--lang rust"), "{text}");

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
