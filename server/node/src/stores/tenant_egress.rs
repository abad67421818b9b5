//! Where the stores of each tenant may be, and how to log in there: the operator's networks and credentials, by tenant.
//!
//! Invariant: what the configuration opens for one tenant is closed to all others. Otherwise a client that may declare a store
//! could write into another tenant's storage by naming its address. A tenant that the configuration does not name
//! reaches public addresses only, and logs in nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribunal_push::EgressPolicy;
use tribunal_types::{LogId, NamespaceId};

use crate::auth::access::Access;
use crate::auth::keys::DEFAULT_NAMESPACE;
use crate::config::Push;
use crate::stores::credentials::Credential;
use crate::stores::sql_storages::SqlStorages;

/// What one tenant's stores may reach.
pub struct TenantEgress {
    /// Where connections may go.
    pub egress: EgressPolicy,
    /// Databases and how to log in there.
    pub sql: SqlStorages,
}

impl TenantEgress {
    fn new(key: &str, allow: &[String], credentials: &[Credential], log: LogId) -> Result<TenantEgress, String> {
        let allowed = allow
            .iter()
            .map(|net| net.parse().map_err(|error| format!("configuration: `{key}.allow` has `{net}`: {error}")));
        let egress = EgressPolicy::new(allowed.collect::<Result<_, String>>()?);
        Ok(TenantEgress { sql: SqlStorages::new(credentials, egress.clone(), log)?, egress })
    }
}

/// See the file's head.
pub struct EgressByTenant {
    access: Arc<Access>,
    by_name: BTreeMap<String, TenantEgress>,
    others: TenantEgress,
}

impl EgressByTenant {
    /// Reads what is configured.
    ///
    /// # Errors
    /// If networks or credentials cannot be read.
    pub fn new(push: &Push, log: LogId, access: Arc<Access>) -> Result<EgressByTenant, String> {
        if push.tenants.contains_key(DEFAULT_NAMESPACE) {
            return Err("configuration: `push.allow` and `push.credentials` are those of the namespace `default`; it \
                        has no place in `push.tenants`"
                .into());
        }
        let mut by_name = BTreeMap::new();
        for (name, tenant) in &push.tenants {
            let key = format!("push.tenants.{name}");
            by_name.insert(name.clone(), TenantEgress::new(&key, &tenant.allow, &tenant.credentials, log)?);
        }
        by_name.insert(DEFAULT_NAMESPACE.to_owned(), TenantEgress::new("push", &push.allow, &push.credentials, log)?);
        Ok(EgressByTenant { access, by_name, others: TenantEgress::new("push", &[], &[], log)? })
    }

    /// Returns what a tenant's stores may reach.
    pub fn of(&self, namespace: NamespaceId) -> &TenantEgress {
        let name = self.access.namespace_name(namespace);
        name.and_then(|name| self.by_name.get(&name)).unwrap_or(&self.others)
    }
}
