//! Suggests an existing route for a path without one: the route that a newcomer to the API probably meant.
//!
//! Must never suggest a path that has no route either, or cost more than one comparison per route.

use crate::request::txn_body::shown;

/// Maximum number of letters in which a path may differ from the suggested one.
const DISTANCE_MAX: usize = 2;

/// Longest path segment that is compared letter by letter.
const COMPARED_BYTES_MAX: usize = 32;

/// Paths of other APIs, and their equivalents in this one. `{}` is the name of a store.
const ELSEWHERE: [(&str, &str); 11] = [
    ("/v1/begin", "`POST /v1/txns`"),
    ("/v1/commit", "`POST /v1/txns/ID/commit`"),
    ("/v1/txn/commit", "`POST /v1/txns/ID/commit`"),
    ("/v1/transactions", "`/v1/txns`"),
    ("/v1/batch-commit", "`POST /v1/txns/batch-commit`"),
    ("/v1/rows", "`/v1/stores/STORE/rows`"),
    ("/v1/stores/{}/log", "`/v1/log?store={}`"),
    ("/v1/stores/{}/snapshot", "`/v1/snapshot?store={}`"),
    ("/v1/stores/{}/read", "`POST /v1/stores/{}/rows/read`"),
    ("/v1/stores/{}/import", "`POST /v1/stores/{}/versions`"),
    ("/v1/stores/{}/webhook", "`/v1/stores/{}/push`"),
];

/// The patterns of all routes.
#[derive(Clone, Debug)]
pub struct RoutePatterns(std::sync::Arc<[String]>);

impl RoutePatterns {
    /// Builds the set from patterns, in which `{name}` is one segment of a path, and `{*name}` the rest of it.
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        RoutePatterns(patterns.into_iter().collect())
    }

    /// Returns the message that no such route exists, with a suggestion.
    #[must_use]
    pub fn hint(&self, path: &str) -> String {
        let there_is_none = format!("there is no route {}", shown(path));
        if path.starts_with("/v1/v1/") {
            return format!(
                "{there_is_none}: clients and commands add `/v1` themselves; their URL is that of the node alone"
            );
        }
        let tidy = without_empty_parts(path);
        if tidy != path && self.has(&tidy) {
            return match tidy.strip_suffix("/rows").filter(|store| store.starts_with("/v1/stores/")) {
                Some(_) => {
                    let rows = shown(&tidy);
                    format!("{there_is_none}: `{rows}` lists rows, and `{rows}/KEY` is one row; a key is never empty")
                }
                None => format!("{there_is_none}; use `{}`, without empty parts", shown(&tidy)),
            };
        }
        match self.instead_of(&tidy) {
            Some(other) => format!("{there_is_none}; use {other}, or see /docs"),
            None => format!("{there_is_none}; see /docs"),
        }
    }

    fn instead_of(&self, path: &str) -> Option<String> {
        let elsewhere = |(word, other): &(&str, &str)| Some(other.replace("{}", &shown(between(path, word)?)));
        if let Some(other) = ELSEWHERE.iter().find_map(elsewhere) {
            return Some(other);
        }
        // Here, verbs are segments: `/v1/txns/ID:commit` is not a route.
        let verb = path.rsplit_once(':').map(|(resource, verb)| format!("{resource}/{verb}"));
        let version_less = path.strip_prefix("/v1").unwrap_or(path);
        let rest = version_less.strip_prefix("/admin").unwrap_or(version_less);
        let under = |prefix: &str| format!("{prefix}{rest}");
        let meant: Vec<String> = verb.into_iter().chain([path.to_owned(), under(""), under("/v1")]).collect();
        // For these, only exact matches count: with a spelling error in addition, a path would resemble too many
        // routes.
        let elsewhere = [under("/v1/admin"), under("/v1/cluster")];
        let same = meant.iter().find(|path| self.has(path));
        if let Some(same) = same.or_else(|| elsewhere.iter().find(|path| self.has_named(path))) {
            return Some(format!("`{}`", shown(same)));
        }
        let similar = meant.iter().flat_map(|path| self.0.iter().filter_map(|pattern| similar(path, pattern)));
        if let Some((_, nearest)) = similar.min() {
            return Some(format!("`{}`", shown(&nearest)));
        }
        let store = path.strip_prefix("/v1/stores/")?.split('/').next()?;
        Some(format!("`/v1/stores/{}/rows/KEY` for a row", shown(store)))
    }

    fn has(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| is_of(pattern, path))
    }

    /// Returns whether a route of at most one parameter has this path: one with more resembles too many paths.
    fn has_named(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches('{').count() < 2 && is_of(pattern, path))
    }
}

fn is_of(pattern: &str, path: &str) -> bool {
    similar(path, pattern).is_some_and(|(distance, _)| distance == 0)
}

/// Returns the part of a path that matches `{}` in a pattern.
fn between<'a>(path: &'a str, pattern: &str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{}") else { return (path == pattern).then_some("") };
    let part = path.strip_prefix(before)?.strip_suffix(after)?;
    (!part.is_empty() && !part.contains('/')).then_some(part)
}

