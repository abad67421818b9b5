//! Allowed dependencies: the core is pure, the shell's parts do not depend on each other, and nothing depends on the
//! binary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Returns the packages of the workspace with their build and run dependencies; dev-dependencies are left out.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo speaks JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let known = packages.iter().map(|package| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let built = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
        (text(&package["name"]), built.map(|dependency| text(&dependency["name"])).collect())
    });
    known.collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn types_depend_on_the_empty_toolchain_check_only_and_the_core_on_types() {
    let packages = dependencies();
    assert_eq!(packages["tribunal-toolchain"], set(&[]));
    assert_eq!(packages["tribunal-types"], set(&["tribunal-toolchain"]));
    assert_eq!(packages["tribunal-core"], set(&["siphasher", "tribunal-types"]));
}

#[test]
fn a_replica_depends_on_the_core_and_hash_tables_only() {
    let packages = dependencies();
    assert_eq!(packages["tribunal-replica"], set(&["foldhash", "hashbrown", "tribunal-core", "tribunal-types"]));
}

#[test]
fn only_one_crate_knows_the_raft_library() {
    let packages = dependencies();
    let expected = set(&["bytes", "raft", "slog", "thiserror", "tribunal-codec", "tribunal-types"]);
    assert_eq!(packages["tribunal-raft"], expected);
    for (package, dependencies) in packages.iter().filter(|(package, _)| *package != "tribunal-raft") {
        for library in ["raft", "raft-proto", "protobuf", "slog"] {
            assert!(!dependencies.contains(library), "{package} knows {library}");
        }
    }
}

/// raft-rs needs `std`, so the compiler does not check that its crate does no I/O.
#[test]
fn the_raft_groups_have_no_clock_file_socket_thread_or_random_number() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/raft/src");
    let files = std::fs::read_dir(&folder).expect("the crate has sources").map(|entry| entry.expect("readable").path());
    let sources = files.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect::<Vec<_>>();
    assert!(sources.iter().any(|path| path.ends_with("group.rs")), "the walk finds nothing");
    for path in sources {
        let text = std::fs::read_to_string(&path).expect("sources are text");
        for word in ["std::time", "std::thread", "std::fs", "std::net", "std::env", "std::process", "rand::", "Instant"]
        {
            assert!(!text.contains(word), "{} uses {word}", path.display());
        }
        for map in ["HashMap", "HashSet"] {
            assert!(!text.contains(map), "{}: the order of a {map} differs between runs", path.display());
        }
    }
}

#[test]
fn a_member_knows_what_it_is_made_of_only() {
    let packages = dependencies();
    let parts = ["tribunal-codec", "tribunal-core", "tribunal-raft", "tribunal-replica", "tribunal-types"];
    let expected = parts.into_iter().chain(["bytes"]).collect::<Vec<_>>();
    assert_eq!(packages["tribunal-member"], set(&expected));
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/member/src");
    for file in std::fs::read_dir(&src).expect("the sources are there") {
        let path = file.expect("the sources are there").path();
        let text = std::fs::read_to_string(&path).expect("the sources are UTF-8");
        for impure in ["std::time", "std::thread", "std::fs", "std::net", "std::env", "HashMap", "HashSet"] {
            assert!(!text.contains(impure), "{} uses {impure}", path.display());
        }
    }
}

#[test]
fn what_one_node_continues_with_alone_knows_a_member_and_its_log_only() {
    let packages = dependencies();
    let parts = ["codec", "core", "log", "member", "replica", "types"].map(|part| format!("tribunal-{part}"));
    let expected = parts.iter().map(String::as_str).chain(["bytes"]).collect::<Vec<_>>();
    assert_eq!(packages["tribunal-recover"], set(&expected));
}

#[test]
fn the_service_boundary_is_protocol_agnostic() {
    let packages = dependencies();
    assert_eq!(packages["tribunal-service"], set(&["tribunal-types"]));
    for user in ["tribunal-http", "tribunal"] {
        assert!(packages[user].contains("tribunal-service"), "{user} goes around the boundary");
    }
}

#[test]
fn the_crates_of_the_shell_are_independent() {
    let packages = dependencies();
    let parts = ["tribunal-http", "tribunal-log", "tribunal-wasm", "tribunal-push", "tribunal-peer"];
    for part in parts {
        let others = parts.iter().filter(|other| packages[part].contains(**other)).collect::<Vec<_>>();
        assert!(others.is_empty(), "{part} knows {others:?}");
    }
}

#[test]
fn peers_carry_frames_that_they_know_nothing_of() {
    let packages = dependencies();
    let of_the_project = packages["tribunal-peer"].iter().filter(|name| name.starts_with("tribunal-"));
    assert_eq!(of_the_project.collect::<Vec<_>>(), ["tribunal-types"]);
}

#[test]
fn nothing_depends_on_the_binary() {
    for (package, dependencies) in dependencies() {
        assert!(!dependencies.contains("tribunal"), "{package} depends on the binary");
    }
}

#[test]
fn types_core_and_replica_are_no_std() {
    for package in ["types", "core", "replica"] {
        let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../server/{package}/src/lib.rs"));
        let text = std::fs::read_to_string(&lib).unwrap_or_else(|wrong| panic!("{}: {wrong}", lib.display()));
        assert!(text.lines().any(|line| line == "#![no_std]"), "{package} is not `no_std`");
        assert!(!text.contains("extern crate std"), "{package} brings `std` back");
    }
}
