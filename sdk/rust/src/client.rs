//! The client: one method per request. A write is repeated only with the same id, on another endpoint.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use serde::Serialize;
use tribunal_api::{
    AttachRequest, ClusterInfo, IsolationLevel, KeyCreated, KeyInfo, KeyList, KeyRequest, NodeAdmitted, NodeRequest,
    SkipList, SkipRequest, SkippedRecord, StoreDeclaration, StoreInfo, StoreList, TxnOutcome, TxnState,
};
use tribunal_types::{Epoch, Lsn};

use crate::answer::{Answer, NoAnswer, read};
use crate::begin::Begins;
use crate::coalescer::Coalescer;
use crate::commit_batch::{CommitItem, Reply, WRITES};
use crate::connection::Connection;
use crate::endpoints::Endpoints;
use crate::failover::Repeat;
use crate::per_runtime::PerRuntime;
use crate::reads::Reads;
use crate::sent::Sent;
use crate::session::Session;
use crate::told::{Told, decision};
use crate::wire_outcome::{Status, WireOutcome};
use crate::{
    AttemptHook, Error, LogReader, Outcome, PreparedCommit, RetryPolicy, Transaction, commit_batch, read_batch, wire,
};

/// Codes of a commit whose id an earlier request may have used: the service no longer has its verdict.
const FORGOTTEN: [&str; 2] = ["txn_id_forgotten", "verdict_truncated"];

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// API key or token, sent as a bearer token.
    pub api_key: Option<String>,
    /// PEM file with the certificate authorities to trust over `https`, instead of those of the local machine.
    pub ca_file: Option<PathBuf>,
    /// Name of this client, for rules that are fair between clients.
    pub client_name: Option<String>,
    /// Timeout of one request, in addition to the time that the request itself may wait. Shared by all endpoints. Also
    /// bounds a read, a call of [`LogReader::next`] and [`Client::state`], each with all its repetitions.
    pub timeout: Duration,
    /// How long to request the outcome of a lost commit before returning [`Error::OutcomeUnknown`].
    pub resolve_timeout: Duration,
    /// How long an endpoint may take to respond before the next untried one gets the request. The last endpoint gets
    /// all the remaining time. Applies only to requests that may be repeated, and in addition to the time that the
    /// request may wait.
    pub endpoint_timeout: Duration,
    /// How long an endpoint that failed is skipped if there are other ones.
    pub endpoint_cool_down: Duration,
    /// Maximum number of idle connections to one endpoint, for each runtime.
    pub connections_idle_max: usize,
    /// Bounds of the retries of [`Client::run`], of reads, of [`LogReader::next`] and of [`Client::state`].
    pub retry: RetryPolicy,
    /// Whether a transaction sees this client's commits to the stores that the transaction names.
    pub read_own_writes: bool,
    /// Whether concurrent commits, Begins and reads of rows are sent as batches; see [`Client::commit`].
    pub coalesce: bool,
    /// Called at the end of each attempt of [`Client::run`].
    pub on_attempt: Option<AttemptHook>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            api_key: None,
            ca_file: None,
            client_name: None,
            timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(30),
            endpoint_timeout: Duration::from_secs(2),
            endpoint_cool_down: Duration::from_secs(10),
            connections_idle_max: 256,
            retry: RetryPolicy::default(),
            read_own_writes: true,
            coalesce: true,
            on_attempt: None,
        }
    }
}

impl ClientOptions {
    /// Returns the defaults, with the API key from the variable `TRIBUNAL_API_KEY` and the CA file from
    /// `TRIBUNAL_CA_FILE`, if they are set.
    #[must_use]
    pub fn from_env() -> Self {
        let api_key = std::env::var("TRIBUNAL_API_KEY").ok().filter(|key| !key.is_empty());
        let ca_file = std::env::var_os("TRIBUNAL_CA_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
        ClientOptions { api_key, ca_file, ..ClientOptions::default() }
    }
}

/// Longest duration of any wait: a later instant may not be representable.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl ClientOptions {
    /// Shortens durations that cannot be added to an instant, such as [`Duration::MAX`].
    fn bounded(mut self) -> Self {
        let durations = [
            &mut self.timeout,
            &mut self.resolve_timeout,
            &mut self.endpoint_timeout,
            &mut self.endpoint_cool_down,
            &mut self.retry.wait_min,
            &mut self.retry.wait_max,
        ];
        durations.into_iter().for_each(|duration| *duration = (*duration).min(DURATION_MAX));
        self
    }
}

