//! Checks the target of a request before its handler reads it: percent escapes of the path, and query parameters on
//! routes that have none. A route with parameters reads them with [`Query`], which itself refuses unknown ones.

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::request::query::{Query, escape_error};
use crate::response::field_error::{Code, FieldError};
use crate::response::problem::ProblemResponse;

/// Prefix of the API's routes. Other routes ignore unknown parameters: probes and scrapers send their own.
const API: &str = "/v1/";

/// Returns whether the handler of a route reads parameters. HEAD requests go to the handler of GET.
fn has_parameters(method: &Method, pattern: &str) -> bool {
    match *method {
        Method::GET | Method::HEAD => matches!(
            pattern,
            "/v1/txns/{txn_id}"
                | "/v1/log"
                | "/v1/snapshot"
                | "/v1/stats"
                | "/v1/admin/stores"
                | "/v1/cluster"
                | "/v1/stores/{store}/rows"
                | "/v1/stores/{store}/rows/{*key}"
                | "/v1/stores/{store}/rows/read"
        ),
        Method::PUT => pattern == "/v1/admin/plugins/{name}",
        Method::DELETE => matches!(pattern, "/v1/consumers/{name}" | "/v1/admin/keys/{id}"),
        _ => false,
    }
}

/// Refuses parameters on a route that has none.
///
/// # Errors
/// 400 with all of them.
pub fn no_parameters(uri: &Uri) -> Result<(), ProblemResponse> {
    match uri.query() {
        None | Some("") => Ok(()),
        given => Query::new(given, &[]).finish(),
    }
}

/// The layer. Refuses a request whose target is malformed.
pub async fn check(request: Request, next: Next) -> Response {
    match fault(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn fault(request: &Request) -> Option<ProblemResponse> {
    let path = request.uri().path();
    let pattern = request.extensions().get::<MatchedPath>()?.as_str();
    if !path.starts_with(API) {
        return None;
    }
    if let Some(error) = path_error(path, pattern) {
        return Some(error.into());
    }
    if has_parameters(request.method(), pattern) {
        return None;
    }
    no_parameters(request.uri()).err()
}

/// Returns the error for the first segment of a path with a malformed escape, under its name in the route.
fn path_error(path: &str, pattern: &str) -> Option<FieldError> {
    if !path.contains('%') {
        return None;
    }
    let mut names = pattern.split('/');
    let mut name = "";
    path.split('/').find_map(|part| {
        // The last name of a route may cover several segments.
        name = names.next().unwrap_or(name);
        let detail = escape_error(part)?;
        Some(FieldError::in_path(Code::BadParameter, name.trim_matches(['{', '*', '}']), detail))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_escape_is_named_by_its_part_of_the_route() {
        const ROW: &str = "/v1/stores/{store}/rows/{*key}";
        for (path, expected) in [
            ("/v1/stores/kv/rows/a%2Fb%ff%00", None),
            ("/v1/stores/%zz/rows/a", Some("{store}")),
            ("/v1/stores/kv/rows/a%", Some("{key}")),
            ("/v1/stores/kv/rows/a/b%2", Some("{key}")),
            ("/v1/stores/kv/rows/a/b/%ü/c", Some("{key}")),
        ] {
            let found = path_error(path, ROW).map(|error| error.pointer);
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
