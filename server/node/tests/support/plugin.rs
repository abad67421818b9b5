//! `tribunal plugin`, run as by a plugin author.

use std::path::Path;
use std::process::Command;

/// Runs `tribunal plugin` with these arguments; returns whether it succeeded, and its complete output.
pub fn plugin(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tribunal"))
        .current_dir(folder)
        .arg("plugin")
        .args(arguments)
        // Not this build's target folder; `build` uses one in the plugin's own folder anyway.
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// Runs a command that must succeed; returns its output.
#[track_caller]
pub fn done(folder: &Path, arguments: &[&str]) -> String {
    let (ok, text) = plugin(folder, arguments);
    assert!(ok, "tribunal plugin {arguments:?}:\n{text}");
    text
}
