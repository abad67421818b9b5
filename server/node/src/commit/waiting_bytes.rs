//! Bytes of transactions that wait for a decision, and how they share the room for them.
//!
//! Each tenant may have as many waiting bytes as are still free: the dynamic threshold of Choudhury and Hahne (IEEE/ACM
//! Transactions on Networking, 1998). So *n* tenants that post faster than the node decides take one part of *n* + 1
//! each, and the last part remains free for all others.
//!
//! Lock-free: every transaction is counted when it arrives and when it is answered.

use std::iter;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tribunal_types::{NamespaceId, TxnRequest, limits};

/// Number of counters: a power of two, and more than tenants, so that a search soon ends.
const SLOTS: usize = 16_384;
const _: () = assert!(SLOTS.is_power_of_two() && SLOTS > limits::TENANTS_MAX + limits::TENANTS_MAX / 2);

/// Waiting bytes, in total and by tenant.
pub struct WaitingBytes {
    all: AtomicUsize,
    /// A hash table with linear probing. A tenant keeps its slot: namespaces are never removed.
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    /// The tenant's number plus one; 0 if the slot is free.
    tenant: AtomicU64,
    bytes: AtomicUsize,
}

impl WaitingBytes {
    /// Creates the counters; nothing waits.
    #[must_use]
    pub fn new() -> WaitingBytes {
        WaitingBytes { all: AtomicUsize::new(0), slots: iter::repeat_with(Slot::default).take(SLOTS).collect() }
    }

    /// Returns the number of waiting bytes of all tenants.
    pub fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    /// Counts `bytes` of a tenant, unless it would have more than are free; returns whether they are counted.
    #[must_use]
    pub fn admit(&self, tenant: NamespaceId, bytes: usize) -> bool {
        let own = &self.slot(tenant).bytes;
        let own_before = own.fetch_add(bytes, Ordering::Relaxed);
        let free = limits::WAITING_BYTES_MAX.saturating_sub(self.all());
        // A refused tenant must not touch the total, not even for a moment: others might be refused because of it.
        if own_before + bytes > free {
            own.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        // Others may have been admitted since `free` was read.
        if self.all.fetch_add(bytes, Ordering::Relaxed) + bytes > limits::WAITING_BYTES_MAX {
            self.release(tenant, bytes);
            return false;
        }
        true
    }

    /// Releases `bytes` of a tenant, which were admitted.
    pub fn release(&self, tenant: NamespaceId, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.slot(tenant).bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Releases the bytes of transactions.
    pub fn release_all<'a>(&self, txns: impl IntoIterator<Item = &'a TxnRequest>) {
        let mut releases = Releases::of(self);
        txns.into_iter().for_each(|txn| releases.add(txn.namespace, txn.memory_bytes()));
    }

    /// Returns a tenant's slot. Occupies a free one for a new tenant.
    fn slot(&self, tenant: NamespaceId) -> &Slot {
        let key = u64::from(tenant.0) + 1;
        let home = tenant.0 as usize % SLOTS;
        let mut probed = self.slots[home..].iter().chain(&self.slots[..home]);
        let own = probed.find(|slot| match slot.tenant.load(Ordering::Relaxed) {
            0 => {
                let taken = slot.tenant.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                taken.map_or_else(|occupant| occupant == key, |_| true)
            }
            occupant => occupant == key,
        });
        // The table has room for all tenants that there may be; should there be more, some share a counter.
        own.unwrap_or(&self.slots[home])
    }
}

/// Sums up bytes to be released, so that successive transactions of one tenant cost one update.
pub struct Releases<'a> {
    waiting: &'a WaitingBytes,
    tenant: NamespaceId,
    bytes: usize,
}

