//! `/v1/cluster`: the nodes as seen by this one; adding, draining and removing nodes.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::MapAccess;
use tribunal_api::{ClusterInfo, ClusterNode, ClusterPush, NodeAdmitted, NodeRequest, NodeStage, Problem};
use tribunal_service::{ClusterView, MemberStage, PushView, ServiceError};
use tribunal_types::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX};
use tribunal_types::{Digest, Epoch, NodeId};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::json::{Fields, ObjectSeed, document, scalar};
use crate::request::query::{Query, segment};
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;

/// Returns the nodes of the cluster as this one sees them: who is connected, who leads whose log, how far it has
/// decided, which node pushes to which storage and to which webhook.
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
    let mut view = app.service.node.cluster();
    let [pushes, webhooks] = [&mut view.pushes, &mut view.webhooks].map(std::mem::take);
    let ClusterView { name, node, takes_commits, epoch, digest, control, control_leader, .. } = view;
    let ClusterView { generation, founders, authorities, nodes, .. } = view;
    let readiness = app.service.node.readiness(true);
    let nodes = nodes.into_iter().map(|node| ClusterNode {
        node: node.node.0,
        address: node.address,
        stage: match node.stage {
            MemberStage::Drained => NodeStage::Drained,
            MemberStage::Joining => NodeStage::Joining,
            MemberStage::Member => NodeStage::Member,
            MemberStage::Leaving => NodeStage::Leaving,
        },
        connected: node.connected,
        silent_ms: node.silent_ms,
        led_by: node.led_by.map(|leader| leader.0),
        version: node.release.as_ref().map(|release| release.version.clone()),
        generations: node.release.as_ref().map(|release| release.generations.to_string()),
        engine: node.release.map(|release| release.engine),
        problem: node.problem,
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
        generation: generation.map(|generation| generation.0),
        founders: founders.into_iter().map(|node| node.0).collect(),
        authorities,
        nodes: nodes.collect(),
        pushes: pushes.into_iter().map(pushed).collect(),
        webhooks: webhooks.into_iter().map(pushed).collect(),
    };
    Ok(wire_response(StatusCode::OK, &wire))
}

fn pushed(push: PushView) -> ClusterPush {
    ClusterPush { namespace: push.namespace, store: push.store, node: push.node.map(|node| node.0) }
}

