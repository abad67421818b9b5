//! `GET /v1/cluster`: the nodes, as this one sees them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{ClusterInfo, ClusterNode, ClusterPush, Problem};
use tribunal_service::ClusterView;

use crate::app::{App, wire_response};

/// Returns the nodes of the cluster as this one sees them: who is connected, who leads whose log, how far it has
/// decided, which node pushes to which storage.
#[utoipa::path(
    get, path = "/v1/cluster", operation_id = "cluster", tag = "service",
    responses(
        (status = 200, description = "The nodes", body = ClusterInfo),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn cluster(State(app): State<App>) -> Response {
    let ClusterView { name, node, takes_commits, epoch, digest, control_leader, nodes, pushes } =
        app.service.node.cluster();
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
        epoch: epoch.to_string(),
        digest: format!("{:016x}", digest.0),
        control_leader: control_leader.map(|leader| leader.0),
        nodes: nodes.collect(),
        pushes: pushes.collect(),
    };
    wire_response(StatusCode::OK, &wire)
}
