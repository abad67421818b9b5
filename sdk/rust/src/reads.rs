//! Reads several rows of an embedded store in one request, all at the same epoch.

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
    /// Version that the caller has cached. If it is still current, the value is not sent again.
    pub known: Option<Version>,
}

/// The result of reading a row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowState {
    /// The row does not exist.
    Absent,
    /// The row still has the version that the caller has cached.
    Unchanged(Version),
    /// The row exists.
    Found(Row),
}

/// The results of reading rows, all at the same epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReads {
    /// The epoch that the rows reflect: they include all of its commits, and none of later epochs.
    pub applied: Epoch,
    /// One result per row, in the order of the request.
    pub rows: Vec<RowState>,
}

impl Client {
    /// Reads rows of an embedded store outside any transaction: at most 10,000 rows, with at most 8 MiB of values in total.
    /// They include every commit that was acknowledged before the call.
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
            return Err(Error::misbehaved(format!(
                "{} rows returned where {} were requested",
                found.len(),
                rows.len()
            )));
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
    // The wire type cannot tell the value `null` from an absent one.
    let value = wire::value_of(found.value, found.value_b64)?;
    let value = value.as_deref().map_or(Ok(Value::Null), wire::parsed)?;
    Ok(RowState::Found(Row { key: key.to_vec(), value, version: Some(version) }))
}
