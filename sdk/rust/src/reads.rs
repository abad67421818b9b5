//! Reads several rows or ranges of an embedded store in one request, all at the same epoch. Row reads that are queued
//! while other ones are in flight share one request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::value::Value;
use tribunal_api::{Consistency, ReadRange, ReadRequest, ReadResponse, ReadRow};
use tribunal_types::{Epoch, Version};

use crate::answer::{NoAnswer, read};
use crate::client::Client;
use crate::coalescer::{Batchable, Coalescer};
use crate::consistency::{SESSION_UNKNOWN, asked_consistency};
use crate::read_batch::{BYTES_ALONE, Shared, Union, apart, bytes_of, ended};
use crate::row::{Row, RowPage, row_of};
use crate::{Error, StoredValue, wire};

/// Maximum rows of a range in one response.
pub(crate) const ROWS_MAX: usize = 10_000;

/// How long the service waits by default for the commits that a request must include, milliseconds.
const WAIT_MS_DEFAULT: u32 = 5_000;

/// Added to the bound of a read: a request that was not queued ends by itself before, with an error that describes each
/// endpoint.
const GRACE: Duration = Duration::from_millis(100);

/// A row to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRead<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Version that the caller has cached. If it is still current, the value is not sent again.
    pub known: Option<Version>,
}

/// The result of reading a row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowState {
    /// The row does not exist.
    Absent,
    /// The row still has the version that the caller has cached.
    Unchanged(Version),
    /// The row exists.
    Found(Row),
}

/// The results of reading rows, all at the same epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReads {
    /// The epoch that the rows reflect: they include all of its commits, and none of later epochs.
    pub applied: Epoch,
    /// Token for [`ReadOptions::session`] of a later read that must reflect this epoch or a later one, also on another
    /// node. `None` if the service is too old to return one.
    pub session: Option<String>,
    /// One result per row, in the order of the request.
    pub rows: Vec<RowState>,
}

/// Keys from `start` on, before `end`; an empty `end` is the end of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    /// First key.
    pub start: Vec<u8>,
    /// End, exclusive; empty for the end of the store.
    pub end: Vec<u8>,
    /// Maximum number of rows, at most 10,000.
    pub limit: usize,
}

impl KeyRange {
    /// Builds a range.
    pub fn new(start: impl AsRef<[u8]>, end: impl AsRef<[u8]>, limit: usize) -> Self {
        KeyRange { start: start.as_ref().to_vec(), end: end.as_ref().to_vec(), limit }
    }
}

/// Rows of a range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RangeRows {
    /// The rows, in key order.
    pub rows: Vec<Row>,
    /// Whether the range has more rows.
    pub more: bool,
}

/// Ranges, all at the same epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeReads {
    /// The epoch that the ranges reflect: they include all of its commits, and none of later epochs.
    pub applied: Epoch,
    /// Token for [`ReadOptions::session`] of a later read that must reflect this epoch or a later one, also on another
    /// node. `None` if the service is too old to return one.
    pub session: Option<String>,
    /// One result per range, in the order of the request.
    pub ranges: Vec<RangeRows>,
}

/// Options of a read outside of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Token of a commit, or of an earlier read, that the rows must include.
    pub session: Option<String>,
    /// What the rows include. By default, every commit that the node has acknowledged; with [`Consistency::Fresh`],
    /// every commit that any node of the cluster acknowledged to any client before the call.
    pub consistency: Consistency,
    /// How long to wait until the rows include these commits, in milliseconds; 5 s by default.
    pub wait_ms: Option<u32>,
}

impl ReadOptions {
    /// Builds options for a read that includes every commit acknowledged on any node before the call.
    #[must_use]
    pub fn fresh() -> ReadOptions {
        ReadOptions { consistency: Consistency::Fresh, ..ReadOptions::default() }
    }

    /// Returns how long the service may wait before it responds, milliseconds.
    fn wait_ms(&self) -> u32 {
        wait_ms_of(self.session.as_deref(), self.consistency, self.wait_ms)
    }

    fn request(&self) -> ReadRequest {
        ReadRequest {
            session: self.session.clone(),
            consistency: asked_consistency(self.consistency),
            wait_ms: self.wait_ms,
            ..ReadRequest::default()
        }
    }
}

/// Coalesces reads of rows.
pub(crate) type Reads = Arc<Coalescer<Arc<ReadItem>, Shared<ReadResponse>>>;

