//! API keys and tenants, as the control log says. Of a key's secret only a hash is here.
//!
//! A secret is 32 random bytes, so a plain SHA-256 of it is as hard to turn back as any slow hash would be.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tribunal_service::Principal;
use tribunal_types::{ApiKey, ControlChange, NamespaceId, limits};

/// Name of the tenant that is there from the start.
pub const DEFAULT_NAMESPACE: &str = "default";
/// What a key begins with, so that one that leaked is recognised.
const PREFIX: &str = "trb";

/// The keys in force, and the tenants that keys were ever made for.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    keys: HashMap<String, Kept>,
    namespaces: BTreeMap<String, NamespaceId>,
}

#[derive(Clone, Debug)]
struct Kept {
    key: ApiKey,
    /// Whom it lets in, made once.
    principal: Arc<Principal>,
}

impl Kept {
    fn new(key: &ApiKey) -> Kept {
        let principal = Principal {
            namespace: key.namespace,
            namespace_name: key.namespace_name.clone(),
            roles: key.roles,
            name: format!("{}/{}", key.name, key.id),
        };
        Kept { key: key.clone(), principal: Arc::new(principal) }
    }
}

impl Keys {
    /// Takes over a control entry.
    pub fn apply(&mut self, change: &ControlChange) {
        match change {
            ControlChange::CreateKey(key) => {
                self.namespaces.entry(key.namespace_name.clone()).or_insert(key.namespace);
                self.keys.entry(key.id.clone()).or_insert_with(|| Kept::new(key));
            }
            ControlChange::RevokeKey { id } => drop(self.keys.remove(id)),
            _ => {}
        }
    }

    /// Returns whom a token lets in.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<&Arc<Principal>> {
        let mut parts = token.splitn(3, '_');
        let (Some(PREFIX), Some(id), Some(secret)) = (parts.next(), parts.next(), parts.next()) else { return None };
        let kept = self.keys.get(id)?;
        let found = digest(&SHA256, secret.as_bytes());
        // All bytes, whichever differs first: how long it takes says nothing.
        let differs = found.as_ref().iter().zip(&kept.key.secret_sha256).fold(0, |all, (a, b)| all | (a ^ b));
        (differs == 0).then_some(&kept.principal)
    }

    /// Returns a tenant's number.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<NamespaceId> {
        if name == DEFAULT_NAMESPACE { Some(NamespaceId(0)) } else { self.namespaces.get(name).copied() }
    }

    /// Returns a tenant's name.
    #[must_use]
    pub fn namespace_name(&self, namespace: NamespaceId) -> Option<&str> {
        if namespace == NamespaceId(0) {
            return Some(DEFAULT_NAMESPACE);
        }
        self.namespaces.iter().find(|(_, known)| **known == namespace).map(|(name, _)| name.as_str())
    }

    /// Returns the number that the next new tenant gets.
    #[must_use]
    pub fn next_namespace(&self) -> NamespaceId {
        NamespaceId(self.namespaces.values().map(|namespace| namespace.0).max().unwrap_or(0) + 1)
    }

    /// Returns the keys by namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<ApiKey> {
        let mut keys: Vec<ApiKey> = self.keys.values().map(|kept| kept.key.clone()).collect();
        keys.sort_by(|a, b| (&a.namespace_name, &a.name, &a.id).cmp(&(&b.namespace_name, &b.name, &b.id)));
        keys
    }

    /// Tells whether somebody can look after the service.
    #[must_use]
    pub fn has_service_operator(&self) -> bool {
        self.keys.values().any(|kept| kept.principal.runs_the_service())
    }

    /// Says so if a tenant, or the service, has as many keys as it may.
    #[must_use]
    pub fn is_full(&self, namespace: NamespaceId) -> Option<String> {
        let of_tenant = || self.keys.values().filter(|kept| kept.key.namespace == namespace).count();
        if namespace != NamespaceId(0) && of_tenant() >= limits::KEYS_PER_TENANT_MAX {
            return Some(format!("{} keys of this tenant are out; revoke some", limits::KEYS_PER_TENANT_MAX));
        }
        let full = self.keys.len() >= limits::KEYS_MAX;
        full.then(|| format!("{} keys are out; revoke some", limits::KEYS_MAX))
    }
}

/// Draws the public part of a key, what its owner sends, and the hash of its secret.
///
/// # Errors
/// If the operating system gives no random bytes.
pub fn draw() -> Result<(String, String, [u8; 32]), String> {
    let mut random = [0; 40];
    SystemRandom::new().fill(&mut random).map_err(|_| "the operating system gives no random bytes".to_owned())?;
    let id: String = random[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let secret = URL_SAFE_NO_PAD.encode(&random[8..]);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    let token = format!("{PREFIX}_{id}_{secret}");
    Ok((id, token, hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::Roles;

    fn key(id: &str, secret_sha256: [u8; 32], namespace: (u32, &str)) -> ApiKey {
        ApiKey {
            id: id.to_owned(),
            name: "jo".into(),
            namespace: NamespaceId(namespace.0),
            namespace_name: namespace.1.to_owned(),
            roles: Roles::ALL,
            secret_sha256,
            created_ms: 0,
        }
    }

    #[test]
    fn a_key_is_known_by_its_secret_until_it_is_revoked() {
        let mut keys = Keys::default();
        let (id, token, hash) = draw().expect("random bytes");
        keys.apply(&ControlChange::CreateKey(key(&id, hash, (0, "default"))));
        assert_eq!(keys.find(&token).map(|caller| caller.name.clone()), Some(format!("jo/{id}")));
        let (_, other, _) = draw().expect("random bytes");
        let secret = other.rsplit_once('_').expect("three parts").1;
        for wrong in [format!("trb_{id}_{secret}"), format!("{token}x"), token[1..].to_owned(), id.clone(), other] {
            assert!(keys.find(&wrong).is_none(), "{wrong}");
        }
        assert!(keys.has_service_operator());
        keys.apply(&ControlChange::RevokeKey { id });
        assert!(keys.find(&token).is_none() && !keys.has_service_operator());
    }

    #[test]
    fn tenants_outlive_their_keys() {
        let mut keys = Keys::default();
        assert_eq!(keys.next_namespace(), NamespaceId(1));
        keys.apply(&ControlChange::CreateKey(key("a", [0; 32], (1, "shop"))));
        keys.apply(&ControlChange::RevokeKey { id: "a".into() });
        assert_eq!((keys.namespace("shop"), keys.namespace("bank")), (Some(NamespaceId(1)), None));
        assert_eq!((keys.namespace_name(NamespaceId(1)), keys.namespace_name(NamespaceId(2))), (Some("shop"), None));
        assert_eq!(keys.next_namespace(), NamespaceId(2), "its rows are still there");
    }
}
