//! Scenarios: transactions in a readable form, rows by store and key, and their translation into the core's flat
//! columns.

use tribunal_core::row_key::RowKeyer;
use tribunal_types::{
    BodyHash, Csn, Epoch, Isolation, NamespaceId, Range, Read, RowKey, Span, StoreId, StoreSnapshot, TxnId, TxnRequest,
    Version, Write, WriteKind,
};

/// A row by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Store.
    pub store: StoreId,
    /// Key.
    pub key: String,
}

impl Row {
    /// Builds a row's name.
    #[must_use]
    pub fn new(store: u32, key: &str) -> Row {
        Row { store: StoreId(store), key: key.to_owned() }
    }
}

/// A key range `start..end`; an empty end means "to the end of the store".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Store.
    pub store: StoreId,
    /// First key.
    pub start: String,
    /// Key after the last one.
    pub end: String,
}

impl Scan {
    /// Returns whether the range contains the row.
    #[must_use]
    pub fn holds(&self, row: &Row) -> bool {
        row.store == self.store && row.key >= self.start && (self.end.is_empty() || row.key < self.end)
    }
}

/// A row's value: an integer can be added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A JSON integer.
    Int(i64),
    /// A JSON string, without quotes or escapes.
    Text(String),
}

impl Value {
    /// Returns the value as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        match self {
            Value::Int(n) => n.to_string(),
            Value::Text(text) => format!("\"{text}\""),
        }
    }

    /// Parses the result of [`Value::json`].
    ///
    /// # Panics
    /// If the text is neither an integer nor a string.
    #[must_use]
    pub fn of_json(json: &[u8]) -> Value {
        let text = std::str::from_utf8(json).expect("values are UTF-8");
        match text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
            Some(inner) => Value::Text(inner.to_owned()),
            None => Value::Int(text.parse().expect("an integer or a quoted text")),
        }
    }
}

/// The operation of a write, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates the row.
    Insert(Value),
    /// Replaces the value of a row that exists.
    Update(Value),
    /// Creates or replaces.
    Put(Value),
    /// Removes the row.
    Delete,
    /// Adds to an integer row.
    Add(i64),
    /// Adds the first number to an integer row, or to the second number if the row is missing.
    AddOr(i64, i64),
}

impl Action {
    /// Returns the operation's kind.
    #[must_use]
    pub fn kind(&self) -> WriteKind {
        match self {
            Action::Insert(_) => WriteKind::Insert,
            Action::Update(_) => WriteKind::Update,
            Action::Put(_) => WriteKind::Put,
            Action::Delete => WriteKind::Delete,
            Action::Add(_) | Action::AddOr(..) => WriteKind::Add,
        }
    }

    /// Returns the delta of an add.
    #[must_use]
    pub fn delta(&self) -> Option<i64> {
        match self {
            Action::Add(delta) | Action::AddOr(delta, _) => Some(*delta),
            _ => None,
        }
    }

    /// Returns whether the row contains an integer afterwards (an add keeps it one).
    #[must_use]
    pub fn leaves_integer(&self) -> bool {
        match self {
            Action::Insert(value) | Action::Update(value) | Action::Put(value) => matches!(value, Value::Int(_)),
            Action::Add(_) | Action::AddOr(..) => true,
            Action::Delete => false,
        }
    }
}

/// One transaction in readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnSpec {
    /// Idempotency key.
    pub id: TxnId,
    /// Hash of the body.
    pub body: u64,
    /// Arrival stamp.
    pub csn: Csn,
    /// Node (and group) that takes the transaction, from 1.
    pub node: u16,
    /// Tenant.
    pub namespace: NamespaceId,
    /// Isolation level.
    pub level: Isolation,
    /// Client's priority.
    pub priority: u8,
    /// Client.
    pub origin: u64,
    /// Epoch at Begin.
    pub start: Option<Epoch>,
    /// When the client first attempted the work, Unix milliseconds.
    pub first_attempt_ms: Option<u64>,
    /// Snapshots, ascending store.
    pub snapshots: Vec<(StoreId, Epoch)>,
    /// Rows read, with the version seen.
    pub reads: Vec<(Row, Option<Version>)>,
    /// Ranges scanned.
    pub scans: Vec<Scan>,
    /// Rows written.
    pub writes: Vec<(Row, Action)>,
}

