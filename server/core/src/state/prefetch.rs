//! Prefetching of data that will be needed soon. A hint: no effect on any result.

/// Starts loading `slice[index]`, on one cache line or two, into the nearest cache; an index out of bounds is harmless.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slice.as_ptr().wrapping_add(index);
        // SAFETY: a prefetch dereferences nothing in the language's sense and cannot fault, whatever the address;
        // SSE is part of every x86_64 target.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        if size_of::<T>() > align_of::<T>() {
            let last = address.cast::<i8>().wrapping_add(size_of::<T>() - 1);
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(last) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
