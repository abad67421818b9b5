//! An operator adds and removes nodes.

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

    fn must_be_member(&self) -> Result<(), ServiceError> {
        if self.joined.is_some() {
            return Ok(());
        }
        Err(ServiceError::ClientMistake {
            code: "runs_alone",
            pointer: String::new(),
            detail: "this node runs alone: nodes can be added only to a cluster, and a node that runs alone does not become one. \
                     Make a cluster (`tribunal cluster certificates`, or `tribunal cluster up` on one machine)"
                .into(),
        })
    }
}
