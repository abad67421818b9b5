//! Names of rows: a keyed 128-bit hash of (namespace, store, key), the same on every replica.
//!
//! The key is secret, so that a client cannot craft rows that collide or that all fall into one shard. Equal keys of
//! different stores or namespaces are different rows. Must never depend on the machine's byte order.

use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};
use tribunal_types::{NamespaceId, RowKey, StoreId};

/// Hashes row names with SipHash-1-3-128 under the cluster's secret.
#[derive(Clone, Copy)]
pub struct RowKeyer {
    keyed: SipHasher13,
}

impl RowKeyer {
    /// Builds the hasher of a cluster; `secret` is drawn once, when the cluster's log is created, and stored there.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        RowKeyer { keyed: SipHasher13::new_with_key(&secret) }
    }

    /// Returns the name of the row `key` of a store. The numbers have a fixed width, so the hashed input is
    /// unambiguous.
    #[must_use]
    pub fn row(&self, namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
        let mut hasher = self.keyed;
        let place = u64::from(namespace.0) << 32 | u64::from(store.0);
        hasher.write(&place.to_le_bytes());
        hasher.write(key);
        let hash = hasher.finish128();
        RowKey { hi: hash.h1, lo: hash.h2 }
    }
}

impl core::fmt::Debug for RowKeyer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RowKeyer(secret)")
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;

    use super::*;

    #[test]
    fn every_part_of_the_name_counts() {
        let one = RowKeyer::new([1; 16]);
        let two = RowKeyer::new([2; 16]);
        let names = [
            one.row(NamespaceId(0), StoreId(1), b"x"),
            one.row(NamespaceId(1), StoreId(0), b"x"),
            one.row(NamespaceId(0), StoreId(2), b"x"),
            one.row(NamespaceId(0), StoreId(1), b"y"),
            one.row(NamespaceId(0), StoreId(1), b"x\0"),
            one.row(NamespaceId(0), StoreId(1), b""),
            two.row(NamespaceId(0), StoreId(1), b"x"),
        ];
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(names[0], RowKeyer::new([1; 16]).row(NamespaceId(0), StoreId(1), b"x"));
    }

    #[test]
    fn the_hash_is_siphash_1_3_128_of_a_pinned_layout() {
        // Replicas and logs of other versions must agree, so the bytes may never change.
        let secret: [u8; 16] = core::array::from_fn(|i| i as u8);
        let row = RowKeyer::new(secret).row(NamespaceId(1), StoreId(2), b"key");
        let mut whole = SipHasher13::new_with_key(&secret);
        whole.write(&[2, 0, 0, 0, 1, 0, 0, 0, b'k', b'e', b'y']);
        let hash = whole.finish128();
        assert_eq!((row.hi, row.lo), (hash.h1, hash.h2));
        assert!(!format!("{:?}", RowKeyer::new(secret)).contains("1, 2"));
    }

    #[test]
    fn top_bits_spread_over_shards() {
        let keyer = RowKeyer::new([7; 16]);
        let mut counts = [0_u32; 8];
        for i in 0..8_000_u32 {
            counts[(keyer.row(NamespaceId(0), StoreId(1), &i.to_be_bytes()).hi >> 61) as usize] += 1;
        }
        assert!(counts.iter().all(|n| (800..1200).contains(n)), "{counts:?}");
    }
}
