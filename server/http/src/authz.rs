//! Authorization over HTTP: one layer before all handlers, and the same checks for commits on the fast path. It
//! authenticates the caller, checks whether the caller's roles permit the route, and whether the tenant's quota has
//! room for another request.
//!
//! The requirement of a route follows from the pattern that the router matched, never from the raw path: a crafted path
//! that reaches a handler is subject to that handler's rule. A pattern without a rule requires an operator. The tenant
//! of a request is the caller's, regardless of the request's content ([`crate::request::caller::tenant`]).

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tribunal_types::limits::STREAM_BYTES_MAX;
use tribunal_types::{NamespaceId, Role, Roles};

use crate::app::{App, ChecksCaller, Duplex, WholeBytes};
use crate::listener::fast_path::STREAM;
use crate::listener::open_connections::ConnectionTenant;
use crate::quota::{Permit, body_bytes};
use crate::request::caller::everybody;
use crate::response::admitted_body::admitted;
use crate::response::encoder_room::EncoderRoom;
use crate::response::kept_body::keeping;
use crate::response::pieces::is_as_good_as_sent;
use crate::response::problem::ProblemResponse;
use tribunal_service::{Principal, Service, ServiceError, Unauthenticated};

/// The authorization that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// None: without a key, the response reveals nothing about tenants.
    Nobody,
    /// One of these roles.
    AnyOf(Roles),
    /// One of these roles in the namespace `default`: the route concerns all tenants.
    OfService(Roles),
}

impl Need {
    /// Returns whether only operators, and what watches the service for them, may call the route.
    fn is_of_operators(self) -> bool {
        match self {
            Need::Nobody => false,
            Need::AnyOf(roles) | Need::OfService(roles) => !roles.has(Role::Engine) && !roles.has(Role::Store),
        }
    }
}

fn need(method: &Method, pattern: &str) -> Need {
    let any = |roles: &[Role]| Need::AnyOf(roles.iter().copied().collect());
    let of_service = |roles: &[Role]| Need::OfService(roles.iter().copied().collect());
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match pattern {
        "/" | "/healthz" | "/readyz" | "/version" | "/openapi.json" | "/openapi-3.0.json" | "/docs" => Need::Nobody,
        "/metrics" | "/v1/cluster" => of_service(&[Role::Operator, Role::Metrics]),
        // A tenant's operator gets the statistics of its own tenant.
        "/v1/stats" => any(&[Role::Operator, Role::Metrics]),
        path if path.starts_with("/v1/txns") => any(&[Role::Engine]),
        "/v1/snapshot" => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path == "/v1/log" || path.starts_with("/v1/log/") => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/consumers") => any(&[Role::Engine, Role::Store, Role::Operator]),
        "/v1/stores/{store}/versions" => any(&[Role::Store, Role::Operator]),
        path if path.starts_with("/v1/stores/{store}/push") => any(&[Role::Operator]),
        // A read, although its query needs a body because of its size.
        "/v1/stores/{store}/rows/read" => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/stores") && reads => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/admin/plugins") => of_service(&[Role::PluginAdmin]),
        "/v1/admin/keys" | "/v1/admin/keys/{id}" => any(&[Role::Operator]),
        // Declarations and progress, not rows.
        path if path.starts_with("/v1/admin/stores") => of_service(&[Role::Operator]),
        path if path.starts_with("/v1/stores") => any(&[Role::Operator]),
        _ => of_service(&[Role::Operator]),
    }
}

/// Returns whether a request keeps its permit after its caller has disconnected: a transaction is decided anyway.
/// Reads end with their request, and changes by operators are few.
fn waits_on(method: &Method, pattern: &str) -> bool {
    *method == Method::POST && pattern.starts_with("/v1/txns")
}

/// Returns whether a request only reads: its response may be dropped if there is no room for it.
fn only_reads(method: &Method, pattern: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        || *method == Method::POST
            && matches!(pattern, "/v1/stores/{store}/rows/read" | "/v1/txns" | "/v1/txns/{txn_id}/validate")
}

