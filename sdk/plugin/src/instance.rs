//! The one value that a plugin's instance keeps from `init` to its other functions.

use core::cell::OnceCell;

/// A cell that `init` fills. Part of what the `export_*!` macros expand to.
#[derive(Debug)]
pub struct Instance<T>(OnceCell<T>);

// SAFETY: a plugin runs on one thread only; on other targets the macros make no `static` of this type.
#[cfg(target_arch = "wasm32")]
unsafe impl<T> Sync for Instance<T> {}

impl<T> Instance<T> {
    /// Makes an empty cell.
    #[must_use]
    pub const fn new() -> Self {
        Instance(OnceCell::new())
    }

    /// Fills the cell.
    ///
    /// # Errors
    /// If it is filled already.
    pub fn fill(&self, value: T) -> Result<(), crate::Fault> {
        self.0.set(value).map_err(|_| "init was called twice".into())
    }

    /// Returns the value.
    ///
    /// # Errors
    /// If `init` was not called.
    pub fn get(&self) -> Result<&T, crate::Fault> {
        self.0.get().ok_or_else(|| "init was not called".into())
    }
}

impl<T> Default for Instance<T> {
    fn default() -> Self {
        Self::new()
    }
}
