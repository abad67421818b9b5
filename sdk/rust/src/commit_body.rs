//! The body of a commit, written from a transaction's own reads and writes. A
//! [`CommitRequest`](tribunal_api::CommitRequest) has the same form, but would first need a copy of every key and
//! value, and `serde` writes its members one by one, which takes more than twice as long. So the members that occur
//! many times per commit are written here, and the rest by `serde`.
//!
//! Invariant: the body is the JSON of the `CommitRequest` that the same transaction prepares.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tribunal_api::{Ack, IsolationLevel, Range, WriteOp};
use tribunal_types::Version;

use crate::writes::PendingWrite;

/// Bytes of an operation's braces, member names and numbers.
pub(crate) const OP_BYTES: usize = 80;

/// A commit's members other than reads and writes, as in a `CommitRequest`.
#[derive(Serialize)]
pub(crate) struct CommitOptions<'a> {
    pub isolation: IsolationLevel,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub snapshots: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<Ack>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_attempt_ms: Option<String>,
    #[serde(skip_serializing_if = "<[Range]>::is_empty")]
    pub ranges: &'a [Range],
}

/// A body in progress.
pub(crate) struct CommitBody(Vec<u8>);

impl CommitBody {
    /// Starts a body with the options; `bytes` is the approximate size of reads and writes.
    pub(crate) fn new(options: &CommitOptions<'_>, bytes: usize) -> Result<Self, serde_json::Error> {
        let mut json = Vec::with_capacity(bytes + 128);
        serde_json::to_writer(&mut json, options)?;
        // Remove the closing brace: lists may follow. There is at least one member, the level.
        json.pop();
        Ok(CommitBody(json))
    }

    /// Adds the rows read, if there are any.
    pub(crate) fn reads<'a>(&mut self, reads: impl Iterator<Item = (&'a str, &'a [u8], Option<Version>)>) {
        self.list(b",\"reads\":[", reads, |json, (store, key, version)| {
            json.extend_from_slice(b"{\"store\":");
            write_text(json, store);
            write_key(json, key);
            if let Some(version) = version {
                // As text, because it may exceed 2^53.
                json.extend_from_slice(b",\"version\":\"");
                json.extend_from_slice(itoa::Buffer::new().format(version.bits()).as_bytes());
                json.push(b'"');
            }
        });
    }

    /// Adds the rows written, if there are any.
    pub(crate) fn writes<'a>(&mut self, writes: impl Iterator<Item = (&'a str, &'a [u8], &'a PendingWrite)>) {
        self.list(b",\"writes\":[", writes, |json, (store, key, write)| {
            json.extend_from_slice(op_member(write.op));
            json.extend_from_slice(b",\"store\":");
            write_text(json, store);
            write_key(json, key);
            if let Some(value) = &write.value {
                json.extend_from_slice(b",\"value\":");
                json.extend_from_slice(value.get().as_bytes());
            }
            if let Some(or) = write.or {
                json.extend_from_slice(b",\"or\":");
                json.extend_from_slice(itoa::Buffer::new().format(or).as_bytes());
            }
        });
    }

    fn list<T>(&mut self, name: &[u8], items: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
        let json = &mut self.0;
        let mut is_empty = true;
        for item in items {
            json.extend_from_slice(if is_empty { name } else { b"," });
            write(json, item);
            json.push(b'}');
            is_empty = false;
        }
        if !is_empty {
            json.push(b']');
        }
    }

    /// Completes the body.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// Writes text as JSON. Names and keys rarely need an escape.
pub(crate) fn write_text(json: &mut Vec<u8>, text: &str) {
    // Scan the whole text without an early exit, so that the compiler vectorises the loop.
    if text.bytes().fold(false, |found, byte| found | (byte < b' ') | (byte == b'"') | (byte == b'\\')) {
        // Text always has a JSON form, and writing into a vector cannot fail.
        let _ = serde_json::to_writer(json, text);
        return;
    }
    json.push(b'"');
    json.extend_from_slice(text.as_bytes());
    json.push(b'"');
}

/// Writes a key's member: text if it is UTF-8, otherwise base64.
fn write_key(json: &mut Vec<u8>, key: &[u8]) {
    match std::str::from_utf8(key) {
        Ok(text) => {
            json.extend_from_slice(b",\"key\":");
            write_text(json, text);
        }
        Err(_) => {
            json.extend_from_slice(b",\"key_b64\":");
            write_text(json, &STANDARD.encode(key));
        }
    }
}

/// Returns the start of a write, with its first member.
fn op_member(op: WriteOp) -> &'static [u8] {
    match op {
        WriteOp::Insert => b"{\"op\":\"insert\"",
        WriteOp::Update => b"{\"op\":\"update\"",
        WriteOp::Put => b"{\"op\":\"put\"",
        WriteOp::Delete => b"{\"op\":\"delete\"",
        WriteOp::Add => b"{\"op\":\"add\"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_written_as_serde_writes_it() {
        let every_byte: String = (0..=127_u8).map(char::from).chain("\u{80}\u{2028}\u{1f600}".chars()).collect();
        let each = every_byte.chars().map(String::from);
        for text in each.chain([String::new(), every_byte.clone(), "kv".to_owned()]) {
            let mut json = Vec::new();
            write_text(&mut json, &text);
            assert_eq!(json, serde_json::to_vec(&text).expect("JSON"), "{text:?}");
        }
    }
}
