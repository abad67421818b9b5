//! API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyRequest {
    /// What its owner calls it: letters, digits, `.`, `_`, `-`; at most 64.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// The tenant that it speaks for; the caller's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "shop")]
    pub namespace: Option<String>,
    /// What it may do: `engine`, `store`, `plugin-admin`, `operator`, `metrics`.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
}

/// A key that was made. Its secret is not kept and not shown again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyCreated {
    /// What to send as `authorization: Bearer`.
    #[schema(example = "trb_3nUv...")]
    pub key: String,
    /// Its public part.
    #[schema(example = "k7f3a9")]
    pub id: String,
    /// The name that its owner gave it.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// The tenant that it belongs to.
    #[schema(example = "shop")]
    pub namespace: String,
    /// What it may do.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// When it was made, milliseconds since 1970.
    #[schema(example = "1808217543843")]
    pub created_ms: String,
}

/// A key without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyInfo {
    /// Its public part.
    #[schema(example = "k7f3a9")]
    pub id: String,
    /// The name that its owner gave it.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// The tenant that it belongs to.
    #[schema(example = "shop")]
    pub namespace: String,
    /// What it may do.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// When it was made, milliseconds since 1970.
    #[schema(example = "1808217543843")]
    pub created_ms: String,
}

/// Keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// By namespace, then by name.
    pub keys: Vec<KeyInfo>,
}
