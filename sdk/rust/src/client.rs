//! The client: one method per question, and [`Client::run`] for work that may be repeated.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::Value;
use tribunal_api::{
    AttachRequest, BatchCommitRequest, BatchCommitResponse, BatchTxn, BeginRequest, BeginResponse, IsolationLevel,
    KeyCreated, KeyInfo, KeyList, KeyRequest, LogPage, Problem, SkipList, SkipRequest, SkippedRecord, StoreDeclaration,
    StoreInfo, StoreList, TxnOutcome, TxnState,
};
use tribunal_types::{Epoch, Lsn, Version};

use crate::connection::{Answer, Connection, NoAnswer};
use crate::{Committed, Error, LogReader, Outcome, PreparedCommit, RetryPolicy, Transaction, wire};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// API key, if the server asks for one.
    pub api_key: Option<String>,
    /// PEM file with the certificate authorities that are trusted over `https`; without it, those of the machine are.
    pub ca_file: Option<PathBuf>,
    /// Bound for one answer, beyond what a request itself asks to wait.
    pub timeout: Duration,
    /// How long a lost reply is asked for before it becomes [`Error::OutcomeUnknown`].
    pub resolve_timeout: Duration,
    /// Idle connections kept.
    pub connections_idle_max: usize,
    /// Bounds of [`Client::run`].
    pub retry: RetryPolicy,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            api_key: None,
            ca_file: None,
            timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(30),
            connections_idle_max: 256,
            retry: RetryPolicy::default(),
        }
    }
}

impl ClientOptions {
    /// Returns the defaults, with the API key that the variable `TRIBUNAL_API_KEY` holds and the CA file that
    /// `TRIBUNAL_CA_FILE` names, if they are set.
    #[must_use]
    pub fn from_env() -> Self {
        let api_key = std::env::var("TRIBUNAL_API_KEY").ok().filter(|key| !key.is_empty());
        let ca_file = std::env::var_os("TRIBUNAL_CA_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
        ClientOptions { api_key, ca_file, ..ClientOptions::default() }
    }
}

/// How a transaction begins.
#[derive(Clone, Debug, Default)]
pub struct BeginOptions {
    /// Stores that it will use; empty names all of the namespace.
    pub stores: Vec<String>,
    /// Isolation level.
    pub isolation: IsolationLevel,
    /// Token of an earlier commit whose writes must be visible.
    pub session: Option<String>,
    /// How long to wait for that, milliseconds.
    pub wait_ms: Option<u32>,
}

impl BeginOptions {
    /// Builds options for a serializable transaction on these stores.
    pub fn stores<S: Into<String>>(stores: impl IntoIterator<Item = S>) -> Self {
        BeginOptions { stores: stores.into_iter().map(Into::into).collect(), ..BeginOptions::default() }
    }

    /// Sets the isolation level.
    #[must_use]
    pub fn isolation(mut self, isolation: IsolationLevel) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets what must be visible.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// A row as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Value,
    /// Version; `None` for a row that the transaction itself wrote and had not read.
    pub version: Option<Version>,
}

/// Rows in key order.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPage {
    /// Snapshot that they reflect.
    pub applied: Epoch,
    /// The rows.
    pub rows: Vec<Row>,
    /// There are further rows in the range.
    pub more: bool,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// It has its verdict; a fenced one is aborted with reason `fenced`.
    Decided(Outcome),
    /// It waits for its verdict.
    InFlight,
    /// It never arrived, but still may.
    Unknown,
    /// Nothing is known of it any more, and nothing can become of it.
    UnknownExpired,
}

/// A client of one service. Clones share the connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    options: ClientOptions,
}

impl Client {
    /// Builds a client for `http://host:port` or `https://host:port` with default options. Connects when it is used.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is no such URL.
    pub fn new(url: &str) -> Result<Self, Error> {
        Client::with_options(url, ClientOptions::default())
    }

    /// Builds a client.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the URL, the API key or the CA file cannot be used.
    pub fn with_options(url: &str, options: ClientOptions) -> Result<Self, Error> {
        let (api_key, ca_file) = (options.api_key.as_deref(), options.ca_file.as_deref());
        let connection = Connection::new(url, api_key, ca_file, options.connections_idle_max)?;
        Ok(Client { inner: Arc::new(Inner { connection, options }) })
    }