/// Returns whether a request changes the configuration: operators look for it in the log. Keys log their own changes.
fn changes_configuration(method: &Method, pattern: &str, need: Need) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    need.is_of_operators() && !reads && !pattern.starts_with("/v1/admin/keys")
}

/// Characters of a path that are logged: enough for the longest name of a store and what may follow it.
const PATH_LOGGED_MAX: usize = 1024;

/// A change of the configuration that a caller requests. Logged when the request ends, also if its client disconnects: the
/// change may be made all the same.
struct RequestedChange {
    by: Arc<Principal>,
    method: Method,
    path: String,
    /// The response's; `None` if the client has disconnected before.
    status: Option<StatusCode>,
}

impl Drop for RequestedChange {
    fn drop(&mut self) {
        let RequestedChange { by, method, path, status } = self;
        let is_refused = status.is_some_and(|status| status.is_client_error());
        let (by, namespace) = (&by.name, &by.namespace_name);
        let status =
            status.map_or("none, because the client disconnected".to_owned(), |status| status.as_str().to_owned());
        // Callers choose its length, up to that of a request's head.
        let path: String = path.chars().take(PATH_LOGGED_MAX).collect();
        // It changed nothing, and a caller may repeat it in a loop.
        if is_refused {
            tracing::debug!(by, namespace, %method, path, status, "a change of the configuration was refused");
        } else {
            tracing::info!(by, namespace, %method, path, status, "a change of the configuration was requested");
        }
    }
}

/// Returns whether a route is open to unauthenticated callers.
pub(crate) fn asks_nobody(method: &Method, pattern: &str) -> bool {
    need(method, pattern) == Need::Nobody
}

/// Interval at which the credential of a waiting caller is checked again.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Retry delay for a caller whose key another node may have created, milliseconds.
const UNKNOWN_KEY_RETRY_MS: u64 = 1_000;

/// Returns whether a request decides a transaction. Once its body is complete, its caller gets the response, even if
/// the credential is revoked meanwhile.
fn decides(method: &Method, pattern: &str) -> bool {
    *method == Method::POST
        && matches!(pattern, "/v1/txns/{txn_id}/commit" | "/v1/txns/{txn_id}/abort" | "/v1/txns/batch-commit")
}

/// Returns the caller of an open route: a caller with a valid credential gets more information. Without access control,
/// every caller may do everything.
pub(crate) fn caller_of_open_route(app: &App, headers: &HeaderMap) -> Option<Arc<Principal>> {
    if app.options.access.is_none() {
        return Some(everybody());
    }
    bearer(headers).ok().and_then(|token| app.service.keys.authenticate(token).ok())
}

/// Refuses a caller whose credential was revoked, or has expired, since its request was admitted.
///
/// # Errors
/// 401.
pub(crate) fn still_admitted(app: &App, headers: &HeaderMap) -> Result<(), ProblemResponse> {
    if app.options.access.is_none() {
        return Ok(());
    }
    let token = bearer(headers).map_err(unauthenticated)?;
    app.service.keys.authenticate(token).map(drop).map_err(refused)
}

/// Waits for a response while its caller remains admitted.
async fn while_admitted(app: &App, token: &str, response: impl Future<Output = Response>) -> Response {
    let mut response = std::pin::pin!(response);
    loop {
        match tokio::time::timeout(RECHECK_INTERVAL, response.as_mut()).await {
            Ok(response) => return response,
            Err(_) => {
                if let Err(reason) = app.service.keys.authenticate(token) {
                    return refused(reason).into_response();
                }
            }
        }
    }
}

