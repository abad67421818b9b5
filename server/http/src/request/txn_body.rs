//! Parses a commit body directly into the flat columns of a [`TxnRequest`].
//!
//! One pass over the text; keys and values are copied once, into the arenas. Every error is recorded with its JSON
//! pointer. A transaction with an error never leaves this module.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess};
use tribunal_types::limits::{ADD_START_MAX, OPS_PER_TXN_MAX, RANGES_PER_TXN_MAX, STORES_PER_TXN_MAX, VALUE_BYTES_MAX};
use tribunal_types::{
    Epoch, Existence, Isolation, OpKind, Range, Read, RowKey, Span, StoreId, StoreSnapshot, StoreSpec, TxnId,
    TxnRequest, Version, Write, WriteKind,
};

use crate::binary::{BASE64, BINARY_CLOSE, BINARY_OPEN, not_base64};
use crate::request::body_hash::body_hash;
use crate::request::caller::CallerContext;
use crate::request::json::{
    ArraySeed, CANONICAL, Entries, EntriesSeed, Fields, Items, ObjectSeed, Scalar, decimal, depth_within_limit,
    is_integer, not_interoperable, scalar,
};
use crate::request::op_fields::{OR, OpFields, OpSeed, Text, VALUE, put_key};
use crate::request::plain_json::ValueText;
use crate::response::field_error::{Code, FieldErrors, Path};
use tribunal_service::{AckMode, Catalog};

/// Priority of a transaction that sets none.
const PRIORITY_DEFAULT: u8 = 100;
/// Store of an operation with an unknown store, which is recorded as an error.
const NO_STORE: StoreId = StoreId(u32::MAX);
/// Row of an operation without a readable key, which is recorded as an error.
const NO_ROW: RowKey = RowKey { hi: 0, lo: 0 };
/// Nesting levels above a value: the document, `writes`, the operation.
const LEVELS_ABOVE_VALUE: usize = 3;
/// Number of rows up to which comparing all pairs is faster than hashing.
const PAIRWISE_ROWS_MAX: usize = 24;

/// Largest time that a transaction id can contain.
const UNIX_MS_MAX: u64 = (1 << 48) - 1;

const BODY_FIELDS: &[&str] =
    &["isolation", "snapshots", "reads", "ranges", "writes", "priority", "ack", "epoch", "first_attempt_ms"];
const ITEM_FIELDS: &[&str] =
    &["isolation", "snapshots", "reads", "ranges", "writes", "priority", "ack", "epoch", "first_attempt_ms", "txn_id"];
/// Index of `snapshots` among the members.
pub(super) const MEMBER_SNAPSHOTS: usize = 1;
/// Index of `priority`.
pub(super) const MEMBER_PRIORITY: usize = 5;
const READ_FIELDS: &[&str] = &["store", "key", "version", "key_b64"];
const RANGE_FIELDS: &[&str] = &["store", "start", "end", "start_b64", "end_b64"];
const WRITE_FIELDS: &[&str] = &["store", "key", "op", "key_b64", "value_b64", "value", "or"];
const _: () = assert!(WRITE_FIELDS.len() == VALUE + 2 && OR == VALUE + 1);

/// A parsed body.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedCommit {
    /// The transaction. Valid only if `errors` is empty.
    pub txn: TxnRequest,
    /// When to respond.
    pub ack: AckMode,
    /// All errors of the body.
    pub errors: FieldErrors,
}

/// Parses one commit body.
#[derive(Clone, Copy)]
pub struct TxnSeed<'a> {
    /// The stores.
    pub catalog: &'a Catalog,
    /// The caller.
    pub caller: &'a CallerContext,
    /// The id; `None` if it is in the body (only batch items have `txn_id`).
    pub id: Option<TxnId>,
    /// Position of the body in its document.
    pub at: Path<'a>,
    /// Length of the text, exact or estimated; determines the capacity of the arenas.
    pub bytes_hint: usize,
}