/// A read of one caller.
pub(crate) struct ReadItem {
    /// Identifies reads that can share a request: those of one store with the same options.
    group: String,
    store: String,
    rows: Arc<[tribunal_api::RowRead]>,
    options: ReadOptions,
}

impl Batchable for Arc<ReadItem> {
    fn group(&self) -> &str {
        &self.group
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.rows)
    }
}

impl Client {
    /// Reads a row of an embedded store as it is now, outside any transaction.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn row(&self, store: &str, key: impl AsRef<[u8]>) -> Result<Option<Row>, Error> {
        let found = self.read_rows(store, &[RowRead { key: key.as_ref(), known: None }]).await?;
        Ok(found.rows.into_iter().find_map(|state| match state {
            RowState::Found(row) => Some(row),
            RowState::Absent | RowState::Unchanged(_) => None,
        }))
    }

    /// Reads a row as [`Client::row`] does. Returns its value exactly as stored, and its version.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stored_row(
        &self,
        store: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(StoredValue, Version)>, Error> {
        let asked = [RowRead { key: key.as_ref(), known: None }];
        let answer = self.rows_answer(store, &asked, ReadOptions::default()).await?;
        let Some(found) = answer.rows.into_iter().flatten().next() else { return Ok(None) };
        let Some(version) = found.version else { return Ok(None) };
        let value = match wire::value_of(found.value, found.value_b64)? {
            Some(value) => value,
            None => wire::raw(&Value::Null)?,
        };
        Ok(Some((StoredValue::new(value), wire::version(&version)?)))
    }

    /// Reads rows of an embedded store outside any transaction: at most 10,000 rows, with at most 8 MiB of values in
    /// total. They include every commit that its node acknowledged before the call. While requests of other reads are
    /// in flight, the read may be queued and share a request; see [`ClientOptions::coalesce`](crate::ClientOptions). A read
    /// of no rows sends nothing, and its `applied` is 0.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_rows(&self, store: &str, rows: &[RowRead<'_>]) -> Result<RowReads, Error> {
        self.read_rows_with(store, rows, ReadOptions::default()).await
    }

    /// Reads rows as [`Client::read_rows`] does, with options.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_rows_with(
        &self,
        store: &str,
        rows: &[RowRead<'_>],
        options: ReadOptions,
    ) -> Result<RowReads, Error> {
        if rows.is_empty() {
            return Ok(RowReads { applied: Epoch(0), session: None, rows: Vec::new() });
        }
        let answer = self.rows_answer(store, rows, options).await?;
        let found = answer.rows.unwrap_or_default();
        let states = found.into_iter().zip(rows).map(|(found, asked)| state_of(found, asked.key));
        let rows = states.collect::<Result<_, _>>()?;
        Ok(RowReads { applied: wire::epoch(&answer.applied)?, session: answer.session, rows })
    }

    /// Requests rows, in a batch with other reads if possible.
    async fn rows_answer(
        &self,
        store: &str,
        rows: &[RowRead<'_>],
        options: ReadOptions,
    ) -> Result<ReadResponse, Error> {
        let asked: Arc<[_]> = rows.iter().map(|row| row_read(None, row.key, row.known)).collect();
        let send = |options: ReadOptions| {
            let (group, rows) = (format!("{store:?} {options:?}"), Arc::clone(&asked));
            let item = Arc::new(ReadItem { group, store: store.to_owned(), rows, options });
            async move {
                match self.rows_batched(&item).await? {
                    Some(answer) => Ok(answer),
                    None => self.rows_single(&item).await,
                }
            }
        };
        self.current(store, None, options, send).await
    }

    /// Reads ranges of an embedded store outside any transaction: at most 256, with at most 8 MiB of values in total.
    /// They include every commit that its node acknowledged before the call.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_ranges(&self, store: &str, ranges: &[KeyRange]) -> Result<RangeReads, Error> {
        self.read_ranges_with(store, ranges, ReadOptions::default()).await
    }

    /// Reads ranges as [`Client::read_ranges`] does, with options.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_ranges_with(
        &self,
        store: &str,
        ranges: &[KeyRange],
        options: ReadOptions,
    ) -> Result<RangeReads, Error> {
        self.ranges_from(store, ranges, options, None).await
    }

    /// Reads ranges that must include an epoch of the store; this client's own commits if it is `None`.
    async fn ranges_from(
        &self,
        store: &str,
        ranges: &[KeyRange],
        options: ReadOptions,
        least: Option<Epoch>,
    ) -> Result<RangeReads, Error> {
        let asked: Vec<_> = ranges.iter().map(|range| range_read(None, range)).collect();
        let path = path_of(store);
        let send = |options: ReadOptions| {
            let request = ReadRequest { ranges: Some(asked.clone()), ..options.request() };
            let path = &path;
            async move { read(&self.ask(Method::POST, path, Some(&request), options.wait_ms()).await?) }
        };
        let answer = self.current(store, least, options, send).await?;
        let found = answer.ranges.unwrap_or_default();
        if found.len() != ranges.len() {
            return Err(Error::misbehaved(format!(
                "{} ranges returned where {} were requested",
                found.len(),
                ranges.len()
            )));
        }
        let ranges = found.into_iter().map(rows_of).collect::<Result<_, _>>()?;
        Ok(RangeReads { applied: wire::epoch(&answer.applied)?, session: answer.session, ranges })
    }

    /// Reads at most `limit` rows of `start..end` of an embedded store as they are now, outside any transaction. An
    /// empty `end` is the end of the store.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the limit is not from 1 to 10,000; see [`Error`].
    pub async fn rows(
        &self,
        store: &str,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        limit: usize,
    ) -> Result<RowPage, Error> {
        self.page(store, KeyRange::new(start, end, limit), None, None).await
    }

    /// Reads rows of a range, as many as the service returns in one response. A transaction names its session and its
    /// snapshot of the store: the range is compared with later writes, so older rows must not be returned.
    pub(crate) async fn page(
        &self,
        store: &str,
        range: KeyRange,
        session: Option<String>,
        snapshot: Option<Epoch>,
    ) -> Result<RowPage, Error> {
        if !(1..=ROWS_MAX).contains(&range.limit) {
            let limit = range.limit;
            return Err(Error::misuse(format!("the limit of a range must be from 1 to {ROWS_MAX}, not {limit}")));
        }
        let options = ReadOptions { session, ..ReadOptions::default() };
        let RangeReads { applied, ranges, .. } = self.ranges_from(store, &[range], options, snapshot).await?;
        let RangeRows { rows, more } = ranges.into_iter().next().unwrap_or_default();
        Ok(RowPage { applied, rows, more })
    }

    /// Repeats a read of a store while the service is unavailable, or has not applied the epoch that the read must
    /// include, by default that of this client's latest commit. A lagging node gets the commit's token and waits for
    /// it, unless the caller named a token. All repetitions together have the client's timeout, in addition to the time
    /// that the service may wait.
    async fn current<F>(
        &self,
        store: &str,
        least: Option<Epoch>,
        mut options: ReadOptions,
        mut send: impl FnMut(ReadOptions) -> F,
    ) -> Result<ReadResponse, Error>
    where
        F: Future<Output = Result<ReadResponse, Error>>,
    {
        let names_session = options.session.is_some();
        let begun = Instant::now();
        let (mut failed, mut last) = (0, None);
        loop {
            let bound = self.timeout() + Duration::from_millis(options.wait_ms().into());
            let Ok(sent) = tokio::time::timeout_at((begun + bound + GRACE).into(), send(options.clone())).await else {
                return Err(last.unwrap_or_else(|| {
                    let text = format!("{}: no response within {} ms", self.url(), bound.as_millis());
                    Error::Unavailable { text, retry_after: None }
                }));
            };
            let (text, retry_after) = match sent {
                Ok(answer) => {
                    let applied = wire::epoch(&answer.applied)?;
                    let Some(least) = least.or_else(|| self.own_epoch(store)).filter(|least| applied < *least) else {
                        return Ok(answer);
                    };
                    if !names_session {
                        options.session = self.own_session(&[store.to_owned()]);
                    }
                    let at = self.endpoint();
                    (format!("{at} has applied epoch {applied} of store {store}, not yet {least}"), None)
                }
                Err(Error::Unavailable { text, retry_after }) => (text, retry_after),
                Err(Error::ClientMistake(problem)) => match options.session.take_if(|_| !names_session) {
                    // The log with this client's commits has been replaced.
                    Some(own) if problem.code == SESSION_UNKNOWN => {
                        self.forget_session(&own);
                        continue;
                    }
                    _ => return Err(Error::ClientMistake(problem)),
                },
                Err(error) => return Err(error),
            };
            failed += 1;
            let error = Error::Unavailable { text, retry_after };
            match self.retry().wait(failed, retry_after) {
                Some(wait) if begun.elapsed() + wait < bound => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
            last = Some(error);
        }
    }

    /// Returns `None` if the read needs a separate request.
    async fn rows_batched(&self, item: &Arc<ReadItem>) -> Result<Option<ReadResponse>, Error> {
        // A read of no rows is refused, and would make the whole batch fail.
        let batchable = (1..=BYTES_ALONE).contains(&bytes_of(&item.rows));
        if !self.options().coalesce || !batchable {
            return Ok(None);
        }
        let client = self.clone();
        let send = move |items: Vec<Arc<ReadItem>>| {
            let client = client.clone();
            async move { client.send_reads(&items).await }
        };
        self.reads().submit(Arc::clone(item), send).await.unwrap_or_else(ended).part()
    }

    async fn rows_single(&self, item: &Arc<ReadItem>) -> Result<ReadResponse, Error> {
        let answer = self.send_reads(&[Arc::clone(item)]).await.pop().unwrap_or_else(ended).part()?;
        answer.ok_or_else(|| Error::misbehaved("no response to a read"))
    }

    /// Sends reads of one group as one request.
    async fn send_reads(&self, items: &[Arc<ReadItem>]) -> Vec<Shared<ReadResponse>> {
        let Some(first) = items.first() else { return Vec::new() };
        let union = Union::of(items.iter().map(|item| &item.rows[..]));
        let request = ReadRequest { read: Some(union.rows.clone()), ..first.options.request() };
        let sent =
            self.exchange(Method::POST, &path_of(&first.store), Some(&request), first.options.wait_ms(), None).await;
        let reply = sent.unwrap_or_else(|error| Err(NoAnswer::hopeless(error.to_string())));
        apart(reply, items.len(), |answer: ReadResponse| {
            let each = union.apart(answer.rows.unwrap_or_default())?;
            let part = |rows| ReadResponse {
                applied: answer.applied.clone(),
                session: answer.session.clone(),
                rows: Some(rows),
                ranges: None,
            };
            Ok(each.into_iter().map(part).collect())
        })
    }
}

