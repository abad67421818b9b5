//! State shared by all handlers (the node, the bounds, the counters), and the builders of their responses.

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
use tribunal_types::limits::{BODY_BYTES_MAX, OPEN_RESPONSE_BYTES_MAX};

use crate::authz::still_admitted;
use crate::quota::{Permit, TenantQuota, Tenants};
use crate::request::body::{MediaType, announced, collect_within, media_type};
use crate::request::caller::tenant;
use crate::request::query::path_store;
use crate::response::problem::ProblemResponse;
use tribunal_service::{Catalog, Service, ServiceError};

/// A body that took less than this arrived with its head: a revocation in between cannot be told from one after it.
const BODY_AT_ONCE: Duration = Duration::from_millis(1);

/// Options of the REST surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterOptions {
    /// Time from a request's head to the end of its body.
    pub body_timeout: Duration,
    /// Whether `/v1/debug/*` exists.
    pub debug_routes: bool,
    /// Interval at which an idle stream sends a heartbeat; shorter than the connection's idle timeout.
    pub heartbeat: Duration,
    /// Quota of each tenant; `None` if callers need not authenticate.
    pub access: Option<TenantQuota>,
    /// Bytes that the responses to all callers hold if they need not authenticate.
    pub open_bytes_max: usize,
}

impl Default for RouterOptions {
    fn default() -> Self {
        RouterOptions {
            body_timeout: Duration::from_secs(30),
            debug_routes: false,
            heartbeat: Duration::from_secs(15),
            access: None,
            open_bytes_max: OPEN_RESPONSE_BYTES_MAX,
        }
    }
}

/// Marks a response that is written as its content arrives: no layer may collect or compress it.
#[derive(Clone, Copy, Debug)]
pub struct Streamed;

/// Marks a response that is written as its content arrives, and itself checks whether its reader is still admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksCaller;

/// Size of a response before compression; it is compressed while it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeBytes(pub u64);

/// Marks a response that is written while the body of its request is still being read. Holds the request's permit until
/// all clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Duplex(Arc<OnceLock<Permit>>);

impl Duplex {
    /// Stores the request's permit.
    pub fn keep(&self, permit: Permit) {
        let kept = self.0.set(permit);
        debug_assert!(kept.is_ok(), "a request has one place");
    }
}

/// State shared by all handlers.
#[derive(Clone)]
pub struct App {
    /// The node.
    pub service: Arc<Service>,
    /// The options.
    pub options: RouterOptions,
    /// The tenants' requests in flight.
    pub tenants: Arc<Tenants>,
    /// Serialises revocations of keys: each must see the result of the previous one.
    pub revoking: Arc<Mutex<()>>,
}

impl App {
    /// Builds the state with nothing in flight.
    #[must_use]
    pub fn new(service: Service, options: RouterOptions) -> App {
        let shared = TenantQuota { requests_max: usize::MAX, bytes_max: options.open_bytes_max };
        App {
            service: Arc::new(service),
            options,
            tenants: Arc::new(Tenants::new(options.access.unwrap_or(shared))),
            revoking: Arc::default(),
        }
    }

    /// Collects the body of a request whose media type must be one of `accepted`.
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

    /// Collects a body of at most `bytes_max`. Refuses a caller whose credential was revoked in the meantime.
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
    /// Runs `read` on the catalog, and returns its result with the catalog. If it fails because a store is unknown,
    /// another node may just have created the store: this node catches up, and `read` runs again.
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
    /// 404 if no node has a store of this name; 503 if this node cannot catch up.
    pub async fn known_store(&self, parts: &Parts) -> Result<(Arc<StoreSpec>, Arc<Catalog>), ProblemResponse> {
        self.known(|catalog| Ok(path_store(parts.uri.path(), catalog, tenant(parts))?)).await
    }

    /// Catches up with the configuration that other nodes have acknowledged. Returns false if the node runs alone.
    ///
    /// # Errors
    /// 503 if it fails.
    pub async fn catches_up(&self) -> Result<bool, ProblemResponse> {
        let lags = self.service.node.may_lag();
        if lags {
            self.service.node.catch_up().await.map_err(refuse(&self.service.stores.catalog()))?;
        }
        Ok(lags)
    }
}

/// Returns a function that maps the node's errors to problems.
pub fn refuse(catalog: &Catalog) -> impl FnOnce(ServiceError) -> ProblemResponse + '_ {
    move |error| ProblemResponse::of_service(error, catalog)
}

/// Builds a JSON response.
#[must_use]
pub fn json_response(status: StatusCode, json: Vec<u8>) -> Response {
    typed_response(status, "application/json", json)
}

/// Builds a response of a media type.
#[must_use]
pub fn typed_response(status: StatusCode, media_type: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Builds a response from a wire type.
#[must_use]
pub fn wire_response(status: StatusCode, wire: &impl serde::Serialize) -> Response {
    // Wire types are maps with string keys and numbers that JSON can represent: they always serialise.
    json_response(status, serde_json::to_vec(wire).unwrap_or_default())
}
