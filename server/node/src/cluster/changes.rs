//! An operator adds, drains and removes nodes.

use tribunal_core::control::Effect;
use tribunal_service::ServiceError;
use tribunal_types::{ControlChange, NodeId};

use crate::commit::refusals::refused;
use crate::service::NodeService;

impl NodeService {
    /// Admits a node, and returns its number. Its process is to be started with that.
    pub(crate) async fn admit_node(&self, name: String, address: String) -> Result<NodeId, ServiceError> {
        self.must_be_member()?;
        match self.control(ControlChange::AdmitNode { name, address }).await?.map_err(refused)? {
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

    fn must_be_member(&self) -> Result<(), ServiceError> {
        if self.joined.is_some() {
            return Ok(());
        }
        Err(ServiceError::ClientMistake {
            code: "runs_alone",
            pointer: String::new(),
            detail: "this node runs alone: it has no other nodes, and does not become a cluster. \
                     Make a cluster (`tribunal cluster certificates`, or `tribunal cluster up` on one machine)"
                .into(),
        })
    }
}
