//! Checks whether a request comes from a peer, and gives the reason in a sentence if not. Every check names both sides.

use std::collections::{BTreeMap, BTreeSet};

use hyper::header::{HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tribunal_types::{Generation, Generations, NodeId};

use crate::identity::{is_of_node, node_name, node_of};
use crate::settings::{Lane, PeerSettings};

/// Path to which frames are posted.
pub(crate) const PATH: &str = "/peer/v1/frames";
/// Version of the protocol between peers.
pub(crate) const VERSION: &str = "1";
pub(crate) const VERSION_HEADER: HeaderName = HeaderName::from_static("tribunal-peer-version");
pub(crate) const CLUSTER_HEADER: HeaderName = HeaderName::from_static("tribunal-cluster");
pub(crate) const NODE_HEADER: HeaderName = HeaderName::from_static("tribunal-node");
/// The generations in which the caller can decide.
pub(crate) const GENERATIONS_HEADER: HeaderName = HeaderName::from_static("tribunal-generations");
/// The log of the caller's cluster. Earlier builds send none.
pub(crate) const LOG_HEADER: HeaderName = HeaderName::from_static("tribunal-log");
pub(crate) const LANE_HEADER: HeaderName = HeaderName::from_static("tribunal-lane");
/// Distinguishes two processes that run as the same node. Builds from before decision 112 send none.
pub(crate) const PROCESS_HEADER: HeaderName = HeaderName::from_static("tribunal-process");

/// Maximum number of a header's characters that are quoted in a sentence.
const QUOTED_CHARS_MAX: usize = 64;

/// A peer that may send frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub node: NodeId,
    pub lane: Lane,
    /// The process that runs as the node; empty if it was not sent.
    pub process: String,
}

/// Why a request was not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub reason: String,
}

/// Checks a request from a caller with this certificate, which was signed by our authority.
pub(crate) fn admit<P>(
    head: &Parts,
    certificate: &CertificateDer<'_>,
    us: &PeerSettings,
    peers: &BTreeMap<NodeId, P>,
    former: &BTreeSet<NodeId>,
    generation: Generation,
) -> Result<Admitted, Refusal> {
    let here = us.node;
    let refuse = |status, reason| Err(Refusal { status, reason });
    let node = calling_node(head, certificate, here)?;
    let cluster = header(&head.headers, &CLUSTER_HEADER);
    if cluster != us.cluster {
        return refuse(StatusCode::CONFLICT, of_other_cluster((here, &us.cluster), (node, &cluster)));
    }
    let log = header(&head.headers, &LOG_HEADER);
    if !log.is_empty() && !us.log.is_empty() && log != us.log {
        let reason = format!(
            "node {here} and node {node} have different secrets, and so different logs: {} and {log}; `cluster.secret_file` must have the \
             same content on all nodes",
            us.log,
        );
        return refuse(StatusCode::CONFLICT, reason);
    }
    if !is_of_node(certificate, node) {
        let name = node_name(node);
        let reason = match node_of(certificate) {
            Some(other) => {
                format!("node {here} refuses node {other}, which says that it is node {node}; give it its own number")
            }
            None => format!(
                "node {here} refuses node {node}: its certificate has no DNS name `{name}`; give it one that has"
            ),
        };
        return refuse(StatusCode::FORBIDDEN, reason);
    }
    if node == here {
        let reason = format!(
            "node {here} is called by node {node}: two nodes have the same number, or node {node} has its own address among \
             its peers'; no two nodes of a cluster can have one number"
        );
        return refuse(StatusCode::CONFLICT, reason);
    }
    if former.contains(&node) {
        let reason = format!("node {here} belongs to a cluster from which node {node} was removed");
        return refuse(StatusCode::GONE, reason);
    }
    if !peers.contains_key(&node) {
        let reason = format!(
            "node {here} does not have node {node} among its peers, which are {}; add it to the cluster, unless it was added a \
             moment ago",
            list(peers),
        );
        return refuse(StatusCode::FORBIDDEN, reason);
    }
    check_generation(&head.headers, here, node, generation)?;
    let lane = header(&head.headers, &LANE_HEADER);
    match Lane::of_name(&lane) {
        Some(lane) => Ok(Admitted { node, lane, process: header(&head.headers, &PROCESS_HEADER) }),
        None => refuse(StatusCode::BAD_REQUEST, format!("node {here} does not know the lane `{lane}` of node {node}")),
    }
}

