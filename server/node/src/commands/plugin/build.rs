//! `tribunal plugin build`: compiles with the language's own tools, encodes the component, and prints its imports.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tribunal_wasm::{PluginLimits, World, encode, gate};

use super::{Manifest, progress};
use crate::commands::output::out;

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the plugin in `folder`; writes its component beside `plugin.toml`.
///
/// # Errors
/// If a tool is missing or fails, or the result has imports or does not fit its world.
pub fn build(folder: &Path) -> Result<(), String> {
    let manifest = Manifest::read(folder)?;
    let world = manifest.world()?;
    let component = match manifest.lang.as_str() {
        "rust" => component_of(&rust(folder)?, world)?,
        "c" => component_of(&c(folder)?, world)?,
        "js" => js(folder, world)?,
        other => return Err(format!("plugin.toml: this version cannot build `{other}`, but rust, c and js")),
    };
    gate::check(&component, world, &PluginLimits::default()).map_err(|refusal| refusal.to_string())?;
    // The gate rejects any component with imports.
    out!("imports: none");
    let path = manifest.component(folder);
    std::fs::write(&path, &component).map_err(|error| format!("{}: {error}", path.display()))?;
    out!("{}: {} bytes, world {}", path.display(), component.len(), world.name());
    Ok(())
}

/// Encodes a core module as a component.
fn component_of(module: &[u8], world: World) -> Result<Vec<u8>, String> {
    let imports = encode::imports(module).map_err(|error| error.to_string())?;
    if !imports.is_empty() {
        out!("imports: {}", imports.join(", "));
    }
    encode::encode(module, world).map_err(|error| error.to_string())
}

/// Runs a tool, whose errors go to the terminal, and returns its output.
fn run(command: &mut Command, install: &str) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{name} cannot be started: {error}; {install}"))?;
    if output.status.success() { Ok(output.stdout) } else { Err(format!("{name} failed ({})", output.status)) }
}

/// Compiles with cargo; returns the core module.
fn rust(folder: &Path) -> Result<Vec<u8>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(folder).args(["build", "--release", "--lib", "--target", TARGET]);
    // In the plugin's own folder, whatever the environment or cargo's configuration specifies: in a shared target
    // folder, cargo treats plugins of the same name, and the SDKs of all plugins, as the same package, and one gets the
    // build of another.
    command.args(["--target-dir", "target", "--message-format", "json-render-diagnostics"]);
    let said =
        run(&mut command, &format!("install Rust with rustup (https://rustup.rs), then `rustup target add {TARGET}`"))
            .map_err(|error| format!("{error}; if it misses `core`, run `rustup target add {TARGET}`"))?;
    let mut modules = said.split(|byte| *byte == b'\n').filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        let files = message.get("filenames")?.as_array()?;
        files.iter().filter_map(|file| file.as_str()).find(|file| file.ends_with(".wasm")).map(PathBuf::from)
    });
    let missing = || "cargo made no `.wasm`; Cargo.toml needs crate-type = [\"cdylib\", \"lib\"]".to_owned();
    read(&modules.next_back().ok_or_else(missing)?)
}

/// Commands of a C compiler for WebAssembly, best first.
const C_COMPILERS: [&[&str]; 3] = [&["zig", "cc"], &["python3", "-m", "ziglang", "cc"], &["clang"]];
const C_INSTALL: &str = "install one of: zig (https://ziglang.org, or `pip install ziglang`), clang with lld; or name a \
                         compiler in TRIBUNAL_CC, for example TRIBUNAL_CC=\"clang-18\"";

/// Compiles with a C compiler; returns the core module.
fn c(folder: &Path) -> Result<Vec<u8>, String> {
    let chosen = std::env::var("TRIBUNAL_CC").ok();
    let works = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let words: Vec<&str> = match &chosen {
        Some(chosen) => chosen.split_whitespace().collect(),
        None => C_COMPILERS.into_iter().find(|words| works(words)).unwrap_or_default().to_vec(),
    };
    let Some((program, rest)) = words.split_first() else {
        return Err(format!("there is no C compiler for WebAssembly; {C_INSTALL}"));
    };
    let mut sources = Vec::new();
    for part in ["src", "bindings", "runtime"] {
        let entries = std::fs::read_dir(folder.join(part)).map_err(|error| format!("{part}: {error}"))?;
        let files =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "c"));
        sources.extend(files.filter_map(|path| Some(Path::new(part).join(path.file_name()?))));
    }
    // Make the build independent of the order in which a folder lists its files.
    sources.sort();
    let module = tempfile::Builder::new().suffix(".wasm").tempfile().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.current_dir(folder).args(rest).arg(if rest.contains(&"cc") {
        "--target=wasm32-freestanding"
    } else {
        "--target=wasm32-unknown-unknown"
    });
    command.args(["-O2", "-nostdlib", "-fno-builtin", "-Wall", "-Wextra", "-I", "runtime", "-I", "bindings"]);
    command.args(&sources);
    command.args(["-Wl,--no-entry", "-Wl,-z,stack-size=65536", "-Wl,--initial-memory=2097152", "-s", "-o"]);
    run(command.arg(module.path()), C_INSTALL)?;
    read(module.path())
}

const JS_INSTALL: &str = "install Node.js 20 or later (https://nodejs.org), which brings npm along";

/// Combines the source and a JavaScript engine into one component with componentize-js, and returns it.
fn js(folder: &Path, world: World) -> Result<Vec<u8>, String> {
    if !folder.join("node_modules").exists() {
        out!("installing what package-lock.json names");
        let mut npm = Command::new("npm");
        npm.current_dir(folder).args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
        run(&mut npm, JS_INSTALL)?;
    }
    let component = tempfile::Builder::new().suffix(".wasm").tempfile().map_err(|error| error.to_string())?;
    let mut node = Command::new("node");
    node.current_dir(folder).args(["build.mjs", world.name()]).arg(component.path());
    progress::during("building", || run(&mut node, JS_INSTALL))?;
    read(component.path())
}

fn read(module: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(module).map_err(|error| format!("{}: {error}", module.display()))
}
