//! Paths that are recognised before the router: their requests bypass it, or run on other threads than most.

use hyper::{Method, Request};

/// The route that returns a constant.
pub(crate) const CONSTANT: &str = "/v1/debug/constant";
/// The route of batches.
const BATCH: &str = "/v1/txns/batch-commit";
/// The route of commit streams.
pub(crate) const STREAM: &str = "/v1/txns/stream";
/// The route that begins a transaction.
const BEGIN: &str = "/v1/txns";
/// Prefix of the routes of stores.
const STORES: &str = "/v1/stores/";

/// Returns whether a request commits a batch.
pub(crate) fn is_batch<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == BATCH
}

/// Returns whether a request decides transactions, which must be assumed once it may have been proposed.
pub(crate) fn is_decided<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    request.method() == Method::POST && path.starts_with("/v1/txns/") && !path.ends_with("/validate")
}

/// Returns whether a request is a Begin or a read of rows by key: most are answered from memory, and the node moves the
/// rest to other threads.
pub(crate) fn is_read<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::POST => path == BEGIN || path.starts_with(STORES) && path.ends_with("/rows/read"),
        Method::GET => path.strip_prefix(STORES).is_some_and(|rest| rest.contains("/rows/")),
        _ => false,
    }
}

/// Returns whether a path is `/v1/txns/{txn_id}/commit`; the handler validates the id.
pub(crate) fn is_commit(path: &str) -> bool {
    let id = path.strip_prefix("/v1/txns/").and_then(|rest| rest.strip_suffix("/commit"));
    id.is_some_and(|id| id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_commits_take_the_fast_path() {
        assert!(is_commit("/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit"));
        for path in [
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/abort",
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5/commit",
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b%61/commit",
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c/5a/commit",
            "/v1/txns/batch-commit",
        ] {
            assert!(!is_commit(path), "{path}");
        }
    }
}
