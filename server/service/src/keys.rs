//! Keys and tokens: who a caller is, and what it may do.

use std::sync::Arc;

use tribunal_types::{ApiKey, NamespaceId, Role, Roles};

use crate::ServiceFuture;

/// Who callers are, and which keys there are.
pub trait KeyApi: Send + Sync {
    /// Returns whom a bearer token belongs to. Called for every request: must not wait.
    ///
    /// # Errors
    /// If it is not valid.
    fn authenticate(&self, token: &str) -> Result<Arc<Principal>, Unauthenticated>;

    /// Creates a key, durably; returns it and what its owner sends.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`](crate::ServiceError::ClientMistake) if there are too many.
    fn create_key(&self, key: NewKey) -> ServiceFuture<'_, (ApiKey, String)>;

    /// Returns all keys that are not revoked, by namespace and name.
    fn keys(&self) -> Vec<KeyStatus>;

    /// Revokes a key, durably, on behalf of `by`.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::ServiceError::Unavailable).
    fn revoke_key(&self, id: String, by: String) -> ServiceFuture<'_, ()>;
}

/// Why a credential is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unauthenticated {
    /// Problem code: `unauthenticated` or `key_expired`.
    pub code: &'static str,
    /// For people.
    pub detail: String,
}

impl Unauthenticated {
    /// Refuses a credential that is missing, unknown, malformed or revoked.
    pub fn new(detail: impl Into<String>) -> Unauthenticated {
        Unauthenticated { code: "unauthenticated", detail: detail.into() }
    }

    /// Refuses a key that has expired.
    #[must_use]
    pub fn expired() -> Unauthenticated {
        let detail = "this key has expired; an operator can create another one";
        Unauthenticated { code: "key_expired", detail: detail.into() }
    }
}

impl std::fmt::Display for Unauthenticated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Unauthenticated {}

/// A key and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The key.
    pub key: ApiKey,
    /// When it was last used, milliseconds since 1970; `None` if that is not known.
    pub last_used_ms: Option<u64>,
}

/// Somebody who has proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its tenant.
    pub namespace: NamespaceId,
    /// The tenant's name.
    pub namespace_name: String,
    /// What it may do.
    pub roles: Roles,
    /// Who it is, for people: the key's public part and name, or the token's subject.
    pub name: String,
}

impl Principal {
    /// Tells whether it may look after the whole service, all tenants included.
    #[must_use]
    pub fn runs_the_service(&self) -> bool {
        self.namespace == NamespaceId(0) && self.roles.has(Role::Operator)
    }

    /// Tells whether it may see figures of the whole service, all tenants included.
    #[must_use]
    pub fn sees_the_service(&self) -> bool {
        self.namespace == NamespaceId(0) && (self.roles.has(Role::Operator) || self.roles.has(Role::Metrics))
    }

    /// Tells whether it may see what the node is and which epoch is open, as those who activate plugins must.
    #[must_use]
    pub fn sees_the_node(&self) -> bool {
        self.sees_the_service() || self.namespace == NamespaceId(0) && self.roles.has(Role::PluginAdmin)
    }
}

/// A key to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// Its name, for people.
    pub name: String,
    /// Name of its tenant, which exists from then on.
    pub namespace: String,
    /// What it may do.
    pub roles: Roles,
    /// How long it is valid, seconds; `None` until it is revoked.
    pub expires_in_s: Option<u32>,
    /// Who creates it.
    pub by: String,
}
