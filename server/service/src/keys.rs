//! Keys and tokens: who a caller is, and what it may do.

use std::sync::Arc;

use tribunal_types::{ApiKey, NamespaceId, Role, Roles};

use crate::ServiceFuture;

/// Who callers are, and which keys there are.
pub trait KeyApi: Send + Sync {
    /// Tells whom a bearer token belongs to. Called for every request: must not wait.
    ///
    /// # Errors
    /// Why it is nobody's, in words.
    fn authenticate(&self, token: &str) -> Result<Arc<Principal>, String>;

    /// Makes a key, durably; answers it and what its owner sends.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if there are too many.
    fn create_key(&self, key: NewKey) -> ServiceFuture<'_, (ApiKey, String)>;

    /// Returns all keys in force, by namespace and name.
    fn keys(&self) -> Vec<ApiKey>;

    /// Takes a key back, durably.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`].
    fn revoke_key(&self, id: String) -> ServiceFuture<'_, ()>;
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
}

/// A key to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// What its owner calls it.
    pub name: String,
    /// Name of its tenant, which there is from then on.
    pub namespace: String,
    /// What it may do.
    pub roles: Roles,
}
