//! How long the certificates that the node was started with remain valid.
//!
//! A node reads them at its start only, and so does this: a file that was replaced since counts after a restart.

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

/// Label of a certificate: what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CertificateLabel {
    /// `api`, `peers`, or `authority` for that of the cluster.
    pub certificate: &'static str,
}

/// When a certificate expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// As in [`CertificateLabel`].
    pub certificate: &'static str,
    /// Since 1970.
    pub at: Duration,
}

/// Returns when the certificates that a configuration names expire. A chain is valid as long as all of it is; of several
/// authorities, which are exchanged, the last one counts.
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

/// The figures.
#[derive(Default)]
pub struct CertificateMetrics {
    expiries: OnceLock<Vec<Expiry>>,
    remaining_seconds: Family<CertificateLabel, Gauge<i64, AtomicI64>>,
}

impl CertificateMetrics {
    /// Registers everything.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Time until a certificate of this node expires; negative once it has expired";
        registry.register("certificate_expires_in_seconds", help, self.remaining_seconds.clone());
    }

    /// Takes over what the node was started with.
    pub fn watch(&self, expiries: Vec<Expiry>) {
        let _ = self.expiries.set(expiries);
    }

    /// Computes what remains.
    pub fn refresh(&self) {
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        for Expiry { certificate, at } in self.expiries.get().into_iter().flatten() {
            let remaining = seconds(*at).saturating_sub(seconds(now));
            self.remaining_seconds.get_or_create(&CertificateLabel { certificate }).set(remaining);
        }
    }
}
