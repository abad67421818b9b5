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
    /// Why not, and what else needs attention, such as a push that has stopped: that does not make the node unready.
    #[schema(example = json!([]))]
    pub reasons: Vec<String>,
}

/// What runs here. Without a key for running the service, only the version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Version of the binary.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// This node's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 1)]
    pub node: Option<u16>,
    /// Which incarnation of the node this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2893147)]
    pub incarnation: Option<u32>,
    /// The epoch that is open now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// How epochs are sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "adaptive")]
    pub epoch_mode: Option<String>,
}
