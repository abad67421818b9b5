//! The way of a request to its handler: single commits directly, everything else through the router.
//!
//! What is short runs where the connection lives; what may take long, or block, runs on the threads that share their work,
//! if there are such (see [`crate::listener::lanes`]): handlers, and bodies that are made as they are sent.
//!
//! A commit is what the service is for, and finding its route among the others, with path parameters and boxed layers,
//! took a seventh of the time that the HTTP threads spent on one. The routes themselves are all in `router.rs`, this one
//! included: a commit whose path is spelled in another way is found there. Invariant: whatever guards requests (tenant,
//! limits) is asked in handlers or before [`FastPath::answer`]; a layer of the router alone would not see commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::{Method, Request};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use crate::app::{App, RouterOptions};
use crate::authz::{self, Stranger};
use crate::listener::connection::{Activity, LongPoll};
use crate::listener::upload::Upload;
use crate::response::body_relay::{AbortOnDrop, relayed};
use crate::response::kept_body::keeping;
use crate::response::problem::ProblemResponse;
use crate::router::router_of;
use crate::routes::commit;
use tribunal_service::{Lane, Service};

/// The route that answers a constant.
const CONSTANT: &str = "/v1/debug/constant";
/// The route that decides many.
const BATCH: &str = "/v1/txns/batch-commit";
/// The route that decides as many as come.
pub(crate) const STREAM: &str = "/v1/txns/stream";
/// The route that begins a transaction.
const BEGIN: &str = "/v1/txns";
/// What the routes of stores begin with.
const STORES: &str = "/v1/stores/";
/// Bytes of a body that is parsed within a millisecond or so.
pub(crate) const SHORT_BYTES: u64 = 128 * 1024;

/// Streams of commits that one connection may have. While a stream takes nothing in, bytes of its body fill the windows of
/// HTTP/2, and the connection's is that of all its requests.
pub(crate) const STREAMS_PER_CONNECTION_MAX: usize = 3;

/// What a request needs to know of its connection.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    /// The lane that it lives on, if there are lanes.
    pub lane: Option<Lane>,
    /// Whether a caller of this connection is known; an unknown one is closed first when there is no room.
    pub known: Arc<AtomicBool>,
    /// What it is doing.
    pub activity: Arc<Activity>,
    /// Places for streams of commits.
    pub streams: Arc<Semaphore>,
}

impl Default for ConnectionContext {
    fn default() -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS_PER_CONNECTION_MAX));
        ConnectionContext { lane: None, known: Arc::default(), activity: Arc::default(), streams }
    }
}

/// Where a stream of commits runs: on its connection's lane, except for what takes long.
#[derive(Clone, Debug)]
pub(crate) struct StreamThreads {
    /// The lane.
    pub lane: Option<Lane>,
    /// Threads that share their work.
    pub shared: Handle,
}

/// All routes, and the short way to the one that matters most.
#[derive(Clone)]
pub struct FastPath {
    app: App,
    router: Router,
    /// Where requests run that take long.
    shared: Option<Handle>,
}

impl FastPath {
    /// Builds the routes.
    #[must_use]
    pub fn new(service: Service, options: RouterOptions) -> Self {
        let app = App::new(service, options);
        FastPath { router: router_of(app.clone()), app, shared: None }
    }

    /// Sends requests that take long to `shared`, which must be a runtime of several threads.
    #[must_use]
    pub fn with_shared(self, shared: Handle) -> Self {
        FastPath { shared: Some(shared), ..self }
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>, connection: &ConnectionContext) -> Response {
        let mut request = Upload::of(request);
        let short = self.shared.is_none() || is_short(request.body());
        if request.method() == Method::POST && short && is_commit(request.uri().path()) {
            let (mut parts, body) = request.into_parts();
            // The place lasts until the commit is decided.
            let answering = match self.app.options.access {
                None => {
                    connection.known.store(true, Ordering::Relaxed);
                    None
                }
                Some(_) => match authz::enter_commit(&self.app, &mut parts).await {
                    Ok(permit) => {
                        connection.known.store(true, Ordering::Relaxed);
                        Some(authz::Answering::new(permit, &self.app.service))
                    }
                    Err(response) => return response,
                },
            };
            let decided = commit::decide(&self.app, &parts, body, connection.lane).await;
            let response = decided.unwrap_or_else(IntoResponse::into_response);
            return match answering.and_then(authz::Answering::answered) {
                Some(permit) => authz::until_taken(response, permit),
                None => response,
            };
        }
        match self.app.options.access {
            // Where nobody has to prove anything, a request is proof enough.
            None => connection.known.store(true, Ordering::Relaxed),
            Some(_) if !connection.known.load(Ordering::Relaxed) => {
                request.extensions_mut().insert(Stranger(Arc::clone(&connection.known)));
            }
            Some(_) => {}
        }
        if request.uri().query().is_some_and(|query| query.contains("wait_ms")) {
            request.extensions_mut().insert(LongPoll(Arc::clone(&connection.activity)));
        }
        // The baseline of commits takes the same way as they do, or it would flatter them.
        if self.app.options.debug_routes && self.app.options.access.is_none() && request.uri().path() == CONSTANT {
            let (parts, body) = request.into_parts();
            return match commit::constant(&self.app, &parts, body).await {
                Ok(response) => response,
                Err(problem) => problem.into_response(),
            };
        }
        if request.method() == Method::POST && request.uri().path() == STREAM {
            return self.stream(request, connection).await;
        }
        match &self.shared {
            Some(shared) if !(short && (is_batch(&request) || is_read(&request))) => {
                self.elsewhere(shared, request).await
            }
            // An answer that is compressed on its way is made elsewhere, too.
            Some(shared) => self.routed(request).await.map(|body| relayed(body, shared)),
            None => self.routed(request).await,
        }
    }

