//! Answers about the service itself.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{Health, Readiness, VersionInfo};

use crate::app::{App, typed_response, wire_response};

/// Type of the Prometheus text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Tells that the process is alive.
#[utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "service",
    responses((status = 200, description = "Alive", body = Health))
)]
pub async fn health() -> Response {
    wire_response(StatusCode::OK, &Health { status: "ok".to_owned() })
}

/// Tells whether new transactions are taken.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readiness", tag = "service",
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "Not ready; the reasons say why", body = Readiness),
    )
)]
pub async fn ready(State(app): State<App>) -> Response {
    let readiness = app.service.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    wire_response(status, &Readiness { ready: readiness.ready, reasons: readiness.reasons })
}

/// Metrics in the Prometheus text format.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "service",
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain"))
)]
pub async fn metrics(State(app): State<App>) -> Response {
    typed_response(StatusCode::OK, PROMETHEUS, app.service.metrics())
}

/// Tells what runs here.
#[utoipa::path(
    get, path = "/version", operation_id = "version", tag = "service",
    responses((status = 200, description = "What runs here", body = VersionInfo))
)]
pub async fn version(State(app): State<App>) -> Response {
    let identity = app.service.identity();
    let wire = VersionInfo {
        version: identity.version,
        node: identity.group.node.0,
        incarnation: identity.group.incarnation.0,
        epoch: identity.epoch.to_string(),
        epoch_mode: identity.epoch_mode,
    };
    wire_response(StatusCode::OK, &wire)
}
