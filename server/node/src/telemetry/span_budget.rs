//! The budget for spans that wait to be sent, and the fate of every span: sent, dropped for lack of budget, or lost
//! because the collector did not accept it. Senders of spans take from the budget first, so that a dead collector costs
//! bounded memory and no waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;

/// The budget.
#[derive(Debug)]
pub struct SpanBudget {
    most: usize,
    waiting: AtomicUsize,
    sent: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
}

/// The fates of spans so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector accepted them.
    pub sent: u64,
    /// There was no budget for them.
    pub dropped: u64,
    /// The collector did not accept them.
    pub lost: u64,
}

impl SpanBudget {
    /// Creates a budget for `most` spans.
    #[must_use]
    pub fn new(most: usize) -> SpanBudget {
        let count = || AtomicU64::new(0);
        SpanBudget { most, waiting: AtomicUsize::new(0), sent: count(), dropped: count(), lost: count() }
    }

    /// Takes budget for all of `count` spans, or counts all of them as dropped.
    pub fn take(&self, count: usize) -> bool {
        let more = |waiting: usize| (waiting + count <= self.most).then_some(waiting + count);
        let taken = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !taken {
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self, count: usize, sent: bool) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let to = if sent { &self.sent } else { &self.lost };
        to.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the fates of spans so far.
    pub fn counts(&self) -> SpanCounts {
        let at = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SpanCounts { sent: at(&self.sent), dropped: at(&self.dropped), lost: at(&self.lost) }
    }
}

/// An exporter that returns the budget.
#[derive(Debug)]
pub struct Counting {
    /// The wrapped exporter.
    pub exporter: SpanExporter,
    /// The budget of the exported spans.
    pub budget: Arc<SpanBudget>,
}

impl opentelemetry_sdk::trace::SpanExporter for Counting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.exporter.export(batch).await;
        self.budget.give_back(count, result.is_ok());
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_over_budget_are_dropped_whole_and_counted() {
        let budget = SpanBudget::new(10);
        assert!(budget.take(7));
        assert!(!budget.take(4), "not three of the four");
        assert!(budget.take(3));
        assert_eq!(budget.counts(), SpanCounts { dropped: 4, ..SpanCounts::default() });
        budget.give_back(7, true);
        budget.give_back(3, false);
        assert!(budget.take(10), "all budget is back");
        assert_eq!(budget.counts(), SpanCounts { sent: 7, dropped: 4, lost: 3 });
    }
}