    /// Opens a stream of commits. It stays here: it takes in a little at a time, and its verdicts come where it waits.
    async fn stream(&self, mut request: Request<Upload>, connection: &ConnectionContext) -> Response {
        let Ok(place) = Arc::clone(&connection.streams).try_acquire_owned() else {
            let detail = format!(
                "this connection has {STREAMS_PER_CONNECTION_MAX} streams of commits, the limit; open others over other \
                 connections"
            );
            let problem = ProblemResponse::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail);
            return problem.retryable(None).into_response();
        };
        if let Some(shared) = &self.shared {
            request.extensions_mut().insert(StreamThreads { lane: connection.lane, shared: shared.clone() });
        }
        self.routed(request).await.map(|body| keeping(body, place))
    }

    async fn routed(&self, request: Request<Upload>) -> Response {
        // In a box: it is many times as large as a commit's future, which would be moved about with it.
        let Ok(response) = Box::pin(self.router.clone().oneshot(request.map(Body::new))).await;
        response
    }

    async fn elsewhere(&self, shared: &Handle, request: Request<Upload>) -> Response {
        let (router, runtime) = (self.router.clone(), shared.clone());
        let decides = is_decided(&request);
        let task = shared.spawn(async move {
            let Ok(response) = router.oneshot(request.map(Body::new)).await;
            response.map(|body| relayed(body, &runtime))
        });
        let _abort = AbortOnDrop(task.abort_handle());
        task.await.unwrap_or_else(|ended| {
            let problem = if decides {
                // It may have been posted. A client that took it for refused could execute it again, under another id.
                let detail = "the request ended before its verdict was known; get its status by id, or repeat it with the same id";
                ProblemResponse::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", detail).retryable(None)
            } else if ended.is_cancelled() {
                let detail = "the node stopped meanwhile; check whether the request took effect, and send it again";
                ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).retryable(None)
            } else {
                let detail = "the request could not be carried out; please report this with the server's log";
                ProblemResponse::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            };
            problem.into_response()
        })
    }
}

/// Tells whether a body is parsed soon. One of unknown length may be of any.
fn is_short(body: &impl HttpBody) -> bool {
    body.size_hint().upper().is_some_and(|bytes| bytes <= SHORT_BYTES)
}

fn is_batch<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == BATCH
}

/// Tells a request that decides transactions, as it must be assumed once it may have been posted.
fn is_decided<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    request.method() == Method::POST && path.starts_with("/v1/txns/") && !path.ends_with("/validate")
}

/// Tells a Begin, or a read of rows by their keys: most are answered from memory, and the node sends the rest elsewhere.
fn is_read<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::POST => path == BEGIN || path.starts_with(STORES) && path.ends_with("/rows/read"),
        Method::GET => path.strip_prefix(STORES).is_some_and(|rest| rest.contains("/rows/")),
        _ => false,
    }
}

/// Tells `/v1/txns/{txn_id}/commit`; whether the id is one, its handler says.
fn is_commit(path: &str) -> bool {
    let id = path.strip_prefix("/v1/txns/").and_then(|rest| rest.strip_suffix("/commit"));
    id.is_some_and(|id| id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_commits_take_the_fast_path() {
        assert!(is_commit("/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit"));
        for path in [
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/abort",
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5/commit",
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b%61/commit",
            "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c/5a/commit",
            "/v1/txns/batch-commit",
        ] {
            assert!(!is_commit(path), "{path}");
        }
    }
}
