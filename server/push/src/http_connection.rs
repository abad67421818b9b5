//! An HTTP/1.1 connection to a receiver, with or without TLS, to an address that the egress policy has checked.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::connect::connect;
use crate::{EgressPolicy, TransportError};

/// Maximum size of a response's head, and of buffered data.
const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum number of headers of a response.
const HEADERS_MAX: usize = 100;

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Whether it is `https`.
    pub tls: bool,
    /// `host:port`, to be resolved.
    pub endpoint: String,
    /// Name that the certificate must match.
    pub host: String,
    /// Value of the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

/// An open connection. Closed when it is dropped.
pub(crate) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl HttpConnection {
    /// Connects to one of the target's addresses, all of which must be allowed.
    pub(crate) async fn open(target: &Target, egress: &EgressPolicy) -> Result<Self, TransportError> {
        HttpConnection::over(target, connect(egress, &target.endpoint).await?).await
    }

    async fn over(target: &Target, socket: TcpStream) -> Result<Self, TransportError> {
        if !target.tls {
            return HttpConnection::on(socket).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|_| {
            TransportError::Broken(format!("`{}` is not a name that a certificate can be for", target.host))
        })?;
        let tls = TlsConnector::from(tls_config()?).connect(name, socket).await;
        HttpConnection::on(tls.map_err(|error| {
            TransportError::Broken(format!("the TLS handshake with {} failed: {error}", target.host))
        })?)
        .await
    }

    async fn on(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, TransportError> {
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES).max_headers(HEADERS_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(broken)?;
        let driver = tokio::spawn(async move {
            // The sender of the request receives the error.
            let _ = connection.await;
        });
        Ok(HttpConnection { sender, driver })
    }

    /// Returns whether another request may be sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, TransportError> {
        self.sender.ready().await.map_err(broken)?;
        self.sender.send_request(request).await.map_err(broken)
    }
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Returns the TLS configuration with the machine's trusted roots, which are read once. `SSL_CERT_FILE` overrides them.
fn tls_config() -> Result<Arc<ClientConfig>, TransportError> {
    static CONFIG: Mutex<Option<Arc<ClientConfig>>> = Mutex::new(None);
    let mut known = CONFIG.lock();
    if let Some(config) = &*known {
        return Ok(Arc::clone(config));
    }
    // A failure is not kept: the files may be in the middle of an update.
    let config = load_tls_config().map_err(TransportError::Broken)?;
    Ok(Arc::clone(known.insert(config)))
}

fn load_tls_config() -> Result<Arc<ClientConfig>, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        // The errors contain paths of this machine, so they are logged but not returned.
        tracing::error!(errors = ?found.errors, "no trusted certificate authority was found");
        return Err("the service has no trusted certificate authorities; an operator can set SSL_CERT_FILE".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn broken(error: impl std::error::Error) -> TransportError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    TransportError::Broken(text)
}
