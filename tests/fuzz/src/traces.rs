//! The header `traceparent`: what is taken goes into the log and into other people's headers as it is, so it has exactly the
//! form that W3C Trace Context gives it.

use axum::http::{HeaderValue, Request};

/// Parses a header, and returns whether it is propagated.
pub fn run(data: &[u8]) -> bool {
    let Ok(value) = HeaderValue::from_bytes(data) else { return false };
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.insert("traceparent", value);
    let taken = tribunal_http::request::caller::caller(&parts).traceparent;
    if let Some(text) = &taken {
        assert_eq!(text.as_bytes(), data, "it is propagated unchanged");
    }
    assert_eq!(taken.is_some(), is_one(data), "{}", String::from_utf8_lossy(data));
    taken.is_some()
}

/// The form, said once more: `00-` 32 digits `-` 16 digits `-` 2 digits, the version being any but `ff`.
fn is_one(data: &[u8]) -> bool {
    const DASHES: [usize; 3] = [2, 35, 52];
    let fits = |(at, byte): (usize, &u8)| match DASHES.contains(&at) {
        true => *byte == b'-',
        false => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
    };
    data.len() == 55 && data.iter().enumerate().all(fits) && !data.starts_with(b"ff")
}