impl<'a> Releases<'a> {
    /// Starts with none. What was added is released when this is dropped, at the latest.
    #[must_use]
    pub fn of(waiting: &'a WaitingBytes) -> Releases<'a> {
        Releases { waiting, tenant: NamespaceId(0), bytes: 0 }
    }

    /// Adds bytes of a tenant.
    pub fn add(&mut self, tenant: NamespaceId, bytes: usize) {
        if tenant != self.tenant {
            self.release();
            self.tenant = tenant;
        }
        self.bytes += bytes;
    }

    fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.waiting.release(self.tenant, bytes);
        }
    }
}

impl Drop for Releases<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::limits::WAITING_BYTES_MAX;

    use super::*;

    /// Size of the transactions in these tests.
    const TXN: usize = 1 << 20;

    /// Posts transactions of the tenants in turns until each of them is refused; returns the bytes that each has.
    fn flood(waiting: &WaitingBytes, tenants: &[NamespaceId]) -> Vec<usize> {
        let mut taken = vec![0; tenants.len()];
        loop {
            let before = taken.clone();
            for (bytes, tenant) in taken.iter_mut().zip(tenants) {
                *bytes += if waiting.admit(*tenant, TXN) { TXN } else { 0 };
            }
            if taken == before {
                return taken;
            }
        }
    }

    #[test]
    fn tenants_that_flood_a_node_leave_room_for_others() {
        for tenants in [1, 2, 5, 20] {
            let waiting = WaitingBytes::new();
            let flooding: Vec<NamespaceId> = (1..=tenants).map(NamespaceId).collect();
            let share = WAITING_BYTES_MAX / (tenants as usize + 1);
            for bytes in flood(&waiting, &flooding) {
                assert!(bytes <= share + TXN && bytes + 2 * TXN > share, "{tenants}: {bytes} of {share}");
            }
            let other = NamespaceId(tenants + 1);
            assert!(waiting.admit(other, share - 2 * TXN), "{tenants}: a whole share is free");
            assert!(!waiting.admit(flooding[0], TXN), "{tenants}");
            assert!(waiting.all() <= WAITING_BYTES_MAX);
        }
    }

    #[test]
    fn a_tenant_that_comes_late_gets_its_share_as_the_others_are_answered() {
        let waiting = WaitingBytes::new();
        let (early, late) = (NamespaceId(1), NamespaceId(2));
        let mut of_early = flood(&waiting, &[early])[0];
        let mut of_late = 0;
        for _ in 0..WAITING_BYTES_MAX / TXN {
            of_late += flood(&waiting, &[late])[0];
            waiting.release(early, TXN);
            of_early -= TXN;
            of_early += flood(&waiting, &[early])[0];
        }
        assert!(of_early.abs_diff(of_late) <= 2 * TXN, "{of_early} {of_late}");
    }

    #[test]
    fn what_is_released_or_refused_does_not_count() {
        let waiting = WaitingBytes::new();
        // Two of them have the same home in the table.
        let tenants = [0, 7, 7 + SLOTS as u32, u32::MAX].map(NamespaceId);
        for _ in 0..3 {
            let taken = flood(&waiting, &tenants);
            assert_eq!(waiting.all(), taken.iter().sum::<usize>());
            assert!(taken.iter().all(|bytes| bytes.abs_diff(WAITING_BYTES_MAX / 5) <= TXN), "{taken:?}");
            let mut releases = Releases::of(&waiting);
            for (tenant, bytes) in tenants.into_iter().zip(taken) {
                releases.add(tenant, bytes - TXN);
                releases.add(tenant, TXN);
            }
            drop(releases);
            assert_eq!(waiting.all(), 0);
        }
    }

    #[test]
    fn more_tenants_than_counters_share_some() {
        let waiting = WaitingBytes::new();
        for tenant in 0..SLOTS as u32 + 10 {
            assert!(waiting.admit(NamespaceId(tenant), 1), "{tenant}");
        }
        (0..SLOTS as u32 + 10).for_each(|tenant| waiting.release(NamespaceId(tenant), 1));
        assert_eq!(waiting.all(), 0);
        assert!(waiting.slots.iter().all(|slot| slot.bytes.load(Ordering::Relaxed) == 0));
    }
}
