//! Compiles the built-in plugins to components and embeds them.
//!
//! A single cargo invocation builds all plugin crates for `wasm32-unknown-unknown`, in a target folder of its own under
//! `OUT_DIR`: sharing the outer one would deadlock on its lock. The outer build's flags are not passed on: modules are
//! identified by their digests, which must depend on nothing but the sources and the toolchain.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// World, name, package and description of every built-in. A test compares the description with the plugin's own.
const BUILTINS: [(&str, &str, &str, &str); 10] = [
    (
        "ConflictRule",
        "first-writer-wins",
        "tribunal-plugin-first-writer-wins",
        "The transaction that arrived first wins.",
    ),
    (
        "ConflictRule",
        "shorter-txn-wins",
        "tribunal-plugin-shorter-txn-wins",
        "The transaction that began last wins, then the one that arrived first.",
    ),
    (
        "ConflictRule",
        "fair-rotation",
        "tribunal-plugin-fair-rotation",
        "Origins take turns: in epoch e the one at position -e modulo `turns` wins.",
    ),
    (
        "ConflictRule",
        "priority",
        "tribunal-plugin-priority",
        "The highest priority wins, then the transaction that arrived first.",
    ),
    (
        "IsolationValidator",
        "read-committed",
        "tribunal-plugin-read-committed",
        "Accepts every transaction: reads saw committed rows, that is all the level asks.",
    ),
    (
        "IsolationValidator",
        "repeatable-read",
        "tribunal-plugin-repeatable-read",
        "Rejects a transaction if a row that it read has changed, appeared or is gone.",
    ),
    (
        "IsolationValidator",
        "snapshot",
        "tribunal-plugin-snapshot",
        "Rejects a transaction unless its reads form one snapshot and it is the first committer.",
    ),
    (
        "IsolationValidator",
        "serializable",
        "tribunal-plugin-serializable",
        "Rejects a transaction if a row or a range that it read has changed.",
    ),
    (
        "LogAdaptor",
        "postgres",
        "tribunal-adaptor-postgres",
        "Writes records to tables of PostgreSQL, rows and watermark in one transaction.",
    ),
    (
        "LogAdaptor",
        "redis",
        "tribunal-adaptor-redis",
        "Writes records to Redis, rows and watermark in one atomic script.",
    ),
];

/// Paths, relative to the workspace, that the modules are built from.
const SOURCES: [&str; 6] =
    ["plugins", "adaptors-wasm", "sdk/plugin/src", "sdk/plugin/Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = here.ancestors().nth(2).expect("server/wasm lies two folders below the workspace").to_owned();
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TRIBUNAL_TARGET={}", variable("TARGET"));
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    println!("cargo::rustc-env=TRIBUNAL_WASMTIME={}", locked_version(&workspace, "wasmtime"));
    let folder = out.join("plugins");
    compile(&workspace, &folder);
    let mut table = String::from("&[\n");
    for (world, name, package, about) in BUILTINS {
        let module = folder.join(TARGET).join("release").join(format!("{}.wasm", package.replace('-', "_")));
        let component = out.join(format!("{name}.wasm"));
        encode(&module, &component);
        let path = component.display();
        writeln!(
            table,
            "Builtin {{ world: World::{world}, name: {name:?}, about: {about:?}, bytes: include_bytes!({path:?}) }},"
        )
        .expect("writing to a string");
    }
    table.push(']');
    fs::write(out.join("builtins.rs"), table).expect("OUT_DIR is writable");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| panic!("cargo sets {name} for build scripts: {e}"))
}

/// Returns the exact version of a package in the lockfile: wasmtime itself only exposes its major version.
fn locked_version(workspace: &Path, package: &str) -> String {
    let lock = fs::read_to_string(workspace.join("Cargo.lock")).expect("the lockfile is checked in");
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = {package:?}"));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
    version.expect("the lockfile has a version after each name").trim_end_matches('"').to_owned()
}

/// Builds all plugin crates at once.
fn compile(workspace: &Path, folder: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(workspace)
        .args(["build", "--release", "--locked", "--target", TARGET, "--target-dir"])
        .arg(folder);
    for (_, _, package, _) in BUILTINS {
        cargo.args(["--package", package]);
    }
    for (name, _) in env::vars_os() {
        if name.to_str().is_none_or(is_of_outer_build) {
            cargo.env_remove(name);
        }
    }
    for (setting, value) in [
        ("OPT_LEVEL", "3"),
        ("LTO", "fat"),
        ("CODEGEN_UNITS", "1"),
        ("PANIC", "abort"),
        ("STRIP", "symbols"),
        ("DEBUG", "0"),
        ("DEBUG_ASSERTIONS", "false"),
        ("OVERFLOW_CHECKS", "false"),
        ("INCREMENTAL", "false"),
        ("BUILD_OVERRIDE_OPT_LEVEL", "0"),
        ("BUILD_OVERRIDE_CODEGEN_UNITS", "16"),
    ] {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(workspace).join("\u{1f}"));
    let output = cargo.output().unwrap_or_else(|e| panic!("cargo cannot be started: {e}"));
    if output.status.success() {
        return;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("can't find crate for `core`") || errors.contains("can't find crate for `std`") {
        panic!("the target {TARGET} is missing; install it with\n\n    rustup target add {TARGET}\n\n{errors}");
    }
    panic!("the built-in plugins do not compile:\n{errors}");
}

/// Returns whether a variable was set by the build that runs this script, or for it.
fn is_of_outer_build(name: &str) -> bool {
    const EXACT: [&str; 17] = [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_LINKS",
        "CARGO_MANIFEST_PATH",
        "CARGO_TARGET_DIR",
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTC",
        "RUSTC_LINKER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "RUSTFLAGS",
        "TARGET",
    ];
    const PREFIXES: [&str; 8] = [
        "CARGO_BUILD_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_PKG_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_WASM32",
        "CLIPPY_",
        "DEP_",
    ];
    EXACT.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Flags that make the module independent of where it is built, give it a small stack, and enough initial memory that most
/// batches need no growth: untouched pages cost nothing, but every growth costs system calls.
fn flags(workspace: &Path) -> Vec<String> {
    let mut flags = vec![
        "-Clink-arg=-zstack-size=65536".to_owned(),
        "-Clink-arg=--initial-memory=2097152".to_owned(),
        format!("--remap-path-prefix={}=/tribunal", workspace.display()),
    ];
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    if let Some(home) = cargo_home {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    flags
}

/// Converts a core module with WIT metadata into a component.
fn encode(module: &Path, component: &Path) {
    let bytes = fs::read(module).unwrap_or_else(|e| panic!("{}: {e}", module.display()));
    let encoded = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|encoder| encoder.encode())
        .unwrap_or_else(|e| panic!("{} cannot be converted into a component: {e:#}", module.display()));
    fs::write(component, encoded).expect("OUT_DIR is writable");
}
