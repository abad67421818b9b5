//! A bound on what each tenant may have, as configured.

use std::collections::BTreeMap;

/// The bound, by tenant.
#[derive(Clone, Debug, Default)]
pub struct TenantBound {
    /// For tenants without their own bound, except the service's own tenant.
    pub default_max: u64,
    /// By the tenant's name.
    pub by_namespace: BTreeMap<String, u64>,
}
