//! A bump allocator. An instance serves one batch, or a few as long as it stays small, so only the topmost block is ever
//! freed.
//!
//! Compared with a general allocator, this saves code, fuel and page faults: columns are placed consecutively, right after
//! the program's own data. On targets other than wasm it does nothing.

/// Minimum growth of the memory, in pages: every growth costs the host a system call.
#[cfg(target_arch = "wasm32")]
const GROWTH_PAGES: usize = 16;

/// The allocator. A plugin only needs to declare it if the feature `allocator` is off.
#[derive(Debug)]
pub struct Bump {
    #[cfg(target_arch = "wasm32")]
    top: core::cell::Cell<usize>,
    #[cfg(target_arch = "wasm32")]
    end: core::cell::Cell<usize>,
}

impl Bump {
    /// Creates an allocator that has not grown yet.
    #[must_use]
    pub const fn new() -> Self {
        Bump {
            #[cfg(target_arch = "wasm32")]
            top: core::cell::Cell::new(0),
            #[cfg(target_arch = "wasm32")]
            end: core::cell::Cell::new(0),
        }
    }
}

impl Default for Bump {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_arch = "wasm32")]
mod wasm {
    use core::alloc::{GlobalAlloc, Layout};
    use core::ptr;

    use super::{Bump, GROWTH_PAGES};

    const PAGE: usize = 65_536;

    // SAFETY: a plugin runs on one thread only; the host offers no threads.
    unsafe impl Sync for Bump {}

    unsafe extern "C" {
        /// First byte after the program's data and stack, defined by the linker.
        static __heap_base: u8;
    }

    impl Bump {
        /// Allocates `size` bytes at `start` and moves the top after them; null if memory is exhausted.
        fn take(&self, start: usize, size: usize) -> *mut u8 {
            let Some(top) = start.checked_add(size) else { return ptr::null_mut() };
            if top > self.end.get() && !self.grow(top) {
                return ptr::null_mut();
            }
            self.top.set(top);
            start as *mut u8
        }

        fn grow(&self, top: usize) -> bool {
            let pages = core::arch::wasm32::memory_size(0);
            let missing = top.div_ceil(PAGE).saturating_sub(pages);
            let more = missing.max(GROWTH_PAGES);
            if missing > 0
                && core::arch::wasm32::memory_grow(0, more) == usize::MAX
                && core::arch::wasm32::memory_grow(0, missing) == usize::MAX
            {
                return false;
            }
            self.end.set(core::arch::wasm32::memory_size(0).saturating_mul(PAGE));
            true
        }

        fn top(&self) -> usize {
            match self.top.get() {
                // Only the address of the linker's symbol is used.
                0 => (&raw const __heap_base) as usize,
                top => top,
            }
        }
    }

    // SAFETY: blocks never overlap, because `top` rises by the size of each block and only falls when the topmost block is
    // freed; memory below `end` exists.
    unsafe impl GlobalAlloc for Bump {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let Some(start) = self.top().checked_next_multiple_of(layout.align()) else { return ptr::null_mut() };
            self.take(start, layout.size())
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            if block as usize + layout.size() == self.top.get() {
                self.top.set(block as usize);
            }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's obligations are the same. The memory may have belonged to a freed block, so it is
            // zeroed.
            unsafe {
                let block = self.alloc(layout);
                if !block.is_null() {
                    ptr::write_bytes(block, 0, layout.size());
                }
                block
            }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            if block as usize + layout.size() == self.top.get() {
                return self.take(block as usize, size);
            }
            if size <= layout.size() {
                return block;
            }
            // SAFETY: the new block does not overlap the old one and is larger.
            unsafe {
                let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                if !new.is_null() {
                    ptr::copy_nonoverlapping(block, new, layout.size());
                }
                new
            }
        }
    }
}
