//! The rules for the head of an HTTP/1 request, stricter than hyper's where leniency would let two servers disagree on
//! the end of a request (RFC 9112, sections 2.2, 3.2, 5, 6 and 11.2).
//!
//! Pure: takes bytes, returns the length of the body or the fault. Never reads a socket.

use axum::http::{StatusCode, Uri};

use crate::response::problem::ProblemResponse;

/// Bytes of a request's head. A percent-encoded key of the largest size fits.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of a head.
pub const FIELDS_MAX: usize = 100;

/// A fault in the framing of a request. The connection ends after it: the start of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHead {
    /// 400, 413, 414 or 431.
    pub status: StatusCode,
    /// Problem code.
    pub code: &'static str,
    /// The fault, and the remedy.
    pub detail: &'static str,
}

impl BadHead {
    /// Returns the response.
    #[must_use]
    pub fn problem(self) -> ProblemResponse {
        ProblemResponse::new(self.status, self.code, self.detail)
    }
}

const fn bad(detail: &'static str) -> BadHead {
    BadHead { status: StatusCode::BAD_REQUEST, code: "malformed_head", detail }
}

/// The first word is not a method.
pub const NO_METHOD: BadHead = bad("the request does not begin with a method; this port speaks HTTP/1.1 and HTTP/2");
/// The request line exceeds the limit.
pub const TARGET_TOO_LONG: BadHead = BadHead {
    status: StatusCode::URI_TOO_LONG,
    code: "target_too_long",
    detail: "the request line does not fit into 65536 bytes; send long values in the body",
};
/// The fields exceed the limit.
pub const FIELDS_TOO_LARGE: BadHead = BadHead {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    code: "head_too_large",
    detail: "the head of the request exceeds 65536 bytes; send fewer or shorter header fields",
};
const TOO_MANY_FIELDS: BadHead = BadHead {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    code: "head_too_large",
    detail: "the head of the request has more than 100 header fields; send fewer",
};

const BODY_TOO_LARGE: BadHead = BadHead {
    status: StatusCode::PAYLOAD_TOO_LARGE,
    code: "body_too_large",
    detail: "`content-length` is larger than any body may be; send less in one request",
};
/// Larger lengths are refused: they might not fit into the types of later calculations.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// Length of the body that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// This many bytes.
    Known(u64),
    /// Chunks.
    Chunked,
}

/// Finds the end of a head from `searched` bytes on, before which there is no end: the length including the empty line.
///
/// # Errors
/// A line that ends without a carriage return.
pub fn end_of_head(bytes: &[u8], searched: usize) -> Result<Option<usize>, BadHead> {
    // The end may begin within the searched bytes.
    let mut from = searched.saturating_sub(3);
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'\n').map(|at| at + from) {
        if at == 0 || bytes[at - 1] != b'\r' {
            return Err(bad("a line of the head ends in a bare LF; end lines in CR LF"));
        }
        if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" {
            return Ok(Some(at + 1));
        }
        from = at + 1;
    }
    Ok(None)
}

/// Checks a complete head, including its empty line.
///
/// # Errors
/// The fault of the head.
pub fn check_head(head: &[u8]) -> Result<BodyLength, BadHead> {
    let mut lines = head[..head.len() - 4].split(|byte| *byte == b'\n').map(|line| match line {
        [line @ .., b'\r'] => line,
        line => line,
    });
    let is_1_1 = request_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut lengths, mut encodings) = (0, None, 0);
    for (index, line) in lines.enumerate() {
        if index == FIELDS_MAX {
            return Err(TOO_MANY_FIELDS);
        }
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            if lengths.replace(content_length(value)?).is_some() {
                return Err(bad("more than one `content-length`; send one"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            encodings += 1;
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(bad("`transfer-encoding` is not exactly `chunked`; send no other coding"));
            }
        }
    }
    if hosts > 1 || hosts == 0 && is_1_1 {
        return Err(bad("an HTTP/1.1 request has exactly one `host`"));
    }
    match (encodings, lengths) {
        (0, length) => Ok(BodyLength::Known(length.unwrap_or(0))),
        (1, None) if is_1_1 => Ok(BodyLength::Chunked),
        (1, None) => Err(bad("`transfer-encoding` needs HTTP/1.1")),
        (1, Some(_)) => Err(bad("`transfer-encoding` and `content-length` in one request; send one of them")),
        _ => Err(bad("more than one `transfer-encoding`; send one")),
    }
}

