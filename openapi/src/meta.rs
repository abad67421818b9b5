//! Responses about the service itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The process is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: String,
}

/// Whether new transactions are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether they are.
    #[schema(example = true)]
    pub ready: bool,
    /// Why not; empty if they are.
    #[schema(example = json!([]))]
    pub reasons: Vec<String>,
}

/// What runs here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Version of the binary.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// This node's number.
    #[schema(minimum = 0)]
    pub node: u16,
    /// How often the node has started on this data directory.
    #[schema(minimum = 0)]
    pub incarnation: u32,
    /// The epoch that is open now.
    #[schema(example = "8842")]
    pub epoch: String,
    /// How epochs are sealed.
    #[schema(example = "adaptive")]
    pub epoch_mode: String,
}
