//! The house rules that a machine can check: where files live, how long they get, how they open, and that paths in the
//! documents exist. There is no list of exceptions: a file that breaks a rule must be split or moved better.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum lines of a file; a longer one must be split better.
const FILE_LINES_MAX: usize = 800;

/// Everything allowed at the top level, besides dot files.
const TOP_LEVEL: &[&str] = &[
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "adaptors-wasm",
    "clippy.toml",
    "deny.toml",
    "examples",
    "loadtest",
    "openapi",
    "plugins",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "sdk",
    "server",
    "tests",
];

/// Names that do not tell what a file owns.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the root").to_owned()
}

/// Returns every file of the project as a path below the root: the files that version control would include.
fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the tree is readable") {
            let path = entry.expect("the tree is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if matches!(name.as_str(), ".git" | "target" | "tribunal-data" | "node_modules") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let below = path.strip_prefix(root()).expect("below the root");
                found.push(below.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn rust_files() -> impl Iterator<Item = (String, String)> {
    files().into_iter().filter(|path| path.ends_with(".rs")).map(|path| (path.clone(), read(&path)))
}

/// Reports all offenders at once, so that one run is enough to fix them.
#[track_caller]
fn none(offenders: &[String], rule: &str) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

#[test]
fn the_walk_sees_the_project() {
    let files = files();
    for expected in ["Cargo.toml", "server/types/src/lib.rs", "tests/tests/tidy.rs"] {
        assert!(files.iter().any(|path| path == expected), "{expected} was not found");
    }
}

#[test]
fn the_top_level_contains_only_known_entries() {
    let tops: BTreeSet<_> = files().iter().filter_map(|path| Some(path.split('/').next()?.to_owned())).collect();
    let strangers: Vec<_> =
        tops.into_iter().filter(|top| !top.starts_with('.') && !TOP_LEVEL.contains(&top.as_str())).collect();
    none(&strangers, "not allowed at the top level");
}

#[test]
fn every_rust_file_begins_with_what_it_owns() {
    let offenders: Vec<_> = rust_files().filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path).collect();
    none(&offenders, "files that do not open with `//!`");
}

#[test]
fn no_rust_file_is_too_long() {
    let offenders: Vec<_> = rust_files()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    none(&offenders, "files that ask for a better cut");
}

#[test]
fn there_are_no_todos() {
    // Assembled here so that this file does not match itself.
    let needles = [["to", "do!("].concat(), ["unimpl", "emented!("].concat(), ["FIX", "ME"].concat()];
    let offenders: Vec<_> = rust_files()
        .flat_map(|(path, text)| {
            let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.to_owned())).collect::<Vec<_>>();
            lines.into_iter().map(move |(at, line)| (path.clone(), at, line))
        })
        .filter(|(_, _, line)| needles.iter().any(|needle| line.contains(needle.as_str())))
        .map(|(path, at, line)| format!("{path}:{at}: {}", line.trim()))
        .collect();
    none(&offenders, "unfinished code");
}

#[test]
fn names_say_what_a_file_owns() {
    let offenders: Vec<_> = files()
        .into_iter()
        .filter(|path| {
            let mut parts = path.split('/');
            parts.any(|part| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part)))
        })
        .collect();
    none(&offenders, "names that say nothing");
}

#[test]
fn nothing_depends_on_one_machine() {
    let needles = [["/ro", "ot/"].concat(), ["/ho", "me/"].concat()];
    let offenders: Vec<_> = files()
        .into_iter()
        .filter(|path| !path.ends_with(".wasm"))
        .filter(|path| {
            let text = String::from_utf8_lossy(&fs::read(root().join(path)).unwrap_or_default()).into_owned();
            needles.iter().any(|needle| text.contains(needle.as_str()))
        })
        .collect();
    none(&offenders, "files that name a path of one machine");
}

/// Returns the pieces of `text` between single backticks, without code blocks.
fn code_spans(text: &str) -> Vec<String> {
    let mut spans = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            spans.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    spans
}

/// Returns whether a code span is meant as a path of this project: it starts with a top-level entry.
fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let top = span.split('/').next().unwrap_or_default();
    plain && span.contains('/') && (TOP_LEVEL.contains(&top) || top == ".ci")
}

#[test]
fn paths_in_the_documents_exist() {
    let mut seen = 0;
    let mut missing = Vec::new();
    for document in documents() {
        for span in code_spans(&read(&document)).into_iter().filter(|span| is_path(span)) {
            seen += 1;
            if !root().join(&span).exists() {
                missing.push(format!("{document}: {span}"));
            }
        }
    }
    none(&missing, "paths that do not exist");
    assert!(seen > 20, "only {seen} paths were recognised in the documents");
}

fn documents() -> Vec<String> {
    files().into_iter().filter(|path| path.ends_with(".md")).collect()
}

/// Returns the targets of a document's relative links, without anchors.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or(target).to_owned())
        .collect()
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let folder = root().join(&document).parent().expect("a file has a folder").to_owned();
        let targets = links(&read(&document));
        broken.extend(targets.iter().filter(|to| !folder.join(to).exists()).map(|to| format!("{document}: {to}")));
    }
    none(&broken, "links that lead nowhere");
}

#[test]
fn decisions_are_numbered_and_linked() {
    let decisions: Vec<_> =
        documents().into_iter().filter_map(|path| path.strip_prefix("server/decisions/").map(str::to_owned)).collect();
    assert!(!decisions.is_empty(), "no decision was found");
    let architecture = links(&read("ARCHITECTURE.md"));
    let mut offenders = Vec::new();
    let mut numbers = BTreeSet::new();
    for name in &decisions {
        let number = name.split_once('-').map(|(number, _)| number).filter(|number| number.len() == 4);
        match number.and_then(|number| number.parse::<u32>().ok()) {
            Some(number) if numbers.insert(number) => {}
            Some(number) => offenders.push(format!("{name}: there are two decisions {number:04}")),
            None => offenders.push(format!("{name}: does not start with a number of four digits")),
        }
        if !architecture.contains(&format!("server/decisions/{name}")) {
            offenders.push(format!("{name}: not linked from ARCHITECTURE.md"));
        }
        let text = read(&format!("server/decisions/{name}"));
        if !text.contains("\n## Instead of\n") {
            offenders.push(format!("{name}: does not say what lost (`## Instead of`)"));
        }
        if text.lines().count() > 60 {
            offenders.push(format!("{name}: longer than a page"));
        }
    }
    none(&offenders, "decisions out of order");
}

#[test]
fn the_documents_readers_understand_code_spans_and_links() {
    let text = "a `server/core` b\n```sh\n`server/none`\n```\n`x/y` [t](README.md#top) [u](https://a/b) [v](#here)";
    let spans = code_spans(text);
    assert_eq!(spans, ["server/core", "x/y"]);
    assert_eq!(spans.iter().filter(|span| is_path(span)).count(), 1);
    assert_eq!(links(text), ["README.md"]);
}
