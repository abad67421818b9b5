//! Certificate authorities that a client trusts over https, and explanations of failed handshakes.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use crate::Error;

/// Returns a configuration that trusts the authorities of `ca_file`, or, without one, those of the local machine.
///
/// # Errors
/// [`Error::Misuse`] if there are none.
pub(crate) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let roots = match ca_file {
        Some(file) => of_file(file)?,
        None => of_machine()?,
    };
    config_of(roots)
}

/// Returns a configuration that trusts no authority, for connections without TLS.
///
/// # Errors
/// [`Error::Misuse`] if the cryptographic provider is incomplete.
pub(crate) fn unused() -> Result<ClientConfig, Error> {
    config_of(RootCertStore::empty())
}

fn config_of(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::misuse(format!("TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn of_file(file: &Path) -> Result<RootCertStore, Error> {
    let bad = |what: String| Error::misuse(format!("the CA file `{}` {what}", file.display()));
    let mut roots = RootCertStore::empty();
    let text = std::fs::read(file).map_err(|error| bad(format!("cannot be read: {error}")))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| bad(format!("is not PEM: {error}")))?;
        roots.add(certificate).map_err(|error| bad(format!("has an invalid certificate: {error}")))?;
    }
    if roots.is_empty() {
        return Err(bad("holds no certificate; it must be PEM, with the certificate of the authority".into()));
    }
    Ok(roots)
}

fn of_machine() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(Error::misuse(
            "this machine trusts no certificate authority: install its `ca-certificates`, or name the service's own CA \
             (`--ca-file`, the variable `TRIBUNAL_CA_FILE`, or `ca_file` in the options)",
        ));
    }
    Ok(roots)
}

/// Returns the advice for a TLS error; `None` for other errors.
pub(crate) fn advice(error: &(dyn StdError + 'static)) -> Option<String> {
    use CertificateError as C;
    Some(match found_in(error)? {
        rustls::Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            "its certificate has an issuer that is not trusted here; name the service's own CA: `--ca-file`, the \
             variable `TRIBUNAL_CA_FILE`, or `ca_file` in the options"
                .into()
        }
        rustls::Error::InvalidCertificate(error @ (C::NotValidForName | C::NotValidForNameContext { .. })) => {
            format!("its certificate is for another name; use a URL with a name that it is for: {error}")
        }
        rustls::Error::InvalidCertificate(error @ (C::Expired | C::ExpiredContext { .. })) => {
            format!("its certificate must be renewed: {error}")
        }
        rustls::Error::InvalidCertificate(C::Other(other)) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is that of a certificate authority, which no service may present: make one with \
             `basicConstraints = CA:FALSE`"
                .into()
        }
        rustls::Error::InvalidCertificate(error) => format!(
            "its certificate cannot be used: {error}. If it is signed by an authority of your own, name that: `--ca-file`, the \
             variable `TRIBUNAL_CA_FILE`, or `ca_file` in the options"
        ),
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::NoApplicationProtocol) => {
            "it serves only callers with a certificate of their own: this is probably the port of a node for other nodes \
             (`cluster.listen`); use that of its API (`listen`)"
                .into()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS there; is it `http://`?".into(),
        other => format!("no TLS: {other}"),
    })
}

/// Returns whether the handshake has shown that a retry cannot help: the server's certificate was refused, or the
/// server does not speak TLS. Other TLS errors may be temporary.
pub(crate) fn is_final(error: &(dyn StdError + 'static)) -> bool {
    matches!(found_in(error), Some(rustls::Error::InvalidCertificate(_) | rustls::Error::InvalidMessage(_)))
}

/// Returns whether a response is not HTTP, as from a server that expects TLS: a retry cannot help. The request was sent.
pub(crate) fn is_not_http(error: &(dyn StdError + 'static)) -> bool {
    find(error, &hyper::Error::is_parse).is_some()
}

/// Returns a hint for a connection that was closed during the handshake, as by a server without TLS.
pub(crate) fn hint(error: &(dyn StdError + 'static)) -> &'static str {
    let ended = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    if find(error, &ended).is_some() { "; does it speak TLS there? If not, say `http://`" } else { "" }
}

/// Returns a hint for a response that is not HTTP, as from a server that expects TLS.
pub(crate) fn plain_hint(error: &(dyn StdError + 'static)) -> &'static str {
    if is_not_http(error) {
        "; does it speak TLS there? If so, say `https://`, unless it is the port of a node for other nodes"
    } else {
        ""
    }
}

/// Finds the TLS error within another error.
fn found_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    find(error, &|_: &rustls::Error| true)
}

/// Finds an error of type `E` within another one: I/O errors contain errors that are not their sources.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static), fits: &dyn Fn(&E) -> bool) -> Option<&'a E> {
    if let Some(found) = error.downcast_ref::<E>().filter(|found| fits(found)) {
        return Some(found);
    }
    let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let held = held.map(|inner| inner as &(dyn StdError + 'static));
    held.and_then(|inner| find(inner, fits)).or_else(|| error.source().and_then(|cause| find(cause, fits)))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_a_rejected_certificate_and_a_server_without_tls_are_final() {
        let of = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let expired = of(rustls::Error::InvalidCertificate(CertificateError::Expired));
        assert!(is_final(&expired) && advice(&expired).is_some());
        let plain = of(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(is_final(&plain) && advice(&plain).is_some());
        let alert = of(rustls::Error::AlertReceived(AlertDescription::InternalError));
        assert!(!is_final(&alert) && advice(&alert).is_some());
    }
}
