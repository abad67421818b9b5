//! Replies of etcd's JSON gateway: their ends, and the required parts of their content. No I/O.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use tribunal_bench::error::BenchError;
use tribunal_bench::wire::read_head;

/// Text before the key of a row.
pub const KEY: &[u8] = b"\"key\":\"";

/// Returns the value of the first row of a reply, if it is a number.
pub fn counter(seen: &[u8]) -> Option<u64> {
    const VALUE: &[u8] = b"\"value\":\"";
    let value = &seen[memmem::find(seen, VALUE)? + VALUE.len()..];
    let value = STANDARD.decode(&value[..memchr::memchr(b'"', value)?]).ok()?;
    std::str::from_utf8(&value).ok()?.parse().ok()
}

/// Yields the replies to the parts of a request, in their order.
pub fn answers(seen: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut starts = memmem::find_iter(seen, b"\"response_range\":").peekable();
    std::iter::from_fn(move || {
        let start = starts.next()?;
        Some(&seen[start..starts.peek().copied().unwrap_or(seen.len())])
    })
}

/// Returns the last key of a reply.
pub fn last_key(answer: &[u8]) -> Option<Vec<u8>> {
    let key = &answer[memmem::rfind(answer, KEY)? + KEY.len()..];
    STANDARD.decode(&key[..memchr::memchr(b'"', key)?]).ok()
}

/// A body, and the end of its reply.
pub type Whole<'b> = (Cow<'b, [u8]>, usize);

/// Returns body and end of a reply; `None` if it has not arrived completely. Large ones are chunked.
///
/// # Errors
/// If it is not a reply of etcd's.
pub fn whole(bytes: &[u8]) -> Result<Option<Whole<'_>>, BenchError> {
    if let Some(head_len) = memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
        && memmem::find(&bytes[..head_len], b"Transfer-Encoding: chunked").is_some()
    {
        // There is one request at a time: nothing follows the last chunk.
        if !bytes.ends_with(b"0\r\n\r\n") {
            return Ok(None);
        }
        let body = joined(&bytes[head_len..]).ok_or(BenchError::Reply("a chunk of etcd without its length"))?;
        return Ok(Some((Cow::Owned(body), bytes.len())));
    }
    let Some(head) = read_head(bytes)? else { return Ok(None) };
    let end = head.head_len + head.body_len;
    Ok((bytes.len() >= end).then(|| (Cow::Borrowed(&bytes[head.head_len..end]), end)))
}

fn joined(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(chunks.len());
    loop {
        let line = memmem::find(chunks, b"\r\n")?;
        let length = usize::from_str_radix(str::from_utf8(&chunks[..line]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunks.get(line + 2..line + 2 + length)?);
        chunks = chunks.get(line + 2 + length + 2..)?;
    }
}

/// Fails unless a reply reports success.
///
/// # Errors
/// With the reply.
pub fn checked(reply: &[u8]) -> Result<(), BenchError> {
    if reply.starts_with(b"HTTP/1.1 200") {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&reply[..reply.len().min(600)]).into_owned();
    Err(BenchError::Refused { what: "a transaction".to_owned(), answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_come_with_a_length_or_in_chunks() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcX";
        assert_eq!(whole(plain).unwrap(), Some((b"abc"[..].into(), plain.len() - 1)));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(whole(chunked).unwrap(), Some((b"abc0123456789"[..].into(), chunked.len())));
        assert_eq!(whole(&chunked[..chunked.len() - 1]).unwrap(), None);
    }

    #[test]
    fn a_counter_is_read_from_base64() {
        assert_eq!(counter(br#"{"kvs":[{"key":"aA==","value":"NDE="}]}"#), Some(41));
        assert_eq!(counter(b"{}"), None);
    }
}
