//! Compares the tables with the replayed log: every row, its version and its value, and nothing else.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::{TryStreamExt, pin_mut};
use serde_json::Value;
use tokio_postgres::Client as Postgres;
use tribunal_client::{Client, Lsn, WriteOp};

use crate::schema::TABLES;

/// Maximum differences listed; the rest is counted.
const LISTED_MAX: usize = 10;

/// The result of the comparison.
#[derive(Debug, Default)]
pub struct Audit {
    /// Records of the log.
    pub records: u64,
    /// Rows after replaying the log.
    pub rows: usize,
    /// Differences.
    pub differing: usize,
    /// The first of them.
    pub listed: Vec<String>,
}

/// A row, small enough to keep millions of them: version and hash of the value, or the integer that `add` needs.
struct Kept {
    version: u64,
    value: Hashed,
}

#[derive(PartialEq)]
enum Hashed {
    Integer(i64),
    Other(u64),
}

impl Hashed {
    fn of(value: &Value) -> Self {
        match value.as_i64() {
            Some(number) => Hashed::Integer(number),
            None => {
                let mut hasher = DefaultHasher::new();
                // Fields in the order of their names, regardless of their writer.
                value.to_string().hash(&mut hasher);
                Hashed::Other(hasher.finish())
            }
        }
    }
}

/// Pulls the whole log and reads all tables.
///
/// # Errors
/// If either cannot be read, or the log is inconsistent.
pub async fn compare(client: &Client, store: &str, postgres: &Postgres) -> Result<Audit, String> {
    let (mut left, records) = replay(client, store).await?;
    let mut audit = Audit { records, rows: left.len(), ..Audit::default() };
    let mut differs = |text: String| {
        audit.differing += 1;
        if audit.listed.len() < LISTED_MAX {
            audit.listed.push(text);
        }
    };
    for table in TABLES {
        let none: [&str; 0] = [];
        let rows = postgres.query_raw(&table.as_logged(), none).await.map_err(|e| e.to_string())?;
        pin_mut!(rows);
        while let Some(row) = rows.try_next().await.map_err(|e| e.to_string())? {
            let read = (row.try_get::<_, String>(0), row.try_get::<_, i64>(1), row.try_get::<_, String>(2));
            let (Ok(key), Ok(version), Ok(json)) = read else { return Err(format!("{} cannot be read", table.name)) };
            let value: Value = serde_json::from_str(&json).map_err(|e| format!("{key}: {e}"))?;
            match left.remove(&key) {
                Some(row) if i64::try_from(row.version) == Ok(version) && row.value == Hashed::of(&value) => {}
                Some(row) => differs(format!("{key}: version {version} in PostgreSQL, {} in the log", row.version)),
                None => differs(format!("{key} is in PostgreSQL, not in the log")),
            }
        }
    }
    for key in left.keys() {
        differs(format!("{key} is in the log, not in PostgreSQL"));
    }
    Ok(audit)
}

async fn replay(client: &Client, store: &str) -> Result<(HashMap<String, Kept>, u64), String> {
    let mut log = client.log(store, Lsn(0)).wait_ms(0).page_records_max(2_000);
    let mut rows: HashMap<String, Kept> = HashMap::new();
    let mut records = 0;
    while let Some(record) = log.next().await.map_err(|e| e.to_string())? {
        records += 1;
        let version = record.version.bits();
        for write in record.writes {
            let key = String::from_utf8(write.key).map_err(|e| format!("record {}: {e}", record.lsn))?;
            let value = match (write.op, write.value, rows.get(&key)) {
                (WriteOp::Delete, ..) => {
                    rows.remove(&key);
                    continue;
                }
                (WriteOp::Add, Some(delta), Some(Kept { value: Hashed::Integer(before), .. })) => {
                    Hashed::Integer(before + delta.parse::<i64>().map_err(|e| e.to_string())?)
                }
                (WriteOp::Insert | WriteOp::Update | WriteOp::Put, Some(value), _) => {
                    Hashed::of(&value.parse().map_err(|e| e.to_string())?)
                }
                (op, ..) => return Err(format!("record {}: {op:?} of {key} makes no sense", record.lsn)),
            };
            rows.insert(key, Kept { version, value });
        }
    }
    Ok((rows, records))
}
