//! Where the stores of each tenant may be, and how to log in there: the operator's networks and credentials, by tenant.
//!
//! Invariant: what the configuration opens for one tenant is closed to all others. Otherwise a client that may declare a store
//! could write into another tenant's storage by naming its address. A tenant that the configuration does not name
//! reaches public addresses only, and logs in nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_push::EgressPolicy;
use tribunal_types::{DEFAULT_NAMESPACE, LogId, NamespaceId};

use crate::auth::access::Access;
use crate::config::Push;
use crate::stores::credentials::{Credential, Credentials};
use crate::stores::storages::Storages;

/// What one tenant's stores may reach.
struct TenantEgress {
    /// Where connections may go.
    egress: EgressPolicy,
    /// How to log in there.
    storages: Storages,
}

/// What the configuration says of each tenant, by its name.
pub struct ConfiguredEgress(BTreeMap<String, (EgressPolicy, Credentials)>);

impl ConfiguredEgress {
    /// Reads what is configured, and adds each network and credential that cannot be read to `faults`.
    pub fn read(push: &Push, faults: &mut Vec<String>) -> ConfiguredEgress {
        if push.tenants.contains_key(DEFAULT_NAMESPACE) {
            faults.push(
                "configuration: `push.allow` and `push.credentials` are those of the namespace `default`; it has no \
                 place in `push.tenants`"
                    .into(),
            );
        }
        let mut one = |key: &str, allow: &[String], credentials: &[Credential]| {
            let mut allowed = Vec::with_capacity(allow.len());
            for net in allow {
                match net.parse() {
                    Ok(net) => allowed.push(net),
                    Err(error) => faults.push(format!("configuration: `{key}.allow` has `{net}`: {error}")),
                }
            }
            let credentials = Credentials::read(key, credentials).unwrap_or_else(|more| {
                faults.extend(more);
                Credentials::default()
            });
            (EgressPolicy::new(allowed), credentials)
        };
        let tenants = push.tenants.iter();
        let tenants = tenants
            .map(|(name, tenant)| (name, one(&format!("push.tenants.{name}"), &tenant.allow, &tenant.credentials)));
        let mut by_name: BTreeMap<_, _> = tenants.map(|(name, read)| (name.clone(), read)).collect();
        by_name.insert(DEFAULT_NAMESPACE.to_owned(), one("push", &push.allow, &push.credentials));
        ConfiguredEgress(by_name)
    }
}

/// See the file's head.
pub struct EgressByTenant {
    access: Arc<Access>,
    by_name: BTreeMap<String, TenantEgress>,
    /// How tenants log in that the configuration does not name: nowhere.
    storages_of_others: Storages,
    /// Their policies, one each: it bounds how many names a tenant has looked up at a time.
    others: Mutex<BTreeMap<NamespaceId, EgressPolicy>>,
}

impl EgressByTenant {
    /// Applies what is configured to the stores of this log.
    #[must_use]
    pub fn new(configured: ConfiguredEgress, log: LogId, access: Arc<Access>) -> EgressByTenant {
        let one = |(egress, credentials): (EgressPolicy, Credentials)| TenantEgress {
            storages: Storages::new(credentials, egress.clone(), log),
            egress,
        };
        let storages_of_others = one((EgressPolicy::default(), Credentials::default())).storages;
        let by_name = configured.0.into_iter().map(|(name, tenant)| (name, one(tenant))).collect();
        EgressByTenant { access, by_name, storages_of_others, others: Mutex::default() }
    }

    /// Returns how a tenant's stores log in to storages.
    pub fn storages_of(&self, namespace: NamespaceId) -> &Storages {
        self.named(namespace).map_or(&self.storages_of_others, |tenant| &tenant.storages)
    }

    /// Returns where a tenant's connections may go.
    pub fn egress_of(&self, namespace: NamespaceId) -> EgressPolicy {
        match self.named(namespace) {
            Some(tenant) => tenant.egress.clone(),
            None => self.others.lock().entry(namespace).or_default().clone(),
        }
    }

    fn named(&self, namespace: NamespaceId) -> Option<&TenantEgress> {
        self.by_name.get(&self.access.namespace_name(namespace)?)
    }
}
