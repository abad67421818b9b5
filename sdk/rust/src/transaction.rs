//! An open transaction: it collects reads and writes in memory until the commit.
//!
//! To abandon it, drop it: it exists nowhere else.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;
use serde_json::value::{RawValue, Value};
use tribunal_api::{Ack, CommitRequest, IsolationLevel, Range, Read, ReadRow, Write, WriteOp};
use tribunal_types::{Epoch, LogId, Lsn, Version};

use crate::client::Client;
use crate::commit_batch::{CommitItem, CommitKind};
use crate::commit_body::{CommitBody, CommitOptions, OP_BYTES};
use crate::reads::{KeyRange, ROWS_MAX, RangeRows, RowRead, RowState};
use crate::row::Row;
use crate::store_name::StoreName;
use crate::writes::{Known, PendingWrite, merge};
use crate::{Error, Outcome, wire};

type RowName = (StoreName, Vec<u8>);

/// A row by store and key, and the version that was read; `None` if it was absent.
pub(crate) type RowVersion = (String, Vec<u8>, Option<Version>);

/// An open transaction.
pub struct Transaction {
    client: Client,
    id: String,
    isolation: IsolationLevel,
    priority: Option<u8>,
    ack: Option<Ack>,
    traceparent: Option<String>,
    epoch: Option<String>,
    first_attempt_ms: Option<u64>,
    session: Option<String>,
    snapshots: BTreeMap<String, String>,
    /// Whether Begin has named stores: the commit would be refused for any other one.
    has_named_stores: bool,
    /// Positions of the stores' logs at Begin, and the log that they belong to.
    lsns: BTreeMap<String, String>,
    log: Option<String>,
    /// Names of the stores that it uses, shared by its rows. There are few.
    stores: Vec<StoreName>,
    /// First reads; later reads of a row return the same.
    reads: BTreeMap<RowName, Seen>,
    /// Prefetched rows, which do not count as read until the caller gets them.
    fetched: BTreeMap<RowName, Seen>,
    /// Prefetched ranges, which do not count as read until the caller scans them.
    fetched_ranges: BTreeMap<(String, KeyRange), RangeRows>,
    ranges: Vec<Range>,
    writes: BTreeMap<RowName, PendingWrite>,
}

#[derive(Clone)]
struct Seen {
    version: Option<Version>,
    /// Known only for rows that were read through this transaction.
    value: Option<Value>,
    /// Whether a scan returned the row; the scan has observed its range as well.
    in_range: bool,
}

/// A commit that can be repeated or sent in a batch: the same id and body get the same verdict.
#[derive(Clone, Debug)]
pub struct PreparedCommit {
    /// The transaction, and the idempotency key.
    pub txn_id: String,
    /// The request's body.
    pub request: CommitRequest,
    /// W3C trace context of the caller.
    pub traceparent: Option<String>,
}

impl Transaction {
    pub(crate) fn new(client: Client, id: String, isolation: IsolationLevel) -> Self {
        Transaction {
            client,
            id,
            isolation,
            priority: None,
            ack: None,
            traceparent: None,
            epoch: None,
            first_attempt_ms: None,
            session: None,
            snapshots: BTreeMap::new(),
            has_named_stores: false,
            lsns: BTreeMap::new(),
            log: None,
            stores: Vec::new(),
            reads: BTreeMap::new(),
            fetched: BTreeMap::new(),
            fetched_ranges: BTreeMap::new(),
            ranges: Vec::new(),
            writes: BTreeMap::new(),
        }
    }

    pub(crate) fn begun(mut self, begun: tribunal_api::BeginResponse) -> Self {
        self.id = begun.txn_id;
        self.snapshots = begun.snapshots;
        self.has_named_stores = !self.snapshots.is_empty();
        (self.lsns, self.log) = (begun.lsn.unwrap_or_default(), begun.log);
        self.epoch = Some(begun.epoch);
        self.session = Some(begun.session);
        self
    }