fn without_empty_parts(path: &str) -> String {
    let parts: String = path.split('/').filter(|part| !part.is_empty()).flat_map(|part| ["/", part]).collect();
    if parts.is_empty() { "/".to_owned() } else { parts }
}

/// Returns the number of differing letters between a path and a route, and the path corrected to the route, if the
/// number is small.
fn similar(path: &str, pattern: &str) -> Option<(usize, String)> {
    let (mut distance, mut meant) = (0, String::new());
    let mut parts = path.split('/').skip(1);
    for name in pattern.split('/').skip(1) {
        let part = parts.next()?;
        meant.push('/');
        if name.starts_with('{') {
            if part.is_empty() {
                return None;
            }
            meant.push_str(part);
            if name.starts_with("{*") {
                parts.by_ref().for_each(|part| meant.extend(["/", part]));
            }
            continue;
        }
        let differs = letters_between(part, name)?;
        // Short words resemble too many other words.
        if differs * 2 >= name.len().max(1) && differs > 0 {
            return None;
        }
        distance += differs;
        meant.push_str(name);
    }
    (parts.next().is_none() && distance <= DISTANCE_MAX).then_some((distance, meant))
}

/// Returns the edit distance (insertions, deletions, replacements), unless it exceeds the limit.
fn letters_between(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return Some(0);
    }
    if one.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let (one, other) = (one.to_ascii_lowercase(), other.as_bytes());
    if one.as_bytes() == other {
        return Some(1);
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, known) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *known);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().filter(|distance| *distance <= DISTANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(path: &str) -> String {
        let patterns = [
            "/",
            "/healthz",
            "/readyz",
            "/metrics",
            "/v1/log",
            "/v1/snapshot",
            "/v1/stores",
            "/v1/stores/{store}",
            "/v1/stores/{store}/rows",
            "/v1/stores/{store}/rows/{*key}",
            "/v1/stores/{store}/push",
            "/v1/txns",
            "/v1/txns/{txn_id}",
            "/v1/txns/{txn_id}/commit",
            "/v1/admin/keys",
            "/v1/admin/stores/{namespace}/{store}",
            "/v1/admin/plugins/{name}",
            "/v1/cluster/nodes",
        ];
        let hint = RoutePatterns::new(patterns.map(str::to_owned)).hint(path);
        hint.strip_prefix(&format!("there is no route {path}")).expect("it names the path").to_owned()
    }

    #[test]
    fn a_path_that_is_nearly_right_gets_the_right_one() {
        for (path, meant) in [
            ("/v1/stores/", "/v1/stores"),
            ("/v1//stores/kv", "/v1/stores/kv"),
            ("//", "/"),
            ("/stores/kv", "/v1/stores/kv"),
            ("/txns/7/commit", "/v1/txns/7/commit"),
            ("/v1/store/kv", "/v1/stores/kv"),
            ("/v1/Stores/kv", "/v1/stores/kv"),
            ("/v1/stores/kv/row/a/b", "/v1/stores/kv/rows/a/b"),
            ("/v1/snapshots", "/v1/snapshot"),
            ("/v1/txn/7", "/v1/txns/7"),
            ("/v1/txns/7:commit", "/v1/txns/7/commit"),
            ("/v1/metrics", "/metrics"),
            ("/v1/health", "/healthz"),
            ("/ready", "/readyz"),
            ("/v1/keys", "/v1/admin/keys"),
            ("/admin/plugins/p", "/v1/admin/plugins/p"),
            ("/v1/nodes", "/v1/cluster/nodes"),
            ("/v1/commit", "POST /v1/txns/ID/commit"),
            ("/v1/stores/kv/log", "/v1/log?store=kv"),
            ("/v1/stores/kv/acct", "/v1/stores/kv/rows/KEY"),
            ("/v1/stores/kv/images", "/v1/stores/kv/rows/KEY"),
            ("/v1/stores/kv/read", "POST /v1/stores/kv/rows/read"),
            ("/v1/stores/kv/import", "POST /v1/stores/kv/versions"),
            ("/v1/txn/commit", "POST /v1/txns/ID/commit"),
        ] {
            let hint = hint(path);
            assert!(hint.contains(&format!("use `{meant}`")), "{path}: {hint}");
        }
    }

    #[test]
    fn rows_without_a_key_are_told_apart_from_a_row() {
        assert_eq!(
            hint("/v1/stores/kv/rows/"),
            ": `/v1/stores/kv/rows` lists rows, and `/v1/stores/kv/rows/KEY` is one row; a key is never empty"
        );
    }

    #[test]
    fn a_path_that_is_like_no_other_is_not_guessed_at() {
        let long = format!("/v1/{}", "stores".repeat(11_000));
        for path in ["/nope", "/v1/txns/x/y/z", "/v2/x"] {
            assert_eq!(hint(path), "; see /docs", "{path}");
        }
        let patterns = RoutePatterns::new(["/v1/stores".to_owned()]);
        assert!(patterns.hint(&long).len() < 200, "what is shown of a path is bounded");
    }
}
