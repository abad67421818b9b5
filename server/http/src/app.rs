//! State shared by all handlers: the node, the options, the counters; and what every handler does with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tokio::sync::Mutex;

use tribunal_types::StoreSpec;
use tribunal_types::limits::{BODY_BYTES_MAX, OPEN_RESPONSE_BYTES_MAX};

use crate::authz::credential::{bearer, refused, unauthenticated};
use crate::quota::{TenantQuota, Tenants};
use crate::request::body::{MediaType, announced, collect_within, media_type};
use crate::request::caller::{everybody, tenant};
use crate::request::query::path_store;
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use tribunal_service::{Catalog, Principal, Service};

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
    /// See [`media_type`] and [`collect_within`].
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
            self.still_admits(&parts.headers)?;
        }
        Ok(bytes)
    }
}

impl App {
    /// Returns the caller of an open route: a caller with a valid credential gets more information. Without access
    /// control, every caller may do everything.
    pub(crate) fn caller_of_open_route(&self, headers: &HeaderMap) -> Option<Arc<Principal>> {
        if self.options.access.is_none() {
            return Some(everybody());
        }
        bearer(headers).ok().and_then(|token| self.service.keys.authenticate(token).ok())
    }

    /// Refuses a caller whose credential was revoked, or has expired, since its request was admitted.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn still_admits(&self, headers: &HeaderMap) -> Result<(), ProblemResponse> {
        if self.options.access.is_none() {
            return Ok(());
        }
        let token = bearer(headers).map_err(unauthenticated)?;
        self.service.keys.authenticate(token).map(drop).map_err(refused)
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
