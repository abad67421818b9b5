//! How often batches are sealed while earlier ones wait for the other nodes.
//!
//! Whatever its content, an epoch costs every node its frames, records, syncs and wake-ups. Sealing a batch as soon as
//! there is an item makes many epochs of few transactions each, and their cost delays all clients. So while a batch is
//! undecided, new items are collected for a fraction of the time that batches take: batches follow each other evenly
//! instead of one by one. A batch that other nodes wait for is never held back, and neither is the first one.

use core::time::Duration;

/// The weight of a measurement in the mean is one part in this many.
const WEIGHT: u32 = 8;
/// The longest pause, unless a longer one is set.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The time from seal to decision of batches, as a moving mean.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    takes: Duration,
}

impl Pace {
    /// Notes the time from a batch's seal to its decision.
    pub(crate) fn decided(&mut self, took: Duration) {
        self.takes = if self.takes.is_zero() { took } else { (self.takes * (WEIGHT - 1) + took) / WEIGHT };
    }

    /// Returns the pause between two batches, of which at most `in_flight_max` are in flight.
    pub(crate) fn pause(&self, in_flight_max: usize, pause_min: Duration) -> Duration {
        let shared = self.takes / u32::try_from(in_flight_max).unwrap_or(u32::MAX).max(1);
        // A batch that takes unusually long because of a failure must not delay all batches after it.
        shared.clamp(pause_min, PAUSE_MAX.max(pause_min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_a_part_of_what_batches_take_within_bounds() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert_eq!(pace.pause(4, ms(1)), ms(1), "nothing is known");
        pace.decided(ms(16));
        assert_eq!(pace.pause(4, ms(1)), ms(4));
        pace.decided(ms(24));
        assert_eq!(pace.pause(1, ms(1)), ms(17));
        (0..100).for_each(|_| pace.decided(ms(1000)));
        assert_eq!((pace.pause(4, ms(1)), pace.pause(4, ms(30))), (PAUSE_MAX, ms(30)));
    }
}
