//! How often a workload chooses each row.

use std::cell::Cell;

use rand::RngExt;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::key::Row;

/// Number of choices drawn in advance, then used again and again: those of 100,000 transactions. Drawing them meanwhile,
/// with a power for each row, would be a tenth of what a fast client computes.
const DRAWN_AHEAD: usize = 1 << 20;

/// The distribution of row choices.
#[derive(Debug)]
pub(crate) enum Spread {
    Uniform(Row),
    Zipf(Skewed),
}

/// Choices by Zipf's law.
#[derive(Debug)]
pub(crate) struct Skewed {
    drawn: Vec<Row>,
    taken: Cell<usize>,
}

impl Spread {
    /// Spreads over `rows` rows: uniformly if `zipf` is 0.
    pub(crate) fn new(rows: Row, zipf: f64, rng: &mut SmallRng) -> Spread {
        if zipf == 0.0 {
            return Spread::Uniform(rows);
        }
        let zipf = Zipf::new(f64::from(rows), zipf).expect("rows and exponent were checked");
        let draw = |_| (zipf.sample(rng) as Row).clamp(1, rows) - 1;
        Spread::Zipf(Skewed { drawn: (0..DRAWN_AHEAD).map(draw).collect(), taken: Cell::new(0) })
    }

    pub(crate) fn pick(&self, rng: &mut SmallRng) -> Row {
        match self {
            Spread::Uniform(rows) => rng.random_range(0..*rows),
            Spread::Zipf(skewed) => {
                let taken = skewed.taken.get();
                skewed.taken.set((taken + 1) % DRAWN_AHEAD);
                skewed.drawn[taken]
            }
        }
    }
}
