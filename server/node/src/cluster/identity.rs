//! The identity that all logs of a new cluster share.

use sha2::{Digest, Sha256};
use tribunal_log::ClusterIdentity;
use tribunal_types::{Incarnation, LogId};

/// Incarnation of a new cluster's groups.
pub const FIRST: Incarnation = Incarnation(1);

/// Derives the shared identity of all logs of a cluster from the nodes' shared secret.
pub fn identity_of(name: &str, secret: &str) -> ClusterIdentity {
    let derived = |purpose: &str| {
        let parts = ["tribunal cluster", purpose, name, secret].map(|part| part.as_bytes());
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        });
        let hash = hash.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&hash[..16]);
        first
    };
    ClusterIdentity { id: LogId(derived("log")), incarnation: FIRST, row_secret: derived("rows") }
}
