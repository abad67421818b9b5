//! Whether to retry, and how long to wait first: bounded, exponential, with full jitter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Bounds of retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Maximum number of attempts; 1 disables retries.
    pub attempts_max: u32,
    /// Upper bound of the first wait. It doubles with each further one.
    pub wait_min: Duration,
    /// Upper bound of every wait.
    pub wait_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { attempts_max: 50, wait_min: Duration::from_millis(1), wait_max: Duration::from_millis(200) }
    }
}

impl RetryPolicy {
    /// Returns the wait after the `failed`-th failed attempt, at least `asked`; `None` if that attempt was the last.
    pub(crate) fn wait(&self, failed: u32, asked: Option<Duration>) -> Option<Duration> {
        if failed >= self.attempts_max {
            return None;
        }
        let step = self.wait_min.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(self.wait_max);
        let random = (RandomState::new().hash_one(failed) >> 11) as f64 / (1u64 << 53) as f64;
        // The whole step is random, so that the losers of one conflict do not collide again.
        Some(asked.unwrap_or_default().min(Duration::from_secs(30)) + step.mul_f64(random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_within_bounds_and_end() {
        let policy = RetryPolicy { attempts_max: 20, ..RetryPolicy::default() };
        for failed in 1..20 {
            let waits = (0..200).map(|_| policy.wait(failed, None).expect("attempts are left"));
            let (least, most) = waits.fold((Duration::MAX, Duration::ZERO), |(a, b), wait| (a.min(wait), b.max(wait)));
            let bound = policy.wait_max.min(policy.wait_min * (1 << (failed - 1)));
            assert!(most <= bound && most - least > bound / 2, "{least:?} to {most:?}");
        }
        assert!(policy.wait(1, Some(Duration::from_millis(300))) >= Some(Duration::from_millis(300)));
        assert_eq!(policy.wait(20, None), None);
    }
}
