//! The value that a plugin's instance keeps from `init` for its other functions.

use core::cell::OnceCell;

/// A cell that `init` fills. Used by the `export_*!` macros.
#[derive(Debug)]
pub struct Instance<T>(OnceCell<T>);

// SAFETY: a plugin runs on a single thread; on other targets the macros define no `static` of this type.
#[cfg(target_arch = "wasm32")]
unsafe impl<T> Sync for Instance<T> {}

impl<T> Instance<T> {
    /// Creates an empty cell.
    #[must_use]
    pub const fn new() -> Self {
        Instance(OnceCell::new())
    }

    /// Fills the cell.
    ///
    /// # Errors
    /// If the cell is already filled.
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
