//! Decisions and log records as JSON, written directly into a buffer: the other half of the hot path.

use std::borrow::Cow;
use std::str;

use axum::http::HeaderValue;
use base64::Engine as _;
use tribunal_api::RecordChecksum;
use tribunal_types::{
    Conflict, Lsn, OpKind, Reason, RecordBatch, RecordWrite, StoreId, StoreSnapshot, TxnId, Verdict, WriteKind,
};

use crate::binary::{BASE64, BINARY_CLOSE, BINARY_OPEN};
use crate::response::problem::ProblemResponse;
use tribunal_service::{Catalog, Decided, LogPage, Phases, Session, TxnStatus};

/// Writes JSON objects and arrays, and inserts commas where needed.
pub struct JsonWriter {
    into: Vec<u8>,
}

impl JsonWriter {
    /// Creates a writer with room for `bytes`.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        JsonWriter { into: Vec::with_capacity(bytes) }
    }

    /// Returns the number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.into.len()
    }

    /// Returns whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.into.is_empty()
    }

    /// Returns the text written.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.into
    }

    fn comma(&mut self) {
        if !matches!(self.into.last(), None | Some(b'{' | b'[' | b':' | b' ' | b'\n')) {
            self.into.push(b',');
        }
    }

    /// Opens an object or array with `{` or `[`.
    pub fn open(&mut self, bracket: u8) {
        self.comma();
        self.into.push(bracket);
    }

    /// Closes it with `}` or `]`.
    pub fn close(&mut self, bracket: u8) {
        self.into.push(bracket);
    }

    /// Writes text that begins a line and is not JSON, such as a field of a server-sent event.
    pub fn raw_line(&mut self, text: &[u8]) {
        self.into.extend_from_slice(text);
    }

    /// Ends a line of NDJSON.
    pub fn end_line(&mut self) {
        self.into.push(b'\n');
    }

    /// Writes the name of a field; it must not need escapes.
    pub fn name(&mut self, name: &str) {
        self.comma();
        self.into.push(b'"');
        self.into.extend_from_slice(name.as_bytes());
        self.into.extend_from_slice(b"\":");
    }

    /// Writes a string.
    pub fn text(&mut self, text: &str) {
        self.comma();
        // Writing a string into a vector cannot fail.
        let _ = serde_json::to_writer(&mut self.into, text);
    }

    /// Writes a 64-bit number as a decimal string.
    pub fn decimal(&mut self, number: u64) {
        self.comma();
        self.into.push(b'"');
        put_number(&mut self.into, number);
        self.into.push(b'"');
    }

    /// Writes JSON text unchanged.
    pub fn raw(&mut self, json: &[u8]) {
        self.comma();
        self.into.extend_from_slice(json);
    }

    /// Writes a field with a string.
    pub fn text_field(&mut self, name: &str, text: &str) {
        self.name(name);
        self.text(text);
    }

    /// Writes a field with a 64-bit number.
    pub fn decimal_field(&mut self, name: &str, number: u64) {
        self.name(name);
        self.decimal(number);
    }

    /// Writes a field with a boolean.
    pub fn bool_field(&mut self, name: &str, value: bool) {
        self.name(name);
        self.raw(if value { b"true" } else { b"false" });
    }

    /// Writes a field with a small number.
    pub fn small_field(&mut self, name: &str, number: u64) {
        self.name(name);
        put_number(&mut self.into, number);
    }

    /// Writes a field with a transaction id.
    pub fn id_field(&mut self, name: &str, id: TxnId) {
        self.name(name);
        let mut hyphenated = [0; 36];
        let text = uuid::Uuid::from_bytes(id.0).hyphenated().encode_lower(&mut hyphenated);
        self.into.push(b'"');
        self.into.extend_from_slice(text.as_bytes());
        self.into.push(b'"');
    }

    /// Writes a key: as `plain` if it is UTF-8, otherwise in base64 as `b64`.
    pub fn key_field(&mut self, plain: &str, b64: &str, key: &[u8]) {
        match str::from_utf8(key) {
            Ok(text) => self.text_field(plain, text),
            Err(_) => self.text_field(b64, &BASE64.encode(key)),
        }
    }

    /// Writes a value from the log: as `value` on one line, or as `value_b64` if it was posted in base64.
    pub fn value_field(&mut self, value: &[u8]) {
        let coded =
            value.strip_prefix(BINARY_OPEN.as_bytes()).and_then(|rest| rest.strip_suffix(BINARY_CLOSE.as_bytes()));
        match coded.and_then(|coded| str::from_utf8(coded).ok()).filter(|coded| BASE64.decode(coded).is_ok()) {
            Some(coded) => self.text_field("value_b64", coded),
            None => {
                self.name("value");
                self.raw(&on_one_line(value));
            }
        }
    }

    /// Writes a field with the snapshot of each store.
    pub fn snapshots_field(&mut self, name: &str, snapshots: &[StoreSnapshot], catalog: &Catalog) {
        self.name(name);
        self.numbers(snapshots.iter().map(|snapshot| (snapshot.store, snapshot.at.0)), catalog);
    }

    /// Writes a field with a position of each store's log.
    pub fn lsns_field(&mut self, name: &str, lsns: &[(StoreId, Lsn)], catalog: &Catalog) {
        self.name(name);
        self.numbers(lsns.iter().map(|(store, lsn)| (*store, lsn.0)), catalog);
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = (StoreId, u64)>, catalog: &Catalog) {
        self.open(b'{');
        for (store, number) in numbers {
            self.comma();
            let _ = serde_json::to_writer(&mut self.into, store_name(catalog, store));
            self.into.push(b':');
            self.decimal(number);
        }
        self.close(b'}');
    }
}

