//! The network between machines: which frames arrive, and when.

use std::collections::BTreeSet;

use crate::sim::random::Random;

/// The quality of all links.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quality {
    /// Lost frames, per mille.
    pub lost: u64,
    /// Duplicated frames, per mille.
    pub twice: u64,
    /// Maximum additional delay, microseconds: frames are reordered.
    pub jitter_us: u64,
}

/// The links.
#[derive(Debug)]
pub struct Network {
    /// One-way latency between two machines, microseconds.
    latency_us: u64,
    /// The current quality.
    pub quality: Quality,
    /// Links on which nothing arrives: from, to.
    cut: BTreeSet<(u16, u16)>,
}

impl Network {
    /// Creates a network without faults.
    #[must_use]
    pub fn new(latency_us: u64) -> Network {
        Network { latency_us, quality: Quality::default(), cut: BTreeSet::new() }
    }

    /// Cuts a link in one direction.
    pub fn cut(&mut self, from: u16, to: u16) {
        self.cut.insert((from, to));
    }

    /// Repairs all links.
    pub fn repair(&mut self) {
        self.cut.clear();
    }

    /// Returns whether frames can pass in both directions.
    #[must_use]
    pub fn connects(&self, one: u16, other: u16) -> bool {
        !self.cut.contains(&(one, other)) && !self.cut.contains(&(other, one))
    }

    /// Returns the delays after which a frame arrives, in microseconds: none, one or two.
    pub fn delays(&mut self, from: u16, to: u16, random: &mut Random) -> Vec<u64> {
        let Quality { lost, twice, jitter_us } = self.quality;
        let mut delays = Vec::new();
        if self.cut.contains(&(from, to)) || random.chance(lost) {
            return delays;
        }
        for _ in 0..=u8::from(random.chance(twice)) {
            delays.push(self.latency_us + random.between(0, self.latency_us / 4 + jitter_us));
        }
        delays
    }
}
