//! LogAdaptor for Redis: one Lua call per request applies whole records and moves the watermark, or does neither.
//!
//! | key | holds |
//! |---|---|
//! | `{prefix}{key}` | a row: `<version> <JSON>` |
//! | `#index:{prefix}` | sorted set of all keys, score 0, for scans by `ZRANGEBYLEX` |
//! | `#watermark:{prefix}` | `<log> <LSN>`: the last record applied, and its log |
//! | `#store:{prefix}` | `<store>#<number>`: the store that owns the rows, if there is a watermark |
//! | `#record:{prefix}` | `<LSN> <arrival stamp> <transaction>`: the last record applied |
//! | `#scratch:{prefix}` | only within a call |
//!
//! Invariants: rows and the other keys never collide, because a prefix is not empty and does not start with `#`. Stores
//! that share a Redis need prefixes of which none starts with another; of two with the same prefix, the one that pushed
//! first continues. Watermarks of earlier releases have no store next to them; the first store that continues there
//! adds it. The store and the record have separate keys, so that these releases can still read the watermark. They leave
//! `#record:` as it is: a record at another position than the watermark's is not the last one.

mod resp;

use serde::Deserialize;
use tribunal_plugin_sdk::adaptor::{Ack, Command, Kinds, LogBatch, RecordId, Reply, Request, RespValue, Row, kind};
use tribunal_plugin_sdk::{Adaptor, Fault, Plugin, config};

use crate::resp::Pipeline;

/// The script; its text is constant, so that Redis compiles it once.
const APPLY: &str = include_str!("apply.lua");
/// Bytes of rows in one request, unless a single record is larger: Redis blocks while it runs the script.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Keys of a call besides the rows.
const OWN_KEYS: [&str; 4] = ["watermark", "index", "scratch", "store"];
/// Reads the watermark, the store and the record in one script, one line each: together they name a position. The record
/// is empty if the user may not read it.
const READ: &str = "local record = redis.pcall('GET', ARGV[1]) \
                    return table.concat({redis.call('GET', KEYS[1]) or '', redis.call('GET', KEYS[2]) or '', \
                    type(record) == 'string' and record or ''}, string.char(10))";
/// Transient errors.
const PASSING: [&str; 9] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"];

/// The adaptor.
#[derive(Debug, Deserialize)]
pub struct Redis {
    /// Prefix of every row's key. The host's own settings may accompany it.
    #[serde(default = "default_prefix")]
    prefix: String,
    /// Name of the log, from the host; rows of another log are not touched. Empty in an adaptor's own tests.
    #[serde(default)]
    log: String,
    /// Name of the store, from the host.
    #[serde(default)]
    store: String,
    /// Number of the store, from the host: names are unique in a namespace, numbers in the log.
    #[serde(default)]
    store_id: u64,
}

fn default_prefix() -> String {
    "tribunal:".to_owned()
}

impl Plugin for Redis {
    const NAME: &'static str = "redis";
    const ABOUT: &'static str = "Writes records to Redis, rows and watermark in one atomic script.";

    fn init(text: &str) -> Result<Self, Fault> {
        let redis: Redis = config::parse(text)?;
        if redis.prefix.is_empty() || redis.prefix.starts_with('#') {
            return Err("configuration: `prefix` must not be empty nor start with `#`".into());
        }
        Ok(redis)
    }
}

/// Returns the approximate bytes that a row takes in a request.
fn size(row: Row<'_>) -> usize {
    row.key.len() + row.value.len() + 40
}

impl Redis {
    fn key(&self, name: &str) -> String {
        format!("#{name}:{}", self.prefix)
    }

    /// Returns the store's name within its log; empty where there is no log, in an adaptor's own tests.
    fn owner(&self) -> String {
        if self.log.is_empty() { String::new() } else { format!("{}#{}", self.store, self.store_id) }
    }

    /// Returns the value of the watermark's key after record `lsn`; the key does not exist before the first record.
    fn mark(&self, lsn: u64) -> String {
        match lsn {
            0 => String::new(),
            lsn if self.log.is_empty() => lsn.to_string(),
            lsn => format!("{} {lsn}", self.log),
        }
    }

    /// Parses the result of [`Redis::mark`], and checks its owner.
    fn position(&self, mark: &str, owner: &str) -> Result<u64, Fault> {
        if mark.is_empty() {
            return Ok(0);
        }
        let (key, prefix) = (self.key("watermark"), &self.prefix);
        let keys = format!("{prefix}*, {}, {}, {} and {key}", self.key("index"), self.key("store"), self.key("record"));
        let (log, lsn) = mark.rsplit_once(' ').unwrap_or(("", mark));
        if log != self.log {
            return Err(format!(
                "these rows are filled by another log ({log}; this one is {}): delete the keys {keys} to have everything \
                 pushed again, or give the store another `prefix`. If this log is the other one, salvaged, and has lost no \
                 record up to LSN {lsn}: DEL {}, and SET {key} \"{} {lsn}\"",
                self.log,
                self.key("store"),
                self.log
            ));
        }
        let own = self.owner();
        if !own.is_empty() && !owner.is_empty() && owner != own {
            return Err(format!(
                "the rows with prefix `{prefix}` are filled by another store of this log (`{owner}`; this one is `{own}`): \
                 declare one of the two with a `prefix` of its own. If the other one is given up, delete the keys {keys}"
            ));
        }
        lsn.parse().map_err(|_| format!("{key} holds no watermark"))
    }

