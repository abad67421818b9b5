//! A bound on what each tenant may have, as configured.

use std::collections::BTreeMap;

use tribunal_types::NamespaceId;

use crate::service::NodeService;

/// The bound, by tenant.
#[derive(Clone, Debug, Default)]
pub struct TenantBound {
    /// For tenants without their own bound, except the service's own tenant.
    pub default_max: u64,
    /// By the tenant's name.
    pub by_namespace: BTreeMap<String, u64>,
}

impl NodeService {
    /// Returns a tenant's bound; `None` if there is none.
    pub(crate) fn bound_of(&self, bound: &TenantBound, namespace: NamespaceId) -> Option<u64> {
        let default = (namespace != NamespaceId(0)).then_some(bound.default_max);
        if bound.by_namespace.is_empty() {
            return default;
        }
        bound.by_namespace.get(&self.tenant_name(namespace)).copied().or(default)
    }
}
