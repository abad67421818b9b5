//! Reads of several rows of an embedded store in one request, as of one epoch.

use hyper::Method;
use serde_json::value::Value;
use tribunal_api::{ReadRequest, ReadResponse, ReadRow};
use tribunal_types::{Epoch, Version};

use crate::client::{Client, Row, read};
use crate::{Error, wire};

/// A row to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRead<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Version that the caller has cached: if it is still the row's, the value is not sent again.
    pub known: Option<Version>,
}

/// A row as a read found it.
#[derive(Clone, Debug, PartialEq)]
pub enum RowState {
    /// There is no such row.
    Absent,
    /// The row still has the version that the caller has.
    Unchanged(Version),
    /// The row.
    Found(Row),
}

/// Rows as of one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReads {
    /// The epoch that they reflect: all of it, and nothing of later ones.
    pub applied: Epoch,
    /// One for each row, in the order of the request.
    pub rows: Vec<RowState>,
}

impl Client {
    /// Reads rows of an embedded store, at most 10,000 with values of at most 8 MiB, outside any transaction. They include
    /// every commit that was answered before.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_rows(&self, store: &str, rows: &[RowRead<'_>]) -> Result<RowReads, Error> {
        let asked = rows.iter().map(|row| {
            let (key, key_b64) = wire::key_fields(row.key);
            let version = row.known.map(|version| version.bits().to_string());
            tribunal_api::RowRead { store: None, key, key_b64, version }
        });
        let request = ReadRequest { read: Some(asked.collect()), ranges: None };
        let path = format!("/v1/stores/{}/rows/read", wire::percent_encoded(store.as_bytes()));
        let answer: ReadResponse =
            self.retrying(|| async { read(&self.ask(Method::POST, &path, Some(&request), 0).await?) }).await?;
        let found = answer.rows.unwrap_or_default();
        if found.len() != rows.len() {
            return Err(Error::misbehaved(format!("{} rows for {} that were asked for", found.len(), rows.len())));
        }
        let states = found.into_iter().zip(rows).map(|(found, asked)| state_of(found, asked.key));
        Ok(RowReads { applied: wire::epoch(&answer.applied)?, rows: states.collect::<Result<_, _>>()? })
    }
}

pub(crate) fn state_of(found: ReadRow, key: &[u8]) -> Result<RowState, Error> {
    let Some(version) = found.version else { return Ok(RowState::Absent) };
    let version = wire::version(&version)?;
    if found.unchanged == Some(true) {
        return Ok(RowState::Unchanged(version));
    }
    // The value `null` is read as an absent one.
    let value = wire::value_of(found.value, found.value_b64)?;
    let value = value.as_deref().map_or(Ok(Value::Null), wire::parsed)?;
    Ok(RowState::Found(Row { key: key.to_vec(), value, version: Some(version) }))
}