impl TxnSpec {
    /// Creates a transaction without operations, with a valid id of the time `id_ms`, Unix milliseconds.
    #[must_use]
    pub fn new(number: u64, id_ms: u64, level: Isolation) -> TxnSpec {
        TxnSpec {
            id: txn_id(id_ms, number),
            body: number,
            csn: Csn(number),
            node: 1,
            namespace: NamespaceId(0),
            level,
            priority: 100,
            origin: 0,
            start: None,
            first_attempt_ms: None,
            snapshots: Vec::new(),
            reads: Vec::new(),
            scans: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Returns the version read of a row: `None` if it is not in the read set, `Some(None)` if it was seen absent.
    #[must_use]
    pub fn seen(&self, row: &Row) -> Option<Option<Version>> {
        self.reads.iter().find(|(read, _)| read == row).map(|(_, seen)| *seen)
    }

    /// Returns the snapshot of a store, if one was named.
    #[must_use]
    pub fn snapshot_of(&self, store: StoreId) -> Option<Epoch> {
        self.snapshots.iter().find(|(named, _)| *named == store).map(|(_, at)| *at)
    }

    /// Translates the transaction into columns.
    #[must_use]
    pub fn request(&self, keying: &Keying) -> TxnRequest {
        let mut txn = TxnRequest {
            id: self.id,
            body_hash: BodyHash(self.body),
            namespace: self.namespace,
            isolation: self.level,
            priority: self.priority,
            origin: self.origin,
            start: self.start,
            first_attempt_ms: self.first_attempt_ms,
            snapshots: self.snapshots.iter().map(|&(store, at)| StoreSnapshot { store, at }).collect(),
            ..TxnRequest::default()
        };
        for (row, seen) in &self.reads {
            let key = Span::push(&mut txn.keys, row.key.as_bytes());
            txn.reads.push(Read { row: keying.row(self.namespace, row), seen: *seen, store: row.store, key });
        }
        for scan in &self.scans {
            let start = Span::push(&mut txn.keys, scan.start.as_bytes());
            let end = Span::push(&mut txn.keys, scan.end.as_bytes());
            txn.ranges.push(Range { store: scan.store, start, end });
        }
        for (row, action) in &self.writes {
            let key = Span::push(&mut txn.keys, row.key.as_bytes());
            let (text, integer) = match action {
                Action::Insert(value) | Action::Update(value) | Action::Put(value) => {
                    (value.json(), matches!(value, Value::Int(_)))
                }
                Action::Delete => (String::new(), false),
                Action::Add(delta) | Action::AddOr(delta, _) => (delta.to_string(), true),
            };
            let value = Span::push(&mut txn.values, text.as_bytes());
            let start = match action {
                Action::AddOr(delta, or) => or.saturating_add(*delta).to_string(),
                _ => String::new(),
            };
            let start_len = Span::push(&mut txn.values, start.as_bytes()).len as u8;
            txn.writes.push(Write {
                row: keying.row(self.namespace, row),
                store: row.store,
                key,
                value,
                kind: action.kind(),
                integer,
                start_len,
            });
        }
        txn
    }
}

/// Returns a UUIDv7 with the given Unix milliseconds and number.
#[must_use]
pub fn txn_id(unix_ms: u64, number: u64) -> TxnId {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
    id[6] = 0x70;
    id[8..].copy_from_slice(&number.to_be_bytes());
    id[8] = 0x80 | id[8] & 0x3f;
    TxnId(id)
}

/// The secret with which rows are hashed.
pub const ROW_SECRET: [u8; 16] = *b"a secret to test";

/// The method of hashing rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keying {
    /// By keyed hash, as in production.
    #[default]
    Hashed,
    /// By keyed hash, but keys with different first letters (modulo 8) are in different eighths of the shards.
    Apart,
}

impl Keying {
    /// Returns the name of a row.
    #[must_use]
    pub fn row(&self, namespace: NamespaceId, row: &Row) -> RowKey {
        let hashed = RowKeyer::new(ROW_SECRET).row(namespace, row.store, row.key.as_bytes());
        match self {
            Keying::Hashed => hashed,
            Keying::Apart => {
                let eighth = u64::from(row.key.bytes().next().unwrap_or(0) % 8);
                RowKey { hi: hashed.hi >> 3 | eighth << 61, lo: hashed.lo }
            }
        }
    }
}
