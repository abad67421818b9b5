//! Tracks the last epoch that other nodes need this node's entries for, and how far an idle node seals ahead of it
//! (rules 6 and 7 of the cluster: no node waits for a node that has nothing to propose).
//!
//! Affects only when something is proposed, never what is decided.

use core::time::Duration;

use tribunal_types::Epoch;

/// How far ahead an idle node seals, in time at the current rate. A node that dies while idle blocks no other node for
/// this duration.
pub(crate) const AHEAD: Duration = Duration::from_secs(1);
/// Minimum duration over which the rate is measured.
const MEASURED: Duration = Duration::from_millis(200);
/// Maximum number of epochs sealed ahead. A wrongly measured rate must not use up the epochs.
const AHEAD_MAX: u64 = 10_000;

/// The demand for epochs.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Last epoch known to have items, agreed on or not.
    upto: Epoch,
    /// When the measurement of the rate began.
    since: Duration,
    /// Epochs with items since then. Epoch numbers would be no measure: a node that was ahead makes them jump.
    noted: u64,
    /// Epochs with items per [`AHEAD`], as last measured.
    ahead: u64,
}

impl Demand {
    /// Starts without any demand, after epoch `last`.
    pub(crate) fn new(last: Epoch, now: Duration) -> Demand {
        Demand { upto: last, since: now, noted: 0, ahead: 0 }
    }

    /// Restarts the rate measurement: the epochs so far were replayed at a start, or waited for a leader.
    pub(crate) fn measure(&mut self, now: Duration) {
        (self.since, self.noted, self.ahead) = (now, 0, 0);
    }

    /// Returns the last epoch known to have items.
    pub(crate) fn upto(&self) -> Epoch {
        self.upto
    }

    /// Notes an epoch with items.
    pub(crate) fn note(&mut self, epoch: Epoch, now: Duration) {
        if epoch <= self.upto {
            return;
        }
        self.upto = epoch;
        self.noted += 1;
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= MEASURED {
            let epochs = u128::from(self.noted) * AHEAD.as_micros() / elapsed.as_micros();
            self.ahead = u64::try_from(epochs).unwrap_or(u64::MAX).min(AHEAD_MAX);
            (self.since, self.noted) = (now, 0);
        }
    }

    /// Returns the last epoch to seal for a group without proposals.
    pub(crate) fn ahead(&self) -> Epoch {
        Epoch(self.upto.0.saturating_add(self.ahead).min(Epoch::MAX.0 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_node_seals_a_second_ahead_at_the_present_rate() {
        let ms = Duration::from_millis;
        let mut demand = Demand::new(Epoch(100), ms(0));
        demand.note(Epoch(101), ms(10));
        assert_eq!((demand.upto(), demand.ahead()), (Epoch(101), Epoch(101)), "no rate is known");
        (102..=200).for_each(|epoch| demand.note(Epoch(epoch), ms(10 * (epoch - 100))));
        assert_eq!(demand.ahead(), Epoch(300), "a hundred a second");
        demand.note(Epoch(150), ms(5_000));
        assert_eq!(demand.upto(), Epoch(200), "known already");
        demand.note(Epoch(1 << 40), ms(11_000));
        assert_eq!(demand.ahead(), Epoch(1 << 40), "a jump is one epoch, and traffic has slowed down");
        (1..=20_000).for_each(|more| demand.note(Epoch((1 << 40) + more), ms(11_000 + more / 100)));
        assert_eq!(demand.ahead(), Epoch((1 << 40) + 20_000 + AHEAD_MAX));
        demand.measure(ms(12_000));
        assert_eq!(demand.ahead(), demand.upto());
    }
}