    /// Returns the service's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        self.inner.connection.url()
    }

    /// Begins a transaction at the service, which gives the snapshots.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn begin(&self, options: BeginOptions) -> Result<Transaction, Error> {
        let request = BeginRequest {
            stores: (!options.stores.is_empty()).then_some(options.stores),
            isolation: Some(options.isolation),
            session: options.session,
            wait_ms: options.wait_ms,
            ttl_ms: None,
        };
        let wait_ms = options.wait_ms.unwrap_or(0);
        let answer = self.ask(Method::POST, "/v1/txns", Some(&request), wait_ms).await?;
        let begun: BeginResponse = read(&answer)?;
        Ok(Transaction::new(self.clone(), String::new(), options.isolation).begun(begun))
    }

    /// Begins a transaction without asking: under an id of its own and without snapshots. Such a transaction may use
    /// `tracked` stores only, no ranges, and read nothing at level `snapshot`.
    #[must_use]
    pub fn begin_local(&self, isolation: IsolationLevel) -> Transaction {
        Transaction::new(self.clone(), uuid::Uuid::now_v7().to_string(), isolation)
    }

    /// Runs `work` in a transaction and commits it; on a retryable abort again, on fresh reads, with growing waits.
    /// `work` may run several times, and must have no other effect than on its transaction. An existing or missing row
    /// is final for work that read nothing: it would write the same again.
    ///
    /// # Errors
    /// What `work` returns; [`Error::Aborted`] for a final abort or the last attempt's; see [`Error`].
    pub async fn run<T, E: From<Error>>(
        &self,
        options: BeginOptions,
        mut work: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let retry = self.inner.options.retry;
        let mut failed = 0;
        loop {
            let mut txn = match self.begin(options.clone()).await {
                Ok(txn) => txn,
                Err(Error::Unavailable { text, retry_after }) => {
                    failed += 1;
                    match retry.wait(failed, retry_after) {
                        Some(wait) => tokio::time::sleep(wait).await,
                        None => return Err(Error::Unavailable { text, retry_after }.into()),
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let value = work(&mut txn).await?;
            let aborted = match self.commit_retrying(&txn.prepare(), &mut failed).await? {
                Outcome::Committed(committed) => return Ok((value, committed)),
                Outcome::Aborted(aborted) => aborted,
            };
            failed += 1;
            // A fence of ours means that the request was lost on its way: the work itself was not refused.
            let again = match aborted.reason.as_str() {
                "fenced" => true,
                "row_exists" | "row_missing" => aborted.retryable && !txn.is_blind(),
                _ => aborted.retryable,
            };
            match retry.wait(failed, Some(aborted.retry_after)).filter(|_| again) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(Error::Aborted(aborted).into()),
            }
        }
    }

    /// Commits; while nothing was decided, sends the same again: the id makes that safe.
    async fn commit_retrying(&self, prepared: &PreparedCommit, failed: &mut u32) -> Result<Outcome, Error> {
        loop {
            match self.commit(prepared).await {
                Err(Error::Unavailable { text, retry_after }) => {
                    *failed += 1;
                    match self.inner.options.retry.wait(*failed, retry_after) {
                        Some(wait) => tokio::time::sleep(wait).await,
                        None => return Err(Error::Unavailable { text, retry_after }),
                    }
                }
                other => return other,
            }
        }
    }

    /// Asks for the verdict of a prepared commit. May be repeated: the same id gets the same answer.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn commit(&self, prepared: &PreparedCommit) -> Result<Outcome, Error> {
        let path = format!("/v1/txns/{}/commit", prepared.txn_id);
        match self.exchange(Method::POST, &path, Some(&prepared.request), 0).await? {
            Ok(answer) if is_settled(&answer) => decision(read(&answer)?, answer.replayed),
            Ok(answer) => self.resolve(&prepared.txn_id, &answer.status.to_string()).await,
            Err(lost) if lost.never_sent => Err(Error::of_no_answer(lost)),
            Err(lost) => self.resolve(&prepared.txn_id, &lost.text).await,
        }
    }

    /// Asks for many verdicts in one request; answers in the same order.
    ///
    /// # Errors
    /// The whole request was refused; see [`Error`].
    pub async fn batch(&self, commits: &[PreparedCommit]) -> Result<Vec<Result<Outcome, Error>>, Error> {
        let request = BatchCommitRequest { txns: commits.iter().map(batch_txn).collect() };
        let lost = match self.exchange(Method::POST, "/v1/txns/batch-commit", Some(&request), 0).await? {
            Ok(answer) if is_settled(&answer) => {
                let answer: BatchCommitResponse = read(&answer)?;
                if answer.results.len() != commits.len() {
                    let (given, asked) = (answer.results.len(), commits.len());
                    return Err(Error::misbehaved(format!("{given} results for {asked} commits")));
                }
                return Ok(answer.results.into_iter().map(|result| decision(result, false)).collect());
            }
            Ok(answer) => answer.status.to_string(),
            Err(lost) if lost.never_sent => return Err(Error::of_no_answer(lost)),
            Err(lost) => lost.text,
        };
        let mut outcomes = Vec::with_capacity(commits.len());
        for commit in commits {
            outcomes.push(self.resolve(&commit.txn_id, &lost).await);
        }
        Ok(outcomes)
    }

    /// Asks what became of a transaction, waiting at most `wait_ms` for a verdict. With `fence`, one that never
    /// arrived never will.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self, txn_id: &str, fence: bool, wait_ms: u32) -> Result<TxnStatus, Error> {
        let path = format!("/v1/txns/{}?wait_ms={wait_ms}&fence={fence}", wire::percent_encoded(txn_id.as_bytes()));
        let outcome: TxnOutcome = read(&self.ask(Method::GET, &path, None::<&()>, wait_ms).await?)?;
        Ok(match outcome.status {
            TxnState::InFlight => TxnStatus::InFlight,
            TxnState::Unknown => TxnStatus::Unknown,
            TxnState::UnknownExpired => TxnStatus::UnknownExpired,
            _ => TxnStatus::Decided(decision(outcome, true)?),
        })
    }

    /// Settles a transaction whose reply was lost: it committed, or a fence makes sure that it never does.
    async fn resolve(&self, txn_id: &str, lost: &str) -> Result<Outcome, Error> {
        let begun = Instant::now();
        let mut failed = 0;
        let mut last = lost.to_owned();
        while begun.elapsed() < self.inner.options.resolve_timeout {
            match self.status(txn_id, true, 1_000).await {
                Ok(TxnStatus::Decided(outcome)) => return Ok(outcome),
                Ok(TxnStatus::UnknownExpired) => break,
                Ok(TxnStatus::InFlight | TxnStatus::Unknown) => {}
                // Asking again does not help, and says nothing of the commit, which may have arrived.
                Err(error @ (Error::ClientMistake(_) | Error::Misuse(_))) => {
                    last = error.to_string();
                    break;
                }
                Err(error) => last = error.to_string(),
            }
            failed += 1;
            let policy = RetryPolicy { attempts_max: u32::MAX, ..self.inner.options.retry };
            tokio::time::sleep(policy.wait(failed, None).unwrap_or_default()).await;
        }
        Err(Error::OutcomeUnknown { txn_id: txn_id.to_owned(), text: last })
    }

    /// Records that a transaction will never commit, and returns what stands.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn abort(&self, txn_id: &str) -> Result<Outcome, Error> {
        let path = format!("/v1/txns/{}/abort", wire::percent_encoded(txn_id.as_bytes()));
        let answer = self.ask(Method::POST, &path, None::<&()>, 0).await?;
        decision(read(&answer)?, answer.replayed)
    }

    /// Asks whether a commit would pass now, alone. Changes nothing.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn validate(&self, prepared: &PreparedCommit) -> Result<TxnOutcome, Error> {
        let path = format!("/v1/txns/{}/validate", prepared.txn_id);
        read(&self.ask(Method::POST, &path, Some(&prepared.request), 0).await?)
    }

    /// Reads a row of an embedded store, outside any transaction.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn row(&self, store: &str, key: impl AsRef<[u8]>) -> Result<Option<Row>, Error> {
        let key = key.as_ref();
        if matches!(key, b"" | b"." | b"..") {
            // No path has such a last segment: on its way dots may be resolved.
            let page = self.rows(store, key, [key, &[0]].concat(), 1).await?;
            return Ok(page.rows.into_iter().next());
        }
        let key = wire::percent_encoded(key);
        let path = format!("/v1/stores/{}/rows/{key}", wire::percent_encoded(store.as_bytes()));
        let answer = match self.exchange(Method::GET, &path, None::<&()>, 0).await? {
            Ok(answer) => answer,
            Err(lost) => return Err(Error::of_no_answer(lost)),
        };
        if answer.status == StatusCode::NOT_FOUND {
            // Absence of the row is an answer; absence of the store is a mistake, and comes with a code of its own.
            return match serde_json::from_slice::<Problem>(&answer.body) {
                Ok(problem) if problem.code != "row_missing" => Err(Error::of_problem(problem)),
                _ => Ok(None),
            };
        }
        let row: tribunal_api::Row = read(&answer)?;
        if row.version.is_none() { Ok(None) } else { row_of(row).map(Some) }
    }

    /// Reads at most `limit` rows of `start..end` of an embedded store, outside any transaction; an empty `end` goes
    /// to the end.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn rows(
        &self,
        store: &str,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        limit: usize,
    ) -> Result<RowPage, Error> {
        let path = format!(
            "/v1/stores/{}/rows?start={}&end={}&limit={limit}",
            wire::percent_encoded(store.as_bytes()),
            wire::percent_encoded(start.as_ref()),
            wire::percent_encoded(end.as_ref()),
        );
        let page: tribunal_api::RowPage = read(&self.ask(Method::GET, &path, None::<&()>, 0).await?)?;
        Ok(RowPage {
            applied: wire::epoch(&page.applied)?,
            rows: page.rows.into_iter().map(row_of).collect::<Result<_, _>>()?,
            more: page.more,
        })
    }

    /// Returns a reader of a store's log behind the checkpoint `after`.
    #[must_use]
    pub fn log(&self, store: &str, after: Lsn) -> LogReader {
        LogReader::new(self.clone(), store, after)
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.inner.options.retry
    }

    pub(crate) async fn log_page(&self, store: &str, after: Lsn, limit: usize, wait_ms: u32) -> Result<LogPage, Error> {
        let store = wire::percent_encoded(store.as_bytes());
        let path = format!("/v1/log?store={store}&after={after}&limit={limit}&wait_ms={wait_ms}");
        read(&self.ask(Method::GET, &path, None::<&()>, wait_ms).await?)
    }

    /// Declares a store, or changes one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn declare_store(&self, store: &str, declaration: &StoreDeclaration) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::PUT, &path, Some(declaration), 0).await?)
    }

    /// Returns where a store stands.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn store(&self, store: &str) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::GET, &path, None::<&()>, 0).await?)
    }

    /// Returns all stores of the namespace.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stores(&self) -> Result<Vec<StoreInfo>, Error> {
        let list: StoreList = read(&self.ask(Method::GET, "/v1/stores", None::<&()>, 0).await?)?;
        Ok(list.stores)
    }

    /// Tries a store's push again, if it stopped or waits.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resume_push(&self, store: &str) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}/push/resume", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::POST, &path, None::<&()>, 0).await?)
    }

    /// Passes by the record that a store's push stopped at. The storage never gets it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn skip_record(&self, store: &str, lsn: Lsn) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}/push/skip", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::POST, &path, Some(&SkipRequest { lsn: lsn.to_string() }), 0).await?)
    }

    /// Lists the records of a store that were skipped.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn skips(&self, store: &str) -> Result<Vec<SkippedRecord>, Error> {
        let path = format!("/v1/stores/{}/push/skips", wire::percent_encoded(store.as_bytes()));
        let list: SkipList = read(&self.ask(Method::GET, &path, None::<&()>, 0).await?)?;
        Ok(list.skips)
    }

    /// Pushes to a detached store again, whose storage was loaded with everything up to `loaded` if that is said.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn attach_push(&self, store: &str, loaded: Option<Lsn>) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}/push/attach", wire::percent_encoded(store.as_bytes()));
        let request = AttachRequest { loaded_lsn: loaded.map(|lsn| lsn.to_string()) };
        read(&self.ask(Method::POST, &path, Some(&request), 0).await?)
    }

    /// Makes an API key.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_key(&self, key: &KeyRequest) -> Result<KeyCreated, Error> {
        read(&self.ask(Method::POST, "/v1/admin/keys", Some(key), 0).await?)
    }

    /// Lists API keys, without their secrets.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn keys(&self) -> Result<Vec<KeyInfo>, Error> {
        let list: KeyList = read(&self.ask(Method::GET, "/v1/admin/keys", None::<&()>, 0).await?)?;
        Ok(list.keys)
    }

    /// Takes an API key back.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn revoke_key(&self, id: &str) -> Result<(), Error> {
        let path = format!("/v1/admin/keys/{}", wire::percent_encoded(id.as_bytes()));
        let answer = self.ask(Method::DELETE, &path, None::<&()>, 0).await?;
        if answer.status.is_success() { Ok(()) } else { read(&answer) }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        wait_ms: u32,
    ) -> Result<Answer, Error> {
        self.exchange(method, path, body, wait_ms).await?.map_err(Error::of_no_answer)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        wait_ms: u32,
    ) -> Result<Result<Answer, NoAnswer>, Error> {
        let body = body
            .map(serde_json::to_vec)
            .transpose()
            .map_err(|e| Error::misuse(format!("the request is no JSON: {e}")))?;
        let timeout = self.inner.options.timeout + Duration::from_millis(wait_ms.into());
        let body = body.map(|bytes| ("application/json", bytes));
        Ok(self.inner.connection.ask(method, path, body, timeout).await)
    }
}

