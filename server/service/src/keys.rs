//! Keys and tokens: authentication and roles.

use std::sync::Arc;

use tribunal_types::{ApiKey, NamespaceId, Role, Roles};

use crate::ServiceFuture;

/// Authentication, and administration of keys.
pub trait KeyApi: Send + Sync {
    /// Returns the principal that a bearer token belongs to. Called for every request, so it must not block.
    ///
    /// # Errors
    /// If the token is not valid.
    fn authenticate(&self, token: &str) -> Result<Arc<Principal>, Unauthenticated>;

    /// Creates a key, durably. Returns the key and the bearer token of its owner.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`](crate::ServiceError::ClientMistake) if there are too many keys.
    fn create_key(&self, key: NewKey) -> ServiceFuture<'_, (ApiKey, String)>;

    /// Returns all keys that are not revoked, sorted by namespace and name.
    fn keys(&self) -> Vec<KeyStatus>;

    /// Revokes a key, durably, on behalf of `by`.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::ServiceError::Unavailable).
    fn revoke_key(&self, id: String, by: String) -> ServiceFuture<'_, ()>;
}

/// Why a credential was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unauthenticated {
    /// Problem code: `unauthenticated` or `key_expired`.
    pub code: &'static str,
    /// For people.
    pub detail: String,
    /// Whether the node knows neither the key nor the tenant that the token names: another node may just have created
    /// it.
    pub is_unknown: bool,
}

impl Unauthenticated {
    /// Returns the error for a credential that is missing, malformed or revoked.
    pub fn new(detail: impl Into<String>) -> Unauthenticated {
        Unauthenticated { code: "unauthenticated", detail: detail.into(), is_unknown: false }
    }

    /// Returns the error for a credential that the node does not know.
    pub fn unknown(detail: impl Into<String>) -> Unauthenticated {
        Unauthenticated { is_unknown: true, ..Unauthenticated::new(detail) }
    }

    /// Returns the error for a key that has expired.
    #[must_use]
    pub fn expired() -> Unauthenticated {
        let detail = "this key has expired; an operator can create another one";
        Unauthenticated { code: "key_expired", ..Unauthenticated::new(detail) }
    }
}

impl std::fmt::Display for Unauthenticated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Unauthenticated {}

/// A key, and when it was last used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The key.
    pub key: ApiKey,
    /// When the key was last used, Unix milliseconds; `None` if that is not known.
    pub last_used_ms: Option<u64>,
    /// Whether it has expired.
    pub expired: bool,
    /// Whether it is valid for at least another day.
    pub lasts: bool,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Namespace of the caller.
    pub namespace: NamespaceId,
    /// Name of that namespace.
    pub namespace_name: String,
    /// The caller's permissions.
    pub roles: Roles,
    /// Name of the caller, for people: the key's public part and name, or the token's subject.
    pub name: String,
}

impl Principal {
    /// Returns whether the caller may administer the whole service, all tenants included.
    #[must_use]
    pub fn runs_the_service(&self) -> bool {
        self.namespace == NamespaceId(0) && self.roles.has(Role::Operator)
    }

    /// Returns whether the caller may see metrics of the whole service, all tenants included.
    #[must_use]
    pub fn sees_the_service(&self) -> bool {
        self.namespace == NamespaceId(0) && (self.roles.has(Role::Operator) || self.roles.has(Role::Metrics))
    }

    /// Returns whether the caller may see the node's identity and open epoch, which activating a plugin requires.
    #[must_use]
    pub fn sees_the_node(&self) -> bool {
        self.sees_the_service() || self.namespace == NamespaceId(0) && self.roles.has(Role::PluginAdmin)
    }
}

/// A key to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// Name of the key, for people.
    pub name: String,
    /// Namespace of the key; created if it does not exist.
    pub namespace: String,
    /// The key's permissions.
    pub roles: Roles,
    /// Seconds until the key expires; `None` if it does not.
    pub expires_in_s: Option<u32>,
    /// Who creates the key.
    pub by: String,
}
