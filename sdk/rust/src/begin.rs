//! Begin: snapshots to read at, and rows and ranges that are read with them. Begins that are queued while other ones
//! are in flight share one request.

use std::collections::BTreeSet;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use tribunal_api::{BeginRequest, BeginResponse, Consistency, IsolationLevel, Problem, RangeRead, RowRead};
use uuid::{NoContext, Timestamp, Uuid};

use crate::answer::{Answer, NoAnswer};
use crate::coalescer::{Batchable, Coalescer};
use crate::consistency::{SESSION_UNKNOWN, asked_consistency};
use crate::read_batch::{BYTES_ALONE, Shared, Union, apart, bytes_of, ended};
use crate::reads::{KeyRange, range_read, row_read, rows_of, wait_ms_of};
use crate::{Client, Error, Transaction};

/// Options of a transaction.
#[derive(Clone, Debug, Default)]
pub struct BeginOptions {
    /// Stores that the transaction will use; empty means all stores of the namespace.
    pub stores: Vec<String>,
    /// Isolation level.
    pub isolation: IsolationLevel,
    /// Token of a commit that the snapshots must include, instead of this client's own latest one.
    pub session: Option<String>,
    /// What the snapshots include. By default, this client's commits; with [`Consistency::Fresh`], every commit that
    /// any node of the cluster acknowledged to any client before the call.
    pub consistency: Consistency,
    /// How long to wait until the snapshots include these commits, in milliseconds; 5 s by default.
    pub wait_ms: Option<u32>,
    /// W3C trace context of the caller: sent with the commit, and kept in the log.
    pub traceparent: Option<String>,
    /// Rows of embedded stores, by store and key, to read in the same request: [`Transaction::get`] returns them
    /// without another request. Rows that are never fetched with `get` do not count as read.
    pub read: Vec<(String, Vec<u8>)>,
    /// Ranges of embedded stores to read in the same request: [`Transaction::scan`] with the same bounds and limit
    /// returns the rows without another request. Ranges that are never scanned do not count as read.
    pub ranges: Vec<(String, KeyRange)>,
}

impl BeginOptions {
    /// Builds options for a serializable transaction on these stores.
    pub fn stores<S: Into<String>>(stores: impl IntoIterator<Item = S>) -> Self {
        BeginOptions { stores: stores.into_iter().map(Into::into).collect(), ..BeginOptions::default() }
    }

    /// Adds rows of an embedded store that Begin reads in the same request.
    #[must_use]
    pub fn read<K: AsRef<[u8]>>(mut self, store: &str, keys: impl IntoIterator<Item = K>) -> Self {
        self.read.extend(keys.into_iter().map(|key| (store.to_owned(), key.as_ref().to_vec())));
        self
    }

    /// Adds a range of an embedded store that Begin reads in the same request.
    #[must_use]
    pub fn range(mut self, store: &str, range: KeyRange) -> Self {
        self.ranges.push((store.to_owned(), range));
        self
    }

    /// Sets the isolation level.
    #[must_use]
    pub fn isolation(mut self, isolation: IsolationLevel) -> Self {
        self.isolation = isolation;
        self
    }

    /// Requires the snapshots to include every commit that any node of the cluster acknowledged to any client before
    /// the call.
    #[must_use]
    pub fn fresh(mut self) -> Self {
        self.consistency = Consistency::Fresh;
        self
    }

    /// Sets the token of a commit that the snapshots must include.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// Coalesces Begins.
pub(crate) type Begins = Arc<Coalescer<Arc<BeginItem>, Shared<BeginResponse>>>;

/// A Begin of one caller.
pub(crate) struct BeginItem {
    /// Identifies Begins that can share snapshots: they use the same stores, and wait equally long for the same
    /// commits.
    group: String,
    /// The stores that the Begin names or reads; empty means all stores of the namespace.
    stores: Vec<String>,
    isolation: IsolationLevel,
    session: Option<String>,
    consistency: Consistency,
    wait_ms: Option<u32>,
    read: Vec<RowRead>,
    ranges: Vec<RangeRead>,
}

impl Batchable for Arc<BeginItem> {
    fn group(&self) -> &str {
        &self.group
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.read)
    }
}

impl BeginItem {
    fn new(options: &BeginOptions) -> Self {
        let rows = options.read.iter().map(|(store, _)| store);
        let ranges = options.ranges.iter().map(|(store, _)| store);
        let used: BTreeSet<&String> = options.stores.iter().chain(rows).chain(ranges).collect();
        // A Begin of all stores that reads an unknown one is refused, and would make the whole request fail.
        let all = options.stores.is_empty();
        let group = format!("{all} {used:?} {:?} {:?} {:?}", options.session, options.consistency, options.wait_ms);
        let stores = if all { Vec::new() } else { used.into_iter().cloned().collect() };
        BeginItem {
            group,
            stores,
            isolation: options.isolation,
            session: options.session.clone(),
            consistency: options.consistency,
            wait_ms: options.wait_ms,
            read: options.read.iter().map(|(store, key)| row_read(Some(store), key, None)).collect(),
            ranges: options.ranges.iter().map(|(store, range)| range_read(Some(store), range)).collect(),
        }
    }

    /// Returns whether the Begin may share a request. Ranges and many rows can fill a response by themselves.
    fn is_batchable(&self) -> bool {
        self.ranges.is_empty() && bytes_of(&self.read) <= BYTES_ALONE
    }
}

