//! Compiled code of uploaded plugins is cached in the data directory: a start loads it from there, and recompiles if
//! anything is wrong with it. The plugin decides the same either way, and no client can upload such code.

#[path = "../../wasm/tests/hostile/mod.rs"]
mod hostile;
#[path = "support/rule.rs"]
mod rule;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use rule::last_one_wins;
use serde_json::json;
use support::Node;

/// Returns the only file of compiled code.
fn code_file(data: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(data.join("plugins/compiled")).expect("is there").collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].as_ref().expect("can be read").path()
}

/// Returns how many components this process compiled, and how many it loaded.
fn loads(node: &Node) -> (u64, u64) {
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    let of = |code: &str| {
        let name = format!("tribunal_plugin_loads_total{{code=\"{code}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
        line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name}in {metrics}"))
    };
    (of("compiled"), of("kept"))
}

#[test]
fn a_start_compiles_only_what_is_not_cached() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path();
    let node = Node::start(data);
    assert_eq!(node.put_wasm("/v1/admin/plugins/last", &last_one_wins()).status, 201);
    assert!(!data.join("plugins/compiled").exists(), "an upload alone runs nothing in the node");
    let activated = node.post("/v1/admin/plugins/last/activate", &json!({}));
    assert_eq!(activated.status, 200, "{}", activated.body);
    assert!(node.contest("first").1);
    assert_eq!(loads(&node), (1, 0));
    let whole = fs::read(code_file(data)).expect("reads");
    assert!(node.stop().success());

    let mut starts = 0;
    let mut start = |expected: (u64, u64), why: &str| {
        let node = Node::start(data);
        assert_eq!(loads(&node), expected, "{why}");
        starts += 1;
        assert!(node.contest(&format!("start {starts}")).1, "{why}: it decides alike");
        assert!(node.stop().success());
    };
    start((0, 1), "it is there");
    let file = code_file(data);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    fs::write(&file, &damaged).expect("writes");
    start((1, 0), "a bit is wrong");
    start((0, 1), "it was repaired");
    fs::write(&file, &fs::read(&file).expect("reads")[..middle]).expect("writes");
    start((1, 0), "half of it is gone");
    // Code of another engine is stored under that engine's fingerprint, and code under a wrong one is not trusted.
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let (component, engine) = name.split_once('-').expect("two digests");
    let other = file.with_file_name(format!("{component}-{}.code", "0".repeat(engine.len() - ".code".len())));
    fs::rename(&file, &other).expect("moves");
    start((1, 0), "it is of another engine");
    fs::rename(&other, &file).expect("moves");
    start((0, 1), "the file itself is back");
    fs::write(&file, b"").expect("writes");
    start((1, 0), "it is empty");
    fs::remove_dir_all(data.join("plugins/compiled")).expect("removes");
    start((1, 0), "it is gone");
    // A copied data directory brings no usable code.
    let aside = data.join("aside");
    // Renamed, so that the copy cannot get its inode number.
    fs::rename(&file, &aside).expect("moves");
    fs::copy(&aside, &file).expect("copies");
    start((1, 0), "it is a copy");
}

#[test]
fn compiled_code_is_rejected_as_an_upload() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    assert_eq!(node.put_wasm("/v1/admin/plugins/last", &last_one_wins()).status, 201);
    assert_eq!(node.post("/v1/admin/plugins/last/activate", &json!({})).status, 200);
    let file = fs::read(code_file(dir.path())).expect("reads");
    let object = file.windows(4).position(|bytes| bytes == b"\x7fELF").expect("an object file");
    for (bytes, expected) in
        [(&file[..], "does not begin with a WebAssembly header"), (&file[object..], "precompiled code")]
    {
        let reply = node.put_wasm("/v1/admin/plugins/native", bytes);
        assert_eq!((reply.status, &reply.body["code"]), (422, &json!("plugin_refused")), "{}", reply.body);
        assert!(reply.body["detail"].as_str().is_some_and(|why| why.contains(expected)), "{}", reply.body);
    }
}
