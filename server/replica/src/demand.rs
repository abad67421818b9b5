//! Up to which epoch others wait for this node's entries, and how far an idle node seals ahead of them (rules 6 and 7 of
//! the cluster: nobody waits for a node that has nothing to say).
//!
//! Only when something is proposed depends on it, never what is decided.

use core::time::Duration;

use tribunal_types::Epoch;

/// How far ahead an idle node seals, in time at the present rate. A node that dies idle stops nobody for so long.
const AHEAD: Duration = Duration::from_secs(1);
/// The rate is measured over at least so long.
const MEASURED: Duration = Duration::from_millis(200);
/// Epochs that are sealed ahead at most. Those of a rate that was measured wrong must not use up the epochs.
const AHEAD_MAX: u64 = 10_000;

/// The demand for epochs.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Last epoch known to have items, agreed on or not.
    upto: Epoch,
    /// Where the measurement of the rate began.
    since: (Duration, Epoch),
    /// Epochs in [`AHEAD`], when it was last measured.
    ahead: u64,
}

impl Demand {
    /// Starts without any demand, after epoch `last`.
    pub(crate) fn new(last: Epoch, now: Duration) -> Demand {
        Demand { upto: last, since: (now, last), ahead: 0 }
    }

    /// Returns the last epoch known to have items.
    pub(crate) fn upto(&self) -> Epoch {
        self.upto
    }

    /// Notes an epoch that has items.
    pub(crate) fn note(&mut self, epoch: Epoch, now: Duration) {
        if epoch <= self.upto {
            return;
        }
        self.upto = epoch;
        let (since, from) = self.since;
        let elapsed = now.saturating_sub(since);
        if elapsed >= MEASURED {
            let epochs = u128::from(epoch.0.saturating_sub(from.0)) * AHEAD.as_micros() / elapsed.as_micros();
            self.ahead = u64::try_from(epochs).unwrap_or(u64::MAX).min(AHEAD_MAX);
            self.since = (now, epoch);
        }
    }

    /// Returns the last epoch to seal for a group that has nothing to propose.
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
        demand.note(Epoch(201), ms(11_000));
        assert_eq!(demand.ahead(), Epoch(201), "traffic has slowed down");
        demand.note(Epoch(1 << 40), ms(12_000));
        assert_eq!(demand.ahead(), Epoch((1 << 40) + AHEAD_MAX));
    }
}