/// Returns JSON text without line breaks: a value is posted as its client writes it, but a record, a row or an event is
/// one line. In JSON, a line break can only be blank space between tokens; in a string it is escaped.
fn on_one_line(json: &[u8]) -> Cow<'_, [u8]> {
    // `contains` looks at many bytes at once, and hardly any value has a line break.
    if !json.contains(&b'\n') && !json.contains(&b'\r') {
        return Cow::Borrowed(json);
    }
    json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect::<Vec<u8>>().into()
}

/// Appends a decimal number. The formatting machinery takes several times as long.
fn put_number(into: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

/// Returns a store's name; empty for a store that is not declared here.
#[must_use]
pub fn store_name(catalog: &Catalog, store: StoreId) -> &str {
    catalog.by_id(store).map_or("", |spec| spec.name.as_str())
}

/// Returns a session's token.
#[must_use]
pub fn session_token(session: Session) -> String {
    format!("v1-{}", session.0)
}

/// Returns the word for a verdict, as in `status` and in the header `Txn-Status`.
#[must_use]
pub fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Committed { .. } | Verdict::ReadOnly { .. } => "committed",
        Verdict::Aborted { .. } => "aborted",
    }
}

/// Returns the word for a status.
#[must_use]
pub fn status_word(status: &TxnStatus) -> &'static str {
    match status {
        TxnStatus::Decided(decided) => verdict_word(&decided.verdict),
        TxnStatus::InFlight => "in_flight",
        TxnStatus::Unknown => "unknown",
        TxnStatus::UnknownExpired => "unknown_expired",
    }
}

/// Writes a decision.
pub fn decision(json: &mut JsonWriter, id: TxnId, decided: &Decided, catalog: &Catalog) {
    json.open(b'{');
    decision_fields(json, id, decided, catalog);
    json.close(b'}');
}

/// Writes the decision on a batch item, including the values that a single response has in headers.
pub fn item_decision(json: &mut JsonWriter, id: TxnId, decided: &Decided, catalog: &Catalog) {
    json.open(b'{');
    decision_fields(json, id, decided, catalog);
    if decided.replayed {
        json.bool_field("replayed", true);
    }
    json.close(b'}');
}

fn decision_fields(json: &mut JsonWriter, id: TxnId, decided: &Decided, catalog: &Catalog) {
    json.text_field("status", verdict_word(&decided.verdict));
    json.id_field("txn_id", id);
    verdict_fields(json, &decided.verdict, catalog);
    match (&decided.verdict, decided.csn) {
        (Verdict::Committed { csn, .. }, _) => json.decimal_field("csn", csn.0),
        (_, Some(csn)) => json.decimal_field("csn", csn.0),
        _ => {}
    }
    if let Some(applied) = decided.applied {
        json.bool_field("applied", applied);
    }
}

/// Writes the result of a dry run.
pub fn judgement(json: &mut JsonWriter, id: TxnId, verdict: &Verdict, catalog: &Catalog) {
    json.open(b'{');
    match verdict {
        Verdict::Committed { epoch, .. } | Verdict::ReadOnly { epoch } => {
            json.text_field("status", "would_commit");
            json.id_field("txn_id", id);
            json.decimal_field("epoch", epoch.0);
        }
        Verdict::Aborted { .. } => {
            json.text_field("status", "would_abort");
            json.id_field("txn_id", id);
            verdict_fields(json, verdict, catalog);
        }
    }
    json.close(b'}');
}

