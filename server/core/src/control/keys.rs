//! Keys and tenants: which ones exist. Whether a key is valid at a given time, and when it was used, is up to the
//! shell. A copy shares everything until either one is changed.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::limits::{KEYS_MAX, KEYS_PER_TENANT_MAX, KEYS_REVOKED_KEPT, TENANTS_MAX};
use tribunal_types::{ApiKey, ControlIndex, DEFAULT_NAMESPACE, HeldKey, NamespaceId, RevokedKey};

use super::effect::{Applied, Effect};
use super::numbering::number_of;
use super::refusal::{Limit, Refusal};

/// The keys that are not revoked, the most recently revoked ones, and all tenants that keys were ever created for.
///
/// The first key of a tenant is never forgotten: the tenant's number is that of its entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTable {
    keys: Arc<BTreeMap<String, HeldKey>>,
    /// Oldest first.
    revoked: Arc<VecDeque<RevokedKey>>,
    tenants: Arc<BTreeMap<String, NamespaceId>>,
}

impl KeyTable {
    /// Creates a key, and its tenant if that does not exist yet.
    ///
    /// # Errors
    /// If there is no room, or its id is taken.
    pub fn create(&mut self, index: ControlIndex, key: &ApiKey) -> Applied {
        if let Some(HeldKey { key: held, .. }) = self.keys.get(&key.id) {
            // The same proposal twice, if only the tenant's number differs.
            let is_same = *held == ApiKey { namespace: held.namespace, ..key.clone() };
            return if is_same { Ok(Effect::KeyKnown(held.clone())) } else { Err(Refusal::KeyIdTaken) };
        }
        if self.revoked.iter().any(|revoked| revoked.id == key.id) {
            return Err(Refusal::KeyIdTaken);
        }
        let known = self.namespace(&key.namespace_name);
        self.check_room(known)?;
        let namespace = match known {
            Some(known) => known,
            None => {
                let is_used = |number| self.tenants.values().any(|known| known.0 == number);
                NamespaceId(number_of(index, key.namespace.0, is_used)?)
            }
        };
        let founded = known.is_none();
        if founded {
            Arc::make_mut(&mut self.tenants).insert(key.namespace_name.clone(), namespace);
        }
        let key = ApiKey { namespace, ..key.clone() };
        let held = HeldKey { key: key.clone(), created: index, founded };
        Arc::make_mut(&mut self.keys).insert(key.id.clone(), held);
        Ok(Effect::KeyCreated { key, founded })
    }

    /// Checks that there is room for a key of a tenant; `None` is a new tenant.
    fn check_room(&self, namespace: Option<NamespaceId>) -> Result<(), Refusal> {
        let of_tenant = |namespace| self.keys.values().filter(|held| held.key.namespace == namespace).count();
        match namespace {
            None if self.tenants.len() >= TENANTS_MAX => Err(Refusal::LimitReached(Limit::Tenants)),
            Some(NamespaceId(number)) if number != 0 && of_tenant(NamespaceId(number)) >= KEYS_PER_TENANT_MAX => {
                Err(Refusal::LimitReached(Limit::KeysOfTenant))
            }
            _ if self.keys.len() >= KEYS_MAX => Err(Refusal::LimitReached(Limit::Keys)),
            _ => Ok(()),
        }
    }

    /// Revokes a key.
    pub fn revoke(&mut self, index: ControlIndex, id: &str) -> Effect {
        if !self.keys.contains_key(id) {
            return Effect::Unchanged;
        }
        let Some(HeldKey { key, created, founded }) = Arc::make_mut(&mut self.keys).remove(id) else {
            return Effect::Unchanged;
        };
        let ApiKey { id, name, secret_sha256, .. } = key;
        let revoked = Arc::make_mut(&mut self.revoked);
        let of_others = revoked.iter().filter(|revoked| !revoked.founded).count();
        let oldest = revoked.iter().position(|revoked| !revoked.founded);
        let forgotten = oldest.filter(|_| !founded && of_others >= KEYS_REVOKED_KEPT);
        let forgotten = forgotten.and_then(|at| revoked.remove(at));
        revoked.push_back(RevokedKey { id: id.clone(), name, secret_sha256, created, revoked: index, founded });
        Effect::KeyRevoked { id, forgotten }
    }

    /// Forgets the keys that were created by these entries.
    pub(super) fn forget_created(&mut self, by: impl Fn(ControlIndex) -> bool) {
        Arc::make_mut(&mut self.keys).retain(|_, held| !by(held.created));
        Arc::make_mut(&mut self.revoked).retain(|revoked| !by(revoked.created));
    }

