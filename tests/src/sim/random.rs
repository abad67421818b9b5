//! Random numbers determined by a seed (SplitMix64).

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Draws 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Draws a number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low + 1)
    }

    /// Returns true with a probability of `permille` per mille.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.number() % 1000 < permille
    }

    /// Draws one of several values.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.number() % all.len() as u64) as usize]
    }
}
