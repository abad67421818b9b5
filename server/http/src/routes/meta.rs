//! Responses about the service itself.

use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;
use tokio::sync::Semaphore;
use tribunal_api::examples::TXN_ID;
use tribunal_api::{Health, Readiness, VersionInfo};

use crate::app::App;
use crate::request::content_negotiation::{Form, preferred};
use crate::response::content::{typed_response, wire_response};
use crate::response::filled_body::filled;
use crate::response::kept_body::keeping;
use crate::response::marks::Streamed;
use crate::response::prometheus_text::{OPENMETRICS_END, prometheus_text};
use crate::{counters, limits_table};

/// Content type of the Prometheus text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Content type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The reference page: concepts, errors, limits, and the OpenAPI document with requests to copy. It loads no external
/// resources.
static DOCS: LazyLock<String> = LazyLock::new(|| {
    include_str!("docs/index.html")
        .replace("<!--LIMITS-->", &limits_table::html())
        .replace("/*STYLE*/", include_str!("docs/style.css"))
        .replace("/*SCRIPT*/", include_str!("docs/script.js"))
});

/// Returns 200 as long as the process runs.
#[utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "service",
    responses((status = 200, description = "Alive", body = Health))
)]
pub async fn health() -> Response {
    wire_response(StatusCode::OK, &Health { status: "ok".to_owned() })
}

/// Returns whether new transactions are accepted. Reasons name stores, and the other nodes of a cluster, only if the request
/// carries the key of an operator of the service, or one with the role `metrics` there; for others they contain counts.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readiness", tag = "service",
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "Not ready; see `reasons`", body = Readiness),
    )
)]
pub async fn ready(State(app): State<App>, headers: HeaderMap) -> Response {
    let sees_all = app.caller_of_open_route(&headers).is_some_and(|caller| caller.sees_the_service());
    let readiness = app.service.node.readiness(sees_all);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    wire_response(status, &Readiness { ready: readiness.ready, reasons: readiness.reasons })
}

/// Metrics: as OpenMetrics 1.0.0 if the header `accept` prefers it, otherwise in the Prometheus text format 0.0.4.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "service",
    responses((status = 200, description = "Metrics", content(
        (String = "text/plain"),
        (String = "application/openmetrics-text"),
    )))
)]
pub async fn metrics(State(app): State<App>, headers: HeaderMap) -> Response {
    let mut text = app.service.node.metrics();
    text.truncate(text.strip_suffix(OPENMETRICS_END).unwrap_or(&text).len());
    counters::write(&mut text);
    // A scraper that accepts neither gets the text all the same: there is no better answer.
    match preferred(&headers, &[Form::PrometheusText, Form::OpenMetrics]) {
        Some(Form::OpenMetrics) => {
            text.push_str(OPENMETRICS_END);
            typed_response(StatusCode::OK, OPENMETRICS, text)
        }
        _ => typed_response(StatusCode::OK, PROMETHEUS, prometheus_text(&text)),
    }
}

/// Returns the version. With the key of an operator of the service, or with the role `metrics` or `plugin-admin` there,
/// also the node and its open epoch.
#[utoipa::path(
    get, path = "/version", operation_id = "version", tag = "service",
    responses((status = 200, description = "What runs here", body = VersionInfo))
)]
pub async fn version(State(app): State<App>, headers: HeaderMap) -> Response {
    let identity = app.service.node.identity();
    let mut wire = VersionInfo { version: identity.version, ..VersionInfo::default() };
    // The progress of epochs reveals the activity of all tenants.
    if app.caller_of_open_route(&headers).is_some_and(|caller| caller.sees_the_node()) {
        wire.node = Some(identity.group.node.0);
        wire.incarnation = Some(identity.group.incarnation.0);
        wire.epoch = Some(identity.epoch.to_string());
        wire.epoch_mode = Some(identity.epoch_mode);
    }
    wire_response(StatusCode::OK, &wire)
}

/// Open documents being compressed: each takes megabytes until it is taken.
static COMPRESSED: Semaphore = Semaphore::const_new(16);

/// Returns a document that requires no key, uncompressed while too many others are being compressed.
fn open_document(mut document: Response) -> Response {
    match COMPRESSED.try_acquire() {
        Ok(place) => document.map(|body| keeping(body, place)),
        Err(_) => {
            document.extensions_mut().insert(Streamed);
            document
        }
    }
}

/// Returns the OpenAPI 3.1 document. Its examples contain an id that is valid now.
pub async fn openapi_3_1() -> Response {
    open_document(typed_response(StatusCode::OK, "application/json", with_fresh_id(tribunal_api::OPENAPI_3_1)))
}

/// Returns the same document as OpenAPI 3.0.3.
pub async fn openapi_3_0() -> Response {
    open_document(typed_response(StatusCode::OK, "application/json", with_fresh_id(tribunal_api::OPENAPI_3_0)))
}

fn with_fresh_id(document: &'static str) -> Body {
    filled(document, TXN_ID, uuid::Uuid::now_v7().to_string())
}

/// Returns a summary of the service with links. Redirects a browser to the reference page.
pub async fn root(headers: HeaderMap) -> Response {
    let wants_page =
        headers.get(ACCEPT).and_then(|value| value.to_str().ok()).is_some_and(|text| text.contains("text/html"));
    if wants_page {
        return Redirect::temporary("/docs").into_response();
    }
    let links = json!({
        "service": "Tribunal: concurrency control as a service",
        "docs": "/docs",
        "openapi": "/openapi.json",
        "begin": "POST /v1/txns",
        "commit": "POST /v1/txns/{txn_id}/commit",
        "log": "GET /v1/log?store=kv&after=0",
        "health": "/healthz",
        "readiness": "/readyz",
    });
    wire_response(StatusCode::OK, &links)
}

/// Returns the reference page.
pub async fn docs() -> Response {
    let mut response = typed_response(StatusCode::OK, "text/html; charset=utf-8", DOCS.as_str());
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    open_document(response)
}
