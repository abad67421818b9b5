//! Conversions between the wire types and this crate's types: keys, numbers, values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, Value};
use tribunal_types::{Csn, Epoch, LogId, Lsn, Version};

use crate::Error;

/// Splits a key into the two wire fields: text if it is UTF-8, otherwise base64.
pub(crate) fn key_fields(key: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(key) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(key))),
    }
}

/// Joins the two wire fields of a key; `None` if both are absent.
pub(crate) fn key_of(text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, Error> {
    match (text, base64) {
        (Some(text), _) => Ok(Some(text.into_bytes())),
        (None, Some(text)) => STANDARD.decode(text).map(Some).map_err(Error::misbehaved),
        (None, None) => Ok(None),
    }
}

/// Joins the two wire fields of a value; a binary value retains its stored form.
pub(crate) fn value_of(json: Option<Box<RawValue>>, base64: Option<String>) -> Result<Option<Box<RawValue>>, Error> {
    match (json, base64) {
        (Some(json), _) => Ok(Some(json)),
        (None, Some(text)) => raw(&serde_json::json!({ "$b64": text })).map(Some),
        (None, None) => Ok(None),
    }
}

pub(crate) fn raw(value: &impl Serialize) -> Result<Box<RawValue>, Error> {
    serde_json::value::to_raw_value(value)
        .map_err(|e| Error::misuse(format!("the value cannot be represented in JSON: {e}")))
}

pub(crate) fn parsed(raw: &RawValue) -> Result<Value, Error> {
    serde_json::from_str(raw.get()).map_err(Error::misbehaved)
}

pub(crate) fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| Error::misbehaved(format!("`{text}` where a number was expected")))
}

pub(crate) fn lsn(text: &str) -> Result<Lsn, Error> {
    number(text).map(Lsn)
}

pub(crate) fn log_id(text: &str) -> Result<LogId, Error> {
    text.parse().map_err(|_| Error::misbehaved(format!("`{text}` where the id of a log was expected")))
}

pub(crate) fn epoch(text: &str) -> Result<Epoch, Error> {
    number(text).map(Epoch)
}

pub(crate) fn csn(text: &str) -> Result<Csn, Error> {
    number(text).map(Csn)
}

pub(crate) fn version(text: &str) -> Result<Version, Error> {
    Version::from_bits(number(text)?).ok_or_else(|| Error::misbehaved(format!("`{text}` is not a version")))
}

/// Percent-encodes a text for a path segment, of which none is empty.
pub(crate) fn segment(what: &str, text: &str) -> Result<String, Error> {
    if text.is_empty() {
        return Err(Error::misuse(format!("the {what} is empty")));
    }
    Ok(percent_encoded(text.as_bytes()))
}

/// Percent-encodes bytes for a path segment or a query value.
pub(crate) fn percent_encoded(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_bytes_survive_a_round_trip() {
        for key in [&b"acct/1"[..], "gr\u{fc}n \"%\"".as_bytes(), &[0xff, 0, 0x80]] {
            let (text, base64) = key_fields(key);
            assert_eq!(text.is_some(), std::str::from_utf8(key).is_ok());
            assert_eq!(key_of(text, base64).expect("readable").as_deref(), Some(key));
        }
        assert_eq!(percent_encoded(b"a/b c\xff~"), "a%2Fb%20c%FF~");
    }
}
