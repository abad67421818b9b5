//! Node changes by the operator: add, drain, remove.

use tribunal_core::control::Effect;
use tribunal_service::{NodeApi, ServiceError};
use tribunal_types::{ControlChange, NodeId};

use crate::commit::refusals::refused;
use crate::service::NodeService;

impl NodeService {
    /// Admits a node, and returns its number, with which its process must be started.
    pub(crate) async fn admit_node(&self, name: String, address: String) -> Result<NodeId, ServiceError> {
        self.must_be_member()?;
        self.must_be_free(&name, &address)?;
        match self.control(ControlChange::AdmitNode { name, address, voters: Vec::new() }).await?.map_err(refused)? {
            Effect::NodeAdmitted(node) => Ok(node),
            effect => unreachable!("a node was to be admitted, and the effect is {effect:?}"),
        }
    }

    /// Begins the removal of a node.
    pub(crate) async fn begin_removal(&self, node: NodeId) -> Result<(), ServiceError> {
        self.must_be_member()?;
        self.control(ControlChange::RemoveNode { node }).await?.map_err(refused).map(drop)
    }

    /// Drains a node, or lets it resume.
    pub(crate) async fn change_draining(&self, node: NodeId, drained: bool) -> Result<(), ServiceError> {
        self.must_be_member()?;
        self.control(ControlChange::DrainNode { node, drained }).await?.map_err(refused).map(drop)
    }

    /// Checks that no other node has this address. Two nodes admitted concurrently may still get the same one; one of
    /// them then never connects.
    fn must_be_free(&self, name: &str, address: &str) -> Result<(), ServiceError> {
        let members = self.shared.view.roles().members;
        let taken = self.cluster().nodes.into_iter().find(|node| {
            let is_same = || members.node(node.node).is_some_and(|known| known.name == name);
            node.address.as_deref() == Some(address) && !is_same()
        });
        let Some(taken) = taken else { return Ok(()) };
        Err(ServiceError::ClientMistake {
            code: "node_address_taken",
            pointer: "/address".into(),
            detail: format!("node {} has the address {address}; the new node needs one of its own", taken.node),
        })
    }

    fn must_be_member(&self) -> Result<(), ServiceError> {
        if self.joined.is_some() {
            return Ok(());
        }
        Err(ServiceError::ClientMistake {
            code: "runs_alone",
            pointer: String::new(),
            detail: "this node runs alone: it has no other nodes. Make it the first node of a cluster (stop it, then \
                     `tribunal cluster adopt`), or make a new cluster (`tribunal cluster certificates`, or `tribunal \
                     cluster up` on one machine)"
                .into(),
        })
    }
}
