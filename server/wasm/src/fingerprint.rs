//! Identities of an engine: its name, which replicas must share for a plugin to give equal results, including faults;
//! and the fingerprint of everything that compiled code and the results of checks depend on, which is finer.
//!
//! Another version of wasmtime has another fingerprint, but is another engine only if a plugin could observe the
//! difference: by the fuel spent at a point where it is checked, by the depth at which the stack overflows, by the
//! operations that trap. `tests/engine_name.rs` measures the fuel.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::fuel::operator_cost;
use crate::limits::PluginLimits;

/// Number of the engine. Must be raised when the pinned wasmtime gives a plugin other results or other faults.
const ENGINE: u32 = 1;
/// Version of the host's own rules: how columns are split, which failures are faults. Must be raised when one of them
/// changes.
const HOST_RULES: u64 = 2;

/// SHA-256 of wasmtime's exact version, instruction set and flags, tunables, features, cost table, and limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// Returns the name of an engine with these limits: its number, the architecture, on which the size of stack frames
/// depends, and a digest of the cost table, the host's rules and the limits.
pub(crate) fn name_of(limits: &PluginLimits) -> String {
    let mut wide = Wide(Sha256::new());
    operator_cost().hash(&mut wide);
    HOST_RULES.hash(&mut wide);
    limits.fingerprinted().hash(&mut wide);
    let digest: String = wide.0.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("wasm-{ENGINE}-{}-{digest}", std::env::consts::ARCH)
}

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
