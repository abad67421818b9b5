//! API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyRequest {
    /// Name, for people: letters, digits, `.`, `_` and `-`; at most 64 characters.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// Namespace of the key; the caller's namespace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "shop")]
    pub namespace: Option<String>,
    /// Roles of the key: any of `engine`, `store`, `plugin-admin`, `operator` and `metrics`.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// Seconds until the key expires; if absent, it is valid until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 3153600000_u64, example = 7776000)]
    pub expires_in_s: Option<u32>,
}

/// A created key. The secret is not stored, so it cannot be returned again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyCreated {
    /// The key: send it in the header `authorization: Bearer <key>`.
    #[schema(example = "trb_3nUv...")]
    pub key: String,
    /// Public part of the key.
    #[schema(example = "k7f3a9")]
    pub id: String,
    /// Name, for people.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// Namespace of the key.
    #[schema(example = "shop")]
    pub namespace: String,
    /// Roles of the key.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// When it was created, Unix milliseconds.
    #[schema(example = "1808217543843")]
    pub created_ms: String,
    /// When it expires, Unix milliseconds; absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1815993543843")]
    pub expires_ms: Option<String>,
}

/// A key without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyInfo {
    /// Public part of the key.
    #[schema(example = "k7f3a9")]
    pub id: String,
    /// Name, for people.
    #[schema(example = "shop-engine")]
    pub name: String,
    /// Namespace of the key.
    #[schema(example = "shop")]
    pub namespace: String,
    /// Roles of the key.
    #[schema(example = json!(["engine"]))]
    pub roles: Vec<String>,
    /// When it was created, Unix milliseconds.
    #[schema(example = "1808217543843")]
    pub created_ms: String,
    /// When it expires, Unix milliseconds; absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1815993543843")]
    pub expires_ms: Option<String>,
    /// When it was last used, Unix milliseconds, accurate to about a second; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1808217599000")]
    pub last_used_ms: Option<String>,
    /// Whether it has expired: requests with it get status 401. It is listed until it is revoked.
    #[schema(example = false)]
    pub expired: bool,
}

/// A list of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// Keys, sorted by namespace and name.
    pub keys: Vec<KeyInfo>,
}
