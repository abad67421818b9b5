//! The observations of the workloads, and their report.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Results of one workload.
pub struct Tally {
    /// Its name.
    pub name: &'static str,
    /// Transactions that committed.
    pub committed: u64,
    /// Aborts by reason.
    pub aborted: BTreeMap<String, u64>,
    /// Attempts without a verdict, by code: Redis was unavailable or lagging.
    pub refused: BTreeMap<String, u64>,
    /// Microseconds from begin to verdict of committed transactions.
    latency: Histogram<u64>,
    /// Acknowledged commits with writes: position in the log, and a token within the written
    /// values.
    pub acknowledged: Vec<(u64, String)>,
    /// Observed violations, which must never occur.
    pub violations: Vec<String>,
}

impl Tally {
    pub fn new(name: &'static str) -> Self {
        // Up to a minute, three digits: these bounds are valid.
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3).expect("valid bounds");
        Tally {
            name,
            committed: 0,
            aborted: BTreeMap::new(),
            refused: BTreeMap::new(),
            latency,
            acknowledged: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub fn commit(&mut self, took: Duration) {
        self.committed += 1;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn merge(&mut self, other: Tally) {
        self.committed += other.committed;
        for (into, from) in [(&mut self.aborted, other.aborted), (&mut self.refused, other.refused)] {
            for (reason, count) in from {
                *into.entry(reason).or_default() += count;
            }
        }
        // The bounds are the same, so it fits.
        let _ = self.latency.add(other.latency);
        self.acknowledged.extend(other.acknowledged);
        self.violations.extend(other.violations);
    }

    pub fn print(&self, lasted: Duration) {
        let aborted: u64 = self.aborted.values().sum();
        println!(
            "{:<8} {:>8} committed {:>8.0}/s   p50 {:>6.2} ms  p99 {:>7.2} ms   aborted {:>6} ({:.1} %) {}   refused {}",
            self.name,
            self.committed,
            self.committed as f64 / lasted.as_secs_f64(),
            self.latency.value_at_quantile(0.5) as f64 / 1000.0,
            self.latency.value_at_quantile(0.99) as f64 / 1000.0,
            aborted,
            100.0 * aborted as f64 / (aborted + self.committed).max(1) as f64,
            words(&self.aborted),
            words(&self.refused),
        );
    }
}

fn words(counts: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counts.iter().map(|(word, count)| format!("{word} {count}")).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}
