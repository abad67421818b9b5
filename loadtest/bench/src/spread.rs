//! How often a workload chooses each row.

use rand::RngExt;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::key::Row;

/// The distribution of row choices.
#[derive(Debug)]
pub(crate) enum Spread {
    Uniform(Row),
    Zipf(Zipf<f64>, Row),
}

impl Spread {
    /// Spreads over `rows` rows: uniformly if `zipf` is 0.
    pub(crate) fn new(rows: Row, zipf: f64) -> Spread {
        if zipf == 0.0 {
            return Spread::Uniform(rows);
        }
        Spread::Zipf(Zipf::new(f64::from(rows), zipf).expect("rows and exponent were checked"), rows)
    }

    pub(crate) fn pick(&self, rng: &mut SmallRng) -> Row {
        match self {
            Spread::Uniform(rows) => rng.random_range(0..*rows),
            Spread::Zipf(zipf, rows) => (zipf.sample(rng) as Row).clamp(1, *rows) - 1,
        }
    }
}
