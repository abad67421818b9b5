//! The API description lists exactly the problem codes that the server returns.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tribunal_http::problem_codes::PROBLEM_CODES;

/// Reads the sources below `dir` up to their tests, with all white space collapsed to one space.
fn sources(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("problem_codes.rs") {
            let source = fs::read_to_string(&path).expect("text");
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            text.extend(source.split_whitespace().flat_map(|word| [word, " "]));
        }
    }
}

fn server() -> String {
    let mut text = String::new();
    for krate in ["http", "node", "service"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src"), &mut text);
    }
    text
}

/// Returns whether the text before a literal marks it as a problem code.
fn introduces_code(before: &str) -> bool {
    let before = before.trim_end();
    let call = before.rsplit_once('(').filter(|(_, rest)| rest.is_empty());
    let by_name = ["mistake", "refuse", "refused_url"]
        .iter()
        .any(|name| call.is_some_and(|(name_of, _)| name_of.ends_with(name)));
    let arm = before.strip_suffix("=> (").or_else(|| before.strip_suffix("=> return (")).unwrap_or_default();
    let last = arm.rsplit(['{', '}', ',', '(']).find(|part| !part.trim().is_empty()).unwrap_or_default();
    let by_arm = ["Code::", "Refusal::", "Limit::"].iter().any(|kind| last.contains(kind));
    let by_status = before.strip_suffix(',').is_some_and(|status| {
        let word = status.rsplit([' ', '(']).next().unwrap_or_default();
        word.starts_with("StatusCode::")
    });
    before.ends_with("code:") || by_name || by_arm || by_status
}

fn returned(server: &str) -> BTreeSet<&str> {
    let parts: Vec<(usize, &str)> =
        server.match_indices('"').map(|(at, _)| at).zip(server.split('"').skip(1)).collect();
    let is_code = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    parts
        .into_iter()
        .filter(|(at, text)| is_code(text) && introduces_code(&server[..*at]))
        .map(|(_, text)| text)
        .collect()
}

#[test]
fn every_code_that_the_server_returns_is_described() {
    let server = server();
    let described: BTreeSet<&str> = PROBLEM_CODES.iter().map(|(code, ..)| *code).collect();
    let returned = returned(&server);
    assert!(returned.len() > 80, "they are no longer found: {returned:?}");
    let missing: Vec<_> = returned.difference(&described).collect();
    assert!(missing.is_empty(), "not described: {missing:?}");
}

#[test]
fn every_code_that_is_described_is_in_the_server() {
    let server = server();
    let unknown: Vec<_> = PROBLEM_CODES.iter().filter(|(code, ..)| !server.contains(&format!("\"{code}\""))).collect();
    assert!(unknown.is_empty(), "described, and never returned: {unknown:?}");
}

/// Codes of fields have their status next to them in the code.
#[test]
fn the_statuses_of_fields_errors_are_those_of_the_server() {
    let server = server();
    let mut compared = 0;
    for (code, described, _) in PROBLEM_CODES {
        let Some((_, rest)) = server.split_once(&format!("=> (\"{code}\", ")) else { continue };
        let Ok(status) = rest.split(')').next().unwrap_or_default().parse::<u16>() else { continue };
        compared += 1;
        assert_eq!(status, *described, "{code}");
    }
    assert!(compared > 25, "they are no longer found: {compared}");
}
