//! Compares Redis with the log, and the log with the acknowledged commits.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use tribunal_client::{Client, LogRecord, Lsn, Version, WriteOp};

use super::workload::{Sizes, balance, total};
use crate::storage::Storage;

type Rows = BTreeMap<String, (Version, Value)>;

/// The log, replayed.
pub struct Replay {
    pub rows: Rows,
    /// The tokens in each record's writes.
    tokens: HashMap<u64, Vec<String>>,
    pub head: Lsn,
}

/// Pulls the log from its beginning and replays it.
pub async fn replay(client: &Client, store: &str) -> Result<Replay, String> {
    let mut log = client.log(store, Lsn(0)).wait_ms(0).page_records_max(5_000);
    let mut replay = Replay { rows: Rows::new(), tokens: HashMap::new(), head: Lsn(0) };
    while let Some(record) = log.next().await.map_err(|e| e.to_string())? {
        replay.apply(record)?;
    }
    replay.head = log.offset();
    Ok(replay)
}

impl Replay {
    fn apply(&mut self, record: LogRecord) -> Result<(), String> {
        let tokens = self.tokens.entry(record.lsn.0).or_default();
        for write in record.writes {
            let key = String::from_utf8(write.key).map_err(|e| format!("record {}: {e}", record.lsn))?;
            match (write.op, write.value) {
                (WriteOp::Delete, _) => drop(self.rows.remove(&key)),
                (WriteOp::Insert | WriteOp::Update | WriteOp::Put, Some(value)) => {
                    let value: Value = value.parse().map_err(|e| format!("record {}: {e}", record.lsn))?;
                    tokens.extend(value["by"].as_str().map(str::to_owned));
                    self.rows.insert(key, (record.version, value));
                }
                (op, value) => return Err(format!("record {}: {op:?} of {value:?}", record.lsn)),
            }
        }
        Ok(())
    }

    /// Returns the acknowledged commits that the log does not contain as acknowledged.
    pub fn missing(&self, acknowledged: &[(u64, String)]) -> Vec<String> {
        let held = |lsn: &u64, token: &String| self.tokens.get(lsn).is_some_and(|tokens| tokens.contains(token));
        let lost = acknowledged.iter().filter(|(lsn, token)| !held(lsn, token));
        lost.map(|(lsn, token)| format!("{token} was acknowledged at LSN {lsn} and is not there")).collect()
    }
}

/// Returns every difference between Redis and the replayed log, and the bank's if its money does not add up.
pub async fn differences(storage: &Storage, replay: &Replay, sizes: Sizes) -> Result<Vec<String>, String> {
    let mut found = Rows::new();
    let mut differences = Vec::new();
    let mut start = String::new();
    loop {
        let seen = storage.scan(&start, "", 1_000).await.map_err(|e| e.to_string())?;
        if seen.watermark != replay.head {
            differences.push(format!("Redis is at LSN {}, the log ends at {}", seen.watermark, replay.head));
        }
        let Some(last) = seen.rows.last() else { break };
        start = format!("{}\0", last.key);
        found.extend(seen.rows.into_iter().map(|row| (row.key, (row.version, row.value))));
    }
    let names = storage.row_keys().await.map_err(|e| e.to_string())?;
    if !names.iter().eq(found.keys()) {
        differences.push(format!("the index names {} rows, Redis holds {}", found.len(), names.len()));
    }
    for (key, expected) in &replay.rows {
        match found.get(key) {
            Some(row) if row == expected => {}
            row => differences.push(format!("{key}: the log says {expected:?}, Redis {row:?}")),
        }
    }
    let extra = found.keys().filter(|key| !replay.rows.contains_key(*key));
    differences.extend(extra.map(|key| format!("{key} is in Redis, not in the log")));
    let money: i64 = found.range("acct/".to_owned().."acct0".to_owned()).map(|(_, row)| balance(&row.1)).sum();
    if money != total(sizes) {
        differences.push(format!("the bank holds {money}, must hold {}", total(sizes)));
    }
    Ok(differences)
}
