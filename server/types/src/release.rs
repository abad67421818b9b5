//! Compatibility of the releases that run as nodes of one cluster.

use alloc::string::String;
use core::fmt;

/// Version of everything that nodes must share to make the same decisions and to read each other's output: the rules of
/// the core, the results of the built-in plugins, the formats of records and frames. A release that changes one of
/// these does so in the next generation, and keeps the previous behaviour in the preceding one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// The generation in which every cluster begins.
    pub const FIRST: Generation = Generation(1);
    /// The first generation in which the core is safe without the checks of the HTTP surface (decision 121): imports
    /// respect forgotten deletions, reads of stores that keep versions are of their snapshot, stale reads are reported
    /// before sums.
    pub const SECOND: Generation = Generation(2);
    /// The first generation in which a transaction may be placed between others of its epoch, and in which a snapshot whose
    /// history is gone only aborts what needs that history (decision 135).
    pub const THIRD: Generation = Generation(3);
    /// The oldest generation that this release can decide in.
    pub const OLDEST: Generation = Generation(1);
    /// The newest generation that this release can decide in.
    pub const NEWEST: Generation = Generation::THIRD;
}

impl Default for Generation {
    fn default() -> Generation {
        Generation::FIRST
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The generations that a release can decide in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    /// The oldest one.
    pub oldest: Generation,
    /// The newest one.
    pub newest: Generation,
}

impl Generations {
    /// The generations of this release.
    pub const OWN: Generations = Generations { oldest: Generation::OLDEST, newest: Generation::NEWEST };

    /// Returns whether `generation` is one of them.
    #[must_use]
    pub fn contain(self, generation: Generation) -> bool {
        (self.oldest..=self.newest).contains(&generation)
    }

    /// Parses their [`fmt::Display`] form.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Generations> {
        let number = |text: &str| text.parse().ok().map(Generation);
        let (oldest, newest) = text.split_once('-').unwrap_or((text, text));
        let (oldest, newest) = (number(oldest)?, number(newest)?);
        (oldest <= newest).then_some(Generations { oldest, newest })
    }
}

impl fmt::Display for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            return write!(f, "{}", self.oldest);
        }
        write!(f, "{}-{}", self.oldest, self.newest)
    }
}

/// The release of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Version of its binary, for display.
    pub version: String,
    /// The generations that it can decide in.
    pub generations: Generations,
    /// The engine that runs plugins: two of the same name give the same results, including faults.
    pub engine: String,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn generations_are_read_as_they_are_written() {
        for (oldest, newest, text) in [(1, 1, "1"), (1, 2, "1-2"), (7, 4_000_000_000, "7-4000000000")] {
            let generations = Generations { oldest: Generation(oldest), newest: Generation(newest) };
            assert_eq!(generations.to_string(), text);
            assert_eq!(Generations::from_text(text), Some(generations));
            assert!(generations.contain(Generation(newest)) && !generations.contain(Generation(oldest - 1)));
        }
        for text in ["", "-", "2-1", "1-", "x", "1-2-3", "-1"] {
            assert_eq!(Generations::from_text(text), None, "{text}");
        }
        assert!(Generations::OWN.oldest <= Generations::OWN.newest);
    }
}