    fn request(&self, batch: &LogBatch, records: core::ops::Range<usize>) -> Result<Request, Fault> {
        let (first, last) = (batch.lsn[records.start], batch.lsn[records.end - 1]);
        let rows = || records.clone().flat_map(|record| batch.rows_of(record).map(move |row| batch.row(record, row)));
        let mut call =
            Pipeline::with_capacity(APPLY.len() + rows().map(|row| size(row) + self.prefix.len()).sum::<usize>());
        call.argument(b"EVAL");
        call.argument(APPLY.as_bytes());
        call.number((OWN_KEYS.len() + rows().count()) as u64);
        for name in OWN_KEYS {
            call.argument(self.key(name).as_bytes());
        }
        for row in rows() {
            call.joined(&[self.prefix.as_bytes(), row.key]);
        }
        call.argument(self.mark(first.saturating_sub(1)).as_bytes());
        call.argument(self.mark(last).as_bytes());
        call.number(self.prefix.len() as u64);
        call.argument(self.owner().as_bytes());
        call.argument(self.key("record").as_bytes());
        call.argument(batch.id_of(records.end - 1).to_string().as_bytes());
        for row in rows() {
            let operation: &[u8] = match row.kind {
                kind::INSERT | kind::UPDATE | kind::PUT => b"p",
                kind::DELETE => b"d",
                kind::ADD => b"a",
                other => return Err(format!("row of unknown kind {other}")),
            };
            call.argument(operation);
            call.joined(&[row.version.to_string().as_bytes(), b" ", row.value]);
        }
        let command = Command::Resp(call.finish()?);
        Ok(Request { first, last, idempotency_key: format!("{}:{first}-{last}", batch.store), command })
    }
}

/// Returns the only value of a reply.
fn only(reply: &Reply) -> Result<&RespValue, Fault> {
    let Reply::Resp(values) = reply else { return Err("not a reply of Redis".into()) };
    let [value] = values.as_slice() else { return Err(format!("{} answers to one call", values.len())) };
    Ok(value)
}

/// Returns the watermark, the store and the record out of a reply to [`READ`].
fn position_lines(reply: &Reply) -> Result<[&str; 3], Fault> {
    const EXPECTED: &str = "a watermark, a store and a record were expected";
    match only(reply)? {
        RespValue::Text(text) => {
            let text = str::from_utf8(text).map_err(|_| "the watermark is not UTF-8")?;
            <[&str; _]>::try_from(text.split('\n').collect::<Vec<_>>()).map_err(|_| EXPECTED.into())
        }
        RespValue::Nil | RespValue::Int(_) => Err(EXPECTED.into()),
        RespValue::Error(error) => Err(error.clone()),
    }
}

impl Adaptor for Redis {
    fn takes(&self) -> Kinds {
        Kinds::all()
    }

    fn watermark(&self) -> Result<Request, Fault> {
        let mut call = Pipeline::with_capacity(256);
        call.argument(b"EVAL");
        call.argument(READ.as_bytes());
        call.number(2);
        for name in ["watermark", "store", "record"] {
            call.argument(self.key(name).as_bytes());
        }
        let command = Command::Resp(call.finish()?);
        Ok(Request { first: 0, last: 0, idempotency_key: "watermark".into(), command })
    }

    fn read_watermark(&self, reply: Reply) -> Result<u64, Fault> {
        let [mark, owner, _] = position_lines(&reply)?;
        self.position(mark, owner)
    }

    fn last_record(&self, reply: &Reply) -> Option<RecordId> {
        let [.., record] = position_lines(reply).ok()?;
        record.parse().ok()
    }

    fn encode(&self, batch: LogBatch) -> Result<Vec<Request>, Fault> {
        batch.groups(REQUEST_BYTES_MAX, size).into_iter().map(|records| self.request(&batch, records)).collect()
    }

    fn classify(&self, reply: Reply) -> Ack {
        match only(&reply) {
            Ok(RespValue::Text(text)) if text == b"OK" => Ack::Ok,
            Ok(RespValue::Error(error)) => {
                let word = error.split(' ').next().unwrap_or_default();
                if word == "MOVED" {
                    Ack::Moved(format!("watermark is {}", error.trim_start_matches("MOVED ")))
                } else if PASSING.contains(&word) || error.to_ascii_lowercase().contains("timeout") {
                    Ack::Retry(error.clone())
                } else {
                    Ack::Fatal(error.clone())
                }
            }
            Ok(other) => Ack::Fatal(format!("unexpected answer {other:?}")),
            Err(fault) => Ack::Fatal(fault),
        }
    }
}

tribunal_plugin_sdk::export_adaptor!(Redis);