/// Writes a status.
pub fn status(json: &mut JsonWriter, id: TxnId, status: &TxnStatus, catalog: &Catalog) {
    if let TxnStatus::Decided(decided) = status {
        return decision(json, id, decided, catalog);
    }
    json.open(b'{');
    json.text_field("status", status_word(status));
    json.id_field("txn_id", id);
    json.close(b'}');
}

/// Writes a batch item without a decision.
pub fn refused(json: &mut JsonWriter, id: TxnId, problem: &ProblemResponse) {
    json.open(b'{');
    json.text_field("status", "problem");
    if id != TxnId::default() {
        json.id_field("txn_id", id);
    }
    json.name("problem");
    json.raw(&serde_json::to_vec(&problem.body).unwrap_or_default());
    json.close(b'}');
}

fn verdict_fields(json: &mut JsonWriter, verdict: &Verdict, catalog: &Catalog) {
    match verdict {
        Verdict::Committed { epoch, version, lsns, .. } => {
            json.decimal_field("epoch", epoch.0);
            json.decimal_field("version", version.bits());
            json.lsns_field("lsn", lsns, catalog);
            json.text_field("session", &session_token(Session(*epoch)));
        }
        Verdict::ReadOnly { epoch } => {
            json.decimal_field("epoch", epoch.0);
            json.bool_field("read_only", true);
            json.text_field("session", &session_token(Session(*epoch)));
        }
        Verdict::Aborted { epoch, reason, conflicts } => {
            json.decimal_field("epoch", epoch.0);
            json.text_field("reason", reason.name());
            if let Reason::Plugin(code) = reason {
                json.small_field("plugin_code", u64::from(*code));
            }
            json.bool_field("retryable", reason.is_retryable());
            if reason.is_retryable() {
                json.small_field("retry_after_ms", RETRY_AFTER_ABORT_MS);
            }
            json.name("conflicts");
            json.open(b'[');
            for conflict in conflicts {
                conflict_object(json, conflict, catalog);
            }
            json.close(b']');
        }
    }
}

/// Retry delay after an abort, milliseconds: the winner's epoch is typically applied by then.
const RETRY_AFTER_ABORT_MS: u64 = 3;

fn conflict_object(json: &mut JsonWriter, conflict: &Conflict, catalog: &Catalog) {
    json.open(b'{');
    json.text_field("store", store_name(catalog, conflict.store));
    json.key_field("key", "key_b64", &conflict.key);
    // A range without an end extends to the end of its store.
    if let Some(end) = conflict.end.as_ref().filter(|end| !end.is_empty()) {
        json.key_field("end", "end_b64", end);
    }
    if let Some(row) = &conflict.row {
        json.key_field("row", "row_b64", row);
    }
    let op = match conflict.op {
        OpKind::Read => "read",
        OpKind::Range => "range",
        OpKind::Write => "write",
    };
    json.text_field("op", op);
    json.text_field("stage", conflict.stage.name());
    if let Some(version) = conflict.read_version {
        json.decimal_field("read_version", version.bits());
    }
    if let Some(version) = conflict.current_version {
        json.decimal_field("current_version", version.bits());
    }
    if let Some(winner) = conflict.by_txn {
        json.id_field("by_txn", winner);
    }
    json.close(b'}');
}

/// Writes a page of a log.
pub fn log_page(json: &mut JsonWriter, page: &LogPage, store: &str) {
    json.open(b'{');
    json.name("records");
    json.open(b'[');
    for index in 0..page.records.records.len() {
        record(json, &page.records, index, store);
    }
    json.close(b']');
    json.text_field("log", &page.log.to_string());
    json.decimal_field("next", page.next.0);
    json.decimal_field("epoch", page.epoch.0);
    json.decimal_field("head_lsn", page.head.0);
    json.decimal_field("durable_upto", page.durable_upto.0);
    json.decimal_field("oldest", page.oldest.0);
    json.close(b'}');
}