    /// Returns the transaction's id, by which its status can be requested.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the snapshot of a store; `None` if the store was not named at Begin.
    ///
    /// # Errors
    /// [`Error::ServerMisbehaved`] if the response to Begin was malformed.
    pub fn snapshot(&self, store: &str) -> Result<Option<Epoch>, Error> {
        self.snapshots.get(store).map(|text| wire::epoch(text)).transpose()
    }

    /// Returns a position of a store's log: every commit up to the store's snapshot is there or before. An engine that keeps
    /// the rows itself applies the log up to here before it reads them: [`LogReader::follow_to`](crate::LogReader::follow_to).
    /// `None` if the store was not named at Begin, or the service is of an earlier release.
    ///
    /// # Errors
    /// [`Error::ServerMisbehaved`] if the response to Begin was malformed.
    pub fn lsn(&self, store: &str) -> Result<Option<Lsn>, Error> {
        self.lsns.get(store).map(|text| wire::lsn(text)).transpose()
    }

    /// Returns the log that these positions belong to. If a copy has its rows from another log, the service's log was
    /// salvaged, restored or replaced: start the copy again from [`Client::state`]. `None` without a Begin, or if the service
    /// is of an earlier release.
    ///
    /// # Errors
    /// [`Error::ServerMisbehaved`] if the response to Begin was malformed.
    pub fn log_id(&self) -> Result<Option<LogId>, Error> {
        self.log.as_deref().map(wire::log_id).transpose()
    }

    /// Sets the snapshot at which the engine has read a store in its own storage; required for ranges and level
    /// `snapshot`. It is the last epoch that the storage had applied completely.
    pub fn set_snapshot(&mut self, store: &str, epoch: Epoch) {
        self.snapshots.insert(store.to_owned(), epoch.to_string());
    }

    /// Sets the priority, for conflict rules that use it.
    pub fn set_priority(&mut self, priority: u8) {
        self.priority = Some(priority);
    }

    /// Sets when this work was first attempted, Unix milliseconds, for conflict rules in which the oldest work wins.
    /// [`Client::run`] sets it automatically.
    pub fn set_first_attempt_ms(&mut self, ms: u64) {
        self.first_attempt_ms = Some(ms);
    }

    /// Returns the time in the transaction's id, Unix milliseconds; `None` if the id is not a UUIDv7.
    pub(crate) fn id_ms(&self) -> Option<u64> {
        let id = uuid::Uuid::parse_str(&self.id).ok().filter(|id| id.get_version_num() == 7)?;
        u64::try_from(id.as_u128() >> 80).ok()
    }

    /// Sets when the commit returns: once it is durable, or once every store has applied it.
    pub fn set_ack(&mut self, ack: Ack) {
        self.ack = Some(ack);
    }

    /// Sets the W3C trace context of the caller: it is sent with the commit, and kept in the log.
    pub fn set_traceparent(&mut self, traceparent: Option<String>) {
        self.traceparent = traceparent;
    }

