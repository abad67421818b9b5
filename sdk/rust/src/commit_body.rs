//! The body of a commit, serialized from a transaction's own reads and writes. A [`CommitRequest`](tribunal_api::CommitRequest)
//! has the same form, but would need a copy of every key and value first.

use std::collections::BTreeMap;
use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tribunal_api::{Ack, IsolationLevel, Range, WriteOp};
use tribunal_types::Version;

/// A commit's members, those of a `CommitRequest`.
#[derive(Serialize)]
pub(crate) struct CommitBody<'a, R: Serialize, W: Serialize> {
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
    pub first_attempt_ms: Option<Text<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<R>,
    #[serde(skip_serializing_if = "<[Range]>::is_empty")]
    pub ranges: &'a [Range],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<W>,
}

/// A row that was read, with the members of a `Read`.
#[derive(Serialize)]
pub(crate) struct ReadBody<'a> {
    store: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Text<Version>>,
}

impl<'a> ReadBody<'a> {
    pub(crate) fn new(store: &'a str, key: &'a [u8], version: Option<Version>) -> Self {
        let (key, key_b64) = key_members(key);
        ReadBody { store, key, key_b64, version: version.map(Text) }
    }
}

/// A row that is written, with the members of a `Write`.
#[derive(Serialize)]
pub(crate) struct WriteBody<'a> {
    op: WriteOp,
    store: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    or: Option<i64>,
}

impl<'a> WriteBody<'a> {
    pub(crate) fn new(
        op: WriteOp,
        store: &'a str,
        key: &'a [u8],
        value: Option<&'a RawValue>,
        or: Option<i64>,
    ) -> Self {
        let (key, key_b64) = key_members(key);
        WriteBody { op, store, key, key_b64, value, or }
    }
}

/// A number that JSON carries as text, because it may exceed 2^53.
pub(crate) struct Text<T>(pub T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The items of an iterator, as an array.
pub(crate) struct Array<I>(pub I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Array<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(None)?;
        self.0.clone().try_for_each(|item| array.serialize_element(&item))?;
        array.end()
    }
}

/// The members of a key: text if it is UTF-8, else base64.
fn key_members(key: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(key) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(key))),
    }
}
