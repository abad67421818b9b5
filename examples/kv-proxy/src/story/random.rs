//! Random numbers for workloads: xorshift, and YCSB's Zipfian generator (Gray et al., SIGMOD 1994).

/// A small generator; the same seed gives the same numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound.max(1)
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1u64 << 40) as f64
    }
}

/// Draws ranks below `items`, low ones most often.
#[derive(Clone, Copy)]
pub struct Zipf {
    items: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// `theta` between 0 (uniform) and 1, e.g. 0.9.
    pub fn new(items: u64, theta: f64) -> Self {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let (all, two) = (zeta(items), zeta(2));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - two / all);
        Zipf { items: items as f64, theta, alpha: 1.0 / (1.0 - theta), zeta: all, eta }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            ((self.items * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64).min(self.items as u64 - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ranks_are_drawn_most_and_none_is_out_of_bounds() {
        let (zipf, mut random) = (Zipf::new(1000, 0.9), Random::new(7));
        let mut counts = vec![0u32; 1000];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        assert!(counts[0] > 5_000 && counts[0] > counts[10] && counts[10] > counts[900], "{:?}", &counts[..12]);
    }
}
