//! `POST /v1/txns/{txn_id}/commit` and its neighbours `/abort` and `/validate`: the hot path.

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tribunal_api::{CommitRequest, Problem, TxnOutcome};
use tribunal_types::limits::BODY_BYTES_MAX;
use tribunal_types::{TxnId, Verdict};

use crate::app::{App, json_response, refuse};
use crate::request::body::{MediaType, collect, utf8};
use crate::request::caller::{caller, tenant};
use crate::request::json::document;
use crate::request::query::path_txn_id;
use crate::request::txn_body::{ParsedCommit, TxnSeed};
use crate::response::field_error::Path;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, decision, judgement, server_timing, verdict_word};
use tribunal_service::{Catalog, Decided, Lane};

/// Header that repeats `status`, for gateways and load tests that do not read bodies.
pub const TXN_STATUS: HeaderName = HeaderName::from_static("txn-status");
/// Header of a stored answer.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Header with the phases of a decision.
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// W3C Trace Context: who asks, and in an answer the span that the request got.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Bytes that a decision without conflicts fits in.
const DECISION_BYTES: usize = 256;

/// TxnCommit: decides a transaction, durably. An abort is a decision, too: 200 with `status: aborted`.
///
/// The id comes from Begin, or is a UUIDv7 minted by the client; it is the idempotency key. The same id with the same
/// body gets the stored answer.
#[utoipa::path(
    post, path = "/v1/txns/{txn_id}/commit", operation_id = "txnCommit", tag = "transactions",
    params(
        ("txn_id" = String, Path, pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$", description = "The transaction, a UUIDv7"),
        ("tribunal-client" = Option<String>, Header, nullable = false, description = "Name of the client, for rules that are fair between clients"),
        ("traceparent" = Option<String>, Header, nullable = false, description = "W3C trace context of the caller; kept in the log's records"),
    ),
    request_body(content = CommitRequest, description = "What it observed and what it wants to write"),
    responses(
        (status = 200, description = "Committed or aborted: final", body = TxnOutcome, headers(
            ("txn-status" = String, description = "Same as `status`"),
            ("idempotency-replayed" = String, description = "`true` if this answer had been stored before"),
            ("server-timing" = String, description = "Where the time went"),
            ("traceparent" = String, description = "W3C trace context of the span that this request got, if it is traced"),
        )),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The same id waits for its verdict", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "It can never be decided like this", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "More in flight than the quota allows", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Not taken in", body = Problem, content_type = "application/problem+json"),
        (status = 504, description = "Taken in, outcome unknown: ask by id", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "No decision was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn txn_commit(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    decide(&app, &parts, body, None).await
}

/// Decides what a request posts.
///
/// # Errors
/// Whatever `txnCommit` answers outside of 2xx.
pub async fn decide<B>(app: &App, parts: &Parts, body: B, lane: Option<Lane>) -> Result<Response, ProblemResponse>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let id = path_txn_id(parts.uri.path())?;
    let (_, bytes) = app.body(parts, body, &[MediaType::Json]).await?;
    let catalog = app.service.stores.catalog();
    let parsed = parsed(parts, &bytes, id, &catalog)?;
    let decided = app.service.txns.commit(parsed.txn, parsed.ack, lane).await.map_err(refuse(&catalog))?;
    Ok(decision_response(id, &decided, &catalog))
}

/// Gives a transaction up. Answers the verdict that stands: `client_abort`, or what had been decided before.
#[utoipa::path(
    post, path = "/v1/txns/{txn_id}/abort", operation_id = "txnAbort", tag = "transactions",
    params(("txn_id" = String, Path, pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$", description = "The transaction, a UUIDv7")),
    responses(
        (status = 200, description = "The verdict that stands", body = TxnOutcome),
        (status = 422, description = "The id has expired", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "No decision was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn txn_abort(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let id = path_txn_id(parts.uri.path())?;
    // Nothing is expected in it, and nothing of it is used; but it has to be out of the way.
    app.whole(&parts, body, BODY_BYTES_MAX).await?;
    let catalog = app.service.stores.catalog();
    let decided = app.service.txns.abort(tenant(&parts), id).await.map_err(refuse(&catalog))?;
    Ok(decision_response(id, &decided, &catalog))
}

/// Dry run: tells whether the transaction would commit now, alone. Changes nothing.
#[utoipa::path(
    post, path = "/v1/txns/{txn_id}/validate", operation_id = "txnValidate", tag = "transactions",
    params(("txn_id" = String, Path, pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$", description = "The transaction, a UUIDv7")),
    request_body(content = CommitRequest, description = "What it observed and what it wants to write"),
    responses(
        (status = 200, description = "What would happen", body = TxnOutcome),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "No judgement was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn txn_validate(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let id = path_txn_id(parts.uri.path())?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let catalog = app.service.stores.catalog();
    let parsed = parsed(&parts, &bytes, id, &catalog)?;
    let verdict = app.service.txns.validate(parsed.txn).await.map_err(refuse(&catalog))?;
    let mut json = JsonWriter::with_capacity(DECISION_BYTES);
    judgement(&mut json, id, &verdict, &catalog);
    let mut response = json_response(StatusCode::OK, json.finish());
    let word = if matches!(verdict, Verdict::Aborted { .. }) { "would_abort" } else { "would_commit" };
    response.headers_mut().insert(TXN_STATUS, HeaderValue::from_static(word));
    Ok(response)
}

fn parsed(parts: &Parts, bytes: &Bytes, id: TxnId, catalog: &Catalog) -> Result<ParsedCommit, ProblemResponse> {
    let text = utf8(bytes)?;
    let caller = caller(parts);
    let seed = TxnSeed { catalog, caller: &caller, id: Some(id), at: Path::Root, bytes_hint: text.len() };
    let parsed = document(text, seed).map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
    if parsed.errors.is_empty() { Ok(parsed) } else { Err(ProblemResponse::of_errors(&parsed.errors)) }
}

/// Answers a decision.
#[must_use]
pub fn decision_response(id: TxnId, decided: &Decided, catalog: &Catalog) -> Response {
    let mut json = JsonWriter::with_capacity(DECISION_BYTES);
    decision(&mut json, id, decided, catalog);
    let mut response = json_response(StatusCode::OK, json.finish());
    let headers = response.headers_mut();
    headers.insert(TXN_STATUS, HeaderValue::from_static(verdict_word(&decided.verdict)));
    if decided.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if let Some(timing) = server_timing(&decided.phases) {
        headers.insert(SERVER_TIMING, timing);
    }
    if let Some(traceparent) = traceparent_value(decided) {
        headers.insert(TRACEPARENT, traceparent);
    }
    response
}

/// Returns the header that hands on the span of a request, if it is traced.
#[must_use]
pub fn traceparent_value(decided: &Decided) -> Option<HeaderValue> {
    HeaderValue::from_str(decided.traceparent.as_deref()?).ok()
}

/// Reads a body and answers a constant: what a request costs without any work. Benchmarks only.
pub async fn debug_constant(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    constant(&app, &parts, body).await
}

/// Reads a body and answers a constant.
///
/// # Errors
/// If the body does not come.
pub async fn constant<B>(app: &App, parts: &Parts, body: B) -> Result<Response, ProblemResponse>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let body = collect(&parts.headers, body, app.options.body_timeout).await?;
    drop(body);
    let mut response = Response::new(Body::from(Bytes::from_static(b"{\"status\":\"constant\"}")));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, json);
    Ok(response)
}