    /// Reads a row of an embedded store, including own writes. Later reads of the row return the same, and so does a
    /// read after a scan that returned the row.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&mut self, store: &str, key: impl AsRef<[u8]>) -> Result<Option<Row>, Error> {
        self.must_be_named(store)?;
        let name = self.name(store, key.as_ref());
        let own = self.writes.get(&name).cloned();
        if let Some(PendingWrite {
            op: WriteOp::Insert | WriteOp::Update | WriteOp::Put | WriteOp::Delete,
            value,
            ..
        }) = own
        {
            let version = self.reads.get(&name).and_then(|seen| seen.version);
            return value.map(|value| row(name.1, version, &value)).transpose();
        }
        let seen = match self.reads.get(&name) {
            Some(seen) if seen.value.is_some() || seen.version.is_none() => seen.clone(),
            known => {
                let known = known.map(|seen| (seen.version, seen.in_range));
                let seen = match self.fetched.remove(&name) {
                    Some(seen) => seen,
                    None => match self.client.row(store, &name.1).await? {
                        Some(row) => Seen::read(row.version, Some(row.value)),
                        None => Seen::read(None, None),
                    },
                };
                // An observed version is kept: if the row has changed since, the commit must detect it.
                let (version, in_range) = known.unwrap_or((seen.version, false));
                self.reads.insert(name.clone(), Seen { version, in_range, ..seen.clone() });
                seen
            }
        };
        let value = match (seen.value, own) {
            (value, None) => value,
            (value, Some(add)) => Some(after_add(&add, value.as_ref())?),
        };
        Ok(value.map(|value| Row { key: name.1, version: seen.version, value }))
    }

    /// Reads rows of an embedded store as [`Transaction::get`] does, with one request for all rows that the transaction
    /// has not read yet: at most 10,000 rows, with at most 8 MiB of values in total.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_many<K: AsRef<[u8]>>(&mut self, store: &str, keys: &[K]) -> Result<Vec<Option<Row>>, Error> {
        self.must_be_named(store)?;
        let names: Vec<RowName> = keys.iter().map(|key| self.name(store, key.as_ref())).collect();
        let known = |name: &RowName| {
            let seen = self.reads.get(name).is_some_and(|seen| seen.value.is_some() || seen.version.is_none());
            seen || self.fetched.contains_key(name) || self.writes.get(name).is_some_and(|own| own.op != WriteOp::Add)
        };
        let mut missing: Vec<&RowName> = names.iter().filter(|name| !known(name)).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let asked: Vec<RowRead<'_>> = missing.iter().map(|name| RowRead { key: &name.1, known: None }).collect();
            let found = self.client.read_rows(store, &asked).await?;
            for (name, state) in missing.into_iter().zip(found.rows) {
                self.fetched.insert(name.clone(), seen_of(state));
            }
        }
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            rows.push(self.get(store, key).await?);
        }
        Ok(rows)
    }

    /// Stores a prefetched row.
    pub(crate) fn fetched(&mut self, store: &str, key: &[u8], found: ReadRow) -> Result<(), Error> {
        let version = found.version.as_deref().map(wire::version).transpose()?;
        // The wire type cannot tell the value `null` from an absent one.
        let value = version.map(|_| value_or_null(found)).transpose()?;
        let name = self.name(store, key);
        self.fetched.insert(name, Seen::read(version, value));
        Ok(())
    }

    /// Stores a prefetched range.
    pub(crate) fn fetched_range(&mut self, store: String, range: KeyRange, found: RangeRows) {
        self.fetched_ranges.insert((store, range), found);
    }

    /// Reads the first `limit` rows of `start..end` of an embedded store, including own writes, and observes the part
    /// of the range that was read: if it returns fewer rows, there are no more. An empty `end` is the end of the store.
    /// If it fails, or its future is dropped, nothing counts as read.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the limit is not from 1 to 10,000; see [`Error`].
    pub async fn scan(
        &mut self,
        store: &str,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        self.must_be_named(store)?;
        let (first, end) = (start.as_ref(), end.as_ref());
        let ahead = self.fetched_ranges.remove(&(store.to_owned(), KeyRange::new(first, end, limit)));
        let mut page = match ahead {
            Some(page) => page,
            None => self.page(store, first, end, limit).await?,
        };
        let (mut read, mut found, mut start) = (Vec::new(), Vec::new(), first.to_vec());
        let mut upto = loop {
            // The service ends a page early if its rows are large.
            let last = page.rows.last().filter(|_| page.more);
            let next = last.map(|last| key_after(&last.key));
            let page_end = next.as_deref().unwrap_or(end);
            found.extend(self.with_own_writes(store, &start, page_end, &page.rows)?);
            read.extend(page.rows);
            match next {
                Some(next) if found.len() < limit => start = next,
                next => break next.unwrap_or_else(|| end.to_vec()),
            }
            let wanted = limit - found.len() + self.deleted(store, &start, end);
            page = self.page(store, &start, end, wanted.min(ROWS_MAX)).await?;
        };
        if found.len() > limit {
            found.truncate(limit);
            upto = found.last().map_or(upto, |last| key_after(&last.key));
        }
        // Only after all pages have arrived: rows that the caller never got are not reads, and no range covers them.
        self.observe_range(store, first, &upto);
        for row in read.into_iter().filter(|row| upto.is_empty() || row.key < upto) {
            let name = self.name(store, &row.key);
            self.reads.entry(name).or_insert(Seen { version: row.version, value: Some(row.value), in_range: true });
        }
        Ok(found)
    }

    /// Reads rows of a range, as many as the service returns in one response, at the snapshot of the store or later.
    async fn page(&self, store: &str, start: &[u8], end: &[u8], limit: usize) -> Result<RangeRows, Error> {
        let (range, snapshot) = (KeyRange::new(start, end, limit), self.snapshot(store)?);
        let session = self.session.clone().filter(|_| snapshot.is_some());
        let page = self.client.page(store, range, session, snapshot).await?;
        Ok(RangeRows { rows: page.rows, more: page.more })
    }

    /// Returns how many rows of a range this transaction deletes; this many additional rows have to be read.
    fn deleted(&mut self, store: &str, start: &[u8], end: &[u8]) -> usize {
        let name = self.store(store);
        let within = |key: &[u8]| key >= start && (end.is_empty() || key < end);
        let writes = self.writes.iter();
        writes.filter(|((of, key), write)| *of == name && write.op == WriteOp::Delete && within(key)).count()
    }

    /// Returns the rows of `start..end` after this transaction's writes, given the rows that were read.
    fn with_own_writes(&mut self, store: &str, start: &[u8], end: &[u8], read: &[Row]) -> Result<Vec<Row>, Error> {
        let mut rows: BTreeMap<Vec<u8>, Row> = read.iter().map(|found| (found.key.clone(), found.clone())).collect();
        let store_name = self.store(store);
        for ((written, key), write) in &self.writes {
            if *written != store_name || key[..] < *start || (!end.is_empty() && key[..] >= *end) {
                continue;
            }
            let before = rows.remove(key);
            let value = match write.op {
                WriteOp::Add => Some(after_add(write, before.as_ref().map(|row| &row.value))?),
                _ => write.value.as_deref().map(wire::parsed).transpose()?,
            };
            if let Some(value) = value {
                let version = before.and_then(|row| row.version);
                rows.insert(key.clone(), Row { key: key.clone(), version, value });
            }
        }
        Ok(rows.into_values().collect())
    }

    /// Records that the engine has read a row in its own storage: its version, or that it is absent (`None`). The first
    /// observation of a row counts.
    pub fn observe(&mut self, store: &str, key: impl AsRef<[u8]>, version: Option<Version>) {
        let name = self.name(store, key.as_ref());
        self.reads.entry(name).or_insert(Seen::read(version, None));
    }

    /// Records that the engine has read the keys `start..end` in its own storage; an empty `end` is the end of the
    /// store.
    pub fn observe_range(&mut self, store: &str, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        let (start, end) = (start.as_ref(), end.as_ref());
        let mut range = Range { store: store.to_owned(), ..Range::default() };
        if !start.is_empty() {
            (range.start, range.start_b64) = wire::key_fields(start);
        }
        if !end.is_empty() {
            (range.end, range.end_b64) = wire::key_fields(end);
        }
        if !self.ranges.contains(&range) {
            self.ranges.push(range);
        }
    }

    /// Creates a row; aborts if it exists.
    ///
    /// # Errors
    /// [`Error::Misuse`] if JSON cannot represent the value, or if it does not fit an earlier write of the row.
    pub fn insert(&mut self, store: &str, key: impl AsRef<[u8]>, value: &impl Serialize) -> Result<(), Error> {
        self.write(store, key.as_ref(), WriteOp::Insert, Some(wire::raw(value)?))
    }

    /// Replaces a row's value; aborts if it is missing.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn update(&mut self, store: &str, key: impl AsRef<[u8]>, value: &impl Serialize) -> Result<(), Error> {
        self.write(store, key.as_ref(), WriteOp::Update, Some(wire::raw(value)?))
    }

    /// Creates or replaces a row.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn put(&mut self, store: &str, key: impl AsRef<[u8]>, value: &impl Serialize) -> Result<(), Error> {
        self.write(store, key.as_ref(), WriteOp::Put, Some(wire::raw(value)?))
    }

    /// Removes a row; aborts if it is missing.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this does not fit an earlier write of the row.
    pub fn delete(&mut self, store: &str, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write(store, key.as_ref(), WriteOp::Delete, None)
    }

    /// Adds to an integer row; adds do not conflict with each other. The transaction aborts if the row is missing.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn add(&mut self, store: &str, key: impl AsRef<[u8]>, delta: i64) -> Result<(), Error> {
        self.write(store, key.as_ref(), WriteOp::Add, Some(wire::raw(&delta)?))
    }

    /// Adds to an integer row, or creates it with `or` plus the delta if it is missing. Such adds do not conflict with
    /// each other either; the first one creates the row.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn add_or(&mut self, store: &str, key: impl AsRef<[u8]>, delta: i64, or: i64) -> Result<(), Error> {
        let add = PendingWrite { op: WriteOp::Add, value: Some(wire::raw(&delta)?), or: Some(or) };
        self.merge(store, key.as_ref(), add)
    }

    /// Returns the transaction's own write of a row: `Some(None)` if it deletes the row, `None` if it does not write
    /// it, or only adds to it.
    ///
    /// # Errors
    /// Never for values that this transaction wrote.
    pub fn own_write(&self, store: &str, key: impl AsRef<[u8]>) -> Result<Option<Option<Value>>, Error> {
        match self.writes.get(&(StoreName::new(store), key.as_ref().to_vec())) {
            None | Some(PendingWrite { op: WriteOp::Add, .. }) => Ok(None),
            Some(write) => Ok(Some(write.value.as_deref().map(wire::parsed).transpose()?)),
        }
    }

    /// Returns the keys of a store that the transaction writes or deletes, in order.
    pub fn written_keys<'a>(&'a self, store: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.writes.keys().filter(move |(written, _)| **written == *store).map(|(_, key)| key.as_slice())
    }

    /// Returns whether the transaction has no writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns whether the transaction has no reads.
    #[must_use]
    pub fn is_blind(&self) -> bool {
        self.reads.is_empty() && self.ranges.is_empty()
    }

    /// Returns the version of each row that the transaction has read, in row order.
    pub(crate) fn versions_read(&self) -> Vec<RowVersion> {
        let reads = self.reads.iter();
        reads.map(|((store, key), seen)| (store.to_string(), key.clone(), seen.version)).collect()
    }

    /// Requests the verdict. If the reply is lost, the verdict is requested by the transaction's id. If the future is
    /// dropped, the outcome is in doubt: [`Client::status`] requests it by the [`Transaction::id`], and
    /// [`Client::commit`] can repeat the result of [`Transaction::prepare`].
    ///
    /// # Errors
    /// See [`Error`]; [`Error::OutcomeUnknown`] only if the request by id also fails for
    /// [`ClientOptions::resolve_timeout`](crate::ClientOptions).
    pub async fn commit(self) -> Result<Outcome, Error> {
        let (item, client) = (self.commit_item()?, self.client.clone());
        drop(self);
        client.commit_item(item).await
    }

    /// Returns whether the transaction would commit now if it were alone; its verdict if it has one. Changes nothing.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn validate(&self) -> Result<tribunal_api::TxnOutcome, Error> {
        self.client.validate(&self.prepare()).await
    }

    /// Aborts the transaction at the service, and returns its verdict. Not required to abandon it: dropping it is
    /// enough.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn abort(self) -> Result<Outcome, Error> {
        self.client.abort(&self.id).await
    }

    /// Creates the commit request, for example for [`Client::batch`]. It contains the reads and writes so far.
    #[must_use]
    pub fn prepare(&self) -> PreparedCommit {
        let reads = self.sent_reads().map(|((store, key), seen)| {
            let (key, key_b64) = wire::key_fields(key);
            Read { store: store.to_string(), key, key_b64, version: seen.version.map(|v| v.to_string()) }
        });
        let writes = self.writes.iter().map(|((store, key), write)| {
            let (key, key_b64) = wire::key_fields(key);
            let value = write.value.clone();
            Write { op: write.op, store: store.to_string(), key, key_b64, value, value_b64: None, or: write.or }
        });
        let request = CommitRequest {
            isolation: Some(self.isolation),
            snapshots: (!self.snapshots.is_empty()).then(|| self.snapshots.clone()),
            priority: self.priority,
            ack: self.ack,
            epoch: self.epoch.clone(),
            first_attempt_ms: self.first_attempt_ms.map(|ms| ms.to_string()),
            reads: reads.collect(),
            ranges: self.ranges.clone(),
            writes: writes.collect(),
        };
        PreparedCommit { txn_id: self.id.clone(), request, traceparent: self.traceparent.clone() }
    }

    /// Serializes the commit with the same body as [`Transaction::prepare`].
    pub(crate) fn commit_item(&self) -> Result<CommitItem, Error> {
        let options = CommitOptions {
            isolation: self.isolation,
            snapshots: &self.snapshots,
            priority: self.priority,
            ack: self.ack,
            epoch: self.epoch.as_deref(),
            first_attempt_ms: self.first_attempt_ms.map(|ms| ms.to_string()),
            ranges: &self.ranges,
        };
        let written = self.writes.iter().map(|((store, key), write)| (&**store, key.as_slice(), write));
        let values = self.writes.values().filter_map(|write| write.value.as_deref()).map(|value| value.get().len());
        let names = self.reads.keys().chain(self.writes.keys()).map(|(store, key)| OP_BYTES + store.len() + key.len());
        let mut body = CommitBody::new(&options, names.chain(values).sum()).map_err(CommitItem::unrepresentable)?;
        body.reads(self.sent_reads().map(|((store, key), seen)| (&**store, key.as_slice(), seen.version)));
        body.writes(written);
        let kind = if self.writes.is_empty() { CommitKind::ReadOnly } else { CommitKind::Writes };
        CommitItem::new(self.id.clone(), self.traceparent.clone(), self.ack, kind, body.finish())
    }

    /// Returns the rows read that the commit has to name. At `serializable`, a range is compared with all writes since
    /// the snapshot, including those of the commit's own epoch, so the rows of a scan would be checked twice. The other
    /// levels need them: `repeatable-read` compares no ranges, and at `snapshot`, an `add` to a row that was read is an
    /// update of it. A row that is written is always named: in a store of declared existence, its read states that it
    /// exists.
    fn sent_reads(&self) -> impl Iterator<Item = (&RowName, &Seen)> {
        let serializable = self.isolation == IsolationLevel::Serializable;
        self.reads
            .iter()
            .filter(move |(name, seen)| !(seen.in_range && serializable) || self.writes.contains_key(*name))
    }

    fn store(&mut self, store: &str) -> StoreName {
        if let Some(known) = self.stores.iter().find(|known| ***known == *store) {
            return known.clone();
        }
        let store = StoreName::new(store);
        self.stores.push(store.clone());
        store
    }

    fn name(&mut self, store: &str, key: &[u8]) -> RowName {
        (self.store(store), key.to_vec())
    }

    fn write(&mut self, store: &str, key: &[u8], op: WriteOp, value: Option<Box<RawValue>>) -> Result<(), Error> {
        self.merge(store, key, PendingWrite { op, value, or: None })
    }

    /// Refuses a store that Begin did not name.
    fn must_be_named(&self, store: &str) -> Result<(), Error> {
        if !self.has_named_stores || self.snapshots.contains_key(store) {
            return Ok(());
        }
        let named: Vec<_> = self.snapshots.keys().map(|name| format!("`{name}`")).collect();
        let named = named.join(", ");
        Err(Error::misuse(format!(
            "store_not_named: Begin did not name store `{store}`, only {named}: name all that are used"
        )))
    }

    fn merge(&mut self, store: &str, key: &[u8], next: PendingWrite) -> Result<(), Error> {
        self.must_be_named(store)?;
        let name = self.name(store, key);
        let mut row = match self.writes.entry(name) {
            Entry::Vacant(first) => {
                first.insert(next);
                return Ok(());
            }
            Entry::Occupied(row) => row,
        };
        let known = match self.reads.get(row.key()).map(|seen| seen.version) {
            None => Known::Unread,
            Some(None) => Known::Absent,
            Some(Some(_)) => Known::Present,
        };
        match merge(row.get().clone(), next, known)? {
            Some(write) => drop(row.insert(write)),
            None => drop(row.remove()),
        }
        Ok(())
    }
}