/// The layer. Passes a request on with its [`Principal`] in the extensions, or refuses it.
pub async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let (need, waits_on, decides, only_reads) = match request.extensions().get::<MatchedPath>() {
        Some(pattern) => {
            let (method, pattern) = (request.method(), pattern.as_str());
            (need(method, pattern), waits_on(method, pattern), decides(method, pattern), only_reads(method, pattern))
        }
        // The route does not exist, which is no secret.
        None => (Need::Nobody, false, true, false),
    };
    if need == Need::Nobody {
        return next.run(request).await;
    }
    let bytes = match request.extensions().get::<MatchedPath>() {
        // The stream holds at most this much of its body at a time, and reserves room for a longer line first.
        Some(pattern) if pattern.as_str() == STREAM => STREAM_BYTES_MAX,
        _ => body_bytes(request.method(), request.version(), request.headers()),
    };
    let diagnoses = *request.method() == Method::GET && need.is_of_operators();
    let (principal, permit) = match enter(&app, need, diagnoses, request.headers(), bytes).await {
        Ok(entered) => entered,
        Err(response) => return response,
    };
    if let Some(tenant) = request.extensions_mut().remove::<ConnectionTenant>() {
        tenant.set(principal.namespace);
    }
    request.extensions_mut().insert(Arc::clone(&principal));
    request.extensions_mut().insert(permit.room());
    // A token exists, or `enter` would have refused the request.
    let token = bearer(request.headers()).unwrap_or_default().to_owned();
    let change = request
        .extensions()
        .get::<MatchedPath>()
        .filter(|pattern| changes_configuration(request.method(), pattern.as_str(), need));
    let mut change = change.map(|_| RequestedChange {
        by: Arc::clone(&principal),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        status: None,
    });
    let answering = Answering { permit: Some(permit), waits_on: waits_on.then_some(&app.service) };
    let response = next.run(request);
    let mut response = if decides { response.await } else { while_admitted(&app, &token, response).await };
    if let Some(change) = &mut change {
        change.status = Some(response.status());
    }
    drop(change);
    let Some(mut permit) = answering.answered() else { return response };
    if let Some(duplex) = response.extensions().get::<Duplex>() {
        // The stream checks the credential itself, and ends with a problem. It also knows when everything it took in is
        // decided.
        duplex.keep(permit);
        return response;
    }
    if decides || response.extensions().get::<ChecksCaller>().is_some() {
        return until_taken(response, permit);
    }
    if is_as_good_as_sent(response.body()) {
        return response;
    }
    if !has_room(&mut response, &mut permit, only_reads) {
        return no_room(&app);
    }
    response.map(|body| admitted(body, permit, app.service, token))
}

/// The layer without access control: everybody shares one quota, which bounds the memory of responses only.
pub async fn bound_responses(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let Some(pattern) = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) else {
        return next.run(request).await;
    };
    if asks_nobody(request.method(), pattern) {
        return next.run(request).await;
    }
    let only_reads = only_reads(request.method(), pattern);
    let mut permit = match app.tenants.enter(NamespaceId(0), 0) {
        Some(permit) => permit,
        None if only_reads => return no_room(&app),
        // Its response is small, or must be sent.
        None => return next.run(request).await,
    };
    request.extensions_mut().insert(permit.room());
    let mut response = next.run(request).await;
    if response.extensions().get::<Duplex>().is_some() || is_as_good_as_sent(response.body()) {
        return response;
    }
    if !has_room(&mut response, &mut permit, only_reads) {
        return no_room(&app);
    }
    response.map(|body| keeping(body, permit))
}

/// Counts the response to a transaction as in flight until it is taken.
pub(crate) fn until_taken(mut response: Response, mut permit: Permit) -> Response {
    if is_as_good_as_sent(response.body()) {
        return response;
    }
    let bytes = held_bytes(&mut response, &mut permit);
    permit.add(bytes);
    response.map(|body| keeping(body, permit))
}

/// Counts a waiting response. Returns false if the tenant has no room for it, and it may be dropped.
fn has_room(response: &mut Response, permit: &mut Permit, only_reads: bool) -> bool {
    let bytes = held_bytes(response, permit);
    if only_reads {
        return permit.try_add(bytes);
    }
    permit.add(bytes);
    true
}

