//! Responses with content: a complete one, or one that is written as its content arrives.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use crate::request::content_negotiation::Form;
use crate::response::marks::Streamed;

/// Header that makes proxies forward data immediately.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Builds a JSON response.
#[must_use]
pub fn json_response(status: StatusCode, json: Vec<u8>) -> Response {
    typed_response(status, "application/json", json)
}

/// Builds a response of a media type.
#[must_use]
pub fn typed_response(status: StatusCode, media_type: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Builds a response from a wire type.
#[must_use]
pub fn wire_response(status: StatusCode, wire: &impl serde::Serialize) -> Response {
    // Wire types are maps with string keys and numbers that JSON can represent: they always serialise.
    json_response(status, serde_json::to_vec(wire).unwrap_or_default())
}

/// Builds a response whose body is written as its content arrives.
#[must_use]
pub fn streamed(form: Form, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.media_type()));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(UNBUFFERED, HeaderValue::from_static("no"));
    response.extensions_mut().insert(Streamed);
    response
}