/// State of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// It has a verdict; a fenced transaction is aborted with reason `fenced`.
    Decided(Outcome),
    /// It is being decided.
    InFlight,
    /// It has not arrived, but may still do so.
    Unknown,
    /// It is no longer known, and can no longer commit.
    UnknownExpired,
}

/// A client of one service. Clones share the connections. May be used on several tokio runtimes: each has its own
/// connections and batches, so that a runtime that pauses or ends does not block the other ones.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    options: ClientOptions,
    session: Session,
    queues: PerRuntime<Queues>,
}

/// Items that are queued while requests are in flight.
#[derive(Clone)]
struct Queues {
    commits: Arc<Coalescer<CommitItem, Reply>>,
    begins: Begins,
    reads: Reads,
}

impl Client {
    /// Creates a client for `http://host:port` or `https://host:port` with default options. Connects on first use.
    /// Several endpoints of one service are separated by commas; see [`Client::with_endpoints`].
    ///
    /// # Errors
    /// [`Error::Misuse`] if the URL has another form.
    pub fn new(url: &str) -> Result<Self, Error> {
        Client::with_options(url, ClientOptions::default())
    }

    /// Creates a client for a URL, or for several, separated by commas.
    ///
    /// # Errors
    /// [`Error::Misuse`] if a URL, the API key or the CA file cannot be used.
    pub fn with_options(url: &str, options: ClientOptions) -> Result<Self, Error> {
        Client::with_endpoints([url], options)
    }

