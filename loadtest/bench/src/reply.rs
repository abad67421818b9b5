//! Extracts decisions from reply bodies by scanning for the required fields, without building a document. No I/O.
//!
//! This is not a JSON parser: it relies on this API's output to this client (compact JSON, keys without escapes, one
//! `status` per object). An unrecognised body counts as a problem named `unreadable`.

use memchr::memmem;

use crate::wire::decimal;

/// The outcome of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// It committed.
    Committed {
        /// Version of the rows it wrote; absent if it wrote none.
        version: Option<u64>,
        /// Its epoch.
        epoch: Option<u64>,
    },
    /// It aborted.
    Aborted {
        /// The reason.
        reason: &'a str,
        /// The object's bytes, for [`conflicts`].
        object: &'a [u8],
    },
    /// No decision was made.
    Problem {
        /// The problem's code.
        code: &'a str,
    },
}

/// Parses the decision in one reply object.
#[must_use]
pub fn decision(object: &[u8]) -> Decision<'_> {
    match text(object, b"\"status\":\"") {
        Some("committed") => {
            Decision::Committed { version: number(object, b"\"version\":\""), epoch: number(object, b"\"epoch\":\"") }
        }
        Some("aborted") => Decision::Aborted { reason: text(object, b"\"reason\":\"").unwrap_or("unnamed"), object },
        _ => Decision::Problem { code: text(object, b"\"code\":\"").unwrap_or("unreadable") },
    }
}

/// Yields key and current version of each conflict over a row that contains a current version.
pub fn conflicts(object: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    const KEY: &[u8] = b"\"key\":\"";
    let mut starts = memmem::find_iter(object, KEY).peekable();
    std::iter::from_fn(move || {
        let start = starts.next()?;
        let end = starts.peek().copied().unwrap_or(object.len());
        Some(&object[start..end])
    })
    // The key of a range is its start, and the version is another row's.
    .filter(|piece| memmem::find(piece, b"\"op\":\"range\"").is_none())
    .filter_map(|piece| Some((quoted(piece, KEY)?, number(piece, b"\"current_version\":\"")?)))
}

/// Returns an epoch that had ended before a transaction was aborted; 0 if the reply contains none.
#[must_use]
pub fn ended_before(aborted: &[u8]) -> u64 {
    // The transaction may have been aborted before the named epoch was sealed.
    number(aborted, b"\"epoch\":\"").map_or(0, |epoch| epoch.saturating_sub(1))
}

/// Yields the objects of the first array in `body`: the items of a batch reply, in order.
pub fn items(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = memchr::memchr(b'[', body).map_or(body.len(), |bracket| bracket + 1);
    std::iter::from_fn(move || {
        let start = at + memchr::memchr2(b'{', b']', &body[at..])?;
        if body[start] == b']' {
            return None;
        }
        at = object_end(body, start)?;
        Some(&body[start..at])
    })
}

/// Returns the index after the object that begins at `start`.
fn object_end(body: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        at += memchr::memchr3(b'{', b'}', b'"', body.get(at..)?)?;
        match body[at] {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => at = string_end(body, at)?,
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the index of the quote that closes the string opened at `open`.
fn string_end(body: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Returns the last key of a range in a reply to a read, and whether more rows follow.
#[must_use]
pub fn range_end(range: &[u8]) -> (Option<&[u8]>, bool) {
    const KEY: &[u8] = b"\"key\":\"";
    let last = memmem::rfind(range, KEY).and_then(|at| quoted(&range[at..], KEY));
    (last, memmem::rfind(range, b"\"more\":true").is_some())
}

fn quoted<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = &object[memmem::find(object, name)? + name.len()..];
    Some(&value[..memchr::memchr(b'"', value)?])
}

fn text<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a str> {
    std::str::from_utf8(quoted(object, name)?).ok()
}

/// Returns the number in a string after `name`, which includes everything up to the first digit.
#[must_use]
pub fn number(object: &[u8], name: &[u8]) -> Option<u64> {
    decimal(quoted(object, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str =
        r#"{"status":"committed","txn_id":"t","epoch":"8842","csn":"9007","version":"9271","lsn":{"kv":"120"}}"#;
    const ABORTED: &str = r#"{"status":"aborted","epoch":"8842","reason":"read_conflict","conflicts":[{"store":"kv","key":"row/1","read_version":"17","current_version":"19"},{"store":"kv","key":"row/2","by_txn":"x"},{"store":"kv","key":"row/3","current_version":"20"}]}"#;

    #[test]
    fn decisions_are_classified() {
        assert_eq!(decision(COMMITTED.as_bytes()), Decision::Committed { version: Some(9271), epoch: Some(8842) });
        assert!(matches!(decision(ABORTED.as_bytes()), Decision::Aborted { reason: "read_conflict", .. }));
        assert_eq!((ended_before(ABORTED.as_bytes()), ended_before(b"{}")), (8841, 0));
        let problem = br#"{"type":"about:blank","status":503,"code":"overloaded"}"#;
        assert_eq!(decision(problem), Decision::Problem { code: "overloaded" });
        assert_eq!(decision(b"<html>"), Decision::Problem { code: "unreadable" });
    }

    #[test]
    fn only_conflicts_with_a_current_version_update_the_model() {
        let seen: Vec<_> = conflicts(ABORTED.as_bytes()).collect();
        assert_eq!(seen, [(&b"row/1"[..], 19), (&b"row/3"[..], 20)]);
        let range =
            br#"{"conflicts":[{"key":"row/1","end":"row/9","row":"row/4","op":"range","current_version":"20"}]}"#;
        assert_eq!(conflicts(range).count(), 0);
    }

    #[test]
    fn a_range_ends_with_its_last_key() {
        let rows =
            r#"{"store":"kv","rows":[{"key":"a","value":"x","version":"1"},{"key":"b","value":"y","version":"2"}]"#;
        let read = format!(r#"{{"applied":"7","ranges":[{rows},"more":true}},{rows},"more":false}}]}}"#);
        let ends: Vec<_> = items(read.as_bytes()).map(range_end).collect();
        assert_eq!(ends, [(Some(&b"b"[..]), true), (Some(&b"b"[..]), false)]);
        assert_eq!(range_end(br#"{"store":"kv","rows":[],"more":false}"#), (None, false));
    }

    #[test]
    fn a_batch_reply_is_split_in_order() {
        let tricky = r#"{"status":"aborted","reason":"a}\"]{"}"#;
        let body = format!(r#"{{"results":[{COMMITTED},{ABORTED},{tricky}]}}"#);
        let found: Vec<_> = items(body.as_bytes()).collect();
        assert_eq!(found, [COMMITTED.as_bytes(), ABORTED.as_bytes(), tricky.as_bytes()]);
        assert_eq!(items(b"{\"results\":[]}").count(), 0);
        assert_eq!(items(b"").count(), 0);
        assert_eq!(items(b"{\"results\":[{\"cut").count(), 0);
    }
}
