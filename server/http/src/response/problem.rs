//! Every response that is not a decision: `application/problem+json`, built in one place.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LINK, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tribunal_api::{Problem, ProblemError};

use crate::counters::ProblemCode;
use crate::response::field_error::SyntaxError;
use crate::response::field_error::{Code, FieldError, FieldErrors};

/// A request that got no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemResponse {
    /// The wire form.
    pub body: Box<Problem>,
}

/// Returns the reason phrase of a status as in RFC 9110, section 15.
fn title(status: StatusCode) -> &'static str {
    match status {
        // These have been renamed since RFC 7231.
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        _ => status.canonical_reason().unwrap_or("Error"),
    }
}

impl ProblemResponse {
    /// Builds a problem that is permanent: the same request would get it again.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: title(status).to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
            ..Problem::default()
        };
        ProblemResponse { body: Box::new(problem) }
    }

    /// Marks the problem as temporary: the same request may succeed later.
    #[must_use]
    pub fn retryable(mut self, retry_after_ms: Option<u64>) -> Self {
        self.body.retryable = true;
        self.body.retry_after_ms = retry_after_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
        self
    }

    /// Returns whether one of the errors concerns a store that does not exist.
    #[must_use]
    pub fn names_unknown_store(&self) -> bool {
        let code = Code::UnknownStore.parts().0;
        self.body.code == code || self.body.errors.iter().any(|error| error.code == code)
    }

    /// Sets the line of the body that the problem concerns.
    #[must_use]
    pub fn at_line(mut self, number: u64) -> Self {
        self.body.line = u32::try_from(number).ok();
        if self.body.line.is_none() {
            self.body.detail = format!("line {number}: {}", self.body.detail);
        }
        self
    }

    /// Builds the problem of a request with these errors. Its status is the lowest of theirs: unreadable input takes
    /// precedence over names that do not exist and values that do not fit. Its code is theirs if all of them agree.
    #[must_use]
    pub fn of_errors(errors: &FieldErrors) -> Self {
        let list = errors.list();
        let (name, first) = list.first().map_or(Code::MalformedJson, |fault| fault.code).parts();
        let status = list.iter().map(|fault| fault.code.parts().1).min().unwrap_or(first);
        let same = list.iter().all(|fault| fault.code.parts().0 == name);
        let detail = match list {
            [only] if only.pointer.is_empty() => only.detail.clone(),
            // These texts already name the parameter.
            [only] if matches!(only.code, Code::UnknownStore | Code::BadTxnId) && only.pointer.starts_with('{') => {
                only.detail.clone()
            }
            [only] if only.pointer.starts_with('{') => {
                format!("`{}` in the path: {}", only.pointer.trim_matches(['{', '}']), only.detail)
            }
            // A header's name already ends with a colon.
            [only] => format!("{}: {}", only.pointer.trim_end_matches(':'), only.detail),
            _ => format!("{} errors, see errors", errors.count()),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut problem = ProblemResponse::new(status, if same { name } else { "invalid_request" }, detail);
        problem.body.errors = list
            .iter()
            .map(|fault| ProblemError {
                pointer: fault.pointer.clone(),
                code: fault.code.parts().0.to_owned(),
                detail: fault.detail.clone(),
            })
            .collect();
        problem
    }

    /// Builds the problem of a request with one error.
    #[must_use]
    pub fn of_error(code: Code, pointer: &str, detail: impl Into<String>) -> Self {
        let mut errors = FieldErrors::default();
        errors.add(code, pointer, detail);
        ProblemResponse::of_errors(&errors)
    }

    /// Builds the problem of text that is not JSON.
    #[must_use]
    pub fn of_syntax(malformed: &SyntaxError) -> Self {
        let mut problem = ProblemResponse::of_error(Code::MalformedJson, "", malformed.detail.clone());
        problem.body.line = u32::try_from(malformed.line).ok();
        problem.body.column = u32::try_from(malformed.column).ok();
        problem
    }
}

/// Shortens absolute paths of this machine to their last component: callers need not know where the service keeps its
/// files. Paths of this API remain unchanged.
#[must_use]
pub fn without_folders(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let starts = character == '/' && !before.is_alphanumeric() && !matches!(before, '/' | ':' | '.' | '-' | '_');
        let length = if starts {
            rest.find(|c: char| c.is_whitespace() || "`'\",;:()".contains(c)).unwrap_or(rest.len())
        } else {
            0
        };
        let path = &rest[..length];
        if path.matches('/').count() >= 2 && !path.starts_with("/v1/") {
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            shown.push_str(name);
            before = name.chars().last().unwrap_or('/');
            rest = &rest[length..];
        } else {
            shown.push(character);
            before = character;
            rest = &rest[character.len_utf8()..];
        }
    }
    shown
}

impl From<FieldError> for ProblemResponse {
    fn from(FieldError { code, pointer, detail }: FieldError) -> Self {
        ProblemResponse::of_error(code, &pointer, detail)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.body).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        response.extensions_mut().insert(ProblemCode(self.body.code));
        *response.status_mut() = StatusCode::from_u16(self.body.status).unwrap_or(StatusCode::BAD_REQUEST);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.body.status == StatusCode::UNAUTHORIZED.as_u16() {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(ms) = self.body.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        if let Some(link) = self.body.state_url.and_then(|url| format!("<{url}>; rel=\"alternate\"").parse().ok()) {
            headers.insert(LINK, link);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_server_are_not_shown() {
        for (text, shown) in [
            ("sync of /var/lib/tribunal/log: no space", "sync of log: no space"),
            ("`/srv/a b/c` cannot be read", "`a b/c` cannot be read"),
            ("/data/segments/0001.log is cut", "0001.log is cut"),
            (
                "the store at https://example.org/a/b does not answer",
                "the store at https://example.org/a/b does not answer",
            ),
            ("GET / and 1/2/3 stay", "GET / and 1/2/3 stay"),
            ("a state of the store (/v1/stores/orders/state)", "a state of the store (/v1/stores/orders/state)"),
            ("", ""),
        ] {
            assert_eq!(without_folders(text), shown, "{text}");
        }
    }

    #[test]
    fn a_line_is_named_however_many_there_were() {
        let at = |number| *ProblemResponse::new(StatusCode::BAD_REQUEST, "x", "wrong").at_line(number).body;
        let (few, many) = (at(4_294_967_295), at(4_294_967_296));
        assert_eq!((few.line, &*few.detail), (Some(u32::MAX), "wrong"));
        assert_eq!((many.line, &*many.detail), (None, "line 4294967296: wrong"));
    }
}
