//! The credential of a request: one bearer token.

use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use tribunal_service::Unauthenticated;

use crate::response::problem::ProblemResponse;

/// Interval at which the credential of a waiting caller is checked again.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the bearer token of a request.
///
/// # Errors
/// What is wrong with the header.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err("exactly one header `authorization: Bearer KEY` is required, with an API key or a token");
    };
    let text = value.to_str().map_err(|_| "the header `authorization` is not ASCII")?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Ok(token),
        _ => Err("the header `authorization` is not of the form `Bearer KEY`"),
    }
}

/// Builds the problem of a request without a bearer token.
pub(crate) fn unauthenticated(reason: &'static str) -> ProblemResponse {
    refused(Unauthenticated::new(reason))
}

/// Builds the problem of a request whose token is refused.
pub(crate) fn refused(Unauthenticated { code, detail, .. }: Unauthenticated) -> ProblemResponse {
    ProblemResponse::new(StatusCode::UNAUTHORIZED, code, detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_credential_is_one_bearer() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).ok().map(str::to_owned)
        };
        assert_eq!(of(&["Bearer k"]).as_deref(), Some("k"));
        assert_eq!(of(&["bearer k"]).as_deref(), Some("k"));
        for bad in [&[][..], &["k"], &["Basic k"], &["Bearer "], &["Bearer a", "Bearer b"]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