impl Client {
    /// Begins a transaction at the service, which chooses the snapshots. They include this client's commits to these
    /// stores. While requests of other Begins are in flight, the Begin may be queued and share a request; see
    /// [`ClientOptions::coalesce`](crate::ClientOptions).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn begin(&self, options: BeginOptions) -> Result<Transaction, Error> {
        let item = Arc::new(BeginItem::new(&options));
        let mut begun = match self.begin_batched(&item).await? {
            Some(begun) => begun,
            None => self.begin_single(item).await?,
        };
        let rows = begun.rows.take().unwrap_or_default();
        let ranges = begun.ranges.take().unwrap_or_default();
        if ranges.len() != options.ranges.len() {
            let (found, asked) = (ranges.len(), options.ranges.len());
            return Err(Error::misbehaved(format!("{found} ranges returned where {asked} were requested")));
        }
        let mut txn = Transaction::new(self.clone(), String::new(), options.isolation).begun(begun);
        for ((store, key), found) in options.read.iter().zip(rows) {
            txn.fetched(store, key, found)?;
        }
        for ((store, range), found) in options.ranges.into_iter().zip(ranges) {
            txn.fetched_range(store, range, rows_of(found)?);
        }
        txn.set_traceparent(options.traceparent);
        Ok(txn)
    }

    /// Returns `None` if the Begin needs a separate request.
    async fn begin_batched(&self, item: &Arc<BeginItem>) -> Result<Option<BeginResponse>, Error> {
        if !self.options().coalesce || !item.is_batchable() {
            return Ok(None);
        }
        self.until_commits_return().await;
        let client = self.clone();
        let send = move |items: Vec<Arc<BeginItem>>| {
            let client = client.clone();
            async move { client.send_begins(&items).await }
        };
        self.begins().submit(Arc::clone(item), send).await.unwrap_or_else(ended).part()
    }

    async fn begin_single(&self, item: Arc<BeginItem>) -> Result<BeginResponse, Error> {
        let begun = self.send_begins(&[item]).await.pop().unwrap_or_else(ended).part()?;
        begun.ok_or_else(|| Error::misbehaved("no response to a Begin"))
    }

    /// Sends Begins of one group as one request. The session is read now: it covers every caller's commits before its
    /// call.
    async fn send_begins(&self, items: &[Arc<BeginItem>]) -> Vec<Shared<BeginResponse>> {
        let Some(first) = items.first() else { return Vec::new() };
        let union = Union::of(items.iter().map(|item| &item.read[..]));
        let mut request = BeginRequest {
            stores: (!first.stores.is_empty()).then(|| first.stores.clone()),
            isolation: Some(first.isolation),
            consistency: asked_consistency(first.consistency),
            session: first.session.clone(),
            wait_ms: first.wait_ms,
            ttl_ms: None,
            read: (!union.rows.is_empty()).then(|| union.rows.clone()),
            ranges: (!first.ranges.is_empty()).then(|| first.ranges.clone()),
        };
        let reply = loop {
            if first.session.is_none() {
                request.session = self.own_session(&first.stores);
            }
            let wait_ms = wait_ms_of(request.session.as_deref(), first.consistency, first.wait_ms);
            let sent = self.exchange(Method::POST, "/v1/txns", Some(&request), wait_ms, None).await;
            let reply = sent.unwrap_or_else(|error| Err(NoAnswer::hopeless(error.to_string())));
            match (&reply, &request.session) {
                // The client's own token, of which the caller does not know.
                (Ok(answer), Some(own)) if first.session.is_none() && is_session_unknown(answer) => {
                    self.forget_session(own)
                }
                _ => break reply,
            }
        };
        apart(reply, items.len(), |mut begun: BeginResponse| {
            let rows = union.apart(begun.rows.take().unwrap_or_default())?;
            let each = rows.into_iter().enumerate().map(|(n, rows)| {
                let txn_id = if n == 0 { begun.txn_id.clone() } else { id_beside(&begun.txn_id)? };
                Ok(BeginResponse { txn_id, rows: Some(rows), ..begun.clone() })
            });
            each.collect()
        })
    }
}

/// Returns whether a request was refused because the service did not issue its session token: its log has been
/// replaced.
fn is_session_unknown(answer: &Answer) -> bool {
    answer.status == StatusCode::UNPROCESSABLE_ENTITY
        && serde_json::from_slice(&answer.body).is_ok_and(|problem: Problem| problem.code == SESSION_UNKNOWN)
}

/// Creates an id with the time of an id from the service, whose clock may differ from the local one.
fn id_beside(id: &str) -> Result<String, String> {
    let time = Uuid::parse_str(id).ok().and_then(|id| id.get_timestamp());
    let (seconds, nanos) = time.ok_or_else(|| format!("`{id}` is not a UUIDv7"))?.to_unix();
    Ok(Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, nanos)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_begin_have_one_time_and_differ() {
        let first = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";
        let (one, two) = (id_beside(first).expect("an id"), id_beside(first).expect("an id"));
        assert!(one != two && one != first);
        for id in [one, two] {
            assert_eq!(id[..15], first[..15], "the same millisecond and version");
            assert_eq!(Uuid::parse_str(&id).expect("a UUID").get_version_num(), 7);
        }
        for bad in ["", "txn-0", "550e8400-e29b-41d4-a716-446655440000"] {
            assert!(id_beside(bad).is_err(), "{bad}");
        }
    }
}