impl<'de> DeserializeSeed<'de> for TxnSeed<'_> {
    type Value = ParsedCommit;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParsedCommit, D::Error> {
        let mut draft = Draft::new(&self);
        let seen = ObjectSeed { fields: &mut draft, at: self.at }.deserialize(deserializer)?;
        Ok(draft.finish(self.at, seen))
    }
}

/// Returns the kind of the operations in the member at `index`, if it is a list of operations.
pub(super) fn listed_ops(index: usize) -> Option<OpKind> {
    match index {
        2 => Some(OpKind::Read),
        3 => Some(OpKind::Range),
        4 => Some(OpKind::Write),
        _ => None,
    }
}

/// Returns the members of an operation.
pub(super) fn op_names(kind: OpKind) -> &'static [&'static str] {
    match kind {
        OpKind::Read => READ_FIELDS,
        OpKind::Range => RANGE_FIELDS,
        OpKind::Write => WRITE_FIELDS,
    }
}

/// A commit that is being parsed.
pub(super) struct Draft<'c> {
    catalog: &'c Catalog,
    last_store: Option<&'c Arc<StoreSpec>>,
    txn: TxnRequest,
    ack: AckMode,
    id_in_body: bool,
    declared_store: bool,
    ops: usize,
    /// Indices of the reads and of the writes whose key is in base64.
    coded_keys: [Vec<usize>; 2],
    errors: FieldErrors,
}

impl<'c> Draft<'c> {
    pub(super) fn new(seed: &TxnSeed<'c>) -> Self {
        let txn = TxnRequest {
            id: seed.id.unwrap_or_default(),
            namespace: seed.caller.namespace,
            priority: PRIORITY_DEFAULT,
            origin: seed.caller.origin,
            traceparent: seed.caller.traceparent.clone(),
            reads: Vec::with_capacity(8),
            writes: Vec::with_capacity(8),
            keys: Vec::with_capacity(seed.bytes_hint / 4),
            values: Vec::with_capacity(seed.bytes_hint / 2),
            ..TxnRequest::default()
        };
        Draft {
            catalog: seed.catalog,
            last_store: None,
            txn,
            ack: AckMode::Durable,
            id_in_body: seed.id.is_none(),
            declared_store: false,
            ops: 0,
            coded_keys: Default::default(),
            errors: FieldErrors::default(),
        }
    }

