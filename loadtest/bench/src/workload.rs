//! Makes transactions: which rows, which operations. Deterministic for a seed and a sequence of replies. No I/O.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use crate::model::{Row, RowModel};
use crate::options::{Shape, Workload};

/// Balance of each account at the start.
pub const OPENING_BALANCE: i64 = 1_000;

/// What a transaction does to one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Put of a random string.
    Text,
    /// Put of a balance.
    Balance(i64),
    /// Add of one.
    AddOne,
}

/// One transaction to post.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rows read, at the versions that the model knows.
    pub reads: Vec<Row>,
    /// Rows written.
    pub writes: Vec<(Row, Change)>,
}

#[derive(Debug)]
enum Spread {
    Uniform,
    Zipf(Zipf<f64>),
}

/// An endless supply of transactions.
#[derive(Debug)]
pub struct Planner {
    workload: Workload,
    rows: Row,
    reads: usize,
    writes: usize,
    spread: Spread,
    rng: SmallRng,
}

impl Planner {
    /// Makes a planner for these flags, which have been checked.
    ///
    /// # Panics
    /// If the flags were not checked.
    #[must_use]
    pub fn new(shape: &Shape) -> Planner {
        let rows = row_count(shape);
        let spread = if shape.zipf == 0.0 {
            Spread::Uniform
        } else {
            Spread::Zipf(Zipf::new(rows as f64, shape.zipf).expect("rows and exponent were checked"))
        };
        Planner {
            workload: shape.workload,
            rows: Row::try_from(rows).expect("rows were checked"),
            reads: shape.reads,
            writes: shape.writes,
            spread,
            rng: SmallRng::seed_from_u64(shape.seed),
        }
    }

    /// Gives the random numbers that values and ids are made of.
    pub fn rng(&mut self) -> &mut impl Rng {
        &mut self.rng
    }

    /// Makes the next transaction on what `model` knows.
    pub fn next(&mut self, model: &RowModel) -> Plan {
        match self.workload {
            Workload::Point => {
                let rows = self.distinct(self.reads + self.writes);
                let (reads, writes) = rows.split_at(self.reads);
                Plan { reads: reads.to_vec(), writes: writes.iter().map(|row| (*row, Change::Text)).collect() }
            }
            Workload::YcsbA => self.ycsb(0.5),
            Workload::YcsbB => self.ycsb(0.05),
            Workload::Bank => self.transfer(model),
            Workload::Hot => {
                let row = self.rng.random_range(0..self.rows);
                Plan { reads: Vec::new(), writes: vec![(row, Change::AddOne)] }
            }
        }
    }

    fn ycsb(&mut self, update_share: f64) -> Plan {
        let mut plan = Plan::default();
        for row in self.distinct(self.reads + self.writes) {
            if self.rng.random_bool(update_share) {
                plan.writes.push((row, Change::Text));
            } else {
                plan.reads.push(row);
            }
        }
        plan
    }

    fn transfer(&mut self, model: &RowModel) -> Plan {
        let accounts = self.distinct(2);
        let (from, to) = (accounts[0], accounts[1]);
        let amount = self.rng.random_range(0..=model.balance(from).max(0));
        let writes = vec![
            (from, Change::Balance(model.balance(from) - amount)),
            (to, Change::Balance(model.balance(to) + amount)),
        ];
        Plan { reads: accounts, writes }
    }

    fn distinct(&mut self, count: usize) -> Vec<Row> {
        let mut rows = Vec::with_capacity(count);
        while rows.len() < count {
            let row = self.pick();
            // Linear, because a transaction has few rows; a set would cost more.
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    fn pick(&mut self) -> Row {
        match &self.spread {
            Spread::Uniform => self.rng.random_range(0..self.rows),
            Spread::Zipf(zipf) => (zipf.sample(&mut self.rng) as Row).clamp(1, self.rows) - 1,
        }
    }
}

/// Returns how many rows the workload touches.
#[must_use]
pub fn row_count(shape: &Shape) -> usize {
    if shape.workload == Workload::Hot { shape.hot_rows } else { shape.rows }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::{Cli, Command};

    fn shape(flags: &[&str]) -> Shape {
        let args = ["tribunal-bench", "commit"].iter().chain(flags);
        let Command::Commit(common) = Cli::parse_from(args).command else { panic!("commit was asked for") };
        common.check().unwrap();
        common.shape
    }

    #[test]
    fn point_transactions_name_distinct_rows() {
        let mut planner = Planner::new(&shape(&["--rows", "40"]));
        let model = RowModel::new(40, 0);
        for _ in 0..200 {
            let plan = planner.next(&model);
            let mut rows: Vec<_> = plan.reads.iter().copied().chain(plan.writes.iter().map(|w| w.0)).collect();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), 10);
            assert!(rows.iter().all(|row| *row < 40));
        }
    }

    #[test]
    fn zipf_prefers_the_first_rows_and_uniform_does_not() {
        let share = |flags: &[&str]| {
            let mut planner = Planner::new(&shape(flags));
            (0..10_000).filter(|_| planner.pick() < 100).count()
        };
        assert!(share(&["--rows", "10000"]) > 3_000);
        assert!(share(&["--rows", "10000", "--zipf", "0"]) < 200);
    }

    #[test]
    fn transfers_keep_the_total() {
        let mut planner = Planner::new(&shape(&["--workload", "bank", "--rows", "30"]));
        let mut model = RowModel::new(30, OPENING_BALANCE);
        for version in 1..500 {
            let writes: Vec<_> = (planner.next(&model).writes.iter())
                .map(|(row, change)| match change {
                    Change::Balance(balance) => (*row, *balance),
                    other => panic!("not a transfer: {other:?}"),
                })
                .collect();
            model.committed(version, version, &writes);
            assert!(writes.iter().all(|(_, balance)| *balance >= 0));
        }
        assert_eq!(model.total(), 30 * OPENING_BALANCE);
    }

    #[test]
    fn the_same_seed_plans_the_same() {
        let flags = shape(&["--workload", "ycsb-a", "--seed", "7"]);
        let model = RowModel::new(flags.rows, 0);
        let (mut one, mut two) = (Planner::new(&flags), Planner::new(&flags));
        assert!((0..100).all(|_| one.next(&model) == two.next(&model)));
    }
}
