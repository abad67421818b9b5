//! Describes whether certificates are valid at present, in days and hours rather than seconds since 1970.
//!
//! Only periods are checked here, not the signer or the subject of a certificate.

use std::time::Duration;

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore};

/// Returns the reason if the first certificate of a PEM text is outside its period of validity, such as "expired 3 days
/// ago". Returns `None` for a text without a certificate.
#[must_use]
pub fn outside_of_period(pem: &[u8]) -> Option<String> {
    outside_of_period_at(pem, UnixTime::now())
}

fn outside_of_period_at(pem: &[u8], now: UnixTime) -> Option<String> {
    let leaf = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    in_words(&error_at(&leaf, now)?)
}

/// Returns the last second at which each certificate of a PEM text is valid, as time since 1970. Malformed certificates
/// are left out.
pub fn expires_at(pem: &[u8]) -> impl Iterator<Item = Duration> {
    // Later than any certificate is valid: the resulting error contains the end of the period.
    let far = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    CertificateDer::pem_slice_iter(pem).filter_map(move |certificate| match error_at(&certificate.ok()?, far)? {
        CertificateError::ExpiredContext { not_after, .. } => Some(Duration::from_secs(not_after.as_secs())),
        _ => None,
    })
}

/// Returns the error of a certificate at a time. Its period is checked first.
fn error_at(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<CertificateError> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let algorithms = default_provider().signature_verification_algorithms.all;
    // The period is checked before an authority is searched for, and there is none here.
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], now, algorithms) {
        Err(Error::InvalidCertificate(error)) => Some(error),
        _ => None,
    }
}

/// Describes an expired or not yet valid certificate; `None` for any other error.
pub(crate) fn in_words(error: &CertificateError) -> Option<String> {
    use CertificateError as E;
    let seconds = |from: &UnixTime, to: &UnixTime| Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()));
    match error {
        E::Expired => Some("has expired".into()),
        E::NotValidYet => Some("is not valid yet".into()),
        E::ExpiredContext { time, not_after } => Some(format!("expired {} ago", rounded(seconds(not_after, time)))),
        E::NotValidYetContext { time, not_before } => {
            Some(format!("becomes valid in {}", rounded(seconds(time, not_before))))
        }
        _ => None,
    }
}

/// Returns a time in the largest unit of which it has at least two, otherwise in seconds.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("days", 24 * 60 * 60), ("hours", 60 * 60), ("minutes", 60)];
    let unit = units.into_iter().find(|(_, length)| seconds >= 2 * length);
    let (name, length) = unit.unwrap_or(("seconds", 1));
    format!("{} {name}", seconds / length)
}

#[cfg(test)]
mod tests {
    use tribunal_types::NodeId;

    use super::*;
    use crate::certificates::Authority;

    #[test]
    fn a_certificate_is_judged_by_its_period_whoever_signed_it() {
        let made = Authority::create("a").and_then(|authority| authority.node_certificate(NodeId(1), &[]));
        let pem = made.expect("made").certificate_pem;
        let day = 24 * 60 * 60;
        let at = |days: i64| {
            let now = UnixTime::now().as_secs().checked_add_signed(days * day).expect("a time");
            outside_of_period_at(pem.as_bytes(), UnixTime::since_unix_epoch(Duration::from_secs(now)))
        };
        assert_eq!(outside_of_period(pem.as_bytes()), None);
        assert_eq!((at(0), at(3_000)), (None, None));
        let expired = at(3_700).expect("it is over");
        assert!(expired.starts_with("expired 4") && expired.ends_with(" days ago"), "{expired}");
        let early = at(-5).expect("it has not begun");
        assert!(early.starts_with("becomes valid in ") && early.ends_with(" days"), "{early}");
        assert_eq!(outside_of_period(b"no certificate"), None);
    }

    #[test]
    fn each_certificate_of_a_file_has_its_end() {
        let authority = Authority::create("a").expect("made");
        let made = authority.node_certificate(NodeId(1), &[]).expect("made").certificate_pem;
        let ends: Vec<_> = expires_at((made + authority.certificate_pem()).as_bytes()).collect();
        let now = Duration::from_secs(UnixTime::now().as_secs());
        let in_days = |days: u64| now + Duration::from_secs(days * 24 * 60 * 60);
        assert_eq!(ends.len(), 2, "an authority has one as well");
        assert!(ends.iter().all(|end| (in_days(3_000)..in_days(3_700)).contains(end)), "{ends:?}");
        assert_eq!(expires_at(b"no certificate").count(), 0);
    }

    #[test]
    fn times_are_told_in_units_of_people() {
        for (seconds, expected) in [(5, "5 seconds"), (120, "2 minutes"), (7_200, "2 hours"), (260_000, "3 days")] {
            assert_eq!(rounded(Duration::from_secs(seconds)), expected);
        }
    }
}