    /// Returns the members that a body may have.
    pub(super) fn members(&self) -> &'static [&'static str] {
        if self.id_in_body { ITEM_FIELDS } else { BODY_FIELDS }
    }

    /// Returns the number of operations so far.
    pub(super) fn ops(&self) -> usize {
        self.ops
    }

    /// Returns the number of ranges so far.
    pub(super) fn ranges(&self) -> usize {
        self.txn.ranges.len()
    }

    fn store(&mut self, name: &str, at: Path<'_>) -> Option<&'c Arc<StoreSpec>> {
        if let Some(last) = self.last_store
            && last.name == name
        {
            return Some(last);
        }
        let found = self.catalog.store(self.txn.namespace, name);
        match found {
            Some(spec) => {
                self.declared_store |= spec.existence == Existence::Declared;
                self.last_store = found;
            }
            None => self.errors.add(Code::UnknownStore, at, no_such_store(name)),
        }
        found
    }

    /// Copies a key into the arena. `plain` and `b64` are its two possible forms.
    fn key(&mut self, plain: Text<'_>, b64: Text<'_>, names: (&str, &str), at: Path<'_>) -> Option<Span> {
        put_key(&mut self.txn.keys, (plain, b64), names, at, &mut self.errors)
    }

    fn row_key(&mut self, op: &mut OpFields<'_>, b64: usize, at: Path<'_>) -> Option<Span> {
        let name = if op.has(b64) { "key_b64" } else { "key" };
        let span = self.key(op.take(1), op.take(b64), ("key", "key_b64"), at)?;
        if span.len == 0 {
            self.errors.add(Code::EmptyKey, at.field(name), "a key must have at least one byte");
            return None;
        }
        Some(span)
    }

    fn row(&self, store: StoreId, key: Option<Span>) -> RowKey {
        match key {
            Some(span) if store != NO_STORE => self.catalog.row(self.txn.namespace, store, span.of(&self.txn.keys)),
            _ => NO_ROW,
        }
    }

    /// Adds an operation.
    pub(super) fn add_op(&mut self, kind: OpKind, fields: OpFields<'_>, at: Path<'_>) {
        self.ops += 1;
        match kind {
            OpKind::Read => self.add_read(fields, at),
            OpKind::Range => self.add_range(fields, at),
            OpKind::Write => self.add_write(fields, at),
        }
    }

    /// Adds the snapshot of a store.
    pub(super) fn add_snapshot(&mut self, name: &str, epoch: Scalar<'_>, at: Path<'_>) {
        let epoch = self.epoch(epoch, at);
        let Some(spec) = self.store(name, at) else { return };
        if self.txn.snapshots.iter().any(|snapshot| snapshot.store == spec.id) {
            self.errors.add(Code::DuplicateField, at, "occurs twice");
        } else if self.txn.snapshots.len() == STORES_PER_TXN_MAX {
            self.errors.add(Code::TooMany, at, format!("{STORES_PER_TXN_MAX} stores is the limit"));
        } else {
            self.txn.snapshots.push(StoreSnapshot { store: spec.id, at: epoch.unwrap_or_default() });
        }
    }

    /// Sets a member that is neither an array nor an object.
    pub(super) fn set(&mut self, index: usize, found: Option<Scalar<'_>>, at: Path<'_>) {
        match index {
            0 => {
                let levels = Isolation::ALL.map(|level| (level.name(), level));
                if let Some(level) = found.and_then(|found| self.word(found, at, &levels)) {
                    self.txn.isolation = level;
                }
            }
            MEMBER_PRIORITY => {
                let priority = found.and_then(|found| found.small(0..=255, at, &mut self.errors));
                self.txn.priority = priority.and_then(|p| u8::try_from(p).ok()).unwrap_or(PRIORITY_DEFAULT);
            }
            6 => {
                let modes = [("durable", AckMode::Durable), ("applied", AckMode::Applied)];
                self.ack = found.and_then(|found| self.word(found, at, &modes)).unwrap_or_default();
            }
            7 => self.txn.start = found.and_then(|found| self.epoch(found, at)),
            8 => self.txn.first_attempt_ms = found.and_then(|found| self.unix_ms(found, at)),
            _ => {
                if let Some(text) = found.unwrap_or(Scalar::Null).text(at, &mut self.errors) {
                    match txn_id(&text) {
                        Some(id) => self.txn.id = id,
                        None => self.errors.add(Code::BadTxnId, at, "must be a UUIDv7"),
                    }
                }
            }
        }
    }

    fn add_read(&mut self, mut op: OpFields<'_>, at: Path<'_>) {
        let store = self.store_of(&mut op, at).map_or(NO_STORE, |spec| spec.id);
        if op.has(3) {
            self.coded_keys[0].push(self.txn.reads.len());
        }
        let key = self.row_key(&mut op, 3, at);
        let seen = match op.take(2) {
            Text::Given(text) => {
                let version = decimal(&text).and_then(Version::from_bits);
                if version.is_none() {
                    let detail = format!(
                        "must be a version from a response: a positive decimal number below 2^63, {CANONICAL}; leave it out for a row that is missing"
                    );
                    self.errors.add(Code::BadNumber, at.field("version"), detail);
                }
                version
            }
            Text::Absent | Text::Faulty => None,
        };
        let row = self.row(store, key);
        self.txn.reads.push(Read { row, seen, store, key: key.unwrap_or_default() });
    }

    fn store_of(&mut self, op: &mut OpFields<'_>, at: Path<'_>) -> Option<&'c Arc<StoreSpec>> {
        match op.take(0) {
            Text::Given(name) => self.store(&name, at.field("store")),
            Text::Absent => {
                self.errors.add(Code::MissingField, at.field("store"), "the name of the store is required");
                None
            }
            Text::Faulty => None,
        }
    }

    fn add_range(&mut self, mut op: OpFields<'_>, at: Path<'_>) {
        let store = self.store_of(&mut op, at).map_or(NO_STORE, |spec| spec.id);
        let end_name = if op.has(4) { "end_b64" } else { "end" };
        let mut bound = |draft: &mut Self, plain: usize, b64: usize, names| {
            let (plain, b64) = (op.take(plain), op.take(b64));
            if matches!((&plain, &b64), (Text::Absent, Text::Absent)) {
                return Some(Span::default());
            }
            draft.key(plain, b64, names, at)
        };
        let start = bound(self, 1, 3, ("start", "start_b64"));
        let end = bound(self, 2, 4, ("end", "end_b64"));
        let (Some(start), Some(end)) = (start, end) else {
            self.txn.ranges.push(Range { store, start: Span::default(), end: Span::default() });
            return;
        };
        if end.len > 0 && start.of(&self.txn.keys) >= end.of(&self.txn.keys) {
            self.errors.add(Code::EmptyRange, at.field(end_name), "must be after start");
        }
        self.txn.ranges.push(Range { store, start, end });
    }

    fn add_write(&mut self, mut op: OpFields<'_>, at: Path<'_>) {
        let spec = self.store_of(&mut op, at);
        let store = spec.map_or(NO_STORE, |spec| spec.id);
        if op.has(3) {
            self.coded_keys[1].push(self.txn.writes.len());
        }
        let key = self.row_key(&mut op, 3, at);
        let kind = match op.take(2) {
            Text::Given(name) => {
                let kind = WriteKind::ALL.into_iter().find(|kind| kind.name() == name);
                if kind.is_none() {
                    let detail = format!("\"{}\" is not one of insert, update, put, delete, add", shown(&name));
                    self.errors.add(Code::UnknownOp, at.field("op"), detail);
                }
                kind
            }
            Text::Absent => {
                self.errors.add(Code::MissingField, at.field("op"), "is required: insert, update, put, delete or add");
                None
            }
            Text::Faulty => None,
        };
        let (value, integer) = match kind {
            Some(kind) => self.value(kind, &mut op, at),
            None => (Span::default(), false),
        };
        if kind == Some(WriteKind::Add) && spec.is_some_and(|spec| !spec.transactional) {
            let detail = "this store does not apply records exactly once, so it takes no add";
            self.errors.add(Code::AddUnsupported, at.field("op"), detail);
        } else if kind == Some(WriteKind::Add) && spec.is_some_and(|spec| spec.existence == Existence::Declared) {
            let detail =
                "the values of this store are unknown here (`existence: declared`), so it takes no add; put the sum";
            self.errors.add(Code::AddUnsupported, at.field("op"), detail);
        }
        let start_len = op.or.map_or(0, |or| self.start(kind, or.json, value, at));
        if let Some(spec) = spec {
            kind.into_iter().for_each(|kind| self.check_taken(kind, start_len > 0, spec, at));
        }
        let row = self.row(store, key);
        let kind = kind.unwrap_or(WriteKind::Put);
        self.txn.writes.push(Write { row, store, key: key.unwrap_or_default(), value, kind, integer, start_len });
    }

    /// Records an error for a write that the store's adaptor does not support.
    fn check_taken(&mut self, kind: WriteKind, creates: bool, spec: &StoreSpec, at: Path<'_>) {
        let StoreSpec { adaptor: Some(adaptor), takes, name, .. } = spec else { return };
        let missing = if !takes.contains(kind) {
            kind.name()
        } else if creates && !takes.contains(WriteKind::Insert) {
            "insert, which an add with `or` may become"
        } else {
            return;
        };
        let detail = format!(
            "the adaptor \"{adaptor}\" of store \"{name}\" takes no {missing}; write the row in another way, or declare \
             the store with an adaptor that does"
        );
        self.errors.add(Code::WriteNotSupported, at.field("op"), detail);
    }

    /// Appends the value of a row that an add creates, the sum of `or` and the last appended `value`, and returns its
    /// length.
    fn start(&mut self, kind: Option<WriteKind>, or: &str, value: Span, at: Path<'_>) -> u8 {
        // Generated clients serialise an absent field as null.
        if or == "null" || kind.is_none() {
            return 0;
        }
        if kind != Some(WriteKind::Add) {
            self.errors.add(
                Code::ExclusiveFields,
                at.field("or"),
                "only an add has one: what it adds to if the row is missing",
            );
            return 0;
        }
        let Some(or) = or.parse::<i64>().ok().filter(|or| (-ADD_START_MAX..=ADD_START_MAX).contains(or)) else {
            let detail = format!("must be an integer between -{ADD_START_MAX} and {ADD_START_MAX}");
            self.errors.add(Code::NotAnInteger, at.field("or"), detail);
            return 0;
        };
        let delta = std::str::from_utf8(value.of(&self.txn.values)).ok().and_then(|text| text.parse::<i64>().ok());
        // A sum that overflows 64 bits is never written: if the row is missing, the resolver aborts.
        let sum = or.saturating_add(delta.unwrap_or(0)).to_string();
        u8::try_from(Span::push(&mut self.txn.values, sum.as_bytes()).len).unwrap_or(0)
    }

    fn value(&mut self, kind: WriteKind, op: &mut OpFields<'_>, at: Path<'_>) -> (Span, bool) {
        let nothing = (Span::default(), false);
        let coded = op.take(4);
        match (kind, op.value, &coded) {
            (WriteKind::Delete, None, Text::Absent) => nothing,
            // Generated clients serialise an absent value as null.
            (WriteKind::Delete, Some(raw), Text::Absent) if raw.json == "null" => nothing,
            (WriteKind::Delete, ..) => {
                self.errors.add(Code::ExclusiveFields, at.field("value"), "a delete has no value");
                nothing
            }
            (_, None, Text::Absent) => {
                self.errors.add(
                    Code::MissingField,
                    at.field("value"),
                    format!("is required for {}; or send value_b64", kind.name()),
                );
                nothing
            }
            (_, Some(raw), Text::Absent) => self.json_value(kind, raw, at),
            (WriteKind::Add, None, Text::Given(_)) => {
                self.errors.add(Code::NotAnInteger, at.field("value_b64"), "add needs an integer");
                nothing
            }
            (_, None, Text::Given(coded)) => (self.binary_value(coded, at), false),
            (_, None, Text::Faulty) => nothing,
            (_, Some(_), _) => {
                self.errors.add(
                    Code::ExclusiveFields,
                    at.field("value_b64"),
                    "send either value or value_b64, not both",
                );
                nothing
            }
        }
    }

    fn json_value(&mut self, kind: WriteKind, value: ValueText<'_>, at: Path<'_>) -> (Span, bool) {
        let ValueText { json, is_plain_string } = value;
        if json.len() > VALUE_BYTES_MAX {
            let detail = format!("{} bytes, {VALUE_BYTES_MAX} is the limit", json.len());
            self.errors.add(Code::ValueTooLarge, at.field("value"), detail);
        }
        // Neither nested nor unreadable for other programs.
        if is_plain_string && kind != WriteKind::Add {
            return (Span::push(&mut self.txn.values, json.as_bytes()), false);
        }
        if !depth_within_limit(json, LEVELS_ABOVE_VALUE) {
            self.errors.add(Code::TooDeep, at.field("value"), "nested deeper than 64 levels");
        }
        if let Some(reason) = not_interoperable(json) {
            self.errors.add(Code::NotInteroperable, at.field("value"), reason);
        }
        let integer = is_integer(json);
        if kind == WriteKind::Add && !integer {
            self.errors.add(Code::NotAnInteger, at.field("value"), "add needs an integer within 64 bits");
        }
        (Span::push(&mut self.txn.values, json.as_bytes()), integer)
    }

    /// Stores a binary value as the JSON object `{"$b64":"..."}`, so that every value in the log is JSON.
    fn binary_value(&mut self, coded: &str, at: Path<'_>) -> Span {
        let bytes = match BASE64.decode(coded) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.errors.add(Code::BadBase64, at.field("value_b64"), not_base64(error));
                return Span::default();
            }
        };
        let json = format!("{BINARY_OPEN}{}{BINARY_CLOSE}", BASE64.encode(bytes));
        if json.len() > VALUE_BYTES_MAX {
            // Four characters hold three bytes.
            let bytes_max = (VALUE_BYTES_MAX - BINARY_OPEN.len() - BINARY_CLOSE.len()) / 4 * 3;
            let detail = format!(
                "{} bytes as it is stored, {BINARY_OPEN}...{BINARY_CLOSE}, and {VALUE_BYTES_MAX} is the limit: send at most \
                 {bytes_max} bytes before encoding",
                json.len()
            );
            self.errors.add(Code::ValueTooLarge, at.field("value_b64"), detail);
        }
        Span::push(&mut self.txn.values, json.as_bytes())
    }

    /// Finishes with the members that were present; `seen` is `None` if the body is not an object.
    pub(super) fn finish(mut self, at: Path<'_>, seen: Option<u32>) -> ParsedCommit {
        if let Some(seen) = seen {
            self.check(at, seen);
        }
        ParsedCommit { txn: self.txn, ack: self.ack, errors: self.errors }
    }

    fn check(&mut self, at: Path<'_>, seen: u32) {
        let id_bit = 1 << (ITEM_FIELDS.len() - 1);
        if self.id_in_body && seen & id_bit == 0 {
            self.errors.add(Code::MissingField, at.field("txn_id"), "is required: a UUIDv7");
        }
        if self.ops > OPS_PER_TXN_MAX {
            let detail = format!("{} operations, {OPS_PER_TXN_MAX} is the limit", self.ops);
            self.errors.add(Code::TooMany, at, detail);
        }
        self.check_duplicates(at);
        self.check_stores(at);
        self.check_snapshots(at);
        self.check_versions(at);
        self.txn.snapshots.sort_unstable_by_key(|snapshot| snapshot.store);
        if self.errors.is_empty() {
            self.txn.body_hash = body_hash(&self.txn);
        }
    }

    /// Bounds the stores that the operations name. With snapshots, these are bounded, and operations use no other store.
    fn check_stores(&mut self, at: Path<'_>) {
        let TxnRequest { reads, ranges, writes, snapshots, .. } = &self.txn;
        if !snapshots.is_empty() || reads.len() + ranges.len() + writes.len() <= STORES_PER_TXN_MAX {
            return;
        }
        let of_reads = reads.iter().map(|read| read.store).chain(ranges.iter().map(|range| range.store));
        let stores: BTreeSet<_> = of_reads.chain(writes.iter().map(|write| write.store)).collect();
        if stores.len() > STORES_PER_TXN_MAX {
            let detail = format!("{} stores, {STORES_PER_TXN_MAX} is the limit", stores.len());
            self.errors.add(Code::TooMany, at, detail);
        }
    }

    fn check_duplicates(&mut self, at: Path<'_>) {
        let errors = &mut self.errors;
        let [reads, writes] = &self.coded_keys;
        note_duplicates(self.txn.reads.iter().map(|read| read.row), reads, at.field("reads"), errors);
        note_duplicates(self.txn.writes.iter().map(|write| write.row), writes, at.field("writes"), errors);
    }

    fn check_snapshots(&mut self, at: Path<'_>) {
        if !self.txn.snapshots.is_empty() {
            let txn = &self.txn;
            let named = |store: StoreId| store == NO_STORE || txn.snapshots.iter().any(|s| s.store == store);
            let mut unnamed = |list: &str, index: usize, store: StoreId| {
                if !named(store) {
                    let list = at.field(list);
                    let op = list.item(index);
                    let detail =
                        "`snapshots` has no entry for this store; add it, or name the store when calling Begin";
                    self.errors.add(Code::StoreNotNamed, op.field("store"), detail);
                }
            };
            txn.reads.iter().enumerate().for_each(|(i, op)| unnamed("reads", i, op.store));
            txn.ranges.iter().enumerate().for_each(|(i, op)| unnamed("ranges", i, op.store));
            txn.writes.iter().enumerate().for_each(|(i, op)| unnamed("writes", i, op.store));
            return;
        }
        let why = if !self.txn.ranges.is_empty() {
            "a transaction with ranges needs the snapshots that Begin returned"
        } else if self.txn.isolation == Isolation::Snapshot && !self.txn.reads.is_empty() {
            "reads at level snapshot need the snapshots that Begin returned"
        } else if self.declared_store {
            "a transaction on a declared store needs the snapshots that Begin returned"
        } else {
            return;
        };
        self.errors.add(Code::SnapshotRequired, at.field("snapshots"), why);
    }

    /// Checks the versions at level snapshot: there, the reads of a multi-version store are assumed to be of its
    /// snapshot, so they are not validated. A later version disproves the assumption.
    fn check_versions(&mut self, at: Path<'_>) {
        if self.txn.isolation != Isolation::Snapshot {
            return;
        }
        for snapshot in &self.txn.snapshots {
            if !self.catalog.by_id(snapshot.store).is_some_and(|store| store.multi_version) {
                continue;
            }
            let reads = self.txn.reads.iter().enumerate().filter(|(_, read)| read.store == snapshot.store);
            for (index, version) in reads.filter_map(|(index, read)| Some((index, read.seen?))) {
                if version.epoch() > snapshot.at {
                    let (list, epoch) = (at.field("reads"), version.epoch());
                    let detail = format!(
                        "is of epoch {epoch}, after the snapshot {} of a multi-version store; read the row as of the snapshot, or declare \
                         the store without `multi_version`",
                        snapshot.at
                    );
                    self.errors.add(Code::ReadAfterSnapshot, list.item(index).field("version"), detail);
                }
            }
        }
    }

    fn word<T: Copy>(&mut self, found: Scalar<'_>, at: Path<'_>, choices: &[(&str, T)]) -> Option<T> {
        let text = found.text(at, &mut self.errors)?;
        let choice = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        if choice.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let detail = format!("\"{}\" is not one of {}", shown(&text), names.join(", "));
            self.errors.add(Code::UnknownValue, at, detail);
        }
        choice
    }

    fn epoch(&mut self, found: Scalar<'_>, at: Path<'_>) -> Option<Epoch> {
        let text = found.text(at, &mut self.errors)?;
        let epoch = decimal(&text).map(Epoch).filter(|epoch| *epoch <= Epoch::MAX);
        if epoch.is_none() {
            let detail = format!("must be an epoch from a response: a decimal number below 2^43, {CANONICAL}");
            self.errors.add(Code::BadNumber, at, detail);
        }
        epoch
    }

    fn unix_ms(&mut self, found: Scalar<'_>, at: Path<'_>) -> Option<u64> {
        let text = found.text(at, &mut self.errors)?;
        let ms = decimal(&text).filter(|ms| *ms <= UNIX_MS_MAX);
        if ms.is_none() {
            let detail = format!("must be Unix milliseconds: a decimal number below 2^48, {CANONICAL}");
            self.errors.add(Code::BadNumber, at, detail);
        }
        ms
    }
}

