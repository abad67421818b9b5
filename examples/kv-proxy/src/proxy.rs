//! The proxy's HTTP surface: transactions by token, each operation under its transaction's lock.
//!
//! Nothing here survives a crash, and nothing has to: an uncommitted transaction never happened, and committed ones are
//! in Tribunal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::rejection::JsonRejection;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::Mutex;
use tribunal_client::{BeginOptions, Client, Error, Outcome};

use crate::api::{Begin, Begun, End, Ended, Got, OneKey, Pair, Put, Refused, Scan, Scanned, Written};
use crate::session::{Session, SessionError};
use crate::storage::Storage;

/// Maximum open transactions; further ones are refused.
const TXNS_MAX: usize = 10_000;
/// How long a transaction may be idle.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum rows of one scan.
const SCAN_ROWS_MAX: usize = 10_000;

/// One proxy.
pub struct Proxy {
    client: Client,
    storage: Arc<Storage>,
    store: String,
    open: Mutex<HashMap<String, Open>>,
    next: AtomicU64,
}

struct Open {
    session: Arc<Mutex<Option<Session>>>,
    used: Instant,
}

type Answer<T> = Result<Json<T>, Refusal>;
type Body<T> = Result<Json<T>, JsonRejection>;

impl Proxy {
    /// Builds a proxy for a store that Tribunal pushes to `storage`.
    pub fn new(client: Client, storage: Storage, store: &str) -> Arc<Self> {
        Arc::new(Proxy {
            client,
            storage: Arc::new(storage),
            store: store.to_owned(),
            open: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    async fn session(&self, txn: &str) -> Result<Arc<Mutex<Option<Session>>>, Refusal> {
        let mut open = self.open.lock().await;
        let found = open.get_mut(txn).ok_or_else(Refusal::unknown_txn)?;
        found.used = Instant::now();
        Ok(Arc::clone(&found.session))
    }

    /// Ends a transaction and returns its session; waits for operations in flight.
    async fn take(&self, txn: &str) -> Result<Session, Refusal> {
        let open = self.open.lock().await.remove(txn).ok_or_else(Refusal::unknown_txn)?;
        let session = open.session.lock().await.take();
        session.ok_or_else(Refusal::unknown_txn)
    }

    async fn add(&self, session: Session) -> Result<String, Refusal> {
        let mut open = self.open.lock().await;
        if open.len() >= TXNS_MAX {
            open.retain(|_, open| open.used.elapsed() < IDLE_MAX);
        }
        if open.len() >= TXNS_MAX {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_txns", "too many transactions", true));
        }
        let txn = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        open.insert(txn.clone(), Open { session: Arc::new(Mutex::new(Some(session))), used: Instant::now() });
        Ok(txn)
    }

    /// Ends a transaction whose operation failed.
    async fn fail(&self, txn: &str, error: SessionError) -> Refusal {
        self.open.lock().await.remove(txn);
        Refusal::of(error)
    }
}

/// Builds the routes of a proxy.
pub fn routes(proxy: Arc<Proxy>) -> axum::Router {
    axum::Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/begin", post(begin))
        .route("/get", post(get_row))
        .route("/put", post(put))
        .route("/delete", post(delete))
        .route("/scan", post(scan))
        .route("/commit", post(commit))
        .route("/rollback", post(rollback))
        .with_state(proxy)
}

async fn begin(State(proxy): State<Arc<Proxy>>, body: Body<Begin>) -> Answer<Begun> {
    let Json(asked) = body?;
    let options = BeginOptions::stores([proxy.store.clone()]).isolation(asked.isolation);
    let txn = proxy.client.begin(options).await.map_err(|error| Refusal::of(error.into()))?;
    let session = Session::new(proxy.client.clone(), Arc::clone(&proxy.storage), &proxy.store, txn);
    Ok(Json(Begun { txn: proxy.add(session).await? }))
}

async fn get_row(State(proxy): State<Arc<Proxy>>, body: Body<OneKey>) -> Answer<Got> {
    let Json(asked) = body?;
    let session = proxy.session(&asked.txn).await?;
    let mut session = session.lock().await;
    match session.as_mut().ok_or_else(Refusal::unknown_txn)?.get(&asked.key).await {
        Ok(value) => Ok(Json(Got { value })),
        Err(error) => Err(proxy.fail(&asked.txn, error).await),
    }
}

async fn put(State(proxy): State<Arc<Proxy>>, body: Body<Put>) -> Answer<Written> {
    let Json(asked) = body?;
    let session = proxy.session(&asked.txn).await?;
    let mut session = session.lock().await;
    match session.as_mut().ok_or_else(Refusal::unknown_txn)?.put(&asked.key, &asked.value) {
        Ok(()) => Ok(Json(Written { existed: None })),
        Err(error) => Err(proxy.fail(&asked.txn, error).await),
    }
}

async fn delete(State(proxy): State<Arc<Proxy>>, body: Body<OneKey>) -> Answer<Written> {
    let Json(asked) = body?;
    let session = proxy.session(&asked.txn).await?;
    let mut session = session.lock().await;
    match session.as_mut().ok_or_else(Refusal::unknown_txn)?.delete(&asked.key).await {
        Ok(existed) => Ok(Json(Written { existed: Some(existed) })),
        Err(error) => Err(proxy.fail(&asked.txn, error).await),
    }
}

async fn scan(State(proxy): State<Arc<Proxy>>, body: Body<Scan>) -> Answer<Scanned> {
    let Json(asked) = body?;
    let session = proxy.session(&asked.txn).await?;
    let mut session = session.lock().await;
    let limit = asked.limit.clamp(1, SCAN_ROWS_MAX);
    match session.as_mut().ok_or_else(Refusal::unknown_txn)?.scan(&asked.start, &asked.end, limit).await {
        Ok((rows, more)) => {
            Ok(Json(Scanned { rows: rows.into_iter().map(|(key, value)| Pair { key, value }).collect(), more }))
        }
        Err(error) => Err(proxy.fail(&asked.txn, error).await),
    }
}

async fn commit(State(proxy): State<Arc<Proxy>>, body: Body<End>) -> Answer<Ended> {
    let Json(asked) = body?;
    let outcome = proxy.take(&asked.txn).await?.commit().await.map_err(Refusal::of)?;
    Ok(Json(match outcome {
        Outcome::Committed(committed) => Ended {
            status: "committed".to_owned(),
            reason: None,
            retryable: None,
            conflict: None,
            lsn: committed.lsn.get(&proxy.store).map(ToString::to_string),
        },
        Outcome::Aborted(aborted) => Ended {
            status: "aborted".to_owned(),
            retryable: Some(aborted.retryable || aborted.reason == "fenced"),
            conflict: aborted.conflicts.first().map(|_| aborted.to_string()),
            reason: Some(aborted.reason),
            lsn: None,
        },
    }))
}

async fn rollback(State(proxy): State<Arc<Proxy>>, body: Body<End>) -> Answer<Ended> {
    let Json(asked) = body?;
    drop(proxy.take(&asked.txn).await?);
    Ok(Json(Ended { status: "rolled_back".to_owned(), reason: None, retryable: None, conflict: None, lsn: None }))
}

/// A response without a result.
struct Refusal {
    status: StatusCode,
    body: Refused,
}

impl Refusal {
    fn new(status: StatusCode, code: &str, detail: impl ToString, retryable: bool) -> Self {
        Refusal { status, body: Refused { code: code.to_owned(), detail: detail.to_string(), retryable } }
    }

    fn unknown_txn() -> Self {
        Refusal::new(StatusCode::NOT_FOUND, "unknown_txn", "no such transaction: it ended, or was left alone", true)
    }

    fn of(error: SessionError) -> Self {
        use SessionError::{FellBack, Storage, Tribunal};
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match &error {
            Storage(_) => Refusal::new(unavailable, "storage_unavailable", error, true),
            FellBack { .. } => Refusal::new(unavailable, "storage_fell_back", error, true),
            Tribunal(Error::Unavailable { .. }) => Refusal::new(unavailable, "unavailable", error, true),
            Tribunal(Error::OutcomeUnknown { .. }) => {
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", error, false)
            }
            Tribunal(Error::ClientMistake(_) | Error::Misuse(_) | Error::Aborted(_)) => {
                Refusal::new(StatusCode::BAD_REQUEST, "bad_request", error, false)
            }
            Tribunal(Error::ServerMisbehaved(_)) => Refusal::new(StatusCode::BAD_GATEWAY, "bad_gateway", error, false),
        }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Refusal::new(rejection.status(), "bad_request", rejection.body_text(), false)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
