//! Limits the state images in progress: each keeps rows overwritten meanwhile in memory until its reader is done, so
//! they are few, and one tenant cannot take them all, nor all tenants the last one: it is reserved for the operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_service::ServiceError;
use tribunal_types::NamespaceId;

/// For the whole service.
const IMAGES_MAX: usize = 4;
/// For a tenant other than the service's own.
const IMAGES_PER_TENANT_MAX: usize = 2;
/// For all tenants together, other than the service's own.
const IMAGES_OF_TENANTS_MAX: usize = IMAGES_MAX - 1;
/// When to retry if too many are in progress.
const RETRY_MS: u64 = 1_000;

/// The images in progress, by tenant.
#[derive(Clone, Debug, Default)]
pub struct ImagePermits(Arc<Mutex<BTreeMap<NamespaceId, usize>>>);

/// A permit for an image, released on drop.
#[derive(Debug)]
pub struct ImagePermit {
    places: ImagePermits,
    namespace: NamespaceId,
}

impl ImagePermits {
    /// Takes a permit.
    ///
    /// # Errors
    /// [`ServiceError::QuotaExceeded`] if the tenant has too many in progress, [`ServiceError::Overloaded`] if all
    /// tenants together do.
    pub fn take(&self, namespace: NamespaceId) -> Result<ImagePermit, ServiceError> {
        let mut taken = self.0.lock();
        let own = taken.get(&namespace).copied().unwrap_or(0);
        let service = namespace == NamespaceId(0);
        if !service && own >= IMAGES_PER_TENANT_MAX {
            return Err(ServiceError::QuotaExceeded { retry_after_ms: RETRY_MS });
        }
        let all: usize = taken.values().sum();
        let of_tenants = all - taken.get(&NamespaceId(0)).copied().unwrap_or(0);
        if all >= IMAGES_MAX || !service && of_tenants >= IMAGES_OF_TENANTS_MAX {
            return Err(ServiceError::Overloaded { retry_after_ms: RETRY_MS });
        }
        taken.insert(namespace, own + 1);
        Ok(ImagePermit { places: self.clone(), namespace })
    }
}

impl Drop for ImagePermit {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        let left = taken.get(&self.namespace).map_or(0, |own| own - 1);
        match left {
            0 => drop(taken.remove(&self.namespace)),
            left => drop(taken.insert(self.namespace, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_gets_a_share_of_the_permits_and_returns_them() {
        let places = ImagePermits::default();
        let (service, one, two) = (NamespaceId(0), NamespaceId(1), NamespaceId(2));
        let held = [places.take(one).unwrap(), places.take(one).unwrap()];
        assert!(matches!(places.take(one), Err(ServiceError::QuotaExceeded { .. })), "its own are gone");
        let other = places.take(two).unwrap();
        assert!(matches!(places.take(two), Err(ServiceError::Overloaded { .. })), "the last one is the service's");
        let others = [other, places.take(service).unwrap()];
        assert!(matches!(places.take(service), Err(ServiceError::Overloaded { .. })), "all are gone");
        drop(held);
        let again = [places.take(service).unwrap(), places.take(one).unwrap()];
        drop((others, again));
        assert!(places.0.lock().is_empty());
    }
}
