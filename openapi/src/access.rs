//! API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyRequest {
    /// Name, for people: letters, digits, `.`, `_`, `-`; at most 64.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// Namespace that it belongs to; the caller's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "shop")]
    pub namespace: Option<String>,
    /// What it may do: `engine`, `store`, `plugin-admin`, `operator`, `metrics`.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// How long it is valid, seconds; until it is revoked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 3153600000_u64, example = 7776000)]
    pub expires_in_s: Option<u32>,
}

/// A created key. Its secret is not stored and not returned again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyCreated {
    /// What to send as `authorization: Bearer`.
    #[schema(example = "trb_3nUv...")]
    pub key: String,
    /// Its public part.
    #[schema(example = "k7f3a9")]
    pub id: String,
    /// Its name, for people.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// Namespace that it belongs to.
    #[schema(example = "shop")]
    pub namespace: String,
    /// What it may do.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// When it was created, milliseconds since 1970.
    #[schema(example = "1808217543843")]
    pub created_ms: String,
    /// When it expires, milliseconds since 1970; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1815993543843")]
    pub expires_ms: Option<String>,
}

/// A key without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyInfo {
    /// Its public part.
    #[schema(example = "k7f3a9")]
    pub id: String,
    /// Its name, for people.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// Namespace that it belongs to.
    #[schema(example = "shop")]
    pub namespace: String,
    /// What it may do.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// When it was created, milliseconds since 1970.
    #[schema(example = "1808217543843")]
    pub created_ms: String,
    /// When it expires, milliseconds since 1970; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1815993543843")]
    pub expires_ms: Option<String>,
    /// When it was last used, to about a second, milliseconds since 1970; absent if no use is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1808217599000")]
    pub last_used_ms: Option<String>,
}

/// Keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// By namespace, then by name.
    pub keys: Vec<KeyInfo>,
}
