//! The fingerprint of everything that replicas must share for a plugin to give equal results, faults included.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::engine::operator_cost;
use crate::limits::PluginLimits;

/// Version of the host's own rules: how columns are split, what is a fault. Must be raised when one of them changes.
const HOST_RULES: u64 = 2;

/// SHA-256 of wasmtime's exact version, instruction set and flags, tunables, features, cost table, and limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// A `Hasher` that feeds SHA-256.
struct Wide(Sha256);

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the digest is taken as a whole")
    }
}

impl Fingerprint {
    pub(crate) fn of(engine: &Engine, limits: &PluginLimits) -> Fingerprint {
        let mut wide = Wide(Sha256::new());
        wide.write(env!("TRIBUNAL_TARGET").as_bytes());
        wide.write(env!("TRIBUNAL_WASMTIME").as_bytes());
        engine.precompile_compatibility_hash().hash(&mut wide);
        operator_cost().hash(&mut wide);
        HOST_RULES.hash(&mut wide);
        limits.fingerprinted().hash(&mut wide);
        Fingerprint(wide.0.finalize().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