/// Returns the node that calls by its own account, if the request is one of this protocol.
fn calling_node(head: &Parts, certificate: &CertificateDer<'_>, here: NodeId) -> Result<NodeId, Refusal> {
    let refuse = |status, reason| Err(Refusal { status, reason });
    let caller = || node_of(certificate).map_or_else(|| "a caller".to_owned(), |node| format!("node {node}"));
    if head.method != Method::POST || head.uri.path() != PATH {
        let what = format!("{} {}", head.method, head.uri.path().chars().take(QUOTED_CHARS_MAX).collect::<String>());
        let reason = format!("node {here} talks to peers here, by POST {PATH}, but {} asked for {what}", caller());
        return refuse(StatusCode::NOT_FOUND, reason);
    }
    let version = header(&head.headers, &VERSION_HEADER);
    if version != VERSION {
        let reason = format!(
            "node {here} speaks version {VERSION} of the protocol between peers, but {} speaks version `{version}`; run the same \
             release on both",
            caller(),
        );
        return refuse(StatusCode::BAD_REQUEST, reason);
    }
    let claimed = header(&head.headers, &NODE_HEADER);
    let Some(node) = claimed.parse().ok().map(NodeId).filter(|node| claimed == node.to_string()) else {
        let reason = format!("node {here} does not know which node calls: {} says `{claimed}`", caller());
        return refuse(StatusCode::BAD_REQUEST, reason);
    };
    Ok(node)
}

/// Separates a cluster's name from its founding nodes, in the name by which nodes identify each other's cluster.
const FOUNDERS: &str = ".nodes-";

/// Returns the refusal for two nodes that belong to different clusters, or disagree on the founding nodes.
fn of_other_cluster((here, ours): (NodeId, &str), (node, theirs): (NodeId, &str)) -> String {
    match (ours.rsplit_once(FOUNDERS), theirs.rsplit_once(FOUNDERS)) {
        (Some((name, own)), Some((other, founders))) if name == other => format!(
            "node {here} and node {node} both belong to the cluster `{name}`, but the configuration of node {here} says that it \
             began with the nodes {own}, and that of node {node} with the nodes {founders}; set the same `cluster.founders` in \
             both (if left out, these are all of `cluster.nodes`)"
        ),
        _ => format!(
            "node {here} belongs to the cluster `{ours}`, but node {node} to `{theirs}`; correct the name in the configuration of \
             one of them, or the address"
        ),
    }
}

/// Refuses a node whose release can no longer decide as the cluster does. A node that cannot do so yet may know of a
/// switch that this node does not know of.
fn check_generation(headers: &HeaderMap, here: NodeId, node: NodeId, generation: Generation) -> Result<(), Refusal> {
    let told = header(headers, &GENERATIONS_HEADER);
    // The first release sent none.
    let generations = if told.is_empty() { Some(Generations::default()) } else { Generations::from_text(&told) };
    match generations {
        Some(generations) if generations.newest >= generation => Ok(()),
        Some(generations) => Err(Refusal {
            status: StatusCode::UPGRADE_REQUIRED,
            reason: format!(
                "node {here} belongs to a cluster that decides in generation {generation}, but the release of node {node} can decide in \
                 generation {generations} only; start a newer release as node {node}"
            ),
        }),
        None => Err(Refusal {
            status: StatusCode::BAD_REQUEST,
            reason: format!(
                "node {here} does not know the generations `{told}` of node {node}; run releases that are next to each other"
            ),
        }),
    }
}

fn list<P>(peers: &BTreeMap<NodeId, P>) -> String {
    if peers.is_empty() {
        return "none".into();
    }
    peers.keys().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns a header as text that is safe to print; empty if it is missing.
fn header(headers: &HeaderMap, name: &HeaderName) -> String {
    let bytes = headers.get(name).map_or(&[][..], |value| value.as_bytes());
    String::from_utf8_lossy(bytes).escape_debug().take(QUOTED_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_that_began_with_other_nodes_are_told_by_the_setting() {
        let check = |ours, theirs| of_other_cluster((NodeId(1), ours), (NodeId(4), theirs));
        let told = check("ops.nodes-1-2-3", "ops.nodes-1-4");
        assert!(told.contains("`cluster.founders`") && told.contains("the cluster `ops`"), "{told}");
        assert!(told.contains("that of node 4 with the nodes 1-4"), "{told}");
        for (ours, theirs) in [("ops.nodes-1", "dev.nodes-1"), ("ops", "ops.nodes-1")] {
            let told = check(ours, theirs);
            assert!(told.contains(&format!("to the cluster `{ours}`, but node 4 to `{theirs}`")), "{told}");
        }
    }
}
