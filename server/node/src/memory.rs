//! The allocator. Ends the process immediately with a message when memory is exhausted.
//!
//! Must never return null: Rust's handler then prints a backtrace, which takes memory and a lock. A panicking thread
//! holds that lock, so a process that runs out of memory would deadlock on itself and never end.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::os::fd::BorrowedFd;

/// mimalloc: transactions are allocated by one thread and freed by another, which the system allocator handles slowly.
pub struct Allocator(pub mimalloc::MiMalloc);

// SAFETY: every call is forwarded unchanged to an allocator, and its result is returned unless it is null; then the
// call does not return.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the callee's contract.
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

/// Restricts this process to 4 KiB pages, even if the allocator requests 2 MiB pages (decision 114). Must be called
/// before other threads exist. Where the system refuses, nothing changes.
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

/// Ends the process. Allocates no memory.
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
    // SAFETY: nothing closes standard error. Its lock, which other threads may hold, is not needed.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, &text[..text.len() - left]);
    std::process::abort()
}
