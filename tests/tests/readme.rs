//! Runs the README: the commands a newcomer types must work as written.
//!
//! Blocks tagged `sh` run in order, as one shell session, in an empty folder in which `target/release/tribunal` is the
//! binary under test; port 7420 is replaced by a free one. Blocks tagged `sh ci` are commands for a fresh clone (build,
//! demo, tests): CI itself runs them, and this test checks that it does. `toml` blocks are passed to `config print`;
//! the `rust` block is the source of a built-in plugin. Blocks tagged `text` are output and are not run.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for the plugin guide, which compiles a plugin.
const TIMEOUT: Duration = Duration::from_secs(600);

struct Block {
    tag: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the root").to_owned()
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for line in markdown.lines() {
        match (line.strip_prefix("```"), open) {
            (Some(tag), false) => {
                open = true;
                blocks.push(Block { tag: tag.trim().to_owned(), text: String::new() });
            }
            (Some(_), true) => open = false,
            (None, true) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}

fn readme() -> Vec<Block> {
    blocks(&fs::read_to_string(root().join("README.md")).expect("README.md"))
}

/// Returns the server's binary next to this test: `target/<profile>/deps/readme-…` and `target/<profile>/tribunal`.
fn binary() -> PathBuf {
    let this = std::env::current_exe().expect("the test's own path");
    let path = this.ancestors().nth(2).expect("a profile's folder").join("tribunal");
    assert!(path.exists(), "{} is missing: build the server with this profile first", path.display());
    path
}

/// An empty folder with the binary at the path of a release build. Removed on drop.
struct Playground(PathBuf);

impl Playground {
    fn new(name: &str) -> Playground {
        let folder = std::env::temp_dir().join(format!("tribunal-readme-{name}-{}", std::process::id()));
        // A killed test with the same process id may have left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("target/release")).expect("a temporary folder");
        std::os::unix::fs::symlink(binary(), folder.join("target/release/tribunal")).expect("a link to the binary");
        Playground(folder)
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a script in `folder`; returns whether it succeeded, and its output, both streams together.
fn run(folder: &Path, script: &str) -> (bool, String) {
    // Processes that the script leaves running end with it.
    let script = format!("set -euo pipefail\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}");
    let output = folder.join("output");
    let mut child = Command::new("bash")
        .arg("-c")
        .arg(script)
        .current_dir(folder)
        // Code that the script compiles must not share this build's target directory.
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output).expect("a file for the output"))
        .spawn()
        .expect("bash");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the script's status") {
            break Some(status);
        }
        if start.elapsed() > TIMEOUT {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    (status.is_some_and(|status| status.success()), fs::read_to_string(output).unwrap_or_default())
}

/// Returns a port that is free along with the following ones that a cluster uses, below the ephemeral range.
fn free_ports() -> u16 {
    let start = std::process::id() as u16 % 400;
    let mut bases = (0..400).map(|n| 12_000 + (start + n) % 400 * 50);
    let are_free = |base: &u16| (0..20).all(|n| TcpListener::bind(("127.0.0.1", base + n)).is_ok());
    bases.find(are_free).expect("free ports")
}

#[test]
fn the_quickstart_works_as_written() {
    let script: String = readme().into_iter().filter(|block| block.tag == "sh").map(|block| block.text).collect();
    assert!(script.contains("7420"), "the quickstart names its port");
    let port = free_ports();
    let playground = Playground::new("quickstart");
    let (ok, output) = run(&playground.0, &script.replace("7420", &port.to_string()));
    assert!(ok, "the README's commands failed:\n{script}\n--- output:\n{output}");
    for promised in [
        "is kept as",
        "slot rule: most-writes-wins",
        "slot rule: first-writer-wins",
        "\"status\":\"committed\"",
        "\"status\":\"aborted\"",
        "\"conflicts\":[{",
        "read_conflict",
        "acct/1",
    ] {
        assert!(output.contains(promised), "the README promises {promised}, but:\n{output}");
    }
}

#[test]
fn the_example_configuration_is_accepted() {
    let playground = Playground::new("config");
    let configurations: Vec<_> = readme().into_iter().filter(|block| block.tag == "toml").collect();
    assert!(!configurations.is_empty(), "the README shows a configuration");
    for block in configurations {
        fs::write(playground.0.join("tribunal.toml"), &block.text).expect("a configuration file");
        let (ok, output) = run(&playground.0, "target/release/tribunal config print --config tribunal.toml");
        assert!(ok, "this configuration is refused:\n{}\n{output}", block.text);
    }
}

#[test]
fn ci_runs_the_commands_of_a_fresh_clone() {
    let ci = fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    let commands: Vec<_> = readme().into_iter().filter(|block| block.tag == "sh ci").collect();
    assert!(commands.len() >= 2, "the README names its two commands");
    for command in commands.iter().flat_map(|block| block.text.lines()) {
        assert!(ci.contains(command), "CI does not run: {command}");
    }
}

#[test]
fn the_plugin_shown_is_the_plugin_built() {
    let shown: Vec<_> = readme().into_iter().filter(|block| block.tag == "rust").collect();
    assert_eq!(shown.len(), 1);
    let source = fs::read_to_string(root().join("plugins/priority/src/lib.rs")).expect("the plugin");
    let code: Vec<_> = source.lines().filter(|line| !line.starts_with("//!")).collect();
    assert_eq!(shown[0].text.trim(), code.join("\n").trim());
}

#[test]
fn every_block_has_a_known_tag() {
    let known = ["sh", "sh ci", "text", "toml", "rust", "json"];
    let strangers: Vec<_> =
        readme().into_iter().map(|block| block.tag).filter(|tag| !known.contains(&&**tag)).collect();
    assert!(strangers.is_empty(), "blocks that nobody checks: {strangers:?}");
}

#[test]
fn blocks_are_classified_by_tag() {
    let found = blocks("a\n```sh\none\ntwo\n```\nb\n```text\nthree\n```\n");
    let found: Vec<_> = found.iter().map(|block| (block.tag.as_str(), block.text.as_str())).collect();
    assert_eq!(found, [("sh", "one\ntwo\n"), ("text", "three\n")]);
}
