//! Kinds of metrics that several topics have.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// A gauge that is set from any thread.
pub(super) type Level = Gauge<u64, AtomicU64>;

/// Returns a histogram of the time of one step of an epoch.
pub(super) fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_02, 2.0, 18))
}
