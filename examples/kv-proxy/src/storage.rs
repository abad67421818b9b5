//! Reads rows, their versions and the watermark straight from Redis, each time in one atomic script.
//!
//! Never writes: only Tribunal's `redis` adaptor does. Its layout, for the prefix `P`: row `key` is the string `P` +
//! key, with the value `<version> <json>`; `#index:P` is a sorted set of all keys, every score 0; `#watermark:P` is
//! `<log> <LSN>` of the last record applied.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use serde_json::Value;
use tokio::sync::Mutex;
use tribunal_client::{Lsn, Version};

const TIMEOUT: Duration = Duration::from_secs(5);

/// One row and the watermark.
const GET: &str = "return {redis.call('GET', KEYS[1]) or '0', redis.call('GET', KEYS[2])}";

/// Rows of a range and the watermark.
const SCAN: &str = r"
local out = {redis.call('GET', KEYS[1]) or '0'}
for _, key in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  out[#out + 1] = key
  out[#out + 1] = redis.call('GET', ARGV[4] .. key)
end
return out";

/// A client of one Redis; it connects when it is used, and reconnects after an error.
pub struct Storage {
    client: redis::Client,
    prefix: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// A row in Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRow {
    /// Key without the prefix.
    pub key: String,
    /// Version of the transaction that wrote it.
    pub version: Version,
    /// Value.
    pub value: Value,
}

/// The result of one script, a consistent view.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Last record that Redis has applied.
    pub watermark: Lsn,
    /// Rows.
    pub rows: Vec<StoredRow>,
}

/// Redis did not reply, or its data is not the adaptor's.
#[derive(Debug, thiserror::Error)]
#[error("redis: {0}")]
pub struct StorageError(String);

enum Trouble {
    /// The connection broke.
    Connection(StorageError),
    /// Redis replied with an error, or not at all.
    Answer(StorageError),
}

impl Trouble {
    fn into_error(self) -> StorageError {
        match self {
            Trouble::Connection(error) | Trouble::Answer(error) => error,
        }
    }
}

impl From<redis::RedisError> for StorageError {
    fn from(error: redis::RedisError) -> Self {
        StorageError(error.to_string())
    }
}

impl Storage {
    /// Creates a client of the Redis at `host:port` for keys with this prefix.
    pub fn new(endpoint: &str, prefix: &str) -> Result<Self, StorageError> {
        let client = redis::Client::open(format!("redis://{endpoint}"))?;
        Ok(Storage { client, prefix: prefix.to_owned(), connection: Mutex::new(None) })
    }

    /// Reads one row.
    pub async fn get(&self, key: &str) -> Result<(Option<StoredRow>, Lsn), StorageError> {
        let mut command = redis::cmd("EVAL");
        command.arg(GET).arg(2).arg(self.watermark_key()).arg(format!("{}{key}", self.prefix));
        let (watermark, row): (String, Option<String>) = self.ask(&command).await?;
        Ok((row.map(|text| parse_row(key, &text)).transpose()?, parse_lsn(&watermark)?))
    }

    /// Reads at most `limit` rows of `start..end` in key order; with an empty `end`, up to the last row.
    pub async fn scan(&self, start: &str, end: &str, limit: usize) -> Result<Seen, StorageError> {
        let mut command = redis::cmd("EVAL");
        command.arg(SCAN).arg(2).arg(self.watermark_key()).arg(self.index_key());
        command.arg(format!("[{start}"));
        command.arg(if end.is_empty() { "+".to_owned() } else { format!("({end}") });
        command.arg(limit).arg(&self.prefix);
        let texts: Vec<Option<String>> = self.ask(&command).await?;
        let mut texts = texts.into_iter();
        let watermark = parse_lsn(&texts.next().flatten().unwrap_or_default())?;
        let mut rows = Vec::new();
        while let Some(key) = texts.next() {
            match (key, texts.next().flatten()) {
                (Some(key), Some(text)) => rows.push(parse_row(&key, &text)?),
                (key, _) => return Err(StorageError(format!("the index names {key:?}, which has no row"))),
            }
        }
        Ok(Seen { watermark, rows })
    }

    /// Returns the names of all row keys under the prefix, whether or not the index contains them.
    pub async fn row_keys(&self) -> Result<Vec<String>, StorageError> {
        let mut keys = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(format!("{}*", self.prefix)).arg("COUNT").arg(1_000);
            let (next, page): (u64, Vec<String>) = self.ask(&command).await?;
            keys.extend(page.into_iter().map(|key| key[self.prefix.len()..].to_owned()));
            cursor = next;
            if cursor == 0 {
                keys.sort();
                keys.dedup();
                return Ok(keys);
            }
        }
    }

    fn watermark_key(&self) -> String {
        format!("#watermark:{}", self.prefix)
    }

    fn index_key(&self) -> String {
        format!("#index:{}", self.prefix)
    }

    /// Runs a read-only script; if the connection turns out to be broken, retries once on a new one.
    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, StorageError> {
        match self.ask_once(command).await {
            Err(Trouble::Connection(_)) => self.ask_once(command).await.map_err(Trouble::into_error),
            other => other.map_err(Trouble::into_error),
        }
    }

    async fn ask_once<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Trouble> {
        let mut connection = self.connected().await.map_err(Trouble::Answer)?;
        match tokio::time::timeout(TIMEOUT, command.query_async(&mut connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if matches!(error.kind(), redis::ErrorKind::Server(_)) => Err(Trouble::Answer(error.into())),
            Ok(Err(error)) => {
                *self.connection.lock().await = None;
                Err(Trouble::Connection(error.into()))
            }
            Err(_) => {
                *self.connection.lock().await = None;
                Err(Trouble::Answer(StorageError(format!("no answer within {} ms", TIMEOUT.as_millis()))))
            }
        }
    }

    async fn connected(&self) -> Result<MultiplexedConnection, StorageError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref() {
            return Ok(connection.clone());
        }
        let made = tokio::time::timeout(TIMEOUT, self.client.get_multiplexed_async_connection())
            .await
            .map_err(|_| StorageError(format!("no connection within {} ms", TIMEOUT.as_millis())))??;
        Ok(connection.insert(made).clone())
    }
}

fn parse_lsn(text: &str) -> Result<Lsn, StorageError> {
    let lsn = text.rsplit(' ').next().unwrap_or_default();
    lsn.parse().map(Lsn).map_err(|_| StorageError(format!("watermark {text:?} has no LSN")))
}

fn parse_row(key: &str, text: &str) -> Result<StoredRow, StorageError> {
    let wrong = || StorageError(format!("row {key:?} is not of the form `<version> <json>`"));
    let (version, json) = text.split_once(' ').ok_or_else(wrong)?;
    let version = version.parse().ok().and_then(Version::from_bits).ok_or_else(wrong)?;
    Ok(StoredRow { key: key.to_owned(), version, value: serde_json::from_str(json).map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_the_adaptor_writes_them() {
        let row = parse_row("k", "9271 {\"a\": 1}").expect("a row");
        assert_eq!((row.version.bits(), row.value), (9271, serde_json::json!({"a": 1})));
        for wrong in ["", "12", "x {}", "0 {}", "12 {", "-1 1"] {
            assert!(parse_row("k", wrong).is_err(), "{wrong:?}");
        }
    }
}