    /// Creates a client for several endpoints of one service, such as the nodes of a cluster. One of them is in use at
    /// a time, initially the first one. After a failure, the client switches to the next one and stays there;
    /// unanswered requests are sent again, commits with the same ids.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no URL, or if a URL, the API key or the CA file cannot be used.
    pub fn with_endpoints<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        let (urls, options) = (urls.into_iter().collect::<Vec<U>>(), options.bounded());
        let endpoints =
            Endpoints::new(urls.iter().map(AsRef::as_ref), options.endpoint_timeout, options.endpoint_cool_down)?;
        let connection = Connection::new(endpoints, &options)?;
        let (session, queues) = (Session::default(), PerRuntime::new());
        Ok(Client { inner: Arc::new(Inner { connection, options, session, queues }) })
    }

    fn queues(&self) -> Queues {
        self.inner.queues.get(|| Queues {
            commits: Coalescer::new(commit_batch::BOUNDS),
            begins: Coalescer::new(read_batch::BOUNDS),
            reads: Coalescer::new(read_batch::BOUNDS),
        })
    }

    /// Returns the service's URL; several are separated by commas.
    #[must_use]
    pub fn url(&self) -> &str {
        self.inner.connection.urls()
    }

    /// Returns the URL of the endpoint in use.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        let endpoints = self.inner.connection.endpoints();
        &endpoints.urls()[endpoints.in_use()]
    }

    /// Begins a transaction without a request: with an id created locally and without snapshots. Unless
    /// [`Transaction::set_snapshot`] sets snapshots, such a transaction is limited to `tracked` stores, to reads of
    /// single rows, and, if it reads, to levels other than `snapshot`.
    #[must_use]
    pub fn begin_local(&self, isolation: IsolationLevel) -> Transaction {
        Transaction::new(self.clone(), uuid::Uuid::now_v7().to_string(), isolation)
    }

    /// Requests the verdict of a prepared commit. May be repeated: the same id gets the same verdict. While requests of
    /// other commits are in flight, the commit may be queued and sent in a batch; see [`ClientOptions::coalesce`]. If
    /// the future is dropped, the outcome is in doubt: a commit that was already sent may take effect. To learn the
    /// outcome, commit the same again, or call [`Client::status`] with the id. Commits of other callers are not
    /// affected.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn commit(&self, prepared: &PreparedCommit) -> Result<Outcome, Error> {
        self.commit_item(CommitItem::of(prepared)?).await
    }

    pub(crate) async fn commit_item(&self, item: CommitItem) -> Result<Outcome, Error> {
        let txn_id = item.txn_id().to_owned();
        let reply = if self.inner.options.coalesce && item.is_batchable() {
            self.coalesced(item).await
        } else {
            self.send_commit(&item).await
        };
        self.settled(&txn_id, reply).await
    }

    /// Returns the outcome in the reply to a commit, or requests it by the id.
    pub(crate) async fn settled(&self, txn_id: &str, reply: Reply) -> Result<Outcome, Error> {
        let deadline = Instant::now() + self.inner.options.resolve_timeout;
        self.settled_by(txn_id, Told::of(reply), deadline).await
    }

    /// Returns the outcome of a commit. If it was lost, requests it by the id until the deadline.
    pub(crate) async fn settled_by(&self, txn_id: &str, told: Told, deadline: Instant) -> Result<Outcome, Error> {
        match told {
            Told::Decided(Err(Error::ClientMistake(problem))) if FORGOTTEN.contains(&&*problem.code) => {
                let text = Error::ClientMistake(problem).to_string();
                Err(Error::OutcomeUnknown { txn_id: txn_id.to_owned(), text })
            }
            Told::Decided(decided) => self.recorded(decided),
            Told::Lost(lost) => self.resolve(txn_id, &lost, deadline).await,
        }
    }

    /// Waits for commits in flight. A transaction that begins earlier does not see their outcomes, and is more likely
    /// to conflict with them.
    pub(crate) async fn until_commits_return(&self) {
        self.queues().commits.until_returned(WRITES).await;
    }

    async fn coalesced(&self, item: CommitItem) -> Reply {
        let client = self.clone();
        let send = move |items: Vec<CommitItem>| {
            let client = client.clone();
            async move { client.send_batch(&items).await }
        };
        let reply = self.queues().commits.submit(item, send).await;
        reply.unwrap_or_else(|| Err(NoAnswer::lost("the runtime that sent the commit has ended".to_owned())))
    }

    /// Returns the state of a transaction, after waiting at most `wait_ms` for its verdict. With `fence`, a transaction
    /// that has not arrived can no longer commit.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self, txn_id: &str, fence: bool, wait_ms: u32) -> Result<TxnStatus, Error> {
        let status = status_of(self.ask_status(txn_id, fence, wait_ms).await?)?;
        if let TxnStatus::Decided(outcome) = &status {
            self.inner.session.record(outcome);
        }
        Ok(status)
    }

    async fn ask_status(&self, txn_id: &str, fence: bool, wait_ms: u32) -> Result<WireOutcome, Error> {
        let id = wire::segment("id of the transaction", txn_id)?;
        let path = format!("/v1/txns/{id}?wait_ms={wait_ms}&fence={fence}");
        read(&self.ask(Method::GET, &path, None::<&()>, wait_ms).await?)
    }

    /// Resolves a transaction whose reply was lost: either it has committed, or the fence ensures that it never does.
    async fn resolve(&self, txn_id: &str, lost: &str, deadline: Instant) -> Result<Outcome, Error> {
        let mut failed = 0;
        let mut last = lost.to_owned();
        while Instant::now() < deadline {
            let answer = self.ask_status(txn_id, true, 1_000).await;
            if let Ok(WireOutcome { status: status @ Status::Other(_), .. }) = &answer {
                // Another request would get the same reply.
                last = status.no_verdict();
                break;
            }
            match answer.and_then(status_of) {
                Ok(TxnStatus::Decided(outcome)) => return self.recorded(Ok(outcome)),
                Ok(TxnStatus::UnknownExpired) => break,
                Ok(TxnStatus::InFlight | TxnStatus::Unknown) => {}
                // Another request would fail the same way, and the commit may have arrived.
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

    /// Aborts a transaction unless it already has a verdict, and returns the verdict. While a commit with this id is being
    /// decided, the error is [`Error::Unavailable`]: [`Client::status`] with `fence` waits for the verdict.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn abort(&self, txn_id: &str) -> Result<Outcome, Error> {
        let path = format!("/v1/txns/{}/abort", wire::segment("id of the transaction", txn_id)?);
        let answer = self.ask(Method::POST, &path, None::<&()>, 0).await?;
        self.recorded(decision(read(&answer)?, answer.replayed, answer.traceparent))
    }

    /// Returns whether a commit would succeed now if it were alone: `would_commit` or `would_abort`; the verdict itself
    /// if the id already has one. Changes nothing.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn validate(&self, prepared: &PreparedCommit) -> Result<TxnOutcome, Error> {
        let path = format!("/v1/txns/{}/validate", prepared.txn_id);
        read(&self.ask(Method::POST, &path, Some(&prepared.request), 0).await?)
    }

    /// Returns a reader of a store's log that starts after the offset `after`: for single records with
    /// [`LogReader::next`], or to follow the log with [`LogReader::follow`].
    #[must_use]
    pub fn log(&self, store: &str, after: Lsn) -> LogReader {
        LogReader::new(self.clone(), store, after)
    }

    pub(crate) fn begins(&self) -> Begins {
        self.queues().begins
    }

    pub(crate) fn reads(&self) -> Reads {
        self.queues().reads
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// Returns the token of this client's latest commit to these stores, if it reads its own writes.
    pub(crate) fn own_session(&self, stores: &[String]) -> Option<String> {
        self.inner.options.read_own_writes.then(|| self.inner.session.token(stores)).flatten()
    }

    /// Returns the epoch of this client's latest commit to a store, if reads must be compared with it: with several
    /// endpoints, the next one may not have applied the commit yet.
    pub(crate) fn own_epoch(&self, store: &str) -> Option<Epoch> {
        let several = self.connection().endpoints().urls().len() > 1;
        self.inner.session.epoch(store).filter(|_| several && self.inner.options.read_own_writes)
    }

    /// Drops this client's session token if the service does not know it.
    pub(crate) fn forget_session(&self, token: &str) {
        self.inner.session.forget(token);
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.inner.options.retry
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.inner.options.timeout
    }

    pub(crate) fn attempt_hook(&self) -> Option<&AttemptHook> {
        self.inner.options.on_attempt.as_ref()
    }

    /// Records a commit in the session.
    fn recorded(&self, decided: Result<Outcome, Error>) -> Result<Outcome, Error> {
        if let Ok(outcome) = &decided {
            self.inner.session.record(outcome);
        }
        decided
    }

    /// Declares a store, or changes its declaration.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn declare_store(&self, store: &str, declaration: &StoreDeclaration) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::PUT, &path, Some(declaration), 0).await?)
    }

    /// Returns the state of a store.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn store(&self, store: &str) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::GET, &path, None::<&()>, 0).await?)
    }

    /// Returns the state of all stores of the namespace.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stores(&self) -> Result<Vec<StoreInfo>, Error> {
        let list: StoreList = read(&self.ask(Method::GET, "/v1/stores", None::<&()>, 0).await?)?;
        Ok(list.stores)
    }

    /// Returns the state of the stores of one namespace, or of all: for operators of the service.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stores_of_tenants(&self, namespace: Option<&str>) -> Result<Vec<StoreInfo>, Error> {
        let query = namespace.map(|name| format!("?namespace={}", wire::percent_encoded(name.as_bytes())));
        let path = format!("/v1/admin/stores{}", query.unwrap_or_default());
        let list: StoreList = read(&self.ask(Method::GET, &path, None::<&()>, 0).await?)?;
        Ok(list.stores)
    }

    /// Returns the state of a store of any namespace: for operators of the service.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn store_of_tenant(&self, namespace: &str, store: &str) -> Result<StoreInfo, Error> {
        let [namespace, store] = [namespace, store].map(|name| wire::percent_encoded(name.as_bytes()));
        read(&self.ask(Method::GET, &format!("/v1/admin/stores/{namespace}/{store}"), None::<&()>, 0).await?)
    }

    /// Returns the nodes of the cluster, as seen by the responding node.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster(&self) -> Result<ClusterInfo, Error> {
        read(&self.ask(Method::GET, "/v1/cluster", None::<&()>, 0).await?)
    }

    /// Returns the nodes of the cluster, with the digest as of an epoch.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster_at(&self, epoch: Epoch) -> Result<ClusterInfo, Error> {
        read(&self.ask(Method::GET, &format!("/v1/cluster?epoch={epoch}"), None::<&()>, 0).await?)
    }

    /// Adds a node to the cluster: assigns the number with which its process must be started.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn add_node(&self, node: &NodeRequest) -> Result<NodeAdmitted, Error> {
        read(&self.ask(Method::POST, "/v1/cluster/nodes", Some(node), 0).await?)
    }

    /// Begins to remove a node from the cluster permanently. The removal is complete once [`Client::cluster`] no longer
    /// lists it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn remove_node(&self, node: u16) -> Result<(), Error> {
        let answer = self.ask(Method::DELETE, &format!("/v1/cluster/nodes/{node}"), None::<&()>, 0).await?;
        if answer.status.is_success() { Ok(()) } else { read(&answer) }
    }

    /// Begins to drain a node of the cluster, or lets it resume. A drained node votes, but leads nothing and takes no
    /// commits.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn drain_node(&self, node: u16, drained: bool) -> Result<(), Error> {
        let what = if drained { "drain" } else { "resume" };
        let answer = self.ask(Method::POST, &format!("/v1/cluster/nodes/{node}/{what}"), None::<&()>, 0).await?;
        if answer.status.is_success() { Ok(()) } else { read(&answer) }
    }

    /// Resumes a store's push if it has stopped or is backing off.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resume_push(&self, store: &str) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}/push/resume", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::POST, &path, None::<&()>, 0).await?)
    }

    /// Skips the record that a store's push stopped at. The storage never receives it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn skip_record(&self, store: &str, lsn: Lsn) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}/push/skip", wire::percent_encoded(store.as_bytes()));
        read(&self.ask(Method::POST, &path, Some(&SkipRequest { lsn: lsn.to_string() }), 0).await?)
    }

    /// Returns the skipped records of a store.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn skips(&self, store: &str) -> Result<Vec<SkippedRecord>, Error> {
        let path = format!("/v1/stores/{}/push/skips", wire::percent_encoded(store.as_bytes()));
        let list: SkipList = read(&self.ask(Method::GET, &path, None::<&()>, 0).await?)?;
        Ok(list.skips)
    }

    /// Reattaches a detached store. `loaded` is the position up to which its storage was loaded, if it was.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn attach_push(&self, store: &str, loaded: Option<Lsn>) -> Result<StoreInfo, Error> {
        let path = format!("/v1/stores/{}/push/attach", wire::percent_encoded(store.as_bytes()));
        let request = AttachRequest { loaded_lsn: loaded.map(|lsn| lsn.to_string()) };
        read(&self.ask(Method::POST, &path, Some(&request), 0).await?)
    }

    /// Creates an API key.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_key(&self, key: &KeyRequest) -> Result<KeyCreated, Error> {
        read(&self.ask(Method::POST, "/v1/admin/keys", Some(key), 0).await?)
    }

    /// Returns the API keys, without their secrets.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn keys(&self) -> Result<Vec<KeyInfo>, Error> {
        let list: KeyList = read(&self.ask(Method::GET, "/v1/admin/keys", None::<&()>, 0).await?)?;
        Ok(list.keys)
    }

    /// Revokes an API key. Revoking the last operator key of the service requires `force`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn revoke_key(&self, id: &str, force: bool) -> Result<(), Error> {
        let query = if force { "?force=true" } else { "" };
        let path = format!("/v1/admin/keys/{}{query}", wire::percent_encoded(id.as_bytes()));
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
        self.exchange(method, path, body, wait_ms, None).await?.map_err(Error::of_no_answer)
    }

    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        wait_ms: u32,
        traceparent: Option<&str>,
    ) -> Result<Result<Answer, NoAnswer>, Error> {
        let body = body
            .map(serde_json::to_vec)
            .transpose()
            .map_err(|e| Error::misuse(format!("the request cannot be represented in JSON: {e}")))?;
        body.as_deref().map_or(Ok(()), commit_batch::check_length)?;
        let (wait, timeout) = (Duration::from_millis(wait_ms.into()), self.inner.options.timeout);
        let body = body.map(|bytes| ("application/json", bytes.into()));
        let repeat = Repeat::of(&method, path);
        Ok(self.inner.connection.ask(&Sent { method, path, body, traceparent, wait, timeout, repeat }).await)
    }
}

fn status_of(outcome: WireOutcome) -> Result<TxnStatus, Error> {
    Ok(match outcome.status {
        Status::Known(TxnState::InFlight) => TxnStatus::InFlight,
        Status::Known(TxnState::Unknown) => TxnStatus::Unknown,
        Status::Known(TxnState::UnknownExpired) => TxnStatus::UnknownExpired,
        _ => TxnStatus::Decided(decision(outcome, true, None)?),
    })
}
