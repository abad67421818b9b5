//! Checks within the first seconds of a build that the compiler can build for WebAssembly. If the target is missing,
//! adds it with rustup and prints a warning that it did; if that fails, stops the build with what to do.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let libraries = match target_libraries() {
        Ok(libraries) => libraries,
        Err(error) => return fail(&error),
    };
    if libraries.is_dir() {
        // So that a target that is removed later is noticed. Not for one that is added here: it would be newer than this
        // run, and cause a second build of everything.
        println!("cargo::rerun-if-changed={}", libraries.display());
        return;
    }
    if let Err(error) = add_target() {
        return fail(&error);
    }
    if libraries.is_dir() {
        println!("cargo::warning=the target {TARGET} was missing; added it with `rustup target add {TARGET}`");
    } else {
        fail(&format!("`rustup target add {TARGET}` succeeded, but {} is still missing", libraries.display()));
    }
}

/// Returns the folder in which the compiler looks for the target's standard library, whether or not it exists.
fn target_libraries() -> Result<PathBuf, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let arguments = ["--print", "target-libdir", "--target", TARGET];
    let output = Command::new(&rustc)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run {}: {error}", rustc.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{} {}` failed: {}", rustc.display(), arguments.join(" "), text.trim()));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Adds the target to the toolchain of this build: cargo was started by rustup and tells its toolchain in
/// `RUSTUP_TOOLCHAIN`.
fn add_target() -> Result<(), String> {
    let output = Command::new("rustup").args(["target", "add", TARGET]).env_remove("RUST_BACKTRACE").output();
    let output = output.map_err(|error| format!("rustup cannot be run ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let error = text.lines().find(|line| line.starts_with("error:")).unwrap_or("error: no reason given");
    Err(format!("`rustup target add {TARGET}` reports {error}"))
}

/// Stops the build. cargo prints the lines and runs nothing else.
fn fail(reason: &str) {
    println!("cargo::error=the target {TARGET} is missing, and the built-in plugins are compiled for it: {reason}");
    println!("cargo::error=with rustup, run: rustup target add {TARGET}");
    println!("cargo::error=with Debian's rustc, run: apt-get install libstd-rust-dev-wasm32");
}
