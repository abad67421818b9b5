//! The allocator. Memory that cannot be had ends the process at once, and says so.
//!
//! Must never return null: what Rust does then prints a backtrace, which takes memory and a lock. A thread that panics holds
//! that lock, so a process that runs out of memory would wait for itself and never end.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::os::fd::BorrowedFd;

/// mimalloc: transactions are allocated by one thread and freed by another, which the system's allocator is slow at.
pub struct Allocator(pub mimalloc::MiMalloc);

// SAFETY: every call is passed on to an allocator unchanged, and what it returns is returned unless it is null; then the
// call does not return.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the callee's.
        had(unsafe { self.0.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        had(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        had(unsafe { self.0.realloc(old, layout, bytes) }, bytes)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(memory, layout) }
    }
}

/// Has the kernel give this process pages of 4 KiB only, however much the allocator asks for pages of 2 MiB (decision 114). To
/// be called before there are threads. Where the system refuses, nothing changes.
pub fn use_small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[inline(always)]
fn had(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        exhausted(bytes)
    }
    memory
}

/// Ends the process. Takes no memory.
#[cold]
#[inline(never)]
fn exhausted(bytes: usize) -> ! {
    let mut text = [0_u8; 256];
    let mut rest = &mut text[..];
    let _ = writeln!(
        rest,
        "\ntribunal: out of memory: {bytes} more bytes cannot be had, so the process ends. Nothing acknowledged is lost. Raise \
         the limit of memory (`ulimit -v`, `ulimit -d`, the container's), then start again"
    );
    let left = rest.len();
    // SAFETY: nothing closes standard error. Its lock, which others may hold, is not needed.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, &text[..text.len() - left]);
    std::process::abort()
}
