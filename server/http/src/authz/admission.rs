//! Admission of requests: the layers before all handlers, and the same checks for commits on the fast path.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tribunal_service::Principal;
use tribunal_types::NamespaceId;
use tribunal_types::limits::STREAM_BYTES_MAX;

use super::answering::{Answering, has_room, no_room, until_taken};
use super::credential::{RECHECK_INTERVAL, bearer, refused, unauthenticated};
use super::requested_change::RequestedChange;
use super::rules::{Need, asks_nobody, changes_configuration, decides, need, only_reads, waits_on};
use crate::app::App;
use crate::known_paths::STREAM;
use crate::listener::connection_tenant::ConnectionTenant;
use crate::quota::{Permit, body_bytes};
use crate::response::admitted_body::admitted;
use crate::response::kept_body::keeping;
use crate::response::marks::{ChecksCaller, Duplex};
use crate::response::pieces::is_as_good_as_sent;
use crate::response::problem::ProblemResponse;

/// Retry delay for a caller whose key another node may have created, milliseconds.
const UNKNOWN_KEY_RETRY_MS: u64 = 1_000;

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
    let answering = Answering::new(permit, waits_on.then_some(&app.service));
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
        return no_room(&app.service);
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
        None if only_reads => return no_room(&app.service),
        // Its response is small, or must be sent.
        None => return next.run(request).await,
    };
    request.extensions_mut().insert(permit.room());
    let mut response = next.run(request).await;
    if response.extensions().get::<Duplex>().is_some() || is_as_good_as_sent(response.body()) {
        return response;
    }
    if !has_room(&mut response, &mut permit, only_reads) {
        return no_room(&app.service);
    }
    response.map(|body| keeping(body, permit))
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
    let Some(permit) = app.tenants.enter(principal.namespace, body_bytes) else { return Err(no_room(&app.service)) };
    Ok((principal, permit))
}

/// Returns the principal of a token. An unknown token may belong to a key that another node has just created, and a known
/// one to a key that was revoked while this node was down. If it cannot catch up, `diagnoses` still admits the latter:
/// operators must be able to see what is wrong.
async fn principal(app: &App, token: &str, diagnoses: bool) -> Result<Arc<Principal>, ProblemResponse> {
    let node = &app.service.node;
    match app.service.keys.authenticate(token) {
        Err(reason) if reason.is_unknown && catches_up(app).await? => {}
        // Otherwise an operator who looks for the fault would wait for each answer.
        Ok(_) if diagnoses && node.failed_to_catch_up_lately() => {}
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
