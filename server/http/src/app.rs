//! What every handler shares: the node, the bounds, the counters; and the shapes of their answers.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use tokio::sync::Mutex;

use tribunal_types::StoreSpec;
use tribunal_types::limits::BODY_BYTES_MAX;

use crate::authz::still_admitted;
use crate::quota::{Permit, TenantQuota, Tenants};
use crate::request::body::{MediaType, announced, collect_within, media_type};
use crate::request::caller::tenant;
use crate::request::query::path_store;
use crate::response::problem::ProblemResponse;
use tribunal_service::{Catalog, Service, ServiceError};

/// A body that took less than this came with its head: nobody can tell a revocation in between from one after it.
const BODY_AT_ONCE: Duration = Duration::from_millis(1);

/// Choices of the REST surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterOptions {
    /// Time from a request's head to the end of its body.
    pub body_timeout: Duration,
    /// Whether `/v1/debug/*` exists.
    pub debug_routes: bool,
    /// How often a quiet stream shows that it lives; shorter than the connection's idle time-out.
    pub heartbeat: Duration,
    /// Whether callers must say who they are, and what each tenant may then have in flight.
    pub access: Option<TenantQuota>,
}

impl Default for RouterOptions {
    fn default() -> Self {
        RouterOptions {
            body_timeout: Duration::from_secs(30),
            debug_routes: false,
            heartbeat: Duration::from_secs(15),
            access: None,
        }
    }
}

/// Marks an answer that is written as it comes: nothing on the way may collect it, or compress it.
#[derive(Clone, Copy, Debug)]
pub struct Streamed;

/// Marks an answer that is written as it comes, and checks by itself whether its reader is still admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksCaller;

/// How large an answer was before it was compressed: it is compressed as it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeBytes(pub u64);

/// Marks an answer that is written while the body of its request is still read. Keeps the request's place among the
/// tenant's until all clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Duplex(Arc<OnceLock<Permit>>);

impl Duplex {
    /// Keeps the request's place.
    pub fn keep(&self, permit: Permit) {
        let kept = self.0.set(permit);
        debug_assert!(kept.is_ok(), "a request has one place");
    }
}

/// What every handler shares.
#[derive(Clone)]
pub struct App {
    /// The node.
    pub service: Arc<Service>,
    /// The choices.
    pub options: RouterOptions,
    /// What tenants have in flight.
    pub tenants: Arc<Tenants>,
    /// One revocation of a key at a time: each must see what the one before it has left.
    pub revoking: Arc<Mutex<()>>,
}

impl App {
    /// Starts with nothing in flight.
    #[must_use]
    pub fn new(service: Service, options: RouterOptions) -> App {
        let unbounded = TenantQuota { requests_max: usize::MAX, bytes_max: usize::MAX };
        App {
            service: Arc::new(service),
            options,
            tenants: Arc::new(Tenants::new(options.access.unwrap_or(unbounded))),
            revoking: Arc::default(),
        }
    }

    /// Takes in the body of a request that must be one of `accepted`.
    ///
    /// # Errors
    /// See [`media_type`] and [`collect`].
    pub async fn body<B>(
        &self,
        parts: &Parts,
        body: B,
        accepted: &[MediaType],
    ) -> Result<(MediaType, Bytes), ProblemResponse>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let kind = media_type(&parts.headers, accepted)?;
        let bytes = self.whole(parts, body, BODY_BYTES_MAX).await?;
        if kind == MediaType::Json && bytes.is_empty() {
            announced(parts)?;
        }
        Ok((kind, bytes))
    }

    /// Takes in a body of at most `bytes_max`. A caller whose credential was revoked while it came is refused.
    ///
    /// # Errors
    /// As for [`collect_within`]; 401.
    pub async fn whole<B>(&self, parts: &Parts, body: B, bytes_max: usize) -> Result<Bytes, ProblemResponse>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let begun = Instant::now();
        let bytes = collect_within(&parts.headers, body, self.options.body_timeout, bytes_max).await?;
        if begun.elapsed() >= BODY_AT_ONCE {
            still_admitted(self, &parts.headers)?;
        }
        Ok(bytes)
    }
}

impl App {
    /// Runs `read` on the catalog, and returns what it returns with the catalog. If it fails because a store is unknown,
    /// another node may just have created it: the node catches up with the others, and `read` is run again.
    ///
    /// # Errors
    /// Those of `read`; 503 if the node cannot catch up.
    pub async fn known<T>(
        &self,
        read: impl Fn(&Catalog) -> Result<T, ProblemResponse>,
    ) -> Result<(T, Arc<Catalog>), ProblemResponse> {
        let catalog = self.service.stores.catalog();
        match read(&catalog) {
            Err(problem) if problem.names_unknown_store() && self.catches_up().await? => {
                let catalog = self.service.stores.catalog();
                read(&catalog).map(|found| (found, catalog))
            }
            read => read.map(|found| (found, catalog)),
        }
    }

    /// Returns the store in the path `/v1/stores/{store}` of a request, with the catalog.
    ///
    /// # Errors
    /// 404 if there is none of that name on any node; 503 if the node cannot tell.
    pub async fn known_store(&self, parts: &Parts) -> Result<(Arc<StoreSpec>, Arc<Catalog>), ProblemResponse> {
        self.known(|catalog| Ok(path_store(parts.uri.path(), catalog, tenant(parts))?)).await
    }

    /// Has the node catch up with the configuration that others have acknowledged. Returns false if there are no others.
    ///
    /// # Errors
    /// 503 if it cannot.
    pub async fn catches_up(&self) -> Result<bool, ProblemResponse> {
        let lags = self.service.node.may_lag();
        if lags {
            self.service.node.catch_up().await.map_err(refuse(&self.service.stores.catalog()))?;
        }
        Ok(lags)
    }
}

/// Returns a mapping of the node's errors to refusals.
pub fn refuse(catalog: &Catalog) -> impl FnOnce(ServiceError) -> ProblemResponse + '_ {
    move |error| ProblemResponse::of_service(error, catalog)
}

/// Answers JSON.
#[must_use]
pub fn json_response(status: StatusCode, json: Vec<u8>) -> Response {
    typed_response(status, "application/json", json)
}

/// Answers bytes of a type.
#[must_use]
pub fn typed_response(status: StatusCode, media_type: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Answers a wire type.
#[must_use]
pub fn wire_response(status: StatusCode, wire: &impl serde::Serialize) -> Response {
    // Wire types are maps with string keys and numbers that JSON has: they always serialise.
    json_response(status, serde_json::to_vec(wire).unwrap_or_default())
}
