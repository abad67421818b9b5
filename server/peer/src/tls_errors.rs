//! Describes why a TLS connection failed, in words that distinguish the two nodes and give advice.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

use crate::validity;

/// Describes an error of a socket. "It" is the other side, "we" are this one.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => tls_in_words(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "it closed the connection".into(),
        None => error.to_string(),
    }
}

fn tls_in_words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate_in_words(error),
        Error::NoCertificatesPresented => "it presents no certificate; only nodes of the cluster can connect".into(),
        Error::InvalidMessage(_) => "it does not talk TLS; use the address of its listener for peers".into(),
        Error::NoApplicationProtocol => "it does not offer HTTP/2; only nodes of the cluster can connect".into(),
        Error::AlertReceived(alert) => alert_in_words(*alert),
        other => format!("TLS failed: {other}"),
    }
}

fn certificate_in_words(error: &CertificateError) -> String {
    use CertificateError as E;
    let of_time = || validity::in_words(error).unwrap_or_default();
    match error {
        E::UnknownIssuer | E::BadSignature => {
            "its certificate is not signed by our authority; all nodes need certificates of the same one".into()
        }
        E::Expired | E::ExpiredContext { .. } => {
            format!("its certificate has expired; give it another one (it {})", of_time())
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet; compare the clocks of both machines (it {})", of_time())
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            format!("its certificate is not that of the node; another node may be at this address ({error})")
        }
        other => format!("its certificate cannot be used: {other}"),
    }
}

fn alert_in_words(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::UnknownCA | A::DecryptError => {
            "it says that our certificate is not signed by its authority; all nodes need certificates of the same one"
                .into()
        }
        A::CertificateExpired => {
            "it says that our certificate has expired or is not valid yet; give us another one, or set the clocks"
                .into()
        }
        A::BadCertificate | A::CertificateUnknown | A::UnsupportedCertificate | A::CertificateRequired => {
            format!("it does not accept our certificate ({alert:?})")
        }
        A::NoApplicationProtocol => "it does not speak HTTP/2; use the address of its listener for peers".into(),
        other => format!("it ended TLS: {other:?}"),
    }
}
