//! LogAdaptor of the embedded key-value store: records in its raw format (`server/push/src/embedded.rs`), one request
//! per batch, since the store applies any number of rows at once.
//!
//! ```text
//! request: from u64, to u64, rows u32, then per row: kind u8, version u64, key_len u32, key, value_len u32, value
//! answer:  status u8 (0 ok, 1 moved, 2 fatal), watermark u64, then a text unless ok
//! ```
//! All integers are little-endian. `from = to = 0` without rows reads the watermark.

use tribunal_plugin_sdk::adaptor::{Ack, Command, Kinds, LogBatch, Reply, Request, Row};
use tribunal_plugin_sdk::{Adaptor, Fault, Plugin};

/// Bytes of one request, unless a single record is larger.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a row beside key and value.
const ROW_BYTES: usize = 1 + 8 + 4 + 4;
/// Bytes before the rows.
const HEADER_BYTES: usize = 8 + 8 + 4;

/// The adaptor.
#[derive(Debug)]
pub struct Kv;

impl Plugin for Kv {
    const NAME: &'static str = "kv";
    const ABOUT: &'static str = "Writes records to the key-value store embedded in the server.";

    fn init(_config: &str) -> Result<Self, Fault> {
        // The host's own settings of the store arrive here too; none concerns the format.
        Ok(Kv)
    }
}

/// A parsed answer.
struct Answer {
    status: u8,
    watermark: u64,
    text: String,
}

fn parse(reply: Reply) -> Result<Answer, Fault> {
    let Reply::Raw(bytes) = reply else { return Err("not an answer of the embedded store".into()) };
    let Some((&status, rest)) = bytes.split_first() else { return Err("an empty answer".into()) };
    let Some((watermark, text)) = rest.split_first_chunk() else { return Err("an answer cut short".into()) };
    let text = String::from_utf8_lossy(text).into_owned();
    Ok(Answer { status, watermark: u64::from_le_bytes(*watermark), text })
}

fn size(row: Row<'_>) -> usize {
    ROW_BYTES + row.key.len() + row.value.len()
}

fn request(batch: &LogBatch, records: core::ops::Range<usize>) -> Result<Request, Fault> {
    let (first, last) = (batch.lsn[records.start], batch.lsn[records.end - 1]);
    let rows = records.clone().flat_map(|record| batch.rows_of(record).map(move |row| (record, row)));
    let bytes: usize = rows.clone().map(|(record, row)| size(batch.row(record, row))).sum();
    let count = u32::try_from(rows.clone().count()).map_err(|_| "too many rows")?;
    let mut raw = Vec::with_capacity(HEADER_BYTES + bytes);
    raw.extend_from_slice(&first.saturating_sub(1).to_le_bytes());
    raw.extend_from_slice(&last.to_le_bytes());
    raw.extend_from_slice(&count.to_le_bytes());
    for (record, row) in rows {
        let row = batch.row(record, row);
        raw.push(row.kind);
        raw.extend_from_slice(&row.version.to_le_bytes());
        // Lengths come from 32-bit columns.
        raw.extend_from_slice(&(row.key.len() as u32).to_le_bytes());
        raw.extend_from_slice(row.key);
        raw.extend_from_slice(&(row.value.len() as u32).to_le_bytes());
        raw.extend_from_slice(row.value);
    }
    Ok(Request { first, last, idempotency_key: format!("{}:{first}-{last}", batch.store), command: Command::Raw(raw) })
}

impl Adaptor for Kv {
    fn takes(&self) -> Kinds {
        Kinds::all()
    }

    fn watermark(&self) -> Result<Request, Fault> {
        let command = Command::Raw(vec![0; HEADER_BYTES]);
        Ok(Request { first: 0, last: 0, idempotency_key: "watermark".into(), command })
    }

    fn read_watermark(&self, reply: Reply) -> Result<u64, Fault> {
        let answer = parse(reply)?;
        if answer.status == 0 { Ok(answer.watermark) } else { Err(answer.text) }
    }

    fn encode(&self, batch: LogBatch) -> Result<Vec<Request>, Fault> {
        batch.groups(REQUEST_BYTES_MAX, size).into_iter().map(|records| request(&batch, records)).collect()
    }

    fn classify(&self, reply: Reply) -> Ack {
        match parse(reply) {
            Ok(Answer { status: 0, .. }) => Ack::Ok,
            Ok(Answer { status: 1, text, watermark }) => Ack::Moved(format!("watermark is {watermark}: {text}")),
            Ok(answer) => Ack::Fatal(answer.text),
            Err(fault) => Ack::Fatal(fault),
        }
    }
}

tribunal_plugin_sdk::export_adaptor!(Kv);