    /// Returns a tenant's number.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<NamespaceId> {
        if name == DEFAULT_NAMESPACE { Some(NamespaceId(0)) } else { self.tenants.get(name).copied() }
    }

    /// Returns a tenant's name.
    #[must_use]
    pub fn namespace_name(&self, namespace: NamespaceId) -> Option<&str> {
        if namespace == NamespaceId(0) {
            return Some(DEFAULT_NAMESPACE);
        }
        self.tenants().find(|(_, known)| *known == namespace).map(|(name, _)| name)
    }

    /// Returns all tenants except the default one, in ascending order of name.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, NamespaceId)> {
        self.tenants.iter().map(|(name, namespace)| (name.as_str(), *namespace))
    }

    /// Returns the keys that are not revoked, in ascending order of id.
    pub fn held(&self) -> impl Iterator<Item = &HeldKey> {
        self.keys.values()
    }

    /// Returns the most recently revoked keys, oldest first.
    pub fn revoked(&self) -> impl Iterator<Item = &RevokedKey> {
        self.revoked.iter()
    }

    pub(super) fn image(&self) -> (Vec<(String, NamespaceId)>, Vec<HeldKey>, Vec<RevokedKey>) {
        let tenants = self.tenants.iter().map(|(name, namespace)| (name.clone(), *namespace)).collect();
        (tenants, self.held().cloned().collect(), self.revoked().cloned().collect())
    }

    pub(super) fn restore(
        tenants: Vec<(String, NamespaceId)>,
        keys: Vec<HeldKey>,
        revoked: Vec<RevokedKey>,
    ) -> KeyTable {
        let keys = keys.into_iter().map(|held| (held.key.id.clone(), held)).collect();
        KeyTable {
            keys: Arc::new(keys),
            revoked: Arc::new(revoked.into()),
            tenants: Arc::new(tenants.into_iter().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::format;

    use super::*;

    fn key(id: &str, namespace_name: &str) -> ApiKey {
        ApiKey { id: id.into(), namespace_name: namespace_name.into(), ..ApiKey::default() }
    }

    fn namespace(applied: Applied) -> u32 {
        match applied {
            Ok(Effect::KeyCreated { key, .. }) => key.namespace.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tenant_gets_the_index_of_its_first_key_and_outlives_its_keys() {
        let mut keys = KeyTable::default();
        assert_eq!(namespace(keys.create(ControlIndex(4), &key("a", "shop"))), 4);
        assert_eq!(namespace(keys.create(ControlIndex(5), &key("b", "bank"))), 5);
        assert_eq!(namespace(keys.create(ControlIndex(6), &key("c", "shop"))), 4);
        assert_eq!(namespace(keys.create(ControlIndex(7), &key("d", DEFAULT_NAMESPACE))), 0);
        for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
            let revoked = Effect::KeyRevoked { id: id.to_owned(), forgotten: None };
            assert_eq!(keys.revoke(ControlIndex(10 + at as u64), id), revoked);
        }
        assert_eq!(namespace(keys.create(ControlIndex(20), &key("e", "bank"))), 5, "its rows are still there");
    }

    #[test]
    fn an_id_belongs_to_one_key() {
        let mut keys = KeyTable::default();
        keys.create(ControlIndex(1), &key("a", "shop")).unwrap();
        let created = ApiKey { namespace: NamespaceId(1), ..key("a", "shop") };
        assert_eq!(keys.create(ControlIndex(2), &key("a", "shop")), Ok(Effect::KeyKnown(created)), "proposed twice");
        let other = ApiKey { secret_sha256: [1; 32], ..key("a", "shop") };
        assert_eq!(keys.create(ControlIndex(3), &other), Err(Refusal::KeyIdTaken));
        keys.revoke(ControlIndex(4), "a");
        assert_eq!(keys.create(ControlIndex(5), &key("a", "shop")), Err(Refusal::KeyIdTaken), "revoked for good");
        assert_eq!(keys.revoke(ControlIndex(6), "a"), Effect::Unchanged);
    }

    #[test]
    fn a_tenant_has_as_many_keys_as_it_may_and_the_service_as_many_tenants() {
        let mut keys = KeyTable::default();
        for n in 1..=KEYS_PER_TENANT_MAX as u64 {
            keys.create(ControlIndex(n), &key(&format!("{n}"), "shop")).unwrap();
        }
        assert_eq!(
            keys.create(ControlIndex(999), &key("one more", "shop")),
            Err(Refusal::LimitReached(Limit::KeysOfTenant))
        );
        for n in 1000..1000 + TENANTS_MAX as u64 - 1 {
            keys.create(ControlIndex(n), &key(&format!("{n}"), &format!("t{n}"))).unwrap();
            keys.revoke(ControlIndex(50_000 + n), &format!("{n}"));
        }
        assert_eq!(keys.create(ControlIndex(90_000), &key("x", "new")), Err(Refusal::LimitReached(Limit::Tenants)));
        assert_eq!(namespace(keys.create(ControlIndex(90_001), &key("x", "t1000"))), 1000, "it exists");
    }

    #[test]
    fn a_revoked_key_is_forgotten_when_enough_others_were_revoked_unless_it_founded_a_tenant() {
        let mut keys = KeyTable::default();
        let mut index = 0;
        let mut churn = |id: &str, tenant: &str| {
            index += 2;
            keys.create(ControlIndex(index - 1), &key(id, tenant)).unwrap();
            match keys.revoke(ControlIndex(index), id) {
                Effect::KeyRevoked { forgotten, .. } => forgotten.map(|key| (key.id, key.created, key.revoked)),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(churn("first", "shop"), None);
        for n in 1..=KEYS_REVOKED_KEPT {
            assert_eq!(churn(&format!("{n}"), "shop"), None);
        }
        assert_eq!(churn("another's first", "bank"), None);
        assert_eq!(churn("more", "shop"), Some(("1".to_owned(), ControlIndex(3), ControlIndex(4))));
        assert_eq!(keys.revoked().count(), KEYS_REVOKED_KEPT + 2);
        assert_eq!(keys.create(ControlIndex(9000), &key("first", "shop")), Err(Refusal::KeyIdTaken));
    }
}
