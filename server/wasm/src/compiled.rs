//! A cache of compiled code across restarts. Compiling a component with a language runtime takes many seconds, which a node
//! would otherwise spend at every start.
//!
//! Invariants: code is only loaded from a store that returns exactly the bytes that were put into it, keyed by the
//! component's digest and the engine's complete fingerprint. The process that checks uploads has no store: a process
//! that has handled hostile input does not persist anything.

use wasmtime::component::Component;

use crate::engine::PluginEngine;
use crate::fingerprint::Fingerprint;

/// Key of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeKey {
    /// SHA-256 of the component.
    pub component: [u8; 32],
    /// Fingerprint of the engine that compiled it.
    pub engine: Fingerprint,
}

/// Origin of a module's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    /// It was compiled by this process.
    Compiled,
    /// It was loaded from a store.
    Kept,
}

/// Stores compiled code.
///
/// # Safety
/// The bytes that [`CodeStore::find`] returns are executed as machine code. They must be exactly the bytes that this
/// same program passed to [`CodeStore::keep`] under the same key. An implementation that cannot guarantee this must
/// return `None`.
pub unsafe trait CodeStore: Send + Sync {
    /// Returns the code stored under a key.
    fn find(&self, key: &CodeKey) -> Option<Vec<u8>>;

    /// Stores code, replacing earlier code of the same key. A failure only costs time at the next start.
    fn keep(&self, key: &CodeKey, code: &[u8]);
}

impl PluginEngine {
    /// Loads a component's code from a store, or compiles it.
    pub(crate) fn obtain(
        &self,
        component: [u8; 32],
        bytes: &[u8],
        store: Option<&dyn CodeStore>,
    ) -> wasmtime::Result<(Component, CodeOrigin)> {
        let Some(store) = store else {
            return Ok((Component::from_binary(&self.wasmtime, bytes)?, CodeOrigin::Compiled));
        };
        let key = CodeKey { component, engine: self.fingerprint() };
        if let Some(code) = store.find(&key) {
            // SAFETY: by the store's contract, this is the output of `Component::serialize` of an engine with this fingerprint.
            if let Ok(component) = unsafe { Component::deserialize(&self.wasmtime, code) } {
                return Ok((component, CodeOrigin::Kept));
            }
        }
        let component = Component::from_binary(&self.wasmtime, bytes)?;
        // A failure only means that the component is compiled again next time.
        if let Ok(code) = component.serialize() {
            store.keep(&key, &code);
        }
        Ok((component, CodeOrigin::Compiled))
    }
}
