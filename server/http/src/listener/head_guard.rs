//! Limits the bytes of a connection that hyper sees to complete, checked heads and their bodies.
//!
//! hyper answers a head that it cannot parse with an empty response, if at all, and accepts some heads that another
//! server would read differently. So heads are checked first ([`check_head`]), and held until they are complete. In
//! place of a bad head, hyper gets a request of our own, the last one of its connection, which is answered with the
//! problem in its turn: earlier requests of the connection are answered first.
//!
//! Invariant: a head that arrives complete is not copied.

use super::http1_head::{
    BadHead, BodyLength, FIELDS_TOO_LARGE, HEAD_BYTES_MAX, NO_METHOD, TARGET_TOO_LONG, check_head, end_of_head,
    is_token,
};

/// The preface of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The request that takes the place of a bad one.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// Bytes of the longest method.
const METHOD_BYTES_MAX: usize = 32;
/// Bytes of a chunk extension.
const EXTENSION_BYTES_MAX: u16 = 1024;

/// The expected next part of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The first bytes of the connection, which distinguish HTTP/1 from HTTP/2.
    Opening,
    /// A head.
    Head,
    /// This many bytes of a body.
    Body(u64),
    /// A part of a chunked body.
    Chunk(Chunk),
    /// HTTP/2 frames, or chunks left to hyper: no further checks.
    Anything,
    /// Nothing: a head was bad.
    Nothing,
}

/// A part of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// Hexadecimal digits of a size.
    Size { size: u64, digits: u8 },
    /// The rest of a size's line, which is ignored.
    Extension { size: u64, length: u16 },
    /// The end of a size's line: a carriage return has arrived.
    SizeEnd { size: u64 },
    /// This many bytes of data.
    Data(u64),
    /// The line break after data.
    AfterData { cr: bool },
    /// Trailers: bytes of the current line, and whether the last one is a carriage return.
    Trailer { line: u32, cr: bool },
}

/// Checks the bytes of one connection.
#[derive(Debug)]
pub struct HeadGuard {
    expected: Expected,
    /// The beginning of an incomplete head.
    held: Vec<u8>,
    /// Complete heads that passed.
    passed: u64,
    bad: Option<BadHead>,
}

impl Default for HeadGuard {
    fn default() -> Self {
        HeadGuard { expected: Expected::Opening, held: Vec::new(), passed: 0, bad: None }
    }
}

impl HeadGuard {
    /// Returns the fault that ended the connection, and the index, from 0, of the request that it replaces.
    #[must_use]
    pub fn bad(&self) -> Option<(u64, BadHead)> {
        self.bad.map(|bad| (self.passed, bad))
    }