/// Admits a node to the cluster, and assigns it a permanent number. It becomes a member once its process has started with that
/// number and an empty data directory, and has caught up: `GET /v1/cluster` shows it as `joining` until then. Commits do not
/// wait for it.
#[utoipa::path(
    post, path = "/v1/cluster/nodes", operation_id = "addNode", tag = "service",
    request_body(content = NodeRequest, description = "The node to add"),
    responses(
        (status = 201, description = "The node is admitted", body = NodeAdmitted),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The node cannot be admitted: the cluster has its maximum of nodes, another node has this name, or this node runs alone", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The node was not admitted", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn add_node(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let NodeRequest { address, name } = read(utf8(&bytes)?)?;
    let name = name.unwrap_or_else(|| address.clone());
    let catalog = app.service.stores.catalog();
    let node = app.service.node.add_node(name.clone(), address.clone()).await.map_err(refuse(&catalog))?;
    Ok(wire_response(StatusCode::CREATED, &NodeAdmitted { node: node.0, address, name }))
}

/// Removes a node from the cluster permanently. This starts the removal; it is complete when `GET /v1/cluster` no longer lists the
/// node. Commits that it has accepted are decided and answered first. Its process then ends, and must not be started again. A node
/// that cannot be reached is removed as well, while a majority of the others can.
#[utoipa::path(
    delete, path = "/v1/cluster/nodes/{node}", operation_id = "removeNode", tag = "service",
    params(("node" = u16, Path, description = "Number of the node")),
    responses(
        (status = 202, description = "The node is being removed, or was removed before"),
        (status = 404, description = "No node ever had this number", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Too many nodes would leave at once, nobody would be left, or this node runs alone", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The node is not removed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn remove_node(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let node = named_node(&app, request.uri().path())?;
    app.service.node.remove_node(node).await.map_err(refuse(&app.service.stores.catalog()))?;
    Ok(accepted())
}

/// Drains a node: it stays a member and votes, but leads no log, takes no commits and pushes to no storage, so nothing waits
/// for it while it is slow or under maintenance. This starts the draining; it is complete when `GET /v1/cluster` shows no log that is
/// `led_by` the node, and no push by it. A drained node stays drained when it restarts.
#[utoipa::path(
    post, path = "/v1/cluster/nodes/{node}/drain", operation_id = "drainNode", tag = "service",
    params(("node" = u16, Path, description = "Number of the node")),
    responses(
        (status = 202, description = "The node is being drained, or was drained before"),
        (status = 404, description = "No node ever had this number", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No other node would take commits, the node is no member, or this node runs alone", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The node is not drained", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn drain_node(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    change_draining(&app, request.uri().path(), true).await
}

/// Lets a drained node resume: within seconds it leads its own log and takes commits again.
#[utoipa::path(
    post, path = "/v1/cluster/nodes/{node}/resume", operation_id = "resumeNode", tag = "service",
    params(("node" = u16, Path, description = "Number of the node")),
    responses(
        (status = 202, description = "The node resumes, or was not drained"),
        (status = 404, description = "No node ever had this number", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The node is no member, or this node runs alone", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The node does not resume", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn resume_node(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    change_draining(&app, request.uri().path(), false).await
}

async fn change_draining(app: &App, path: &str, drained: bool) -> Result<Response, ProblemResponse> {
    let node = named_node(app, path)?;
    app.service.node.drain_node(node, drained).await.map_err(refuse(&app.service.stores.catalog()))?;
    Ok(accepted())
}

/// Returns the node in the path.
fn named_node(app: &App, path: &str) -> Result<NodeId, ProblemResponse> {
    let node = segment(path, 3);
    let number = std::str::from_utf8(&node).ok().and_then(|node| node.parse().ok());
    let unknown = || ServiceError::NotFound {
        what: "node with this number; `tribunal cluster status` (`GET /v1/cluster`) lists them".into(),
    };
    number.map(NodeId).ok_or_else(|| refuse(&app.service.stores.catalog())(unknown()))
}

fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn read(text: &str) -> Result<NodeRequest, ProblemResponse> {
    let mut body = NodeBody::default();
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|error| ProblemResponse::of_syntax(&error))?;
    if body.address.is_none() && body.errors.is_empty() {
        body.errors.add(Code::MissingField, "/address", "is required: the address of the node, as host:port");
    }
    if body.name.is_none()
        && body.errors.is_empty()
        && body.address.as_ref().is_some_and(|address| address.len() > NAME_BYTES_MAX)
    {
        let detail =
            format!("is required: the address has more than the {NAME_BYTES_MAX} bytes of a name; choose a short one");
        body.errors.add(Code::MissingField, "/name", detail);
    }
    if !body.errors.is_empty() {
        return Err(ProblemResponse::of_errors(&body.errors));
    }
    Ok(NodeRequest { address: body.address.unwrap_or_default(), name: body.name })
}

#[derive(Default)]
struct NodeBody {
    address: Option<String>,
    name: Option<String>,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for NodeBody {
    fn names(&self) -> &'static [&'static str] {
        &["address", "name"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        let Some(text) = scalar(map)?.text(at, &mut self.errors) else { return Ok(()) };
        if index == 0 {
            if is_address(&text) {
                self.address = Some(text.into_owned());
            } else {
                let detail = format!("must be host:port, of at most {ADDRESS_BYTES_MAX} bytes, such as 10.1.0.4:7421");
                self.errors.add(Code::BadName, at, detail);
            }
        } else if (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control) {
            self.name = Some(text.into_owned());
        } else {
            self.errors.add(
                Code::BadName,
                at,
                format!("must be 1 to {NAME_BYTES_MAX} bytes without control characters"),
            );
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(char::is_whitespace));
    let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
    text.len() <= ADDRESS_BYTES_MAX && port.is_some_and(|port| port > 0)
}

fn shown(digest: Digest) -> String {
    format!("{:016x}", digest.0)
}