/// Tells whether an answer to a commit says what came of it, or that nothing did.
fn is_settled(answer: &Answer) -> bool {
    let status = answer.status;
    let in_flight = status == StatusCode::CONFLICT;
    !in_flight
        && !matches!(status, StatusCode::GATEWAY_TIMEOUT | StatusCode::BAD_GATEWAY | StatusCode::INTERNAL_SERVER_ERROR)
}

pub(crate) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    if answer.status.is_success() {
        return serde_json::from_slice(&answer.body).map_err(Error::misbehaved);
    }
    match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(problem) => Err(Error::of_problem(problem)),
        Err(_) if answer.status.is_server_error() => {
            Err(Error::Unavailable { text: answer.status.to_string(), retry_after: None })
        }
        Err(_) => Err(Error::misbehaved(format!("status {} without a problem", answer.status))),
    }
}

fn decision(outcome: TxnOutcome, replayed: bool) -> Result<Outcome, Error> {
    if let Some(problem) = outcome.problem {
        return Err(Error::of_problem(problem));
    }
    let status = outcome.status;
    Outcome::of(outcome, replayed)?.ok_or_else(|| Error::misbehaved(format!("{status:?} where a decision was due")))
}

fn row_of(row: tribunal_api::Row) -> Result<Row, Error> {
    let value = wire::value_of(row.value, row.value_b64)?;
    Ok(Row {
        key: wire::key_of(row.key, row.key_b64)?.ok_or_else(|| Error::misbehaved("a row without a key"))?,
        value: value.as_deref().map_or(Ok(Value::Null), wire::parsed)?,
        version: row.version.as_deref().map(wire::version).transpose()?,
    })
}

fn batch_txn(prepared: &PreparedCommit) -> BatchTxn {
    let request = prepared.request.clone();
    BatchTxn {
        txn_id: prepared.txn_id.clone(),
        isolation: request.isolation,
        snapshots: request.snapshots,
        priority: request.priority,
        ack: request.ack,
        epoch: request.epoch,
        reads: request.reads,
        ranges: request.ranges,
        writes: request.writes,
    }
}
