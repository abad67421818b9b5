//! `GET /v1/cluster`: the nodes, as this one sees them.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{ClusterInfo, ClusterNode, ClusterPush, Problem};
use tribunal_service::ClusterView;
use tribunal_types::{Digest, Epoch};

use crate::app::{App, wire_response};
use crate::request::query::Query;
use crate::response::problem::ProblemResponse;

/// Returns the nodes of the cluster as this one sees them: who is connected, who leads whose log, how far it has
/// decided, which node pushes to which storage.
#[utoipa::path(
    get, path = "/v1/cluster", operation_id = "cluster", tag = "service",
    params(("epoch" = Option<String>, Query, nullable = false, description = "Return the digest as of this epoch, too, so that nodes that have decided different epochs can be compared")),
    responses(
        (status = 200, description = "The nodes", body = ClusterInfo),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn cluster(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let mut query = Query::new(request.uri().query(), &["epoch"]);
    let at = query.bytes("epoch").is_some().then(|| Epoch(query.number("epoch", 0, Epoch::MAX.0)));
    query.finish()?;
    let view = app.service.node.cluster();
    let ClusterView { name, node, takes_commits, epoch, digest, control, control_leader, nodes, pushes } = view;
    let readiness = app.service.node.readiness(true);
    let nodes = nodes.into_iter().map(|node| ClusterNode {
        node: node.node.0,
        address: node.address,
        connected: node.connected,
        silent_ms: node.silent_ms,
        led_by: node.led_by.map(|leader| leader.0),
        problem: node.problem,
    });
    let pushes = pushes.into_iter().map(|push| ClusterPush {
        namespace: push.namespace,
        store: push.store,
        node: push.node.map(|node| node.0),
    });
    let wire = ClusterInfo {
        name,
        node: node.0,
        takes_commits,
        ready: readiness.ready,
        reasons: readiness.reasons,
        version: app.service.node.identity().version,
        epoch: epoch.to_string(),
        digest: shown(digest),
        digest_at: at.and_then(|epoch| app.service.node.digest_at(epoch)).map(shown),
        control_index: control.0.to_string(),
        control_leader: control_leader.map(|leader| leader.0),
        nodes: nodes.collect(),
        pushes: pushes.collect(),
    };
    Ok(wire_response(StatusCode::OK, &wire))
}

fn shown(digest: Digest) -> String {
    format!("{:016x}", digest.0)
}
