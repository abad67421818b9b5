//! Remaining validity of the certificates that the node was started with.
//!
//! A node reads them only at its start, and so does this: a file replaced since then applies after a restart.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribunal_peer::expires_at;

use crate::config::Config;

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

/// The metrics.
#[derive(Default)]
pub struct CertificateMetrics {
    expiries: OnceLock<Vec<Expiry>>,
    remaining_seconds: Family<CertificateLabel, Gauge<i64, AtomicI64>>,
}

impl CertificateMetrics {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Time until a certificate of this node expires; negative once it has expired";
        registry.register("certificate_expires_in_seconds", help, self.remaining_seconds.clone());
    }

    /// Sets the certificates that the node was started with.
    pub fn watch(&self, expiries: Vec<Expiry>) {
        let _ = self.expiries.set(expiries);
    }

    /// Updates the remaining times.
    pub fn refresh(&self) {
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        for Expiry { certificate, at } in self.expiries.get().into_iter().flatten() {
            let remaining = seconds(*at).saturating_sub(seconds(now));
            self.remaining_seconds.get_or_create(&CertificateLabel { certificate }).set(remaining);
        }
    }
}
