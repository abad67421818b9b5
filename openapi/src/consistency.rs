//! What a read must include.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the snapshots of a Begin, or the rows of a read, must include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// What the session token covers, and what the node itself has acknowledged.
    #[default]
    Session,
    /// Everything that any node of the cluster acknowledged to any client before the request. Costs a round trip to a
    /// majority of the nodes; on a node that runs alone, nothing.
    Fresh,
}
