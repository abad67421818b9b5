//! Election timeouts that depend only on the seed.
//!
//! raft-rs draws a timeout from thread-local randomness whenever it resets a group. After every call, before anything
//! can depend on it, that timeout is replaced: by our current one, or by a new one after a reset.

use tribunal_types::{GroupId, NodeId};

use crate::settings::Settings;

/// The election timeouts of one group on one node.
#[derive(Clone, Debug)]
pub(crate) struct ElectionTimeout {
    state: u64,
    first: usize,
    end: usize,
    ticks: usize,
}

impl ElectionTimeout {
    pub(crate) fn new(settings: &Settings, node: NodeId, group: GroupId) -> Self {
        let name = u64::from(node.0) << 48 | u64::from(group.node.0) << 32 | u64::from(group.incarnation.0);
        let mut timeout = Self {
            state: mix(settings.seed ^ mix(name)),
            first: usize::from(settings.election_ticks),
            end: settings.election_ticks_end(),
            ticks: 0,
        };
        timeout.draw();
        timeout
    }

    /// Draws the next timeout.
    pub(crate) fn draw(&mut self) {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let range = (self.end - self.first) as u64;
        self.ticks = self.first + (mix(self.state) % range) as usize;
    }

    /// Returns the current timeout in ticks.
    pub(crate) fn ticks(&self) -> usize {
        self.ticks
    }
}

/// Applies the finalizer of SplitMix64.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_within_their_range_differ_between_nodes_and_repeat_with_the_seed() {
        let settings = Settings { election_ticks: 10, seed: 7, ..Settings::default() };
        let drawn = |node| {
            let mut timeout = ElectionTimeout::new(&settings, NodeId(node), GroupId::CONTROL);
            (0..100).map(|_| (timeout.draw(), timeout.ticks()).1).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        for ticks in 10..15 {
            assert!(drawn(1).contains(&ticks), "{ticks} is never drawn");
        }
        assert!(drawn(1).iter().all(|ticks| (10..15).contains(ticks)));
    }
}