    /// Returns whether no further bytes are accepted from this connection.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.expected == Expected::Nothing
    }

    /// Returns whether every request that began is complete. A partial head may follow.
    #[must_use]
    pub fn is_between_requests(&self) -> bool {
        self.expected == Expected::Head
    }

    /// Returns the number of the request, from 1, whose body is incomplete; 0 if there is none.
    #[must_use]
    pub fn open_body(&self) -> u64 {
        if matches!(self.expected, Expected::Body(_) | Expected::Chunk(_)) { self.passed } else { 0 }
    }

    /// Returns whether a client whose connection ends now may still be sending: a body, or bytes after a refusal.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.open_body() > 0 || self.is_over()
    }

    /// Processes bytes. Returns how many of them may pass immediately; the bytes that may pass after them are appended
    /// to `later`.
    pub fn take(&mut self, fresh: &[u8], later: &mut Vec<u8>) -> usize {
        if self.is_over() {
            return 0;
        }
        if self.held.is_empty() {
            let pass = self.check(fresh, 0);
            if !self.is_over() {
                self.held.extend_from_slice(&fresh[pass..]);
            }
            self.stand_in(later);
            return pass;
        }
        let mut bytes = std::mem::take(&mut self.held);
        let searched = bytes.len();
        bytes.extend_from_slice(fresh);
        let pass = self.check(&bytes, searched);
        later.extend_from_slice(&bytes[..pass]);
        if !self.is_over() {
            bytes.drain(..pass);
            self.held = bytes;
        }
        self.stand_in(later);
        0
    }

    fn stand_in(&self, later: &mut Vec<u8>) {
        if self.bad.is_some() {
            later.extend_from_slice(STAND_IN);
        }
    }

    /// Returns how many of `bytes` may pass. The first `searched` bytes contain no end of a head. The remaining bytes
    /// are the beginning of a head, unless the connection is over.
    fn check(&mut self, bytes: &[u8], searched: usize) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.expected {
                Expected::Opening if rest.starts_with(PREFACE) => self.expected = Expected::Anything,
                Expected::Opening if PREFACE.starts_with(rest) => return at,
                Expected::Opening => self.expected = Expected::Head,
                // A superfluous line break after a body: old clients send it, and hyper skips it.
                Expected::Head if rest.starts_with(b"\r\n") => at += 2,
                Expected::Head => match head(rest, if at == 0 { searched } else { 0 }) {
                    Ok(Some((length, body))) => {
                        at += length;
                        self.passed += 1;
                        self.expected = match body {
                            BodyLength::Known(0) => Expected::Head,
                            BodyLength::Known(length) => Expected::Body(length),
                            BodyLength::Chunked => Expected::Chunk(Chunk::FIRST),
                        };
                    }
                    Ok(None) => return at,
                    Err(bad) => {
                        self.bad = Some(bad);
                        self.expected = Expected::Nothing;
                        return at;
                    }
                },
                Expected::Body(left) => {
                    let part = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    at += part;
                    let left = left - part as u64;
                    self.expected = if left == 0 { Expected::Head } else { Expected::Body(left) };
                }
                Expected::Chunk(chunk) => {
                    let (taken, next) = chunk.step(rest);
                    at += taken;
                    self.expected = next;
                }
                Expected::Anything => return bytes.len(),
                Expected::Nothing => return at,
            }
        }
        at
    }
}

/// Finds a complete head: its length and that of its body.
fn head(bytes: &[u8], searched: usize) -> Result<Option<(usize, BodyLength)>, BadHead> {
    // Do not wait for bytes that can never become a method: TLS on a plain port, for example.
    let method = bytes.iter().take(METHOD_BYTES_MAX + 1).take_while(|byte| is_token(**byte)).count();
    if method > METHOD_BYTES_MAX || bytes.get(method).is_some_and(|byte| *byte != b' ') && bytes[0] != b'\r' {
        return Err(NO_METHOD);
    }
    let too_long = || if bytes.contains(&b'\n') { FIELDS_TOO_LARGE } else { TARGET_TOO_LONG };
    match end_of_head(bytes, searched)? {
        Some(length) if length > HEAD_BYTES_MAX => Err(FIELDS_TOO_LARGE),
        Some(length) => check_head(&bytes[..length]).map(|body| Some((length, body))),
        None if bytes.len() > HEAD_BYTES_MAX => Err(too_long()),
        None => Ok(None),
    }
}

impl Chunk {
    const FIRST: Chunk = Chunk::Size { size: 0, digits: 0 };

