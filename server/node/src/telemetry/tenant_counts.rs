//! Commits and aborts by tenant, as shown to a tenant's operator.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tribunal_types::NamespaceId;

/// The counts of all tenants that have any; at most `limits::TENANTS_MAX`.
#[derive(Debug, Default)]
pub struct TenantCounts {
    tenants: RwLock<HashMap<NamespaceId, Arc<Counts>>>,
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    aborts: Mutex<BTreeMap<String, u64>>,
}

/// The counts of one tenant at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSample {
    /// Transactions committed.
    pub committed: u64,
    /// Aborts by reason.
    pub aborts: BTreeMap<String, u64>,
}

impl TenantCounts {
    /// Counts a commit.
    pub fn count_commit(&self, namespace: NamespaceId) {
        self.with(namespace, |counts| {
            counts.committed.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Counts an abort.
    pub fn count_abort(&self, namespace: NamespaceId, reason: &str) {
        self.with(namespace, |counts| {
            let mut aborts = counts.aborts.lock();
            match aborts.get_mut(reason) {
                Some(count) => *count += 1,
                None => drop(aborts.insert(reason.to_owned(), 1)),
            }
        });
    }

    fn with(&self, namespace: NamespaceId, count: impl FnOnce(&Counts)) {
        if let Some(counts) = self.tenants.read().get(&namespace) {
            return count(counts);
        }
        let counts = Arc::clone(self.tenants.write().entry(namespace).or_default());
        count(&counts);
    }

    /// Returns the counts of a tenant.
    #[must_use]
    pub fn of(&self, namespace: NamespaceId) -> TenantSample {
        self.tenants.read().get(&namespace).map(|counts| counts.sample()).unwrap_or_default()
    }

    /// Returns the counts of all tenants.
    #[must_use]
    pub fn sample(&self) -> HashMap<NamespaceId, TenantSample> {
        self.tenants.read().iter().map(|(namespace, counts)| (*namespace, counts.sample())).collect()
    }
}

impl Counts {
    fn sample(&self) -> TenantSample {
        TenantSample { committed: self.committed.load(Ordering::Relaxed), aborts: self.aborts.lock().clone() }
    }
}

impl TenantSample {
    /// Returns the aborts since an earlier sample, by reason.
    #[must_use]
    pub fn aborts_since(&self, earlier: &TenantSample) -> Vec<(String, u64)> {
        let since = |reason: &str, count: u64| count.saturating_sub(earlier.aborts.get(reason).copied().unwrap_or(0));
        let counted = self.aborts.iter().map(|(reason, count)| (reason.clone(), since(reason, *count)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_its_own_counts() {
        let counts = TenantCounts::default();
        let (shop, bank) = (NamespaceId(1), NamespaceId(2));
        counts.count_commit(shop);
        counts.count_abort(bank, "row_exists");
        let before = counts.of(bank);
        counts.count_abort(bank, "row_exists");
        counts.count_abort(bank, "read_conflict");
        assert_eq!((counts.of(shop).committed, counts.of(bank).committed), (1, 0));
        assert_eq!(counts.of(NamespaceId(3)), TenantSample::default());
        let since = counts.of(bank).aborts_since(&before);
        assert_eq!(since, [("read_conflict".to_owned(), 1), ("row_exists".to_owned(), 1)]);
        assert_eq!(counts.sample().len(), 2);
    }
}
