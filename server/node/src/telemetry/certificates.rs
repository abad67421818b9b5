//! Remaining validity of the certificates that the node was started with.
//!
//! A node reads them only at its start, and so does this: a file replaced since then applies after a restart.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribunal_peer::expires_at;

use crate::config::Config;

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Remaining validity, in seconds, at which a certificate is reported in the log.
const REPORTED_AT: [i64; 4] = [30 * DAY_SECONDS, 7 * DAY_SECONDS, DAY_SECONDS, 0];

/// Label of a certificate: its purpose.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CertificateLabel {
    /// `api`, `peers`, or `authority` for that of the cluster.
    pub certificate: &'static str,
}

/// When a certificate expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// See [`CertificateLabel`].
    pub certificate: &'static str,
    /// Since 1970.
    pub at: Duration,
}

/// Returns the expiry times of the configured certificates. A chain is valid as long as all of it is; with several
/// authorities, as during a replacement, the last one counts.
#[must_use]
pub fn expiries(config: &Config) -> Vec<Expiry> {
    let ends = |file: &Path| std::fs::read(file).map(|pem| expires_at(&pem).collect::<Vec<_>>()).unwrap_or_default();
    let (tls, cluster) = (config.tls.as_ref(), config.cluster.as_ref());
    let found = [
        ("api", tls.and_then(|tls| ends(&tls.cert_file).into_iter().min())),
        ("peers", cluster.and_then(|cluster| ends(&cluster.cert_file).into_iter().min())),
        ("authority", cluster.and_then(|cluster| ends(&cluster.authority_file).into_iter().max())),
    ];
    found.into_iter().filter_map(|(certificate, at)| Some(Expiry { certificate, at: at? })).collect()
}

/// The metrics, and the reports in the log.
#[derive(Default)]
pub struct CertificateMetrics {
    /// Each with the number of its reports.
    expiries: OnceLock<Vec<(Expiry, AtomicUsize)>>,
    remaining_seconds: Family<CertificateLabel, Gauge<i64, AtomicI64>>,
}

impl CertificateMetrics {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Time until a certificate of this node expires; negative once it has expired";
        registry.register("certificate_expires_in_seconds", help, self.remaining_seconds.clone());
    }

    /// Sets the certificates that the node was started with, and reports those that expire soon.
    pub fn watch(&self, expiries: Vec<Expiry>) {
        let _ = self.expiries.set(expiries.into_iter().map(|expiry| (expiry, AtomicUsize::new(0))).collect());
        self.report();
    }

    /// Reports certificates that expire soon, or have expired. Must be called periodically; reports each a few times.
    pub fn report(&self) {
        for (Expiry { certificate, at }, reports) in self.expiries.get().into_iter().flatten() {
            let Some(remaining) = remaining_seconds(*at) else { return };
            let due = reports_due(remaining);
            if reports.swap(due, Ordering::Relaxed) >= due {
                continue;
            }
            if remaining <= 0 {
                tracing::error!(
                    certificate,
                    "a certificate of this node has expired: replace its file, and restart the node"
                );
            } else {
                let (days, hours) = (remaining / DAY_SECONDS, remaining % DAY_SECONDS / 3600);
                tracing::warn!(
                    certificate,
                    days,
                    hours,
                    "a certificate of this node expires soon: replace its file, and restart the node"
                );
            }
        }
    }

    /// Updates the remaining times.
    pub fn refresh(&self) {
        for (Expiry { certificate, at }, _) in self.expiries.get().into_iter().flatten() {
            let Some(remaining) = remaining_seconds(*at) else { return };
            self.remaining_seconds.get_or_create(&CertificateLabel { certificate }).set(remaining);
        }
    }
}

/// Returns the time until `at`; `None` if the clock is before 1970.
fn remaining_seconds(at: Duration) -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Some(seconds(at).saturating_sub(seconds(now)))
}

/// Returns how often a certificate is to have been reported by now.
fn reports_due(remaining_seconds: i64) -> usize {
    REPORTED_AT.iter().filter(|at| remaining_seconds <= **at).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_reported_as_its_end_comes_closer() {
        let days = [31, 30, 8, 7, 2, 1, 0, -1].map(|days| reports_due(days * DAY_SECONDS));
        assert_eq!(days, [0, 1, 1, 2, 2, 3, 4, 4]);
    }
}
