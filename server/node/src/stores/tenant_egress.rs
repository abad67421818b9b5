//! The addresses and logins available to each tenant's stores: the operator's networks and credentials, by tenant.
//!
//! Invariant: an opening for one tenant in the configuration is closed to all others. Otherwise a client that may
//! declare a store could write into another tenant's storage by naming its address. A tenant that the configuration
//! does not name reaches public addresses only, and has no logins.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_push::EgressPolicy;
use tribunal_types::{DEFAULT_NAMESPACE, LogId, NamespaceId};

use crate::auth::access::Access;
use crate::config::Push;
use crate::stores::credentials::{Credential, Credentials};
use crate::stores::storages::Storages;

/// The reach of one tenant's stores.
struct TenantEgress {
    /// Permitted addresses.
    egress: EgressPolicy,
    /// Logins there.
    storages: Storages,
}

/// The configuration of each tenant, by its name.
pub struct ConfiguredEgress(BTreeMap<String, (EgressPolicy, Credentials)>);

impl ConfiguredEgress {
    /// Reads the configuration, and adds each network and credential that cannot be read to `faults`.
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
            let credentials = Credentials::check(key, credentials).unwrap_or_else(|more| {
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

/// See the module documentation.
pub struct EgressByTenant {
    access: Arc<Access>,
    by_name: BTreeMap<String, TenantEgress>,
    /// Logins of tenants that the configuration does not name: none.
    storages_of_others: Storages,
    /// Their policies, one per tenant: each bounds the number of concurrent name lookups.
    others: Mutex<BTreeMap<NamespaceId, EgressPolicy>>,
}

impl EgressByTenant {
    /// Applies the configuration to the stores of this log.
    #[must_use]
    pub fn new(configured: ConfiguredEgress, log: LogId, access: Arc<Access>) -> EgressByTenant {
        let one = |(egress, credentials): (EgressPolicy, Credentials)| TenantEgress {
            storages: Storages::new(credentials, log),
            egress,
        };
        let storages_of_others = Storages::new(Credentials::default(), log);
        let by_name = configured.0.into_iter().map(|(name, tenant)| (name, one(tenant))).collect();
        EgressByTenant { access, by_name, storages_of_others, others: Mutex::default() }
    }

    /// Returns a tenant's logins to storages.
    pub fn storages_of(&self, namespace: NamespaceId) -> &Storages {
        self.named(namespace).map_or(&self.storages_of_others, |tenant| &tenant.storages)
    }

    /// Returns the permitted addresses of a tenant's connections.
    pub fn egress_of(&self, namespace: NamespaceId) -> EgressPolicy {
        match self.named(namespace) {
            Some(tenant) => tenant.egress.clone(),
            None => self.others.lock().entry(namespace).or_default().clone(),
        }
    }

    /// Returns a tenant's name, or its number if nothing names it any more.
    pub fn tenant_name(&self, namespace: NamespaceId) -> String {
        self.access.tenant_name(namespace)
    }

    fn named(&self, namespace: NamespaceId) -> Option<&TenantEgress> {
        self.by_name.get(&self.access.namespace_name(namespace)?)
    }
}
