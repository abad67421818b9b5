//! Bounds how often something happens, per slice of time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Length of a time slice, as a power of two of milliseconds. Budgets are per slice and not per second, or all traces
/// of a busy node would be from the first moments of every second.
const SLICE_MS_LOG2: u32 = 6;

/// A maximum per time slice.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    /// The slice in the upper half, the number taken in it in the lower.
    taken: AtomicU64,
}

impl Budget {
    /// Allows `most` in 64 milliseconds.
    #[must_use]
    pub const fn new(most: u64) -> Budget {
        Budget { most, taken: AtomicU64::new(0) }
    }

    /// Takes one, unless this slice's budget is used up.
    pub fn take(&self) -> bool {
        static BASE: OnceLock<Instant> = OnceLock::new();
        self.take_in(BASE.get_or_init(Instant::now).elapsed().as_millis() as u64 >> SLICE_MS_LOG2)
    }

    fn take_in(&self, slice: u64) -> bool {
        let now = slice << 32;
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                if taken >> 32 != slice & u64::from(u32::MAX) {
                    return Some(now | 1);
                }
                (taken & u64::from(u32::MAX) < self.most).then_some(taken + 1)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_never_exceeds_the_budget() {
        let budget = Budget::new(7);
        assert_eq!((0..100).filter(|_| budget.take_in(3)).count(), 7);
        assert!(budget.take_in(4), "and again in the next one");
    }
}
