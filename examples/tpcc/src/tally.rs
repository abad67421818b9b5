//! The terminals' counters: live for the progress line, and per transaction for the report.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Prints a line. The reader may have exited, as in `... | head`: the verdict is in the exit code as well.
pub fn line(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Counters shown while the terminals run.
#[derive(Debug, Default)]
pub struct Live {
    /// Transactions committed.
    pub committed: AtomicU64,
    /// Attempts aborted.
    pub aborted: AtomicU64,
    /// Response times of this second, microseconds.
    second: Mutex<Option<Histogram<u64>>>,
}

impl Live {
    /// Counts a commit.
    pub fn committed(&self, response: Duration) {
        self.committed.fetch_add(1, Ordering::Relaxed);
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = second.get_or_insert_with(|| Histogram::new(3).expect("three digits are supported"));
        histogram.record(us(response)).expect("the histogram resizes itself");
    }

    /// Returns median and 99th percentile of the response times since the last call, microseconds.
    pub fn take_second(&self) -> (u64, u64) {
        let taken = self.second.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.map_or((0, 0), |times| (times.value_at_quantile(0.5), times.value_at_quantile(0.99)))
    }

    /// Returns the commits and aborts so far.
    pub fn read(&self) -> (u64, u64) {
        (self.committed.load(Ordering::Relaxed), self.aborted.load(Ordering::Relaxed))
    }
}

/// One kind of transaction.
#[derive(Debug)]
pub struct Tally {
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back on purpose.
    pub rolled_back: u64,
    /// Attempts aborted, by reason.
    pub aborts: BTreeMap<String, u64>,
    /// Microseconds from the first attempt's first read to the verdict, retries and their backoff included.
    response: Histogram<u64>,
    /// The same for the committed attempt alone.
    attempt: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || Histogram::new(3).expect("three digits are supported");
        Tally { committed: 0, rolled_back: 0, aborts: BTreeMap::new(), response: histogram(), attempt: histogram() }
    }
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Tally {
    /// Counts a commit.
    pub fn committed(&mut self, response: Duration, attempt: Duration) {
        self.committed += 1;
        self.response.record(us(response)).expect("the histogram resizes itself");
        self.attempt.record(us(attempt)).expect("the histogram resizes itself");
    }

    /// Counts an abort.
    pub fn aborted(&mut self, reason: String) {
        *self.aborts.entry(reason).or_default() += 1;
    }

    /// Adds another terminal's counters.
    pub fn merge(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        for (reason, count) in &other.aborts {
            *self.aborts.entry(reason.clone()).or_default() += count;
        }
        self.response.add(&other.response).expect("histograms of one shape");
        self.attempt.add(&other.attempt).expect("histograms of one shape");
    }

    /// Returns the report for programs.
    #[must_use]
    pub fn json(&self, seconds: f64) -> Value {
        let quantiles = |of: &Histogram<u64>| {
            let at = |quantile| of.value_at_quantile(quantile);
            json!({"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": of.max()})
        };
        json!({
            "committed": self.committed, "rolled_back": self.rolled_back, "aborts_by_reason": self.aborts,
            "goodput_per_s": self.committed as f64 / seconds,
            "response_us": quantiles(&self.response), "attempt_us": quantiles(&self.attempt),
        })
    }

    /// Prints the report for people.
    pub fn print(&self, name: &str, seconds: f64) {
        let aborted: u64 = self.aborts.values().sum();
        let share = 100.0 * aborted as f64 / (self.committed + aborted).max(1) as f64;
        let per_s = self.committed as f64 / seconds;
        line(format_args!(
            "{name}: {} committed, {per_s:.0} per second; {aborted} attempts aborted ({share:.1} %)",
            self.committed
        ));
        for (reason, count) in &self.aborts {
            line(format_args!("  {reason:<20} {count}"));
        }
        if self.rolled_back > 0 {
            line(format_args!("  {:<20} {}", "(given up by the user)", self.rolled_back));
        }
        let ms = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1000.0;
        for (what, of) in
            [("response, with repetitions", &self.response), ("the attempt that committed", &self.attempt)]
        {
            let (p50, p90, p99) = (ms(of, 0.5), ms(of, 0.9), ms(of, 0.99));
            line(format_args!("  {what}: p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms"));
        }
    }
}
