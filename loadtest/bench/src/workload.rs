//! Generates transactions: their rows and operations. Deterministic for a seed and a sequence of replies. No I/O.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::key::Row;
use crate::model::RowModel;
use crate::options::{Shape, Workload};
use crate::plan::{Change, Plan};
use crate::spread::Spread;
use crate::ycsb::Ycsb;

/// Balance of each account at the start.
pub const OPENING_BALANCE: i64 = 1_000;

/// An endless supply of transactions.
#[derive(Debug)]
pub struct Planner {
    workload: Workload,
    rows: Row,
    reads: usize,
    writes: usize,
    spread: Spread,
    ycsb: Option<Ycsb>,
    inserted_before: u32,
    rng: SmallRng,
}

impl Planner {
    /// Creates a planner for these flags, which must have been checked.
    ///
    /// # Panics
    /// If the flags were not checked.
    #[must_use]
    pub fn new(shape: &Shape) -> Planner {
        Planner::after(shape, 0)
    }

    /// Creates a planner like [`Planner::new`], for rows of which earlier planners have inserted `inserted`.
    ///
    /// # Panics
    /// If the flags were not checked.
    #[must_use]
    pub fn after(shape: &Shape, inserted: u32) -> Planner {
        let rows = Row::try_from(row_count(shape)).expect("rows were checked");
        let mut rng = SmallRng::seed_from_u64(shape.seed);
        Planner {
            workload: shape.workload,
            rows,
            reads: shape.reads,
            writes: shape.writes,
            spread: Spread::new(rows, shape.zipf, &mut rng),
            ycsb: Ycsb::after(shape.workload, shape.reads + shape.writes, rows, inserted),
            inserted_before: inserted,
            rng,
        }
    }

    /// Records that a transaction has ended, committed or not.
    pub fn end(&mut self, plan: &Plan) {
        self.end_inserts(plan.inserts());
    }

    /// Records that the transactions that insert these rows have ended, committed or not.
    pub fn end_inserts(&mut self, rows: impl IntoIterator<Item = Row>) {
        let Some(ycsb) = &mut self.ycsb else { return };
        rows.into_iter().for_each(|row| ycsb.inserts.end(row));
    }

    /// Returns the number of inserts that this planner and earlier ones have begun.
    #[must_use]
    pub fn inserted(&self) -> u32 {
        self.ycsb.as_ref().map_or(self.inserted_before, |ycsb| ycsb.inserts.count())
    }

    /// Returns the generator of values and ids.
    pub fn rng(&mut self) -> &mut impl Rng {
        &mut self.rng
    }

    /// Generates the next transaction from the knowledge in `model`.
    pub fn next(&mut self, model: &RowModel) -> Plan {
        if let Some(ycsb) = &mut self.ycsb {
            return ycsb.next(&self.spread, &mut self.rng);
        }
        match self.workload {
            Workload::Point => {
                let rows = self.distinct(self.reads + self.writes);
                let (reads, writes) = rows.split_at(self.reads);
                let writes = writes.iter().map(|row| (*row, Change::Text)).collect();
                Plan { reads: reads.to_vec(), writes, ..Plan::default() }
            }
            Workload::Bank => self.transfer(model),
            Workload::Hot => {
                let row = self.rng.random_range(0..self.rows);
                Plan { writes: vec![(row, Change::AddOne)], ..Plan::default() }
            }
            _ => unreachable!("YCSB has a planner of its own"),
        }
    }

    fn transfer(&mut self, model: &RowModel) -> Plan {
        let accounts = self.distinct(2);
        let (from, to) = (accounts[0], accounts[1]);
        let amount = self.rng.random_range(0..=model.balance(from).max(0));
        let writes = vec![
            (from, Change::Balance(model.balance(from) - amount)),
            (to, Change::Balance(model.balance(to) + amount)),
        ];
        Plan { reads: accounts, writes, ..Plan::default() }
    }

    fn distinct(&mut self, count: usize) -> Vec<Row> {
        let mut rows = Vec::with_capacity(count);
        while rows.len() < count {
            let row = self.spread.pick(&mut self.rng);
            // Linear, because a transaction has few rows; a set would cost more.
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }
}

/// Returns the number of rows that the workload uses.
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
            (0..10_000).filter(|_| planner.spread.pick(&mut planner.rng) < 100).count()
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