/// Writes one record.
pub fn record(json: &mut JsonWriter, batch: &RecordBatch, index: usize, store: &str) {
    let head = &batch.records[index];
    json.open(b'{');
    json.decimal_field("lsn", head.lsn.0);
    json.decimal_field("prev_lsn", head.lsn.0.saturating_sub(1));
    json.decimal_field("epoch", head.epoch.0);
    json.decimal_field("csn", head.csn.0);
    json.decimal_field("version", head.version.bits());
    json.id_field("txn_id", head.txn_id);
    json.text_field("store", store);
    json.name("writes");
    json.open(b'[');
    for write in &batch.writes[batch.writes_of(index)] {
        record_write(json, write, &batch.bytes);
    }
    json.close(b']');
    json.text_field("checksum", &record_checksum(batch, index).hex());
    if head.traceparent.len > 0
        && let Ok(traceparent) = str::from_utf8(head.traceparent.of(&batch.bytes))
    {
        json.text_field("traceparent", traceparent);
    }
    json.close(b'}');
}

/// Returns the checksum of a record as it is sent.
fn record_checksum(batch: &RecordBatch, index: usize) -> RecordChecksum {
    let head = &batch.records[index];
    let mut hyphenated = [0; 36];
    let id = uuid::Uuid::from_bytes(head.txn_id.0).hyphenated().encode_lower(&mut hyphenated);
    let mut sum = RecordChecksum::new([head.lsn.0, head.epoch.0, head.csn.0, head.version.bits()], id);
    for write in &batch.writes[batch.writes_of(index)] {
        let value = if write.kind == WriteKind::Delete { &[] } else { write.value.of(&batch.bytes) };
        sum.write(write.kind.name(), write.key.of(&batch.bytes), &on_one_line(value));
    }
    sum
}

fn record_write(json: &mut JsonWriter, write: &RecordWrite, bytes: &[u8]) {
    json.open(b'{');
    json.text_field("op", write.kind.name());
    json.key_field("key", "key_b64", write.key.of(bytes));
    if write.kind != WriteKind::Delete {
        json.value_field(write.value.of(bytes));
    }
    json.close(b'}');
}

/// Returns the header `Server-Timing` of a decision; `None` without phases.
#[must_use]
pub fn server_timing(phases: &Phases) -> Option<HeaderValue> {
    let mut header = Vec::with_capacity(96);
    let named = [
        ("queue", phases.queue_us),
        ("sync", phases.sync_us),
        ("resolve", phases.resolve_us),
        ("apply", phases.apply_us),
    ];
    for (name, us) in named.into_iter().filter(|(_, us)| *us > 0) {
        if !header.is_empty() {
            header.extend_from_slice(b", ");
        }
        header.extend_from_slice(name.as_bytes());
        header.extend_from_slice(b";dur=");
        put_number(&mut header, u64::from(us / 1000));
        let thousandths = us % 1000;
        let digit = |tens: u32| b'0' + (thousandths / tens % 10) as u8;
        header.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }
    if header.is_empty() { None } else { HeaderValue::from_maybe_shared(axum::body::Bytes::from(header)).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_only_separate_members() {
        let mut json = JsonWriter::with_capacity(0);
        json.open(b'{');
        json.text_field("a", "\"\u{1}é");
        json.name("b");
        json.open(b'[');
        json.decimal(1);
        json.open(b'[');
        json.close(b']');
        json.close(b']');
        json.bool_field("c", false);
        json.small_field("d", 7);
        json.key_field("k", "k_b64", b"\xff");
        json.close(b'}');
        let text = String::from_utf8(json.finish()).unwrap();
        assert_eq!(text, r#"{"a":"\"\u0001é","b":["1",[]],"c":false,"d":7,"k_b64":"/w=="}"#);
    }

    #[test]
    fn binary_values_survive_a_round_trip() {
        let written = |value: &[u8]| {
            let mut json = JsonWriter::with_capacity(0);
            json.open(b'{');
            json.value_field(value);
            json.close(b'}');
            String::from_utf8(json.finish()).unwrap()
        };
        assert_eq!(written(b"{\"$b64\":\"/w==\"}"), r#"{"value_b64":"/w=="}"#);
        assert_eq!(written(b"{\"$b64\":\"?\"}"), r#"{"value":{"$b64":"?"}}"#);
        assert_eq!(written(b"[1]"), r#"{"value":[1]}"#);
    }

    #[test]
    fn timings_are_milliseconds() {
        let phases = Phases { queue_us: 12, sync_us: 1500, ..Phases::default() };
        assert_eq!(server_timing(&phases).unwrap(), "queue;dur=0.012, sync;dur=1.500");
        assert_eq!(server_timing(&Phases::default()), None);
    }
}