    /// Consumes at least one byte, or ends the connection: hyper then sees a truncated body.
    fn step(self, bytes: &[u8]) -> (usize, Expected) {
        let byte = bytes[0];
        let next = match (self, byte) {
            (Chunk::Data(left), _) => {
                let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - part as u64;
                let next = if left == 0 { Chunk::AfterData { cr: false } } else { Chunk::Data(left) };
                return (part, Expected::Chunk(next));
            }
            (Chunk::Size { size, digits }, byte) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                Chunk::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Chunk::Size { digits: 0, .. }, _) => return (0, Expected::Nothing),
            (Chunk::Size { size, .. }, b'\r') => Chunk::SizeEnd { size },
            (Chunk::Size { size, .. }, b';' | b' ' | b'\t') => Chunk::Extension { size, length: 0 },
            (Chunk::Extension { size, .. }, b'\r') => Chunk::SizeEnd { size },
            (Chunk::Extension { size, length }, byte) if byte != b'\n' && length < EXTENSION_BYTES_MAX => {
                Chunk::Extension { size, length: length + 1 }
            }
            (Chunk::SizeEnd { size: 0 }, b'\n') => Chunk::Trailer { line: 0, cr: false },
            (Chunk::SizeEnd { size }, b'\n') => Chunk::Data(size),
            (Chunk::AfterData { cr: false }, b'\r') => Chunk::AfterData { cr: true },
            (Chunk::AfterData { cr: true }, b'\n') => Chunk::FIRST,
            (Chunk::Trailer { line, cr: false }, b'\r') => Chunk::Trailer { line, cr: true },
            (Chunk::Trailer { line: 0, cr: true }, b'\n') => return (1, Expected::Head),
            (Chunk::Trailer { cr: true, .. }, b'\n') => Chunk::Trailer { line: 0, cr: false },
            (Chunk::Trailer { line, cr: false }, byte) if byte != b'\n' => {
                Chunk::Trailer { line: line.saturating_add(1), cr: false }
            }
            _ => return (0, Expected::Nothing),
        };
        (1, Expected::Chunk(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of `piece` bytes; returns the bytes that hyper would see, and the guard.
    fn fed(text: &[u8], piece: usize) -> (Vec<u8>, HeadGuard) {
        let (mut guard, mut seen) = (HeadGuard::default(), Vec::new());
        for part in text.chunks(piece) {
            let mut later = Vec::new();
            let pass = guard.take(part, &mut later);
            seen.extend_from_slice(&part[..pass]);
            seen.extend_from_slice(&later);
        }
        (seen, guard)
    }

    const WHOLE: &[u8] = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc\r\n\
        POST /b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3;e=f\r\nabc\r\n1F\r\n0123456789012345678901234567890\r\n\
        0\r\nt: u\r\n\r\nGET /c HTTP/1.1\r\nhost: x\r\n\r\n";

    #[test]
    fn whole_requests_pass_however_they_are_cut() {
        for piece in 1..WHOLE.len() {
            let (seen, guard) = fed(WHOLE, piece);
            assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(WHOLE), "{piece}");
            assert_eq!((guard.passed, guard.bad()), (3, None));
        }
    }

    #[test]
    fn a_bad_head_is_replaced_and_ends_the_connection() {
        for piece in 1..WHOLE.len() + 40 {
            let text = [WHOLE, b"GET /d HTTP/1.1\r\n\r\n", WHOLE].concat();
            let (seen, guard) = fed(&text, piece);
            assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(&[WHOLE, STAND_IN].concat()), "{piece}");
            assert_eq!(guard.bad().map(|(index, bad)| (index, bad.code)), Some((3, "malformed_head")));
        }
    }

    #[test]
    fn a_partial_head_is_held_back() {
        for half in [&b"GET /d HTTP/1.1\r\nho"[..], b"G", b"\r"] {
            let (seen, guard) = fed(&[WHOLE, half].concat(), 7);
            assert_eq!(seen, WHOLE);
            assert_eq!(guard.bad(), None);
        }
    }

    #[test]
    fn http_2_is_passed_through() {
        let text = [PREFACE, b"\0\0\0\x04\0 and frames"].concat();
        for piece in 1..text.len() {
            assert_eq!(fed(&text, piece).0, text);
        }
    }

    #[test]
    fn a_head_that_grows_beyond_its_bound_is_refused() {
        let fields = [&b"GET / HTTP/1.1\r\nhost: x\r\na: "[..], &[b'a'; HEAD_BYTES_MAX]].concat();
        let target = [&b"GET /"[..], &[b'a'; HEAD_BYTES_MAX]].concat();
        for (text, status) in
            [(fields, 431), (target, 414), (b"\x16\x03\x01\x02".to_vec(), 400), (vec![b'a'; 100], 400)]
        {
            let (seen, guard) = fed(&text, 4096);
            assert_eq!(
                (&seen[..], guard.bad().map(|(index, bad)| (index, bad.status.as_u16()))),
                (STAND_IN, Some((0, status)))
            );
        }
    }

    #[test]
    fn malformed_chunks_end_the_body() {
        let head = b"POST /b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        for chunks in
            [&b"3\nabc"[..], b"x\r\n", b"3\r\nabcd\r\n", b"3;a\nabc\r\n", b"1111111111111111\r\n", b"0\r\nt: u\n\r\n"]
        {
            let (seen, guard) = fed(&[head, chunks, WHOLE].concat(), 5);
            assert!(guard.is_over() && guard.bad().is_none(), "{}", String::from_utf8_lossy(chunks));
            assert!(seen.len() < head.len() + chunks.len());
        }
    }
}
