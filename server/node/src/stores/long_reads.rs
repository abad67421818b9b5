//! Limits how many reads of rows and log pages from the disk run at once, and how many bytes of rows wait for something
//! else: such rows are in memory before their response counts towards a quota.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tribunal_types::NamespaceId;

/// Reads at once. More would only wait for the same disk.
const LONG_READS_MAX: usize = 16;
/// Reads at once of a tenant other than the service's own.
const LONG_READS_PER_TENANT_MAX: usize = LONG_READS_MAX / 2;

/// Unit in which waiting rows are counted, bytes.
const HELD_UNIT: usize = 1024;
/// Waiting rows, in units: 256 MiB, and 64 MiB of a tenant.
const HELD_MAX: usize = 256 * 1024;
const HELD_PER_TENANT_MAX: usize = HELD_MAX / 4;

/// The permits of all tenants, and of each. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LongReads {
    all: Permits,
    of_tenants: Arc<Mutex<HashMap<NamespaceId, Permits>>>,
}

#[derive(Clone, Debug)]
struct Permits {
    reads: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

impl Permits {
    fn new(reads: usize, held: usize) -> Permits {
        Permits { reads: Arc::new(Semaphore::new(reads)), held: Arc::new(Semaphore::new(held)) }
    }
}

/// The permits of one read, or of rows that wait; released on drop.
#[derive(Debug)]
pub struct LongRead {
    _permits: [OwnedSemaphorePermit; 2],
}

impl LongReads {
    /// Waits for the permit of a read, which is held until the caller has the rows. A tenant that waits for its own share
    /// keeps no other one waiting.
    pub async fn permit(&self, namespace: NamespaceId) -> Option<LongRead> {
        // Nothing closes the semaphores.
        let own = self.of(namespace).reads.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all.reads).acquire_owned().await.ok()?;
        Some(LongRead { _permits: [own, all] })
    }

    /// Returns the permit for rows of this many bytes to wait for something else; `None` if the tenant, or all tenants
    /// together, have too many that wait.
    #[must_use]
    pub fn hold(&self, namespace: NamespaceId, bytes: usize) -> Option<LongRead> {
        let units = u32::try_from(bytes.div_ceil(HELD_UNIT)).ok()?;
        let own = self.of(namespace).held.try_acquire_many_owned(units).ok()?;
        let all = Arc::clone(&self.all.held).try_acquire_many_owned(units).ok()?;
        Some(LongRead { _permits: [own, all] })
    }

    fn of(&self, namespace: NamespaceId) -> Permits {
        let reads = if namespace == NamespaceId(0) { LONG_READS_MAX } else { LONG_READS_PER_TENANT_MAX };
        let permits = || Permits::new(reads, HELD_PER_TENANT_MAX);
        self.of_tenants.lock().entry(namespace).or_insert_with(permits).clone()
    }
}

impl Default for LongReads {
    fn default() -> Self {
        LongReads { all: Permits::new(LONG_READS_MAX, HELD_MAX), of_tenants: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_tenant_that_reads_much_keeps_nobody_waiting() {
        let (reads, one, two) = (LongReads::default(), NamespaceId(1), NamespaceId(2));
        let mut held = Vec::new();
        for _ in 0..LONG_READS_PER_TENANT_MAX {
            held.push(reads.permit(one).await.expect("its share"));
        }
        let mut waits = Box::pin(reads.permit(one));
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waits).await.is_err(), "its share is taken");
        let other = reads.permit(two).await.expect("it has a share of its own");
        held.pop();
        assert!(waits.await.is_some());
        drop(other);
    }

    #[test]
    fn the_rows_that_wait_are_bounded_by_their_bytes() {
        let (reads, one, two) = (LongReads::default(), NamespaceId(1), NamespaceId(2));
        let whole = HELD_PER_TENANT_MAX * HELD_UNIT;
        let held = reads.hold(one, whole - 10 * HELD_UNIT).expect("within its share");
        assert!(reads.hold(one, 11 * HELD_UNIT).is_none());
        assert!(reads.hold(one, 0).is_some() && reads.hold(two, whole).is_some());
        drop(held);
        assert!(reads.hold(one, whole).is_some());
        let tenants: Vec<_> = (0..5).map(|tenant| reads.hold(NamespaceId(tenant), whole)).collect();
        assert_eq!(tenants.iter().flatten().count(), HELD_MAX / HELD_PER_TENANT_MAX, "of all tenants together");
    }
}
