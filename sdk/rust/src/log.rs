//! Reads a store's committed log, record by record, from an offset that the caller keeps.

use std::time::{Duration, Instant};

use tribunal_api::{LogEventKind, RecordChecksum, WriteOp};
use tribunal_types::{Csn, Epoch, LogId, Lsn, Version};

use crate::log_stream::{Line, LogStream};
use crate::{Client, Error, StoredValue, wire};

/// Maximum time that the service waits for a record, in milliseconds.
const STREAM_WAIT_MS_MAX: u32 = 60_000;
/// Shortest wait: enough to find a line that is already in the socket.
const POLL: Duration = Duration::from_millis(5);

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

/// Reads a store's log in order, from a stream that [`LogReader::next`] opens, and reopens if the connection is lost.
/// Store [`LogReader::offset`] and [`LogReader::log_id`] together with the results of your processing. To resume, pass
/// the offset to [`Client::log`] and the id to [`LogReader::of_log`]. The stream belongs to the tokio runtime on which
/// it was opened.
pub struct LogReader {
    client: Client,
    store: String,
    limit: Option<usize>,
    wait_ms: u32,
    after: Lsn,
    log: Option<LogId>,
    head: Lsn,
    stream: Option<LogStream>,
}

/// The effect of a line of the stream.
enum Step {
    Record(LogRecord),
    /// A heartbeat, or the end of a stream after which another one is opened.
    Further,
    /// The stream's wait has passed without a record.
    Idle,
}

impl LogReader {
    pub(crate) fn new(client: Client, store: &str, after: Lsn) -> Self {
        let store = store.to_owned();
        LogReader { client, store, limit: None, wait_ms: 10_000, after, log: None, head: Lsn(0), stream: None }
    }

    /// Sets the log that the offset belongs to. If the service's log has been salvaged or replaced since, reads fail
    /// with the code `log_replaced`.
    #[must_use]
    pub fn of_log(mut self, log: LogId) -> Self {
        self.log = Some(log);
        self
    }

    /// Sets the maximum number of records in one response, at most 10,000; unlimited by default.
    #[must_use]
    pub fn page_records_max(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets how long [`LogReader::next`] waits for a record, in milliseconds. While a stream is open that was opened
    /// with a longer wait, `next` only returns records that arrive within this time: 0 returns only those already
    /// there.
    #[must_use]
    pub fn wait_ms(mut self, wait_ms: u32) -> Self {
        self.wait_ms = wait_ms;
        self
    }

    /// Returns the next record; `None` if none arrives in time. Retries while the service is unavailable, within the
    /// client's [`RetryPolicy`](crate::RetryPolicy). Cancel safe: dropping the future loses no record.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] with code `log_truncated` if the offset is too old, or `log_replaced` if it belongs to
    /// another log; see [`Error`].
    pub async fn next(&mut self) -> Result<Option<LogRecord>, Error> {
        let asked = Instant::now();
        let (mut failed, mut opened, mut capped) = (0, false, false);
        loop {
            let waited = u32::try_from(asked.elapsed().as_millis()).unwrap_or(u32::MAX);
            let left_ms = self.wait_ms.saturating_sub(waited);
            let endpoint = self.stream.as_ref().map(LogStream::endpoint);
            let step = match &mut self.stream {
                // The service enforces the wait that a stream was opened with; a shorter one is enforced here.
                Some(stream) if !opened && self.wait_ms < stream.wait_ms() => {
                    let left = Duration::from_millis(left_ms.into()).max(POLL);
                    match tokio::time::timeout(left, stream.line()).await {
                        Ok(line) => line.and_then(|line| self.take(line)),
                        Err(_) => return Ok(None),
                    }
                }
                Some(stream) => stream.line().await.and_then(|line| self.take(line)),
                None => {
                    (opened, capped) = (true, left_ms > STREAM_WAIT_MS_MAX);
                    self.open(left_ms.min(STREAM_WAIT_MS_MAX)).await.map(|()| Step::Further)
                }
            };
            match step {
                Ok(Step::Record(record)) => return Ok(Some(record)),
                Ok(Step::Further) => {}
                Ok(Step::Idle) if opened && !capped => return Ok(None),
                // The stream had ended before this call, or this call waits longer: records may have been added since.
                Ok(Step::Idle) => {}
                Err(error) => {
                    self.stream = None;
                    failed += 1;
                    let Error::Unavailable { retry_after, .. } = &error else { return Err(error) };
                    // The next stream continues after the same record on another endpoint: all endpoints have the same
                    // log.
                    endpoint.into_iter().for_each(|at| self.client.connection().failed(at));
                    let Some(wait) = self.client.retry().wait(failed, *retry_after) else { return Err(error) };
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    async fn open(&mut self, wait_ms: u32) -> Result<(), Error> {
        let mut query = format!("store={}&after={}", wire::percent_encoded(self.store.as_bytes()), self.after);
        if let Some(log) = self.log {
            query.push_str(&format!("&log={log}"));
        }
        if let Some(limit) = self.limit {
            query.push_str(&format!("&limit={limit}"));
        }
        self.stream = Some(LogStream::open(self.client.connection(), self.client.options(), &query, wait_ms).await?);
        Ok(())
    }

    fn take(&mut self, line: Line) -> Result<Step, Error> {
        let event = match line {
            Line::Record(record) => {
                let record = LogRecord::of(record)?;
                let due = self.after.next();
                if record.lsn != due {
                    return Err(Error::misbehaved(format!("log record {} where {due} was expected", record.lsn)));
                }
                self.after = record.lsn;
                self.head = self.head.max(record.lsn);
                return Ok(Step::Record(record));
            }
            Line::Event(event) => event,
        };
        if let Some(log) = &event.log {
            self.log = Some(wire::log_id(log)?);
        }
        if let Some(head) = &event.head_lsn {
            self.head = wire::lsn(head)?;
        }
        if event.event != LogEventKind::End {
            return Ok(Step::Further);
        }
        self.stream = None;
        match (event.problem, event.reason.as_deref()) {
            (Some(problem), _) => Err(Error::of_problem(problem)),
            (None, Some("idle")) => Ok(Step::Idle),
            (None, Some("limit")) => Ok(Step::Further),
            (None, reason) => {
                let text = format!("the log stream has ended: {}", reason.unwrap_or("no reason"));
                Err(Error::Unavailable { text, retry_after: None })
            }
        }
    }

    /// Returns the position of the last record returned.
    #[must_use]
    pub fn offset(&self) -> Lsn {
        self.after
    }

    /// Returns the log that the offset belongs to; `None` until the first response, unless it was set.
    #[must_use]
    pub fn log_id(&self) -> Option<LogId> {
        self.log
    }

    /// Returns whether every arrived record has been returned: a good moment to store the offset.
    #[must_use]
    pub fn is_page_over(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| !stream.has_record())
    }

    /// Returns the last position of the log as of the last response: at most a few seconds old while records arrive.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.head
    }
}

impl LogRecord {
    fn of(record: tribunal_api::LogRecord) -> Result<Self, Error> {
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
        sum.write(op_name(write.op), &key, value.as_bytes());
    }
    let found = sum.hex();
    if found == *stated {
        return Ok(());
    }
    Err(Error::misbehaved(format!("record {} has checksum {found}, not {stated}", record.lsn)))
}

fn op_name(op: WriteOp) -> &'static str {
    match op {
        WriteOp::Insert => "insert",
        WriteOp::Update => "update",
        WriteOp::Put => "put",
        WriteOp::Delete => "delete",
        WriteOp::Add => "add",
    }
}
