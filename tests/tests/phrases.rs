//! Phrases that stop a native reader, and words that the project uses in one sense only. Each may only become rarer.
//!
//! `tests/phrases.txt` lists the number of occurrences left in each file. A file above its number fails, and so does
//! the project if the sum grows. A moved file keeps its occurrences as long as the sum does not grow. After rewriting,
//! lower the numbers: `UPDATE_PHRASES=1 cargo test -p tribunal-tests --test phrases`, which refuses to raise the sum.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Banned phrases, each with its replacement. A space matches any white space.
const BANNED: &[(&str, &str)] = &[
    ("for ever", "indefinitely, permanently, without bound"),
    ("anew", "again"),
    ("of late", "recently"),
    ("patience", "timeout"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("yardstick", "baseline"),
    ("twin", "native fallback, counterpart"),
    ("twins", "native fallbacks, counterparts"),
    ("what must be there", "prerequisites"),
    ("gone on with", "propagated, continued"),
    ("goes on from there", "resumes"),
    ("too much back", "retains too much"),
    ("mend", "fix, repair"),
    ("mends", "fixes, repairs"),
    ("mended", "fixed, repaired"),
    ("half of them are not above", "median"),
    ("whoever", "the caller, the client, the thread that"),
    ("hears", "receives"),
    ("heard", "received"),
    ("another life", "another incarnation"),
    ("one life", "one incarnation"),
    ("an earlier life", "an earlier incarnation"),
    ("for sure", "certainly; or leave it out"),
    ("is there twice", "occurs twice"),
    ("lies behind", "follows, is past"),
    ("stand in the way", "prevent, conflict with"),
    ("stands in the way", "prevents, conflicts with"),
    ("where it stands", "its state, its progress"),
    ("has gone", "has disconnected, has ended"),
    ("goes on without", "continues without, no longer waits for"),
];

/// Words before `behind` that make it a lag. Anywhere else, write `after`, `past` or `beyond`.
const LAGGING: &[&str] = &[
    "be", "fall", "fallen", "falling", "falls", "far", "fell", "further", "is", "lag", "lagged", "lagging", "lags",
    "left", "run", "running", "runs", "was", "were", "are",
];

/// Files that are generated, binary or not English.
const SKIPPED_ENDINGS: &[&str] = &[".lock", ".svg", ".wasm", ".bin", "package-lock.json", "LICENSE"];

/// Folders without text of the project: build output, generated code, fuzzer inputs.
const SKIPPED_FOLDERS: &[&str] =
    &[".git", "target", "tribunal-data", "node_modules", "wire", "bindings", "generated", "corpus", "dist"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the root").to_owned()
}

/// Returns every text file of the project, as a path below the root.
fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the tree is readable") {
            let path = entry.expect("the tree is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // `.git` is a file in a work tree.
            if name == ".git" {
                continue;
            }
            if path.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                folders.push(path);
            } else if path.is_file() && !SKIPPED_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                found.push(path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned());
            }
        }
    }
    // The lists themselves.
    found.retain(|path| path != "tests/phrases.txt" && path != "tests/tests/phrases.rs");
    found.sort();
    found
}

/// Returns the words of a text in lower case, each with its line. `a_b` is one word, and so is `a-b`.
fn words(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    let of_line = lines.flat_map(|(at, line)| {
        let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'));
        words.filter(|word| !word.is_empty()).map(move |word| (at + 1, word.trim_matches('-').to_lowercase()))
    });
    of_line.filter(|(_, word)| !word.is_empty()).collect()
}

/// Returns the banned phrases of a text, each with its line and its replacement.
fn offences(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let words = words(text);
    let mut found = Vec::new();
    for (at, (line, word)) in words.iter().enumerate() {
        for (phrase, instead) in BANNED {
            let mut parts = phrase.split(' ');
            if words[at..].iter().map(|(_, word)| word.as_str()).zip(&mut parts).all(|(word, part)| word == part)
                && parts.next().is_none()
            {
                found.push((*line, *phrase, *instead));
            }
        }
        if word == "behind" && !(at > 0 && LAGGING.contains(&words[at - 1].1.as_str())) {
            found.push((*line, "behind", "after, past, beyond; behind is for lag only"));
        }
    }
    found
}

/// Reads `tests/phrases.txt`: lines of a number and a path.
fn allowances() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("tests/phrases.txt")).expect("tests/phrases.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let (number, path) = line.trim().split_once(' ')?;
        Some((path.to_owned(), number.parse().ok()?))
    };
    lines
        .map(|line| parse(line).unwrap_or_else(|| panic!("tests/phrases.txt: `{line}` is no number and path")))
        .collect()
}

#[test]
fn banned_phrases_only_become_rarer() {
    let mut counts = BTreeMap::new();
    let mut places = Vec::new();
    let allowed = allowances();
    for path in files() {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        let found = offences(&text);
        if found.len() > allowed.get(&path).copied().unwrap_or(0) {
            let lines = found.iter().map(|(line, phrase, instead)| format!("{path}:{line}: `{phrase}` ({instead})"));
            places.extend(lines);
        }
        if !found.is_empty() {
            counts.insert(path, found.len());
        }
    }
    let (sum, sum_max) = (counts.values().sum::<usize>(), allowed.values().sum::<usize>());
    assert!(
        sum <= sum_max,
        "{sum} banned phrases, {sum_max} are allowed; these files have new ones:\n  {}",
        places.join("\n  ")
    );
    let moved: Vec<_> = counts
        .iter()
        .filter(|(path, count)| allowed.get(*path).is_some_and(|max| *count > max))
        .map(|(path, count)| format!("{path}: {count}"))
        .collect();
    assert!(
        moved.is_empty(),
        "files with more banned phrases than before:\n  {}\n  {}",
        moved.join("\n  "),
        places.join("\n  ")
    );
    if std::env::var_os("UPDATE_PHRASES").is_some() {
        let head =
            "# Places with banned phrases that each file still has; see tests/tests/phrases.rs. May only shrink.\n";
        let lines = counts.iter().map(|(path, count)| format!("{count} {path}\n"));
        fs::write(root().join("tests/phrases.txt"), head.to_owned() + &lines.collect::<String>()).expect("the list");
    }
}

#[test]
fn phrases_are_found_over_line_ends_and_lag_is_not_one() {
    let found = |text: &str| offences(text).into_iter().map(|(line, phrase, _)| (line, phrase)).collect::<Vec<_>>();
    assert_eq!(found("it is kept for\n// ever."), [(1, "for ever")]);
    assert_eq!(found("A Twin, native_twin and twin-engined"), [(1, "twin")]);
    assert_eq!(found("a reader falls behind; a store is far behind"), []);
    assert_eq!(found("start\nbehind this LSN"), [(2, "behind")]);
}
