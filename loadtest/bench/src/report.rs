//! Figures of one measurement, as text for people and as JSON for scripts. Computes nothing but ratios.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::lag::Lag;
use crate::machine::Machine;
use crate::traffic::{Counts, Mode};

/// Percentiles, microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Worst.
    pub max: u64,
}

impl Percentiles {
    /// Reads the percentiles from a histogram.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Percentiles {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max() }
    }

    fn line(&self) -> String {
        let ms = |us: u64| us as f64 / 1000.0;
        format!(
            "p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, p999 {:.2} ms, max {:.2} ms",
            ms(self.p50),
            ms(self.p90),
            ms(self.p99),
            ms(self.p999),
            ms(self.max)
        )
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// How transactions were posted.
    pub mode: Mode,
    /// Workload in words.
    pub workload: String,
    /// Transactions per request.
    pub txns_per_request: usize,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Outcomes of the transactions.
    pub counts: Counts,
    /// Answered transactions per second.
    pub attempted_per_s: f64,
    /// Committed transactions per second: goodput.
    pub committed_per_s: f64,
    /// Latency of a request, microseconds.
    pub latency_us: Percentiles,
    /// Requests that were due and never sent (open loop only).
    pub unsent: u64,
    /// CPU time of this client, microseconds per transaction.
    pub client_cpu_us: f64,
    /// CPU time of the server, microseconds per transaction.
    pub server_cpu_us: Option<f64>,
    /// Lag of the storage at the end.
    pub push_lag: Option<Lag>,
}

/// CPU time used during a measurement.
#[derive(Clone, Copy, Debug)]
pub struct CpuUsed {
    /// By this process.
    pub client: Duration,
    /// By the server, if its process is known.
    pub server: Option<Duration>,
}

impl Report {
    /// Computes all ratios.
    #[must_use]
    pub fn with_rates(mut self, elapsed: Duration, cpu: CpuUsed) -> Report {
        let txns = self.counts.attempted.max(1) as f64;
        self.seconds = elapsed.as_secs_f64();
        self.attempted_per_s = self.counts.attempted as f64 / self.seconds;
        self.committed_per_s = self.counts.committed as f64 / self.seconds;
        self.client_cpu_us = cpu.client.as_secs_f64() * 1e6 / txns;
        self.server_cpu_us = cpu.server.map(|time| time.as_secs_f64() * 1e6 / txns);
        self
    }

    /// Returns the report as lines of text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let name = match self.mode {
            Mode::Commit => "commit",
            Mode::Constant => "constant",
            Mode::Batch => "batch",
        };
        let grouped =
            if self.mode == Mode::Batch { format!(", {} a request", self.txns_per_request) } else { String::new() };
        let _ = writeln!(out, "{name}: {}{grouped}, {:.1} s", self.workload, self.seconds);
        let _ = write!(out, "  {:.0} attempted/s", self.attempted_per_s);
        if self.mode != Mode::Constant {
            let _ = write!(out, ", {:.0} committed/s", self.committed_per_s);
        }
        let share = |count: &u64| 100.0 * *count as f64 / self.counts.attempted.max(1) as f64;
        for (label, by_name) in [("aborted", &self.counts.aborted), ("without a decision", &self.counts.problems)] {
            if !by_name.is_empty() {
                let parts: Vec<_> = by_name.iter().map(|(name, n)| format!("{name} {:.2} %", share(n))).collect();
                let _ = write!(out, ", {label} {:.2} % ({})", share(&by_name.values().sum()), parts.join(", "));
            }
        }
        let _ = writeln!(out, "\n  {}", self.latency_us.line());
        let server = self.server_cpu_us.map_or("unknown".to_owned(), |us| format!("{us:.2} us"));
        let _ = writeln!(out, "  CPU a transaction: client {:.2} us, server {server}", self.client_cpu_us);
        if self.unsent > 0 {
            let _ = writeln!(out, "  {} requests were due and never left", self.unsent);
        }
        if let Some(lag) = self.push_lag {
            let _ = writeln!(out, "  push lag at the end: {} epochs, {} ms", lag.epochs, lag.caught_up_ms);
        }
        out
    }
}

/// Prints a document of any measurement: the machine and `text`, or `document` with the machine in it.
pub fn print(machine: &Machine, json: bool, text: &str, document: serde_json::Value) {
    if json {
        println!("{}", serde_json::json!({ "machine": machine, "result": document }));
    } else {
        print!("{}\n{text}", machine.line());
    }
}
