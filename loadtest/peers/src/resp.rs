//! The protocol of Redis: commands and replies as bytes. No I/O.

use memchr::memchr;
use rand::rngs::SmallRng;
use tribunal_bench::error::BenchError;
use tribunal_bench::wire::write_decimal;

use crate::key;

/// Appends a command and its arguments.
pub fn command_of(out: &mut Vec<u8>, words: &[&[u8]]) {
    array(out, words.len());
    words.iter().for_each(|word| bulk(out, word));
}

/// Appends the beginning of an array of `items` items.
pub fn array(out: &mut Vec<u8>, items: usize) {
    out.push(b'*');
    write_decimal(out, items as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends a string.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    write_decimal(out, bytes.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a value of `bytes` random characters.
pub fn value(out: &mut Vec<u8>, bytes: usize, rng: &mut SmallRng) {
    out.push(b'$');
    write_decimal(out, bytes as u64);
    out.extend_from_slice(b"\r\n");
    key::text(out, bytes, rng);
    out.extend_from_slice(b"\r\n");
}

/// Returns the end of the reply that begins at `at`; `None` if it has not arrived completely.
///
/// # Errors
/// If it is an error, or not a reply.
pub fn reply_end(bytes: &[u8], at: usize) -> Result<Option<usize>, BenchError> {
    let Some(line) = memchr(b'\n', &bytes[at..]) else { return Ok(None) };
    let (line, mut end) = (&bytes[at..at + line], at + line + 1);
    let no_reply = BenchError::Reply("no reply of Redis");
    let number = || std::str::from_utf8(line.get(1..)?).ok()?.trim_end().parse::<i64>().ok();
    match line.first() {
        Some(b'+' | b':') => Ok(Some(end)),
        Some(b'-') => Err(BenchError::Refused {
            what: "a command".to_owned(),
            answer: String::from_utf8_lossy(line).trim_end().to_owned(),
        }),
        Some(b'$') => {
            let length = number().ok_or(no_reply)?;
            let whole = end + usize::try_from(length + 2).unwrap_or(0);
            let whole = if length < 0 { end } else { whole };
            Ok(Some(whole).filter(|whole| *whole <= bytes.len()))
        }
        Some(b'*') => {
            for _ in 0..number().ok_or(no_reply)?.max(0) {
                match reply_end(bytes, end)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => Err(no_reply),
    }
}

/// Yields the strings of a complete reply, at any depth.
pub fn bulks(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let line = at + memchr(b'\n', reply.get(at..)?)?;
            let (head, start) = (&reply[at..line], line + 1);
            at = start;
            if let Some(length) = head.strip_prefix(b"$") {
                let length: usize = str::from_utf8(length).ok()?.trim_end().parse().ok()?;
                at = start + length + 2;
                return reply.get(start..start + length);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &str, expected: Option<usize>) {
        assert_eq!(reply_end(bytes.as_bytes(), 0).unwrap(), expected, "{bytes:?}");
    }

    #[test]
    fn the_end_of_a_reply_is_found() {
        check("+OK\r\n+OK\r\n", Some(5));
        check("+OK\r", None);
        check("$3\r\nabc\r\n", Some(9));
        check("$3\r\nab", None);
        check("$-1\r\n", Some(5));
        check("*2\r\n$1\r\na\r\n:7\r\n", Some(15));
        check("*2\r\n$1\r\na\r\n", None);
        check("*-1\r\n", Some(5));
        assert!(reply_end(b"-ERR no\r\n", 0).is_err());
    }

    #[test]
    fn strings_are_found_at_every_depth() {
        let found: Vec<_> = bulks(b"*2\r\n$2\r\n17\r\n*2\r\n$3\r\nabc\r\n$0\r\n\r\n").collect();
        assert_eq!(found, [&b"17"[..], b"abc", b""]);
    }
}
