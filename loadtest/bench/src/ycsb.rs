//! The core workloads of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010), with several
//! operations per transaction. All but D and E use only loaded rows.

use rand::RngExt as _;
use rand::rngs::SmallRng;

use crate::inserts::Inserts;
use crate::key::Row;
use crate::options::Workload;
use crate::plan::{Change, Plan, Scan};
use crate::spread::Spread;

/// Rows of the longest scan.
pub const SCAN_ROWS_MAX: u32 = 100;

/// Shares of the operations; the rest are reads.
#[derive(Clone, Copy, Debug, Default)]
struct Mix {
    update: f64,
    read_modify_write: f64,
    insert: f64,
    scan: f64,
    /// Whether reads prefer the most recently inserted rows, instead of always the same ones.
    reads_latest: bool,
}

impl Mix {
    fn of(workload: Workload) -> Option<Mix> {
        let rest = Mix::default();
        Some(match workload {
            Workload::YcsbA => Mix { update: 0.5, ..rest },
            Workload::YcsbB => Mix { update: 0.05, ..rest },
            Workload::YcsbC => rest,
            Workload::YcsbD => Mix { insert: 0.05, reads_latest: true, ..rest },
            Workload::YcsbE => Mix { insert: 0.05, scan: 0.95, ..rest },
            Workload::YcsbF => Mix { read_modify_write: 0.5, ..rest },
            Workload::Point | Workload::Bank | Workload::Hot => return None,
        })
    }
}

/// Generates the transactions of one of the workloads.
#[derive(Debug)]
pub struct Ycsb {
    mix: Mix,
    operations: usize,
    /// Its inserts; the end of each transaction must be reported to them.
    pub(crate) inserts: Inserts,
}

impl Ycsb {
    /// Creates the generator for `operations` operations per transaction on `loaded` loaded rows, after `inserted`
    /// inserts of earlier turns; `None` if the workload is not one of YCSB's.
    #[must_use]
    pub fn after(workload: Workload, operations: usize, loaded: Row, inserted: u32) -> Option<Ycsb> {
        Some(Ycsb { mix: Mix::of(workload)?, operations, inserts: Inserts::after(loaded, inserted) })
    }

    /// Generates the next transaction. Its rows are distinct, and so are the starts of its scans.
    pub(crate) fn next(&mut self, spread: &Spread, rng: &mut SmallRng) -> Plan {
        let mut plan = Plan::default();
        let mut chosen = Vec::with_capacity(self.operations);
        for _ in 0..self.operations {
            let dice: f64 = rng.random();
            let Mix { update, read_modify_write, insert, scan, .. } = self.mix;
            if dice < insert {
                plan.writes.push((self.inserts.begin(), Change::Insert));
                continue;
            }
            let row = self.choose(&chosen, spread, rng);
            chosen.push(row);
            if dice < insert + scan {
                plan.scans.push(Scan { start: row, count: rng.random_range(1..=SCAN_ROWS_MAX) });
                continue;
            }
            if dice >= insert + scan + update {
                plan.reads.push(row);
            }
            if dice < insert + scan + update + read_modify_write {
                plan.writes.push((row, Change::Text));
            }
        }
        plan
    }