/// Checks a request line and returns whether it is HTTP/1.1.
fn request_line(line: &[u8]) -> Result<bool, BadHead> {
    const FORM: BadHead = bad("the request line is not of the form `METHOD TARGET HTTP/1.1`");
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(FORM);
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) || target.is_empty() {
        return Err(FORM);
    }
    let plain = target[0] == b'/' && target.iter().all(|byte| is_plain(*byte));
    if !plain && Uri::try_from(target).is_err() {
        return Err(bad("the target of the request is not a URI; percent-encode what a URI may not contain"));
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        _ => Err(bad(
            "the request line names no version that this connection speaks; use HTTP/1.1, or HTTP/2 from its preface on",
        )),
    }
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), BadHead> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(bad("a header field is folded over lines; write it on one"));
    }
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return Err(bad("a header field has no colon"));
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(bad("the name of a header field is not a token; it must not contain blanks"));
    }
    if value.iter().any(|byte| *byte < b' ' && *byte != b'\t' || *byte == 0x7f) {
        return Err(bad("the value of a header field contains a control character"));
    }
    Ok((name, value.trim_ascii()))
}

fn content_length(value: &[u8]) -> Result<u64, BadHead> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(bad("`content-length` is not one decimal number"));
    }
    let number = str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
    number.filter(|length| *length <= LENGTH_MAX).ok_or(BODY_TOO_LARGE)
}

pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns whether a byte is allowed anywhere in a path or query.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<BodyLength, u16> {
        let end = end_of_head(text.as_bytes(), 0).map_err(|bad| bad.status.as_u16())?;
        assert_eq!(end, Some(text.len()), "{text:?}");
        check_head(text.as_bytes()).map_err(|bad| bad.status.as_u16())
    }

    #[test]
    fn a_head_gives_the_length_of_its_body() {
        assert_eq!(check("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(BodyLength::Known(0)));
        assert_eq!(check("GET / HTTP/1.0\r\n\r\n"), Ok(BodyLength::Known(0)));
        assert_eq!(check("POST /a%20b?c=d HTTP/1.1\r\nhost:\r\ncontent-length: 12\r\n\r\n"), Ok(BodyLength::Known(12)));
        let chunked = "POST / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\n\r\n";
        assert_eq!(check(chunked), Ok(BodyLength::Chunked));
        assert_eq!(check("OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n"), Ok(BodyLength::Known(0)));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "",
            "host: x\r\nhost: x\r\n",
            "host: x\r\ncontent-length: 1\r\ncontent-length: 1\r\n",
            "host: x\r\ncontent-length: 1, 1\r\n",
            "host: x\r\ncontent-length: +1\r\n",
            "host: x\r\ncontent-length: \r\n",
            "host: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n",
            "host: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "host: x\r\ntransfer-encoding: gzip, chunked\r\n",
            "host: x\r\ntransfer-encoding: identity\r\n",
            "host: x\r\ntransfer-encoding : chunked\r\n",
            "host: x\r\n a: folded\r\n",
            "host: x\r\nno colon\r\n",
            "host: x\r\na: b\rc\r\n",
            "host: x\r\na: b\0c\r\n",
            ": nameless\r\nhost: x\r\n",
        ] {
            assert_eq!(check(&format!("POST / HTTP/1.1\r\n{fields}\r\n")), Err(400), "{fields:?}");
        }
        for line in [
            "GET /",
            "GET  / HTTP/1.1",
            "GET / HTTP/1.2",
            "GET / HTTP/2.0",
            "G(T / HTTP/1.1",
            "GET /\u{7f} HTTP/1.1",
            " GET / HTTP/1.1",
        ] {
            assert_eq!(check(&format!("{line}\r\nhost: x\r\n\r\n")), Err(400), "{line:?}");
        }
        assert_eq!(check("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n"), Err(400));
        for text in
            ["GET / HTTP/1.1\nhost: x\n\n", "GET / HTTP/1.1\r\nhost: x\n\r\n", "GET / HTTP/1.1\r\nhost: x\r\n\n"]
        {
            assert_eq!(end_of_head(text.as_bytes(), 0).map_err(|bad| bad.code), Err("malformed_head"), "{text:?}");
        }
        let many: String = (0..FIELDS_MAX).map(|index| format!("a{index}: b\r\n")).collect();
        assert_eq!(check(&format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n")), Err(431));
    }

    #[test]
    fn a_length_beyond_all_bounds_is_a_body_that_is_too_large() {
        for length in ["9223372036854775808", "18446744073709551615", "99999999999999999999", &"9".repeat(999)] {
            let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
            assert_eq!(check(&head), Err(413), "{length}");
        }
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9223372036854775807\r\n\r\n";
        assert_eq!(check(head), Ok(BodyLength::Known(LENGTH_MAX)), "the rest is for the route to say");
    }

    #[test]
    fn the_end_is_found_wherever_the_head_was_cut() {
        let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(end_of_head(&head[..cut], 0), Ok(None), "{cut}");
            assert_eq!(end_of_head(head, cut), Ok(Some(head.len())), "{cut}");
        }
    }
}