impl Seen {
    fn read(version: Option<Version>, value: Option<Value>) -> Self {
        Seen { version, value, in_range: false }
    }
}

/// Returns the value of a row that exists.
fn value_or_null(found: ReadRow) -> Result<Value, Error> {
    wire::value_of(found.value, found.value_b64)?.as_deref().map_or(Ok(Value::Null), wire::parsed)
}

/// Returns the value of a row after an add.
fn after_add(add: &PendingWrite, row: Option<&Value>) -> Result<Value, Error> {
    let row = row.map(wire::raw).transpose()?;
    wire::parsed(&add.added_to(row.as_deref())?)
}

/// Returns the immediate successor of a key.
fn key_after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn seen_of(state: RowState) -> Seen {
    match state {
        RowState::Found(row) => Seen::read(row.version, Some(row.value)),
        RowState::Unchanged(version) => Seen::read(Some(version), None),
        RowState::Absent => Seen::read(None, None),
    }
}

fn row(key: Vec<u8>, version: Option<Version>, value: &RawValue) -> Result<Row, Error> {
    Ok(Row { key, value: wire::parsed(value)?, version })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_slice, to_value};

    use super::*;

    #[test]
    fn a_transaction_is_serialized_like_its_commit_request() {
        let client = Client::new("http://127.0.0.1:1").expect("a URL");
        let same = |txn: &Transaction| {
            let body: Value = from_slice(&txn.commit_item().expect("JSON").body).expect("JSON");
            assert_eq!(body, to_value(txn.prepare().request).expect("JSON"));
            body
        };
        let mut txn = client.begin_local(IsolationLevel::Snapshot);
        assert_eq!(same(&txn).as_object().expect("an object").len(), 1, "members without a value are absent");
        txn.set_snapshot("kv", Epoch(9));
        txn.set_priority(7);
        txn.set_ack(Ack::Applied);
        txn.set_first_attempt_ms(u64::MAX);
        txn.epoch = Some("8".to_owned());
        txn.observe("kv", "a \"b\" gr\u{fc}n", Version::from_bits(1 << 60));
        txn.observe("other", [0xff, 0], None);
        txn.observe_range("kv", "a", [0x80]);
        txn.put("kv", "p", &serde_json::json!({"x": [1, null, "\n"]})).expect("JSON");
        txn.put("kv", [0xfe], &Value::Null).expect("JSON");
        txn.insert("kv", "i", &1.5).expect("JSON");
        txn.update("kv", "u", &true).expect("JSON");
        txn.delete("kv", "d").expect("JSON");
        txn.add("kv", "+", -3).expect("JSON");
        txn.add_or("kv", "or", 4, 5).expect("JSON");
        let body = same(&txn);
        assert_eq!(body.as_object().expect("an object").len(), 9, "{body}");
    }
}