/// Returns how long the service may wait for the commits that a request must include, milliseconds.
pub(crate) fn wait_ms_of(session: Option<&str>, consistency: Consistency, wait_ms: Option<u32>) -> u32 {
    let waits = session.is_some() || consistency == Consistency::Fresh;
    wait_ms.unwrap_or(if waits { WAIT_MS_DEFAULT } else { 0 })
}

fn path_of(store: &str) -> String {
    format!("/v1/stores/{}/rows/read", wire::percent_encoded(store.as_bytes()))
}

pub(crate) fn row_read(store: Option<&str>, key: &[u8], known: Option<Version>) -> tribunal_api::RowRead {
    let (key, key_b64) = wire::key_fields(key);
    let version = known.map(|version| version.bits().to_string());
    tribunal_api::RowRead { store: store.map(str::to_owned), key, key_b64, version }
}

pub(crate) fn range_read(store: Option<&str>, range: &KeyRange) -> tribunal_api::RangeRead {
    let bound = |key: &[u8]| if key.is_empty() { (None, None) } else { wire::key_fields(key) };
    let ((start, start_b64), (end, end_b64)) = (bound(&range.start), bound(&range.end));
    let limit = Some(u32::try_from(range.limit).unwrap_or(u32::MAX));
    tribunal_api::RangeRead { store: store.map(str::to_owned), start, end, start_b64, end_b64, limit }
}

pub(crate) fn rows_of(found: ReadRange) -> Result<RangeRows, Error> {
    let rows = found.rows.into_iter().map(row_of).collect::<Result<_, _>>()?;
    Ok(RangeRows { rows, more: found.more })
}

pub(crate) fn state_of(found: ReadRow, key: &[u8]) -> Result<RowState, Error> {
    let Some(version) = found.version else { return Ok(RowState::Absent) };
    let version = wire::version(&version)?;
    if found.unchanged == Some(true) {
        return Ok(RowState::Unchanged(version));
    }
    // The wire type cannot tell the value `null` from an absent one.
    let value = wire::value_of(found.value, found.value_b64)?;
    let value = value.as_deref().map_or(Ok(Value::Null), wire::parsed)?;
    Ok(RowState::Found(Row { key: key.to_vec(), value, version: Some(version) }))
}