/// Returns the bytes that a waiting response holds, and keeps the reservation for its encoder. The chunks of a stream,
/// whose size is not known, count themselves.
fn held_bytes(response: &mut Response, permit: &mut Permit) -> usize {
    let encoder = response.extensions_mut().remove::<EncoderRoom>();
    if let Some(EncoderRoom(reserved)) = encoder.filter(|_| response.headers().contains_key(CONTENT_ENCODING)) {
        permit.keep(reserved);
    }
    let before_compression = response.extensions().get::<WholeBytes>().map(|whole| whole.0);
    let bytes = before_compression.or_else(|| response.body().size_hint().exact()).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the response to a request for which the quota has no room.
fn no_room(app: &App) -> Response {
    let error = ServiceError::QuotaExceeded { retry_after_ms: app.service.txns.retry_after_ms() };
    ProblemResponse::of_service(error, &app.service.stores.catalog()).into_response()
}

/// The permit of a request that is being answered. If the request is dropped first (its caller has disconnected), its
/// transaction may still be pending: the permit is released only after the delay with which another request would be
/// told to retry, by when the transaction is most likely decided.
pub(crate) struct Answering<'a> {
    permit: Option<Permit>,
    /// The service that decides the request, if it is a transaction.
    waits_on: Option<&'a Arc<Service>>,
}

impl<'a> Answering<'a> {
    /// Holds the permit of a transaction.
    pub(crate) fn new(permit: Permit, service: &'a Arc<Service>) -> Self {
        Answering { permit: Some(permit), waits_on: Some(service) }
    }

    /// Returns the permit once the response is available.
    pub(crate) fn answered(mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let Some(service) = self.waits_on else { return };
        if let (Some(permit), Ok(runtime)) = (self.permit.take(), tokio::runtime::Handle::try_current()) {
            let wait = Duration::from_millis(service.txns.retry_after_ms());
            runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                drop(permit);
            });
        }
    }
}

/// Admits a single commit, which bypasses the router: puts its [`Principal`] into the extensions.
///
/// # Errors
/// The response to a refused commit.
pub async fn enter_commit(app: &App, parts: &mut Parts) -> Result<Permit, Response> {
    let need = need(&parts.method, "/v1/txns/{txn_id}/commit");
    let (principal, permit) =
        enter(app, need, false, &parts.headers, body_bytes(&parts.method, parts.version, &parts.headers)).await?;
    parts.extensions.insert(principal);
    Ok(permit)
}

async fn enter(
    app: &App,
    need: Need,
    diagnoses: bool,
    headers: &HeaderMap,
    body_bytes: usize,
) -> Result<(Arc<Principal>, Permit), Response> {
    let token = bearer(headers).map_err(|reason| unauthenticated(reason).into_response())?;
    let principal = principal(app, token, diagnoses).await.map_err(IntoResponse::into_response)?;
    let allowed = match need {
        Need::Nobody => true,
        Need::AnyOf(roles) => principal.roles.has_any(roles),
        Need::OfService(roles) => principal.namespace == NamespaceId(0) && principal.roles.has_any(roles),
    };
    if !allowed {
        return Err(forbidden(need, &principal).into_response());
    }
    let Some(permit) = app.tenants.enter(principal.namespace, body_bytes) else { return Err(no_room(app)) };
    Ok((principal, permit))
}

/// Returns the principal of a token. An unknown token may belong to a key that another node has just created, and a known
/// one to a key that was revoked while this node was down. If it cannot catch up, `diagnoses` still admits the latter:
/// operators must be able to see what is wrong.
async fn principal(app: &App, token: &str, diagnoses: bool) -> Result<Arc<Principal>, ProblemResponse> {
    let node = &app.service.node;
    match app.service.keys.authenticate(token) {
        Err(reason) if reason.is_unknown && catches_up(app).await? => {}
        Ok(_) if !node.has_caught_up() => match node.catch_up().await {
            Ok(()) => {}
            Err(_) if diagnoses => {}
            Err(_) => {
                let detail = "this node has just started, and cannot tell yet whether the key was revoked meanwhile: send the \
                              request again, or to another node";
                return Err(not_known_yet(detail));
            }
        },
        known => return known.map_err(refused),
    }
    app.service.keys.authenticate(token).map_err(refused)
}

