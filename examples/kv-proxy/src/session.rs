//! One client's transaction in a proxy: reads from Redis, records what it observed, buffers writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tribunal_client::{Client, Lsn, Outcome, Transaction};

use crate::storage::{Storage, StorageError, StoredRow};

/// A transaction on one store.
pub struct Session {
    client: Client,
    storage: Arc<Storage>,
    store: String,
    txn: Transaction,
    /// Rows as they were first read; `None` was absent.
    seen: HashMap<String, Option<Value>>,
    /// The least position that Redis must have applied for a scan to be valid.
    watermark_min: Option<Lsn>,
}

/// Why a session's operation failed. This ends the transaction.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Redis could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Redis came back with less than the transaction's snapshot contains; Tribunal is pushing the missing records.
    #[error("redis is at LSN {at}, the snapshot needs {needed}")]
    FellBack {
        /// The position that Redis has applied.
        at: Lsn,
        /// The position that it must have applied.
        needed: Lsn,
    },
    /// Tribunal refused or was unreachable.
    #[error(transparent)]
    Tribunal(#[from] tribunal_client::Error),
}

impl Session {
    /// Wraps a transaction that has begun.
    pub fn new(client: Client, storage: Arc<Storage>, store: &str, txn: Transaction) -> Self {
        Session { client, storage, store: store.to_owned(), txn, seen: HashMap::new(), watermark_min: None }
    }

    /// Reads a row, own writes included.
    pub async fn get(&mut self, key: &str) -> Result<Option<Value>, SessionError> {
        if let Some(own) = self.txn.own_write(&self.store, key)? {
            return Ok(own);
        }
        self.read(key).await
    }

    /// Writes a row.
    pub fn put(&mut self, key: &str, value: &Value) -> Result<(), SessionError> {
        Ok(self.txn.put(&self.store, key, value)?)
    }

    /// Removes a row; returns whether there was one.
    pub async fn delete(&mut self, key: &str) -> Result<bool, SessionError> {
        let before = self.read(key).await?;
        let own = self.txn.own_write(&self.store, key)?;
        let existed = own.unwrap_or(before).is_some();
        if existed {
            self.txn.delete(&self.store, key)?;
        }
        Ok(existed)
    }

    /// Reads at most `limit` rows of `start..end`, own writes included; returns whether there are more.
    pub async fn scan(
        &mut self,
        start: &str,
        end: &str,
        limit: usize,
    ) -> Result<(Vec<(String, Value)>, bool), SessionError> {
        let needed = self.watermark_min().await?;
        let seen = self.storage.scan(start, end, limit + 1).await?;
        if seen.watermark < needed {
            return Err(SessionError::FellBack { at: seen.watermark, needed });
        }
        let more = seen.rows.len() > limit;
        // Only the returned rows and the gap before the next row were observed.
        let end = if more { seen.rows[limit].key.clone() } else { end.to_owned() };
        self.txn.observe_range(&self.store, start, &end);
        let mut rows = BTreeMap::new();
        for row in seen.rows.into_iter().take(limit) {
            let key = row.key.clone();
            rows.insert(key, self.remember(row));
        }
        for (key, value) in self.own_writes(start, &end)? {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        Ok((rows.into_iter().collect(), more))
    }

    /// Requests the verdict from Tribunal.
    pub async fn commit(self) -> Result<Outcome, SessionError> {
        Ok(self.txn.commit().await?)
    }

    async fn read(&mut self, key: &str) -> Result<Option<Value>, SessionError> {
        if let Some(seen) = self.seen.get(key) {
            return Ok(seen.clone());
        }
        match self.storage.get(key).await?.0 {
            Some(row) => Ok(Some(self.remember(row))),
            None => {
                self.txn.observe(&self.store, key, None);
                self.seen.insert(key.to_owned(), None);
                Ok(None)
            }
        }
    }

    /// Records a row as observed and returns its value: that of the first observation, if there was one.
    fn remember(&mut self, row: StoredRow) -> Value {
        self.txn.observe(&self.store, &row.key, Some(row.version));
        let seen = self.seen.entry(row.key).or_insert_with(|| Some(row.value.clone()));
        seen.clone().unwrap_or(row.value)
    }

    fn own_writes(&self, start: &str, end: &str) -> Result<Vec<(String, Option<Value>)>, SessionError> {
        let mut own = Vec::new();
        for key in self.txn.written_keys(&self.store) {
            let Ok(key) = std::str::from_utf8(key) else { continue };
            if key >= start && (end.is_empty() || key < end) {
                let value = self.txn.own_write(&self.store, key)?;
                own.extend(value.map(|value| (key.to_owned(), value)));
            }
        }
        Ok(own)
    }

    /// Returns the position that Redis must have applied for its ranges to show the snapshot. An existing row proves
    /// its state by its version; a missing row does not.
    async fn watermark_min(&mut self) -> Result<Lsn, SessionError> {
        if let Some(needed) = self.watermark_min {
            return Ok(needed);
        }
        let info = self.client.store(&self.store).await?;
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        let acked = Lsn(number(&info.acked_lsn));
        let snapshot = self.txn.snapshot(&self.store)?.map_or(0, |epoch| epoch.0);
        if number(&info.applied) < snapshot {
            return Err(SessionError::FellBack { at: acked, needed: acked.next() });
        }
        self.watermark_min = Some(acked);
        Ok(acked)
    }
}
