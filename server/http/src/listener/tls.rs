//! TLS of the listener: rustls with ring, TLS 1.2 and 1.3, a certificate chain and its key from PEM files.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
pub use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{CertificateError, Error as TlsError, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Builds the acceptor of TLS connections from PEM files.
///
/// # Errors
/// A message for the person who configured it.
pub fn acceptor(cert_file: &Path, key_file: &Path) -> Result<TlsAcceptor, String> {
    let unreadable = |file: &Path, error: &dyn std::fmt::Display| format!("`{}`: {error}", file.display());
    let chain = CertificateDer::pem_file_iter(cert_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(cert_file, &error))?;
    if chain.is_empty() {
        return Err(unreadable(cert_file, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| match error {
        _ if is_encrypted(key_file) => {
            let name = key_file.display();
            let decrypt = format_args!(
                "the private key is encrypted, and nobody can type its passphrase here; decrypt it: `openssl pkey -in {name} \
                 -out DECRYPTED`"
            );
            unreadable(key_file, &decrypt)
        }
        PemError::NoItemsFound => unreadable(key_file, &"there is no private key in it"),
        error => unreadable(key_file, &error),
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| match error {
            // The library examines the certificate only to compare the keys.
            TlsError::InvalidCertificate(CertificateError::Other(other))
                if format!("{other:?}").contains("UnsupportedCertVersion") =>
            {
                unreadable(cert_file, &"the certificate is of X.509 version 1; make one of version 3, with extensions")
            }
            TlsError::InvalidCertificate(error) => {
                unreadable(cert_file, &format_args!("the certificate cannot be used: {error}"))
            }
            TlsError::InconsistentKeys(_) => unreadable(
                key_file,
                &format_args!("the private key does not belong to the first certificate in `{}`", cert_file.display()),
            ),
            error => unreadable(key_file, &error),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns whether a file has a private key with a passphrase, which cannot be entered here.
fn is_encrypted(key_file: &Path) -> bool {
    std::fs::read_to_string(key_file).is_ok_and(|text| text.contains("ENCRYPTED"))
}

/// A connection, with or without TLS.
pub enum Socket {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Socket::Tls(socket) => Pin::new(socket).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Socket::Tls(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Socket::Tls(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
