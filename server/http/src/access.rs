//! Who may do what over HTTP: one layer before all handlers, and the same for commits on their short way, that knows
//! the caller, looks whether its role may use the route, and whether its tenant has room for one more request.
//!
//! What a route asks for is told by its pattern as the router matched it, never by the path as it came: a trick that
//! leads to a handler leads to that handler's rule. A pattern without a rule asks for an operator. The tenant of a
//! request is the caller's and nothing that the request says ([`crate::poster::tenant`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tribunal_types::limits::BODY_BYTES_MAX;
use tribunal_types::{NamespaceId, Role, Roles};

use crate::admitted_body::admitted;
use crate::app::App;
use crate::refusal::Refusal;
use crate::service::{Service, ServiceError};

/// Until a larger answer is sent, it counts as in flight.
const ANSWER_BYTES_SMALL: u64 = 64 * 1024;

/// Somebody who has proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its tenant.
    pub namespace: NamespaceId,
    /// The tenant's name.
    pub namespace_name: String,
    /// What it may do.
    pub roles: Roles,
    /// Who it is, for people: the key's public part and name, or the token's subject.
    pub name: String,
}

impl Principal {
    /// Tells whether it may look after the whole service, all tenants included.
    #[must_use]
    pub fn runs_the_service(&self) -> bool {
        self.namespace == NamespaceId(0) && self.roles.has(Role::Operator)
    }
}

/// What a tenant may have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// Requests.
    pub requests_max: usize,
    /// Bytes of their bodies, as announced; a body whose length is not known counts as the largest.
    pub bytes_max: usize,
}

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Nothing: it says nothing about anybody.
    Nobody,
    /// One of these roles.
    AnyOf(Roles),
    /// This role, for the service itself: what it does concerns all tenants.
    OfService(Role),
}

fn need(method: &Method, pattern: &str) -> Need {
    let any = |roles: &[Role]| Need::AnyOf(roles.iter().copied().collect());
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match pattern {
        "/healthz" | "/readyz" | "/version" | "/openapi.json" | "/openapi-3.0.json" | "/docs" => Need::Nobody,
        "/metrics" => Need::OfService(Role::Operator),
        path if path.starts_with("/v1/txns") => any(&[Role::Engine]),
        "/v1/snapshot" => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path == "/v1/log" || path.starts_with("/v1/log/") => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/consumers") => any(&[Role::Engine, Role::Store, Role::Operator]),
        "/v1/stores/{store}/versions" => any(&[Role::Store, Role::Operator]),
        path if path.starts_with("/v1/stores/{store}/push") => any(&[Role::Operator]),
        path if path.starts_with("/v1/stores") && reads => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/admin/plugins") => Need::OfService(Role::PluginAdmin),
        "/v1/admin/keys" | "/v1/admin/keys/{id}" => any(&[Role::Operator]),
        path if path.starts_with("/v1/stores") => any(&[Role::Operator]),
        _ => Need::OfService(Role::Operator),
    }
}

/// Tells whether what a request asks for may wait on when its caller has gone: a transaction is decided all the same.
/// Reads end with their request, and what operators change is little.
fn waits_on(method: &Method, pattern: &str) -> bool {
    *method == Method::POST && pattern.starts_with("/v1/txns")
}

/// Tells whether a route may be used without saying who calls.
pub(crate) fn asks_nobody(method: &Method, pattern: &str) -> bool {
    need(method, pattern) == Need::Nobody
}

/// The layer. Lets a request through with its [`Principal`] in the extensions, or answers it.
pub async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let (need, waits_on) = match request.extensions().get::<MatchedPath>() {
        Some(pattern) => {
            let (method, pattern) = (request.method(), pattern.as_str());
            (need(method, pattern), waits_on(method, pattern))
        }
        // There is no such route, and everybody may know that.
        None => (Need::Nobody, false),
    };
    if need == Need::Nobody {
        return next.run(request).await;
    }
    let (principal, slot) = match enter(
        &app,
        need,
        request.headers(),
        body_bytes(request.method(), request.version(), request.headers()),
    ) {
        Ok(entered) => entered,
        Err(response) => return response,
    };
    request.extensions_mut().insert(principal);
    // There is one, or `enter` had refused.
    let token = bearer(request.headers()).unwrap_or_default().to_owned();
    let answering = Answering { slot: Some(slot), waits_on: waits_on.then_some(&app.service) };
    let response = next.run(request).await;
    let Some(slot) = answering.answered() else { return response };
    // A small answer is as good as sent.
    if response.body().size_hint().exact().is_some_and(|bytes| bytes <= ANSWER_BYTES_SMALL) {
        return response;
    }
    response.map(|body| admitted(body, slot, app.service, token))
}

