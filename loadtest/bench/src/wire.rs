//! HTTP/1.1 bytes: writes requests, and finds the end of a reply. No I/O.
//!
//! Hand-written, because the client shares two cores with the server it measures: a general-purpose client costs more
//! CPU per request than the request itself. It supports only this API's needs: replies with a `Content-Length`, no
//! redirects, no trailers.

use std::net::SocketAddr;

use memchr::memmem;

use crate::error::BenchError;

/// Status and lengths of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// Status code.
    pub status: u16,
    /// Bytes of status line and headers.
    pub head_len: usize,
    /// Bytes of the body that follows.
    pub body_len: usize,
}

/// Returns the host value of requests: the address, and the header with the caller's key, if there is one.
#[must_use]
pub fn host_with_key(addr: SocketAddr, api_key: Option<&str>) -> String {
    match api_key {
        Some(key) => format!("{addr}\r\nAuthorization: Bearer {key}"),
        None => addr.to_string(),
    }
}

/// Appends a POST of a JSON body.
pub fn write_post(out: &mut Vec<u8>, host: &str, path: &[&str], body: &[u8]) {
    write_request(out, b"POST ", host, path, body);
}

/// Appends a PUT of a JSON body.
pub fn write_put(out: &mut Vec<u8>, host: &str, path: &str, body: &[u8]) {
    write_request(out, b"PUT ", host, &[path], body);
}

fn write_request(out: &mut Vec<u8>, method: &[u8], host: &str, path: &[&str], body: &[u8]) {
    out.extend_from_slice(method);
    for part in path {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\nContent-Type: application/json\r\nContent-Length: ");
    write_decimal(out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// Appends a GET.
pub fn write_get(out: &mut Vec<u8>, host: &str, path: &str) {
    out.extend_from_slice(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
}

/// Appends a number in decimal, without the formatting machinery.
pub fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Parses a reply's head; `None` if it has not arrived completely.
///
/// # Errors
/// If these are not the bytes of a reply with a declared length.
pub fn read_head(bytes: &[u8]) -> Result<Option<ReplyHead>, BenchError> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix(b"HTTP/1.1 "))
        .and_then(|rest| decimal(rest.get(..3)?))
        .and_then(|status| u16::try_from(status).ok())
        .ok_or(BenchError::Reply("no HTTP/1.1 status line"))?;
    let mut body_len = if status == 204 || status == 304 { Some(0) } else { None };
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            body_len = decimal(line[colon + 1..].trim_ascii()).and_then(|n| usize::try_from(n).ok());
        }
    }
    let body_len = body_len.ok_or(BenchError::Reply("a reply without Content-Length"))?;
    Ok(Some(ReplyHead { status, head_len: end + 4, body_len }))
}

/// Parses a decimal number of up to 19 digits; `None` if it is not one.
#[must_use]
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_once_it_is_complete() {
        let reply = b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  5\r\nx: y\r\n\r\nhello";
        for cut in 0..reply.len() - 5 {
            assert_eq!(read_head(&reply[..cut]).unwrap(), None);
        }
        let head = read_head(reply).unwrap().unwrap();
        assert_eq!(head, ReplyHead { status: 200, head_len: reply.len() - 5, body_len: 5 });
    }

    #[test]
    fn a_malformed_head_is_rejected() {
        assert!(read_head(b"SSH-2.0\r\n\r\n").is_err());
        assert!(read_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(read_head(b"HTTP/1.1 2x0 OK\r\ncontent-length: 1\r\n\r\n").is_err());
    }

    #[test]
    fn decimals_survive_the_round_trip() {
        for number in [0, 9, 10, 1_300, u64::from(u32::MAX), 9_999_999_999_999_999_999] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(decimal(&out), Some(number));
        }
    }

    #[test]
    fn a_key_is_sent_with_every_request() {
        let host = host_with_key("127.0.0.1:7".parse().unwrap(), Some("k"));
        let mut out = Vec::new();
        write_get(&mut out, &host, "/a");
        assert_eq!(out, b"GET /a HTTP/1.1\r\nHost: 127.0.0.1:7\r\nAuthorization: Bearer k\r\n\r\n");
        assert_eq!(host_with_key("127.0.0.1:7".parse().unwrap(), None), "127.0.0.1:7");
    }

    #[test]
    fn a_post_states_its_length() {
        let mut out = Vec::new();
        write_post(&mut out, "h:1", &["/a/", "b"], b"{}");
        assert_eq!(
            out,
            b"POST /a/b HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        );
    }
}