/// Catches up as [`App::catches_up`] does, on behalf of an unauthenticated caller: the reason of a failure names the
/// other nodes, so the caller does not get it.
async fn catches_up(app: &App) -> Result<bool, ProblemResponse> {
    app.catches_up().await.map_err(|problem| {
        tracing::debug!(reason = problem.body.detail, "cannot tell whether another node has created a key");
        let detail = "this node does not know the key, and cannot tell now whether another node has created it: send the \
                      request again, or to another node";
        not_known_yet(detail)
    })
}

fn not_known_yet(detail: &str) -> ProblemResponse {
    ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retryable(Some(UNKNOWN_KEY_RETRY_MS))
}

fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err("exactly one header `authorization: Bearer KEY` is required, with an API key or a token");
    };
    let text = value.to_str().map_err(|_| "the header `authorization` is not ASCII")?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Ok(token),
        _ => Err("the header `authorization` is not of the form `Bearer KEY`"),
    }
}

fn unauthenticated(reason: &'static str) -> ProblemResponse {
    refused(Unauthenticated::new(reason))
}

fn refused(Unauthenticated { code, detail, .. }: Unauthenticated) -> ProblemResponse {
    ProblemResponse::new(StatusCode::UNAUTHORIZED, code, detail)
}

fn forbidden(need: Need, principal: &Principal) -> ProblemResponse {
    let needed = match need {
        Need::AnyOf(roles) => roles.names().collect::<Vec<_>>().join(" or "),
        Need::OfService(roles) => {
            format!("{} in the namespace `default`", roles.names().collect::<Vec<_>>().join(" or "))
        }
        Need::Nobody => "of nobody".to_owned(),
    };
    let own = principal.roles.names().collect::<Vec<_>>().join(", ");
    let detail =
        format!("this needs the role {needed}; the caller has {own} in the namespace `{}`", principal.namespace_name);
    ProblemResponse::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_route_without_a_rule_requires_an_operator_of_the_service() {
        let operator = Need::OfService([Role::Operator].into_iter().collect());
        assert_eq!(need(&Method::GET, "/v1/no-such-rule"), operator);
        assert_eq!(need(&Method::POST, "/v1/debug/constant"), operator);
        assert_eq!(need(&Method::PUT, "/v1/stores/{store}"), Need::AnyOf([Role::Operator].into_iter().collect()));
        assert_eq!(need(&Method::GET, "/healthz"), Need::Nobody);
    }

    #[test]
    fn reading_several_rows_requires_the_same_as_reading_one() {
        let one = need(&Method::GET, "/v1/stores/{store}/rows/{key}");
        assert_eq!(need(&Method::POST, "/v1/stores/{store}/rows/read"), one);
    }

    #[test]
    fn the_metrics_role_reads_metrics_and_statistics_and_nothing_else() {
        let allows = |method: &Method, pattern: &str| match need(method, pattern) {
            Need::Nobody => true,
            Need::AnyOf(roles) | Need::OfService(roles) => roles.has(Role::Metrics),
        };
        assert!(allows(&Method::GET, "/metrics") && allows(&Method::GET, "/v1/stats"));
        for (method, pattern) in [
            (Method::GET, "/v1/stores"),
            (Method::GET, "/v1/stores/{store}"),
            (Method::GET, "/v1/log"),
            (Method::GET, "/v1/snapshot"),
            (Method::GET, "/v1/consumers"),
            (Method::GET, "/v1/admin/keys"),
            (Method::GET, "/v1/admin/stores"),
            (Method::GET, "/v1/admin/plugins"),
            (Method::POST, "/v1/txns/{txn_id}/commit"),
        ] {
            assert!(!allows(&method, pattern), "{method} {pattern}");
        }
    }

    #[test]
    fn only_transactions_continue_after_a_disconnect() {
        assert!(waits_on(&Method::POST, "/v1/txns/{txn_id}/commit"));
        assert!(waits_on(&Method::POST, "/v1/txns/batch-commit"));
        assert!(!waits_on(&Method::GET, "/v1/txns/{txn_id}"));
        assert!(!waits_on(&Method::POST, "/v1/admin/keys"));
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