/// The place of a request that is being answered. If it is given up before (its caller has gone, and hyper drops it), a
/// transaction may wait on: its place is given back only when that is done as far as anybody can tell, which is when
/// another request would be told to come back.
pub(crate) struct Answering<'a> {
    slot: Option<Slot>,
    /// Who decides it, if it is a transaction.
    waits_on: Option<&'a Arc<dyn Service>>,
}

impl<'a> Answering<'a> {
    /// Keeps a transaction's place.
    pub(crate) fn new(slot: Slot, service: &'a Arc<dyn Service>) -> Self {
        Answering { slot: Some(slot), waits_on: Some(service) }
    }

    /// Its answer is there.
    pub(crate) fn answered(mut self) -> Option<Slot> {
        self.slot.take()
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let Some(service) = self.waits_on else { return };
        if let (Some(slot), Ok(runtime)) = (self.slot.take(), tokio::runtime::Handle::try_current()) {
            let wait = Duration::from_millis(service.retry_after_ms());
            runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                drop(slot);
            });
        }
    }
}

/// Lets a single commit in, which does not come through the router: puts its [`Principal`] into the extensions.
///
/// # Errors
/// The answer to one that is not let in.
#[expect(clippy::result_large_err, reason = "the answer is what is sent, once a request")]
pub fn enter_commit(app: &App, parts: &mut Parts) -> Result<Slot, Response> {
    let need = need(&parts.method, "/v1/txns/{txn_id}/commit");
    let (principal, slot) = enter(app, need, &parts.headers, body_bytes(&parts.method, parts.version, &parts.headers))?;
    parts.extensions.insert(principal);
    Ok(slot)
}

#[expect(clippy::result_large_err, reason = "the answer is what is sent, once a request")]
fn enter(app: &App, need: Need, headers: &HeaderMap, body_bytes: usize) -> Result<(Arc<Principal>, Slot), Response> {
    let token = bearer(headers).map_err(|reason| unauthenticated(reason.to_owned()))?;
    let principal = app.service.authenticate(token).map_err(unauthenticated)?;
    let allowed = match need {
        Need::Nobody => true,
        Need::AnyOf(roles) => principal.roles.has_any(roles),
        Need::OfService(role) => principal.namespace == NamespaceId(0) && principal.roles.has(role),
    };
    if !allowed {
        return Err(forbidden(need).into_response());
    }
    let Some(slot) = app.tenants.enter(principal.namespace, body_bytes) else {
        let error = ServiceError::QuotaExceeded { retry_after_ms: app.service.retry_after_ms() };
        return Err(Refusal::of_service(error, &app.service.catalog()).into_response());
    };
    Ok((principal, slot))
}

fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err("one header `authorization: Bearer KEY` is needed, with an API key or a token");
    };
    let text = value.to_str().map_err(|_| "the header `authorization` is not ASCII")?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Ok(token),
        _ => Err("the header `authorization` is not of the form `Bearer KEY`"),
    }
}

fn unauthenticated(reason: String) -> Response {
    let mut response = Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", reason).into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn forbidden(need: Need) -> Refusal {
    let roles = match need {
        Need::AnyOf(roles) => roles.names().collect::<Vec<_>>().join(" or "),
        Need::OfService(role) => format!("{} in the namespace `default`", role.name()),
        Need::Nobody => "of nobody".to_owned(),
    };
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", format!("this needs the role {roles}"))
}

/// Returns how many bytes a body may have, by what is said of it.
fn body_bytes(method: &Method, version: Version, headers: &HeaderMap) -> usize {
    // In HTTP/1 a request that names neither a length nor an encoding has no body.
    let says_nothing = !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING);
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE) || says_nothing && version < Version::HTTP_2 {
        return 0;
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    length.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX)
}

