//! The build script that checks the toolchain: it adds a missing WebAssembly target, or stops the build with the
//! command to run. The compiler and rustup are fakes, because the real ones would change this machine's toolchain.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the compiled build script and the programs that it finds. Removed on drop.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/toolchain/build.rs");
        let compiled = Command::new("rustc")
            .arg("--edition=2024")
            .arg(script)
            .arg("-o")
            .arg(folder.path().join("check"))
            .status()
            .expect("rustc runs");
        assert!(compiled.success(), "the build script compiles");
        let machine = Machine(folder);
        machine.program("rustc", &format!("echo {}", machine.libraries().display()));
        machine
    }

    fn libraries(&self) -> PathBuf {
        self.0.path().join("lib")
    }

    fn program(&self, name: &str, body: &str) {
        let file = self.0.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).expect("a program");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its permissions");
    }

    /// Runs the build script and returns its output to cargo.
    fn check(&self) -> String {
        let output = Command::new(self.0.path().join("check"))
            .env("RUSTC", self.0.path().join("rustc"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.path().display()))
            .output()
            .expect("the build script runs");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    }
}

#[test]
fn an_installed_target_passes_and_its_removal_is_detected() {
    let machine = Machine::new();
    fs::create_dir(machine.libraries()).expect("the target's libraries");
    machine.program("rustup", "exit 1");
    let directives = machine.check();
    assert!(!directives.contains("cargo::error") && !directives.contains("cargo::warning"), "{directives}");
    assert!(directives.contains(&format!("cargo::rerun-if-changed={}", machine.libraries().display())), "{directives}");
}

#[test]
fn a_missing_target_is_added_with_a_warning() {
    let machine = Machine::new();
    let record = machine.0.path().join("arguments");
    let body = format!("echo \"$@\" >{}; mkdir {}", record.display(), machine.libraries().display());
    machine.program("rustup", &body);
    let directives = machine.check();
    assert!(
        directives.contains("cargo::warning=the target wasm32-unknown-unknown was missing; added it"),
        "{directives}"
    );
    assert!(!directives.contains("cargo::error"), "{directives}");
    assert!(!directives.contains("/lib"), "what was added must not cause a second build: {directives}");
    assert_eq!(fs::read_to_string(record).expect("rustup ran").trim(), "target add wasm32-unknown-unknown");
}

#[test]
fn a_target_that_cannot_be_added_stops_the_build_with_the_command() {
    let machine = Machine::new();
    for (body, reason) in [("echo 'error: no network' >&2; exit 1", "error: no network"), ("exit 0", "still missing")] {
        machine.program("rustup", body);
        let directives = machine.check();
        assert!(directives.contains("cargo::error=the target wasm32-unknown-unknown is missing"), "{directives}");
        assert!(directives.contains(reason), "{directives}");
        assert!(directives.contains("run: rustup target add wasm32-unknown-unknown"), "{directives}");
    }
}
