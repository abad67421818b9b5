//! When an idle node seals empty epochs: only for an activation waiting for its epoch. Epochs advance with commits, so
//! without traffic the activation's epoch would never come.

use core::time::Duration;

use tribunal_types::Epoch;

/// A node that has sealed nothing for this long counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of epochs that an idle node skips for one activation. A mistyped number must not use up the epochs.
const SKIPPED_MAX: u64 = 100_000;

/// Time of the last seal, by the monotonic clock.
#[derive(Debug)]
pub(crate) struct IdleSeal {
    sealed_at: Duration,
}

impl IdleSeal {
    /// Starts as if a batch had been sealed at `now`.
    pub(crate) fn new(now: Duration) -> IdleSeal {
        IdleSeal { sealed_at: now }
    }

    /// Notes that a batch was sealed.
    pub(crate) fn sealed(&mut self, now: Duration) {
        self.sealed_at = now;
    }

    /// Returns the time at which a batch was last sealed.
    pub(crate) fn sealed_at(&self) -> Duration {
        self.sealed_at
    }

    /// Returns the time until the node counts as idle, if it seals nothing until then.
    pub(crate) fn due_in(&self, now: Duration) -> Duration {
        (self.sealed_at + IDLE_AFTER).saturating_sub(now)
    }

    /// Returns the last epoch to seal empty, so that the activation decides from `from` on; `next` is the first
    /// unsealed epoch. `None` if it is too far away: such an activation waits for epochs with transactions.
    pub(crate) fn last_before(next: Epoch, from: Epoch) -> Option<Epoch> {
        (from > next && from.0 - next.0 <= SKIPPED_MAX).then(|| from.prev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_sealed_up_to_the_one_before_the_activation() {
        let last = |next, from| IdleSeal::last_before(Epoch(next), Epoch(from)).map(|epoch| epoch.0);
        assert_eq!(last(10, 11), Some(10));
        assert_eq!(last(10, 1510), Some(1509));
        assert_eq!(last(10, 10), None, "it decides already");
        assert_eq!(last(10, 9), None);
        assert_eq!(last(10, 10 + SKIPPED_MAX), Some(9 + SKIPPED_MAX));
        assert_eq!(last(10, 11 + SKIPPED_MAX), None);
        assert_eq!(last(10, u64::MAX), None);
    }
}
