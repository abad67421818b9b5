//! Compiled code that outlives the process that made it. Compiling a component that brings a language's runtime along takes
//! many seconds, which a node would otherwise spend at each of its starts.
//!
//! Invariants: code comes from nowhere but a store that gives back what it was given, under the component's digest and the
//! engine's whole fingerprint. The process that checks an upload has no store: what touched hostile input keeps nothing.

use wasmtime::component::Component;

use crate::engine::PluginEngine;
use crate::fingerprint::Fingerprint;

/// What code is kept under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeKey {
    /// SHA-256 of the component.
    pub component: [u8; 32],
    /// What compiled it.
    pub engine: Fingerprint,
}

/// Where a module's code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    /// It was compiled just now.
    Compiled,
    /// It was compiled before, and kept.
    Kept,
}

/// Keeps compiled code.
///
/// # Safety
/// What [`CodeStore::find`] returns is run as machine code. It must be, byte for byte, what this very program gave to
/// [`CodeStore::keep`] under the same key; an implementation that cannot tell returns `None`.
pub unsafe trait CodeStore: Send + Sync {
    /// Returns what was kept under a key.
    fn find(&self, key: &CodeKey) -> Option<Vec<u8>>;

    /// Keeps code in the place of what was there. A failure costs time at the next start, nothing else.
    fn keep(&self, key: &CodeKey, code: &[u8]);
}

impl PluginEngine {
    /// Takes a component's code out of a store, or compiles it.
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
            // SAFETY: by the store's contract this is what `Component::serialize` made, in an engine of this fingerprint.
            if let Ok(component) = unsafe { Component::deserialize(&self.wasmtime, code) } {
                return Ok((component, CodeOrigin::Kept));
            }
        }
        let component = Component::from_binary(&self.wasmtime, bytes)?;
        // Without a copy it is compiled again the next time, and nothing else.
        if let Ok(code) = component.serialize() {
            store.keep(&key, &code);
        }
        Ok((component, CodeOrigin::Compiled))
    }
}
