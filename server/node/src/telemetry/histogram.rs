//! A histogram that any thread can add to without waiting: eight buckets per power of two, so that a percentile is
//! accurate within an eighth. One addition is three relaxed atomic increments, for any number of equal values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Buckets per power of two, as a power of two.
const STEPS_LOG2: u32 = 3;
const STEPS: usize = 1 << STEPS_LOG2;
/// Powers of two: values above 2^36 (19 hours in microseconds) count as that.
const POWERS: usize = 36;
const BUCKETS: usize = (POWERS - STEPS_LOG2 as usize + 1) * STEPS;

/// The histogram. Clones share it.
#[derive(Clone, Debug)]
pub struct QuantileHistogram {
    inner: Arc<Inner>,
    /// Divisor of values exported to Prometheus.
    unit: f64,
}

#[derive(Debug)]
struct Inner {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

/// The content of a distribution at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    buckets: Box<[u64; BUCKETS]>,
    sum: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { buckets: Box::new([0; BUCKETS]), sum: 0 }
    }
}

impl QuantileHistogram {
    /// Creates an empty histogram of plain numbers.
    #[must_use]
    pub fn of_numbers() -> QuantileHistogram {
        let inner = Inner { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) };
        QuantileHistogram { inner: Arc::new(inner), unit: 1.0 }
    }

    /// Creates an empty histogram of microseconds, exported to Prometheus as seconds.
    #[must_use]
    pub fn of_micros() -> QuantileHistogram {
        QuantileHistogram { unit: 1e6, ..QuantileHistogram::of_numbers() }
    }

    /// Adds `count` equal values.
    pub fn add(&self, value: u64, count: u64) {
        self.inner.buckets[bucket_of(value)].fetch_add(count, Ordering::Relaxed);
        self.inner.sum.fetch_add(value.saturating_mul(count), Ordering::Relaxed);
    }

    /// Returns the current content.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { sum: self.inner.sum.load(Ordering::Relaxed), ..Counts::default() };
        for (to, from) in counts.buckets.iter_mut().zip(&self.inner.buckets) {
            *to = from.load(Ordering::Relaxed);
        }
        counts
    }
}

fn bucket_of(value: u64) -> usize {
    let value = value.min((1 << POWERS) - 1);
    if value < STEPS as u64 {
        return value as usize;
    }
    let power = 63 - value.leading_zeros();
    let step = (value >> (power - STEPS_LOG2)) as usize - STEPS;
    (power - STEPS_LOG2 + 1) as usize * STEPS + step
}

/// Returns the largest value that falls into a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = (bucket / STEPS - 1, bucket % STEPS);
    (((STEPS + step + 1) as u64) << power) - 1
}

impl Counts {
    /// Returns the values added since `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        let mut counts = Counts { sum: self.sum.wrapping_sub(before.sum), ..Counts::default() };
        for ((to, now), then) in counts.buckets.iter_mut().zip(self.buckets.iter()).zip(before.buckets.iter()) {
            *to = now.saturating_sub(*then);
        }
        counts
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the mean; 0 if empty.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    /// Returns a value that `share` of all values do not exceed; 0 if empty.
    #[must_use]
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map_or(0, upper)
    }
}

impl EncodeMetric for QuantileHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts();
        // One bucket per power of two is enough there.
        let powers = counts.buckets.chunks(STEPS).enumerate();
        let buckets: Vec<(f64, u64)> = powers
            .map(|(power, steps)| {
                let is_last = power + 1 == BUCKETS / STEPS;
                let bound = if is_last { f64::INFINITY } else { upper(power * STEPS + STEPS - 1) as f64 };
                (bound / self.unit, steps.iter().sum())
            })
            .collect();
        encoder.encode_histogram::<NoLabelSet>(counts.sum as f64 / self.unit, counts.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for QuantileHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn every_value_falls_into_the_right_bucket() {
        let mut before = 0;
        for value in (0..5000).chain((13..POWERS).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let bucket = bucket_of(value);
            assert!(upper(bucket) >= value, "{value}");
            assert!(bucket >= before, "{value}");
            assert!(bucket == 0 || upper(bucket - 1) < value, "{value}");
            before = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_right_within_an_eighth() {
        let distribution = QuantileHistogram::of_micros();
        for value in 1..=10_000 {
            distribution.add(value, 3);
        }
        let counts = distribution.counts();
        assert_eq!(counts.count(), 30_000);
        assert!((counts.mean() - 5000.5).abs() < 1e-6);
        for (share, exact) in [(0.5, 5000.0), (0.9, 9000.0), (0.99, 9900.0), (1.0, 10_000.0)] {
            let found = counts.percentile(share) as f64;
            assert!((exact..=exact * 1.125 + 1.0).contains(&found), "{share}: {found}");
        }
        assert_eq!((Counts::default().percentile(0.5), Counts::default().mean()), (0, 0.0));
        distribution.add(7, 1);
        let since = distribution.counts().since(&counts);
        assert_eq!((since.count(), since.percentile(1.0)), (1, 7));
    }

    #[test]
    fn the_prometheus_format_has_seconds_and_an_end() {
        let mut registry = Registry::default();
        let distribution = QuantileHistogram::of_micros();
        registry.register("phase_seconds", "Time", distribution.clone());
        distribution.add(1_500_000, 2);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("phase_seconds_sum 3"), "{text}");
        assert!(text.contains("phase_seconds_count 2"), "{text}");
        assert!(text.contains("phase_seconds_bucket{le=\"+Inf\"} 2"), "{text}");
        assert!(text.contains("phase_seconds_bucket{le=\"1.048575\"} 0"), "{text}");
    }
}