    fn choose(&self, chosen: &[Row], spread: &Spread, rng: &mut SmallRng) -> Row {
        loop {
            let rank = spread.pick(rng);
            let row = if self.mix.reads_latest {
                self.inserts.latest(rank)
            } else if self.mix.scan > 0.0 {
                // Spread the starts, so that scans do not all cover the same few adjacent keys.
                self.inserts.scatter(rank)
            } else {
                rank
            };
            // Linear, because a transaction has few rows; a set would cost more.
            if !chosen.contains(&row) {
                return row;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use clap::Parser as _;
    use clap::ValueEnum as _;

    use super::*;
    use crate::key;
    use crate::model::RowModel;
    use crate::options::{Cli, Command, Shape};
    use crate::workload::Planner;

    const ROWS: Row = 10_000;

    fn shape(workload: &str) -> Shape {
        let Command::Commit(common) = Cli::parse_from(["tribunal-bench", "commit", "--rows", "10000"]).command else {
            panic!("commit was asked for")
        };
        Shape { workload: Workload::from_str(workload, false).unwrap(), ..common.shape }
    }

    /// Plans `count` transactions, each of which ends before the next one begins.
    fn plans(workload: &str, inserted: u32, count: usize) -> Vec<Plan> {
        let mut planner = Planner::after(&shape(workload), inserted);
        let model = RowModel::new(0, 0);
        let next = |_| {
            let plan = planner.next(&model);
            planner.end(&plan);
            plan
        };
        (0..count).map(next).collect()
    }

    /// Returns the share of reads, scans, updates, read-modify-writes and inserts of all operations.
    fn shares(workload: &str) -> [f64; 5] {
        let mut counts = [0_usize; 5];
        for plan in plans(workload, 0, 4_000) {
            let (mut modified, mut updated, mut inserted) = (0, 0, 0);
            for (row, change) in &plan.writes {
                match change {
                    Change::Insert => inserted += 1,
                    _ if plan.reads.contains(row) => modified += 1,
                    _ => updated += 1,
                }
            }
            let operations = [plan.reads.len() - modified, plan.scans.len(), updated, modified, inserted];
            assert_eq!(operations.iter().sum::<usize>(), 10, "{workload}: {plan:?}");
            counts.iter_mut().zip(operations).for_each(|(sum, more)| *sum += more);
        }
        counts.map(|count| count as f64 / 40_000.0)
    }

    #[test]
    fn each_workload_has_the_operations_of_its_definition() {
        for (workload, expected) in [
            ("ycsb-a", [0.5, 0.0, 0.5, 0.0, 0.0]),
            ("ycsb-b", [0.95, 0.0, 0.05, 0.0, 0.0]),
            ("ycsb-c", [1.0, 0.0, 0.0, 0.0, 0.0]),
            ("ycsb-d", [0.95, 0.0, 0.0, 0.0, 0.05]),
            ("ycsb-e", [0.0, 0.95, 0.0, 0.0, 0.05]),
            ("ycsb-f", [0.5, 0.0, 0.0, 0.5, 0.0]),
        ] {
            let found = shares(workload);
            let close = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.01);
            assert!(close, "{workload}: {found:?} for {expected:?}");
        }
    }

    #[test]
    fn rows_of_a_transaction_are_distinct() {
        for workload in ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"] {
            for plan in plans(workload, 0, 500) {
                let mut writes: Vec<_> = plan.writes.iter().map(|(row, _)| *row).collect();
                for rows in [&mut plan.reads.clone(), &mut writes, &mut plan.scans.iter().map(|s| s.start).collect()] {
                    let count = rows.len();
                    rows.sort_unstable();
                    rows.dedup();
                    assert_eq!(rows.len(), count, "{workload}: {plan:?}");
                }
            }
        }
    }

    #[test]
    fn scans_have_every_length_alike_and_start_all_over_the_keys() {
        let scans: Vec<_> = plans("ycsb-e", 0, 2_000).into_iter().flat_map(|plan| plan.scans).collect();
        let mean = scans.iter().map(|scan| f64::from(scan.count)).sum::<f64>() / scans.len() as f64;
        assert!((mean - 50.5).abs() < 1.5, "{mean}");
        assert!(scans.iter().all(|scan| (1..=SCAN_ROWS_MAX).contains(&scan.count) && scan.start < ROWS));
        assert!([1, SCAN_ROWS_MAX].iter().all(|end| scans.iter().any(|scan| scan.count == *end)));
        let mut starts: HashMap<Row, usize> = HashMap::new();
        scans.iter().for_each(|scan| *starts.entry(scan.start).or_default() += 1);
        let mut by_count: Vec<_> = starts.into_iter().map(|(row, count)| (count, row)).collect();
        by_count.sort_unstable();
        let preferred: Vec<_> = by_count.iter().rev().take(100).map(|(_, row)| *row).collect();
        let of_preferred = scans.iter().filter(|scan| preferred.contains(&scan.start)).count();
        assert!(of_preferred > scans.len() / 3, "Zipf prefers some");
        let upper = preferred.iter().filter(|row| **row >= ROWS / 2).count();
        assert!((35..=65).contains(&upper), "{upper} of 100 in the upper half");
    }

    #[test]
    fn reads_follow_the_newest_rows() {
        let plans = plans("ycsb-d", 0, 4_000);
        let inserted = |plans: &[Plan]| {
            let rows: Vec<_> = plans.iter().flat_map(|plan| &plan.reads).collect();
            rows.iter().filter(|row| key::is_inserted(***row)).count() as f64 / rows.len() as f64
        };
        let (early, late) = (inserted(&plans[..40]), inserted(&plans[3_000..]));
        assert!(early < 0.4 && late > 0.65, "{early}, {late}");
        let mut known = std::collections::HashSet::new();
        for plan in &plans {
            let unknown = plan.reads.iter().find(|row| key::is_inserted(**row) && !known.contains(*row));
            assert_eq!(unknown, None, "a row is read before its insert has ended");
            known.extend(plan.writes.iter().map(|(row, _)| *row));
        }
    }

    #[test]
    fn everybody_gets_the_same_operations_whatever_was_inserted_before() {
        for workload in ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"] {
            assert_eq!(plans(workload, 7, 300), plans(workload, 7, 300));
            let kinds = |plans: Vec<Plan>| -> Vec<_> {
                plans.iter().map(|p| (p.reads.len(), p.scans.clone(), p.writes.len())).collect()
            };
            assert_eq!(kinds(plans(workload, 0, 300)), kinds(plans(workload, 12_345, 300)), "{workload}");
        }
    }
}
