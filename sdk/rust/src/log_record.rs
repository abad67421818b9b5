//! The lines of the stream of a store's log: records, each checked against its checksum, and events.

use serde::Deserialize;
use tribunal_api::{Problem, RecordChecksum, WriteOp};
use tribunal_types::{Csn, Epoch, Lsn, Version};

use crate::line_stream::StreamLine;
use crate::{Error, StoredValue, wire};

/// The writes of one committed transaction in one store.
#[derive(Clone, Debug, PartialEq)]
pub struct LogRecord {
    /// Position in the log; positions have no gaps.
    pub lsn: Lsn,
    /// Epoch that committed the transaction.
    pub epoch: Epoch,
    /// Arrival stamp.
    pub csn: Csn,
    /// Version of every row that the transaction wrote.
    pub version: Version,
    /// Id of the transaction.
    pub txn_id: String,
    /// Name of the store.
    pub store: String,
    /// W3C trace context of the commit request.
    pub traceparent: Option<String>,
    /// Checksum as the service returned it, which was verified; `None` if the service returned none.
    pub checksum: Option<String>,
    /// One element per row.
    pub writes: Vec<LogWrite>,
}

/// The write of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct LogWrite {
    /// Operation.
    pub op: WriteOp,
    /// Key of the row.
    pub key: Vec<u8>,
    /// New value of the row; the delta of an `add`; `None` for a `delete`.
    pub value: Option<StoredValue>,
}

/// A line of the stream.
pub(crate) enum LogLine {
    Record(tribunal_api::LogRecord),
    Event(LogEvent),
}

/// A line that is not a record. A newer service may have further events.
#[derive(Deserialize)]
pub(crate) struct LogEvent {
    pub event: String,
    pub log: Option<String>,
    pub epoch: Option<String>,
    pub head_lsn: Option<String>,
    pub reason: Option<String>,
    pub problem: Option<Problem>,
}

impl StreamLine for LogLine {
    const STREAM: &'static str = "log";

    fn parsed(text: &[u8]) -> Result<Self, Error> {
        // Most lines are records.
        let no_record = match serde_json::from_slice(text) {
            Ok(record) => return Ok(LogLine::Record(record)),
            Err(error) => error,
        };
        serde_json::from_slice(text).map(LogLine::Event).map_err(|_| {
            let hint = "if the service is newer than this client, update the client";
            Error::misbehaved(format!("a line of the log cannot be parsed: {no_record}; {hint}"))
        })
    }
}

impl LogRecord {
    pub(crate) fn of(record: tribunal_api::LogRecord) -> Result<Self, Error> {
        let lsn = wire::lsn(&record.lsn)?;
        if wire::lsn(&record.prev_lsn)?.next() != lsn {
            return Err(Error::misbehaved(format!("record {lsn} follows {}", record.prev_lsn)));
        }
        check(&record)?;
        let writes = record.writes.into_iter().map(|write| {
            let key = wire::key_of(write.key, write.key_b64)?;
            let value = wire::value_of(write.value, write.value_b64)?;
            Ok(LogWrite {
                op: write.op,
                key: key.ok_or_else(|| Error::misbehaved(format!("record {lsn} has a row without a key")))?,
                value: value.map(StoredValue::new),
            })
        });
        Ok(LogRecord {
            lsn,
            epoch: wire::epoch(&record.epoch)?,
            csn: wire::csn(&record.csn)?,
            version: wire::version(&record.version)?,
            txn_id: record.txn_id,
            store: record.store,
            traceparent: record.traceparent,
            checksum: record.checksum,
            writes: writes.collect::<Result<_, Error>>()?,
        })
    }
}

/// Checks a record against its checksum, which covers storage and transport.
fn check(record: &tribunal_api::LogRecord) -> Result<(), Error> {
    let Some(stated) = &record.checksum else { return Ok(()) };
    let numbers = [&record.lsn, &record.epoch, &record.csn, &record.version];
    let mut head = [0; 4];
    for (number, text) in head.iter_mut().zip(numbers) {
        *number = wire::number(text)?;
    }
    let mut sum = RecordChecksum::new(head, &record.txn_id);
    for write in &record.writes {
        let key = wire::key_of(write.key.clone(), write.key_b64.clone())?.unwrap_or_default();
        let binary = write.value_b64.as_ref().map(|text| format!("{{\"$b64\":\"{text}\"}}"));
        let value = write.value.as_ref().map(|value| value.get()).or(binary.as_deref()).unwrap_or_default();
        sum.write(write.op.name(), &key, value.as_bytes());
    }
    let found = sum.hex();
    if found == *stated {
        return Ok(());
    }
    Err(Error::misbehaved(format!("record {} has checksum {found}, not {stated}", record.lsn)))
}