impl<'de> Fields<'de> for Draft<'_> {
    fn names(&self) -> &'static [&'static str] {
        self.members()
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if index == MEMBER_SNAPSHOTS {
            map.next_value_seed(EntriesSeed { entries: &mut Snapshots { draft: self }, at })?;
        } else if let Some(kind) = listed_ops(index) {
            map.next_value_seed(ArraySeed { items: &mut Ops { draft: self, kind }, at })?;
        } else {
            self.set(index, scalar(map)?.given(), at);
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

/// Parses a transaction id: a UUIDv7 in its 36-character form.
#[must_use]
pub fn txn_id(text: &str) -> Option<TxnId> {
    if text.len() != 36 {
        return None;
    }
    let id = TxnId(uuid::Uuid::try_parse_ascii(text.as_bytes()).ok()?.into_bytes());
    id.is_v7().then_some(id)
}

/// Returns the message that no store has this name, with the remedy.
#[must_use]
pub fn no_such_store(name: &str) -> String {
    format!(
        "there is no store \"{}\"; an operator declares one with `PUT /v1/stores/NAME` or `tribunal store declare`",
        shown(name)
    )
}

/// Truncates client input for display.
#[must_use]
pub fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Records rows that occur twice in a list. `coded` are the indices of rows whose key is in base64.
fn note_duplicates(
    rows: impl ExactSizeIterator<Item = RowKey> + Clone,
    coded: &[usize],
    list: Path<'_>,
    errors: &mut FieldErrors,
) {
    thread_local! {
        static SEEN: RefCell<HashSet<RowKey>> = RefCell::default();
    }
    let mut note = |index: usize| {
        let op = list.item(index);
        let name = if coded.binary_search(&index).is_ok() { "key_b64" } else { "key" };
        errors.add(Code::DuplicateRow, op.field(name), "this row is already in the list; name each row once");
    };
    if rows.len() <= PAIRWISE_ROWS_MAX {
        for (index, row) in rows.clone().enumerate() {
            if row != NO_ROW && rows.clone().take(index).any(|earlier| earlier == row) {
                note(index);
            }
        }
        return;
    }
    SEEN.with_borrow_mut(|seen| {
        seen.clear();
        for (index, row) in rows.enumerate() {
            if row != NO_ROW && !seen.insert(row) {
                note(index);
            }
        }
    });
}

/// The operations of one list.
struct Ops<'a, 'c> {
    draft: &'a mut Draft<'c>,
    kind: OpKind,
}

impl<'de> Items<'de> for Ops<'_, '_> {
    fn item<A: SeqAccess<'de>>(&mut self, at: Path<'_>, index: usize, seq: &mut A) -> Result<bool, A::Error> {
        let too_many = match self.kind {
            OpKind::Range => index >= RANGES_PER_TXN_MAX,
            OpKind::Read | OpKind::Write => self.draft.ops >= OPS_PER_TXN_MAX,
        };
        if too_many {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(false);
            }
            self.draft.ops += 1;
            if self.kind == OpKind::Range && index == RANGES_PER_TXN_MAX {
                let detail = format!("{RANGES_PER_TXN_MAX} ranges is the limit");
                self.draft.errors.add(Code::TooMany, at, detail);
            }
            return Ok(true);
        }
        let seed = OpSeed { names: op_names(self.kind), at, errors: &mut self.draft.errors };
        let Some(fields) = seq.next_element_seed(seed)? else { return Ok(false) };
        self.draft.add_op(self.kind, fields.unwrap_or_else(OpFields::faulty), at);
        Ok(true)
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.draft.errors
    }
}

/// The snapshots by store.
struct Snapshots<'a, 'c> {
    draft: &'a mut Draft<'c>,
}

impl<'de> Entries<'de> for Snapshots<'_, '_> {
    fn entry<A: MapAccess<'de>>(&mut self, name: &str, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        let epoch = scalar(map)?;
        self.draft.add_snapshot(name, epoch, at);
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.draft.errors
    }
}
