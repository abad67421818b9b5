//! Receipt of a request's body: type, encoding, length and time are checked before anything is parsed.

use std::str;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tribunal_types::limits::BODY_BYTES_MAX;

use crate::response::field_error::{Code, SyntaxError};
use crate::response::problem::ProblemResponse;

/// Bytes of a body that is parsed within about a millisecond.
pub(crate) const SHORT_BYTES: u64 = 128 * 1024;

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// One document.
    Json,
    /// One document per line.
    NdJson,
    /// The only type that the route accepts, under a generic name: for clients whose generators have no better one.
    Bytes,
}

/// Returns the type of a request's body.
///
/// # Errors
/// 415 if it is not one of `accepted`, or is compressed.
pub fn media_type(headers: &HeaderMap, accepted: &[MediaType]) -> Result<MediaType, ProblemResponse> {
    let refuse =
        |detail: String| ProblemResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail);
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(refuse("bodies are not decompressed; send them plain".to_owned()));
    }
    let names = |kind: &MediaType| match kind {
        MediaType::Json => "application/json",
        MediaType::NdJson => "application/x-ndjson",
        MediaType::Bytes => "application/octet-stream",
    };
    let given = headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("?"));
    let (essence, parameters) = given.split_once(';').unwrap_or((given, ""));
    let charset_ok = parameters.split(';').all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        !name.trim().eq_ignore_ascii_case("charset") || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    let kind = accepted.iter().find(|kind| essence.trim().eq_ignore_ascii_case(names(kind)));
    match kind {
        Some(kind) if charset_ok => Ok(*kind),
        Some(_) => Err(refuse("the charset of content-type must be utf-8; omit it".to_owned())),
        None => {
            let wanted: Vec<_> = accepted.iter().map(names).collect();
            Err(refuse(format!("content-type must be {}", wanted.join(" or "))))
        }
    }
}

/// Checks that a request's body is WebAssembly.
///
/// # Errors
/// 415 if its declared type is another one, or if it is compressed.
pub fn wasm_type(headers: &HeaderMap) -> Result<(), ProblemResponse> {
    let is_plain = headers.get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    if is_plain && ["application/wasm", "application/octet-stream"].iter().any(|kind| given.eq_ignore_ascii_case(kind))
    {
        return Ok(());
    }
    let detail = "content-type must be application/wasm or application/octet-stream, without an encoding";
    Err(ProblemResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

/// Collects a body.
///
/// # Errors
/// 413 if it exceeds the limit, 408 if it takes longer than `timeout`, 400 if the connection breaks.
pub async fn collect<B>(headers: &HeaderMap, body: B, timeout: Duration) -> Result<Bytes, ProblemResponse>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    collect_within(headers, body, timeout, BODY_BYTES_MAX).await
}

/// Collects a body of at most `bytes_max`.
///
/// # Errors
/// As for [`collect`].
pub async fn collect_within<B>(
    headers: &HeaderMap,
    body: B,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Bytes, ProblemResponse>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large(bytes_max));
    }
    match tokio::time::timeout(timeout, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
        Ok(Err(error)) => Err(ProblemResponse::new(
            StatusCode::BAD_REQUEST,
            "body_incomplete",
            format!("the body is incomplete or malformed: {}", root_cause(&*error)),
        )),
        Err(_) => {
            let detail = format!("the body did not arrive within {} ms", timeout.as_millis());
            Err(ProblemResponse::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).retryable(None))
        }
    }
}

/// Returns the innermost cause of an error: the outer ones only tell that a body was being read.
pub fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

/// Checks that a request with an empty body announces it. In HTTP/1.1, bytes after a head that does not announce a body
/// are parsed as the next request, so to the client it looks as if the service had lost the body.
///
/// # Errors
/// 400 if neither of the two fields that announce a body is present.
pub fn announced(parts: &Parts) -> Result<(), ProblemResponse> {
    let is_framed = parts.version >= Version::HTTP_2;
    if is_framed || parts.headers.contains_key(CONTENT_LENGTH) || parts.headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    let detail = "the request has no body, because it has neither `content-length` nor `transfer-encoding: chunked`; send one of them \
                  with a JSON document, at least `{}`";
    Err(ProblemResponse::of_syntax(&SyntaxError { detail: detail.to_owned(), line: 1, column: 1 }))
}

fn too_large(bytes_max: usize) -> ProblemResponse {
    let detail = format!("{bytes_max} bytes is the limit of a body");
    ProblemResponse::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

/// Returns a body as text.
///
/// # Errors
/// 400 with the position of the first byte that is not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, ProblemResponse> {
    str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        ProblemResponse::of_error(Code::InvalidUtf8, "", format!("byte {at} is not UTF-8"))
    })
}
