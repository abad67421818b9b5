//! Dispatch of a request to its handler: single commits directly, everything else through the router.
//!
//! Short work runs on the connection's thread; work that may take long or block (handlers, and bodies produced while
//! they are sent) runs on the work-sharing threads, if there are any (see [`crate::listener::lanes`]).
//!
//! Commits are the service's main load, and routing them like other requests, with path parameters and boxed layers,
//! took a seventh of the HTTP threads' time per commit. All routes are in `router.rs`, including this one, which also
//! serves commits whose path is spelled differently. Invariant: every guard of requests (tenant, limits) is applied in
//! handlers or before [`FastPath::answer`]; a layer of the router alone would not see commits.

use std::sync::Arc;

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
use crate::authz::admission::enter_commit;
use crate::authz::answering::{Answering, until_taken};
use crate::known_paths::{CONSTANT, STREAM, is_batch, is_commit, is_decided, is_read};
use crate::listener::connection::{Activity, LongPoll};
use crate::listener::connection_tenant::ConnectionTenant;
use crate::listener::options::STREAMS_PER_CONNECTION_MAX;
use crate::listener::upload::Upload;
use crate::request::body::SHORT_BYTES;
use crate::request::caller::tenant;
use crate::request::web_pages::HostNames;
use crate::response::body_relay::{AbortOnDrop, relayed};
use crate::response::kept_body::keeping;
use crate::response::problem::ProblemResponse;
use crate::router::router_of;
use crate::routes::commit;
use crate::routes::stream_intake::StreamThreads;
use tribunal_service::{Lane, Service};
use tribunal_types::NamespaceId;

/// The parts of a connection that its requests need.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    /// The connection's lane, if there are lanes.
    pub lane: Option<Lane>,
    /// The tenant whose caller uses this connection.
    pub tenant: ConnectionTenant,
    /// The connection's activity.
    pub activity: Arc<Activity>,
    /// Permits for commit streams.
    pub streams: Arc<Semaphore>,
}

impl Default for ConnectionContext {
    fn default() -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS_PER_CONNECTION_MAX));
        ConnectionContext { lane: None, tenant: ConnectionTenant::default(), activity: Arc::default(), streams }
    }
}

/// All routes, and the shortcut for commits.
#[derive(Clone)]
pub struct FastPath {
    app: App,
    router: Router,
    /// Runtime for requests that take long.
    shared: Option<Handle>,
    /// The names by which requests may call a node without access control.
    names: HostNames,
}

impl FastPath {
    /// Builds the routes.
    #[must_use]
    pub fn new(service: Service, options: RouterOptions) -> Self {
        let app = App::new(service, options);
        FastPath { router: router_of(app.clone()), app, shared: None, names: HostNames::default() }
    }

    /// Runs requests that take long on `shared`, which must be a multi-threaded runtime.
    #[must_use]
    pub fn with_shared(self, shared: Handle) -> Self {
        FastPath { shared: Some(shared), ..self }
    }

    /// Restricts the names by which requests may call a node without access control.
    #[must_use]
    pub fn with_names(self, names: HostNames) -> Self {
        FastPath { names, ..self }
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>, connection: &ConnectionContext) -> Response {
        // Before any refusal: the rest of a body must be read, or a client that still sends it loses the response.
        let mut request = Upload::of(request);
        if self.app.options.access.is_none()
            && let Err(problem) = self.names.check(&request)
        {
            return problem.into_response();
        }
        let short = self.shared.is_none() || is_short(request.body());
        if request.method() == Method::POST && short && is_commit(request.uri().path()) {
            let (mut parts, body) = request.into_parts();
            // The permit is held until the commit is decided.
            let answering = match self.app.options.access {
                None => {
                    connection.tenant.set(NamespaceId(0));
                    None
                }
                Some(_) => match enter_commit(&self.app, &mut parts).await {
                    Ok(permit) => {
                        connection.tenant.set(tenant(&parts));
                        Some(Answering::new(permit, Some(&self.app.service)))
                    }
                    Err(response) => return response,
                },
            };
            let decided = commit::decide(&self.app, &parts, body, connection.lane).await;
            let response = decided.unwrap_or_else(IntoResponse::into_response);
            return match answering.and_then(Answering::answered) {
                Some(permit) => until_taken(response, permit),
                None => response,
            };
        }
        match self.app.options.access {
            // Without access control, a request is sufficient proof of a known caller.
            None => connection.tenant.set(NamespaceId(0)),
            Some(_) if connection.tenant.get().is_none() => {
                request.extensions_mut().insert(connection.tenant.clone());
            }
            Some(_) => {}
        }
        if request.uri().query().is_some_and(|query| query.contains("wait_ms")) {
            request.extensions_mut().insert(LongPoll(Arc::clone(&connection.activity)));
        }
        // The baseline for commits takes the same path as commits, or it would flatter them.
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
            // A response that is compressed while it is sent is produced on the shared threads, too.
            Some(shared) => self.routed(request).await.map(|body| relayed(body, shared)),
            None => self.routed(request).await,
        }
    }

    /// Opens a commit stream. It runs here: it reads a little at a time, and its verdicts arrive on this thread.
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
        // Boxed: it is many times larger than a commit's future, and would be moved along with it.
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
                // It may have been proposed. A client that considers it refused could execute it again under another
                // id.
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

/// Returns whether a body is parsed quickly. A body of unknown length may have any size.
fn is_short(body: &impl HttpBody) -> bool {
    body.size_hint().upper().is_some_and(|bytes| bytes <= SHORT_BYTES)
}
