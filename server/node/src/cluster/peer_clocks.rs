//! Difference between the clock of this node and those of the others.
//!
//! `epoch_time` is the median of the members' clocks, so one wrong clock changes nothing while most are right. But the
//! ids that its node issues would be outside the window in which they are executed, and with two clocks, the lower one
//! counts. So a node whose clock is too far from the median takes no commits, and its entries carry no clock until that
//! is over. Nothing here changes another node's answer.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tribunal_types::NodeId;
use tribunal_types::limits::CLOCKS_APART_MS_MAX;

/// Number of readings kept per node. A delayed reading looks like a slower clock, so the fastest one counts.
const READINGS_KEPT: usize = 8;
/// Maximum age of a reading.
const AGE_MAX: Duration = Duration::from_secs(10);

/// The reported clocks of the other nodes.
#[derive(Debug, Default)]
pub struct PeerClocks {
    /// By node, when each reading arrived, and how far it was ahead of this node's clock, milliseconds.
    readings: BTreeMap<NodeId, VecDeque<(Instant, i64)>>,
}

impl PeerClocks {
    /// Records another node's clock; `own_ms` is this node's clock.
    pub fn note(&mut self, from: NodeId, theirs_ms: u64, own_ms: u64, at: Instant) {
        let ahead = i64::try_from(theirs_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(own_ms);
        let readings = self.readings.entry(from).or_default();
        if readings.len() == READINGS_KEPT {
            readings.pop_front();
        }
        readings.push_back((at, ahead));
    }

    /// Returns how far the clock of each other node is ahead of this node's, milliseconds, if reported recently.
    #[must_use]
    pub fn offsets_ms(&self, now: Instant) -> BTreeMap<NodeId, i64> {
        let offset = |(node, readings): (&NodeId, &VecDeque<_>)| Some((*node, fastest(readings, now)?));
        self.readings.iter().filter_map(offset).collect()
    }

    /// Returns how far this node's clock is ahead of the others', milliseconds, if that is too far. `epoch_time_ms` is
    /// the replicated time of the last epoch: a correct clock is never earlier. `wall_ahead_ms` is how far the system
    /// clock has lastingly been ahead of this node's clock, which is derived from it.
    pub fn apart_ms(&self, own_ms: u64, wall_ahead_ms: i64, epoch_time_ms: u64, now: Instant) -> Option<i64> {
        let late = i64::try_from(own_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(epoch_time_ms);
        let late = late.min(late.saturating_add(wall_ahead_ms));
        let is_apart = |ms: &i64| ms.unsigned_abs() > CLOCKS_APART_MS_MAX;
        if late < 0 && is_apart(&late) {
            return Some(late);
        }
        let mut clocks: Vec<i64> = self.offsets_ms(now).into_values().collect();
        clocks.push(0);
        clocks.sort_unstable();
        // With an even number of clocks, the lower median counts, as for `epoch_time`.
        let median = clocks[(clocks.len() - 1) / 2];
        let ahead = median.saturating_neg();
        [ahead, ahead.saturating_add(wall_ahead_ms)].into_iter().find(is_apart)
    }
}

/// Returns the least delayed of the recent readings.
fn fastest(readings: &VecDeque<(Instant, i64)>, now: Instant) -> Option<i64> {
    readings.iter().filter(|(at, _)| now.saturating_duration_since(*at) < AGE_MAX).map(|(_, ms)| *ms).max()
}

/// Describes a clock that is too far from those of the other nodes.
#[must_use]
pub fn problem(apart_ms: i64) -> String {
    let side = if apart_ms > 0 { "fast" } else { "slow" };
    format!(
        "the system clock of this node is {} s {side}, compared with those of the other nodes, and {} s are allowed: the node takes no commits, and \
         its clock does not count. Set the clock right, and restart the node if this stays",
        apart_ms.unsigned_abs() / 1000,
        CLOCKS_APART_MS_MAX / 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;
    const OWN: u64 = 1_700_000_000_000;

    /// Records clocks that are this far ahead, and returns how far this node's clock is apart.
    fn apart(ahead: &[i64], epoch_time_ms: u64) -> Option<i64> {
        let (mut clocks, now) = (PeerClocks::default(), Instant::now());
        for (node, ahead) in (2..).map(NodeId).zip(ahead) {
            clocks.note(node, OWN.saturating_add_signed(*ahead), OWN, now);
        }
        clocks.apart_ms(OWN, 0, epoch_time_ms, now)
    }

    #[test]
    fn a_clock_is_compared_with_the_median() {
        assert_eq!(apart(&[], OWN), None, "nobody has told anything");
        assert_eq!(apart(&[300, -20], OWN), None);
        assert_eq!(apart(&[DAY, 20], OWN), None, "another one is wrong");
        assert_eq!(apart(&[-DAY, 20], OWN), None);
        assert_eq!(apart(&[-DAY, 20 - DAY], OWN - DAY as u64), Some(DAY - 20), "the own one is a day ahead");
        assert_eq!(apart(&[DAY, DAY + 20], OWN + DAY as u64), Some(-DAY), "or slow");
        let bound = CLOCKS_APART_MS_MAX as i64;
        assert_eq!((apart(&[bound, bound], OWN), apart(&[bound + 1; 2], OWN)), (None, Some(-bound - 1)));
    }

    #[test]
    fn of_two_clocks_the_lower_one_counts_unless_time_was_past_it() {
        assert_eq!(apart(&[DAY], OWN), None);
        assert_eq!(apart(&[-DAY], OWN - DAY as u64), Some(DAY));
        assert_eq!(apart(&[DAY], OWN + DAY as u64), Some(-DAY), "epochs have a later time");
    }

    #[test]
    fn a_system_clock_that_is_not_followed_counts_once_it_is_wrong_for_long() {
        let (mut clocks, now) = (PeerClocks::default(), Instant::now());
        assert_eq!(clocks.apart_ms(OWN, -DAY, OWN, now), Some(-DAY), "the log has a later time");
        clocks.note(NodeId(2), OWN, OWN, now);
        assert_eq!(clocks.apart_ms(OWN, DAY, OWN, now), Some(DAY));
        clocks.note(NodeId(3), OWN - DAY as u64, OWN, now);
        clocks.note(NodeId(2), OWN - DAY as u64, OWN, now + AGE_MAX);
        assert_eq!(
            clocks.apart_ms(OWN, -DAY, 0, now + AGE_MAX),
            Some(DAY),
            "it is right again, but not what was made of it"
        );
    }

    #[test]
    fn what_was_delayed_or_is_old_does_not_count() {
        let (mut clocks, begun) = (PeerClocks::default(), Instant::now());
        for late in [DAY, 0, DAY] {
            clocks.note(NodeId(2), OWN - late as u64, OWN, begun);
        }
        assert_eq!(clocks.apart_ms(OWN, 0, 0, begun), None);
        assert_eq!(clocks.offsets_ms(begun), BTreeMap::from([(NodeId(2), 0)]));
        clocks.note(NodeId(2), 0, OWN, begun + AGE_MAX);
        assert!(clocks.apart_ms(OWN, 0, 0, begun + AGE_MAX).is_some(), "only the last one is new");
        assert_eq!(clocks.apart_ms(OWN, 0, 0, begun + 2 * AGE_MAX), None);
        assert_eq!(clocks.offsets_ms(begun + 2 * AGE_MAX), BTreeMap::new());
    }
}
