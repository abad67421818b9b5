//! Responses of the service, and the absence of one.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::de::DeserializeOwned;
use tribunal_api::Problem;

use crate::Error;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A response of any status.
#[derive(Clone)]
pub(crate) struct Answer {
    pub status: StatusCode,
    /// Whether the verdict in it is an earlier one.
    pub replayed: bool,
    pub traceparent: Option<String>,
    pub body: Bytes,
    /// For a refusal: the endpoint that refused.
    pub refused_by: Option<Box<str>>,
    /// For a success that is not the service's: a description of it.
    pub foreign: Option<Box<str>>,
}

impl Answer {
    /// Returns whether it is the service's description of a problem.
    pub(crate) fn is_problem(&self) -> bool {
        serde_json::from_slice::<Problem>(&self.body).is_ok()
    }

    /// Returns the status of a refusal, and its endpoint.
    pub(crate) fn refusal_text(&self) -> String {
        format!("{}: status {}", self.refused_by.as_deref().unwrap_or_default(), self.status)
    }
}

/// The absence of a response.
#[derive(Clone)]
pub(crate) struct NoAnswer {
    pub text: String,
    /// Whether the request certainly did not reach the server.
    pub never_sent: bool,
    /// Whether a retry cannot help.
    pub hopeless: bool,
    /// How long to wait before a retry, if an endpoint gave a time.
    pub retry_after: Option<Duration>,
    /// Whether the service itself has refused, on one of several endpoints.
    pub answered: bool,
}

impl NoAnswer {
    pub(crate) fn lost(text: String) -> Self {
        NoAnswer { text, never_sent: false, hopeless: false, retry_after: None, answered: false }
    }

    /// Returns the error of a request that could not be built.
    pub(crate) fn hopeless(text: String) -> Self {
        NoAnswer { text, never_sent: true, hopeless: true, retry_after: None, answered: false }
    }
}

/// Bounds the duration of an exchange.
pub(crate) async fn within<T>(
    timeout: Duration,
    exchange: impl Future<Output = Result<T, NoAnswer>>,
) -> Result<T, NoAnswer> {
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or_else(|_| Err(NoAnswer::lost(format!("no response within {} ms", timeout.as_millis()))))
}

pub(crate) async fn collected(response: Response<Incoming>, url: &str, bytes_max: usize) -> Result<Answer, NoAnswer> {
    let status = response.status();
    let replayed = response.headers().get("idempotency-replayed").is_some_and(|value| value == "true");
    let traceparent = response.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok().map(str::to_owned));
    let foreign_type = foreign_type(&response);
    let given = response.headers().get(CONTENT_TYPE);
    let is_json = given.is_none_or(|given| begins(given, &["application/json", "application/x-ndjson", "text/plain"]));
    let body =
        Limited::new(response.into_body(), bytes_max).collect().await.map_err(|e| NoAnswer::lost(e.to_string()))?;
    let (refused_by, body) = ((!status.is_success()).then(|| url.into()), body.to_bytes());
    let foreign = status.is_success().then(|| foreign_type.or_else(|| foreign_text(&body, is_json))).flatten();
    let foreign =
        foreign.map(|what| format!("{url}: status {status} with {what}, which no answer of Tribunal is").into());
    Ok(Answer { status, replayed, traceparent, body, refused_by, foreign })
}

/// Returns the content type of a response if it cannot be the service's.
pub(crate) fn foreign_type(response: &Response<Incoming>) -> Option<String> {
    let given = response.headers().get(CONTENT_TYPE)?;
    // Declared as text, it may still be JSON, which its first byte shows.
    (!begins(given, &["application/", "text/plain"]))
        .then(|| format!("content type `{}`", String::from_utf8_lossy(given.as_bytes()).escape_debug()))
}

/// Returns whether a content type begins with one of `types`.
fn begins(given: &HeaderValue, types: &[&str]) -> bool {
    let given = given.as_bytes();
    types.iter().any(|kind| given.get(..kind.len()).is_some_and(|head| head.eq_ignore_ascii_case(kind.as_bytes())))
}

/// Returns the description of a body that should be JSON but cannot be.
fn foreign_text(body: &[u8], is_json: bool) -> Option<String> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
    (is_json && !b"{[".contains(first)).then(|| "a body that is no JSON".to_owned())
}

/// Reads a success, or returns the error that a refusal stands for.
pub(crate) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    if answer.status.is_success() {
        return serde_json::from_slice(&answer.body).map_err(|e| {
            // The cause may be a name that this client does not know.
            Error::misbehaved(format!("{e}; if the service is newer than this client, update the client"))
        });
    }
    match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(problem) => Err(Error::of_problem(problem)),
        Err(_) if answer.status.is_server_error() => {
            Err(Error::Unavailable { text: answer.refusal_text(), retry_after: None })
        }
        Err(_) => {
            let text = answer.refusal_text();
            Err(Error::misbehaved(format!("{text} without a problem document: is this the address of Tribunal?")))
        }
    }
}