/// What every tenant has in flight.
#[derive(Debug)]
pub struct Tenants {
    quota: TenantQuota,
    tenants: Mutex<HashMap<NamespaceId, Arc<InFlight>>>,
}

#[derive(Debug, Default)]
struct InFlight {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// A request's place, until this is dropped.
#[derive(Debug)]
pub struct Slot {
    tenant: Arc<InFlight>,
    bytes: usize,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.tenant.requests.fetch_sub(1, Ordering::Relaxed);
        self.tenant.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Tenants {
    /// Starts with nothing in flight.
    #[must_use]
    pub fn new(quota: TenantQuota) -> Tenants {
        Tenants { quota, tenants: Mutex::default() }
    }

    /// Takes a place; `None` if the tenant has used up what it may. One request always fits, however large.
    fn enter(&self, namespace: NamespaceId, bytes: usize) -> Option<Slot> {
        let tenant = {
            let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(tenants.entry(namespace).or_default())
        };
        let requests = tenant.requests.fetch_add(1, Ordering::Relaxed);
        let before = tenant.bytes.fetch_add(bytes, Ordering::Relaxed);
        let slot = Slot { tenant, bytes };
        let fits = requests < self.quota.requests_max && (before == 0 || before + bytes <= self.quota.bytes_max);
        fits.then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_a_rule_asks_for_an_operator_of_the_service() {
        assert_eq!(need(&Method::GET, "/v1/stats"), Need::OfService(Role::Operator));
        assert_eq!(need(&Method::POST, "/v1/debug/constant"), Need::OfService(Role::Operator));
        assert_eq!(need(&Method::PUT, "/v1/stores/{store}"), Need::AnyOf([Role::Operator].into_iter().collect()));
        assert_eq!(need(&Method::GET, "/healthz"), Need::Nobody);
    }

    #[test]
    fn only_transactions_wait_on() {
        assert!(waits_on(&Method::POST, "/v1/txns/{txn_id}/commit"));
        assert!(waits_on(&Method::POST, "/v1/txns/batch-commit"));
        assert!(!waits_on(&Method::GET, "/v1/txns/{txn_id}"));
        assert!(!waits_on(&Method::POST, "/v1/admin/keys"));
    }

    #[test]
    fn a_body_counts_by_what_is_said_of_it() {
        let bytes = |method, version, header: Option<(_, &'static str)>| {
            let headers = header.map(|(name, value)| (name, HeaderValue::from_static(value)));
            body_bytes(&method, version, &headers.into_iter().collect())
        };
        assert_eq!(bytes(Method::POST, Version::HTTP_11, Some((CONTENT_LENGTH, "12"))), 12);
        assert_eq!(bytes(Method::POST, Version::HTTP_11, None), 0, "as of `curl -X POST`");
        assert_eq!(bytes(Method::POST, Version::HTTP_11, Some((TRANSFER_ENCODING, "chunked"))), BODY_BYTES_MAX);
        assert_eq!(bytes(Method::POST, Version::HTTP_2, None), BODY_BYTES_MAX);
        assert_eq!(bytes(Method::GET, Version::HTTP_2, None), 0);
    }

    #[test]
    fn one_tenants_requests_leave_the_others_room() {
        let tenants = Tenants::new(TenantQuota { requests_max: 2, bytes_max: 100 });
        let (one, two) = (NamespaceId(1), NamespaceId(2));
        let first = tenants.enter(one, 90).expect("the first fits");
        assert!(tenants.enter(one, 20).is_none(), "too many bytes");
        let second = tenants.enter(one, 10).expect("a refused one leaves nothing behind");
        assert!(tenants.enter(one, 0).is_none(), "too many requests");
        assert!(tenants.enter(two, 1000).is_some(), "alone, any size fits");
        drop((first, second));
        assert!(tenants.enter(one, 100).is_some());
    }

    #[test]
    fn a_credential_is_one_bearer() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).ok().map(str::to_owned)
        };
        assert_eq!(of(&["Bearer k"]).as_deref(), Some("k"));
        assert_eq!(of(&["bearer k"]).as_deref(), Some("k"));
        for bad in [&[][..], &["k"], &["Basic k"], &["Bearer "], &["Bearer a", "Bearer b"]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
