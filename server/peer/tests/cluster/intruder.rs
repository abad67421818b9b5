//! A caller that sends whatever a test needs: any certificate, any request, any bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tribunal_peer::{Authority, NodeCertificate, node_name};
use tribunal_types::NodeId;

use crate::nodes::{CLUSTER, DEADLINE, LOG};

/// Returns a valid certificate of node `node`.
pub fn certificate(authority: &Authority, node: u16) -> NodeCertificate {
    authority.node_certificate(NodeId(node), &[]).expect("made")
}

/// Returns a certificate signed by the authority, with these names and this validity in years.
pub fn odd_certificate(authority: &Authority, names: &[&str], years: (i32, i32)) -> NodeCertificate {
    // An issuer is identified by its name and key.
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = rcgen::DistinguishedName::new();
    issuer.distinguished_name.push(rcgen::DnType::CommonName, format!("authority of Tribunal cluster {CLUSTER}"));
    let issuer = Issuer::new(issuer, KeyPair::from_pem(&authority.key_pem()).expect("a key"));
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut params = CertificateParams::new(names).expect("names");
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    let key = KeyPair::generate().expect("random numbers");
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    NodeCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
}

fn parts(made: &NodeCertificate) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_slice(made.certificate_pem.as_bytes()).expect("a certificate");
    (vec![certificate], PrivateKeyDer::from_pem_slice(made.key_pem.as_bytes()).expect("a key"))
}

/// Connects to a node, with or without a certificate.
pub async fn connect(
    address: SocketAddr,
    node: u16,
    authority: &Authority,
    made: Option<&NodeCertificate>,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).expect("pem")).expect("a root");
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match made.map(parts) {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).expect("a certificate"),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(node_name(NodeId(node))).expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
}

/// Returns an acceptor of TLS connections as of a node that requires no certificate.
pub fn acceptor(made: &NodeCertificate) -> TlsAcceptor {
    let (chain, key) = parts(made);
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A body of pieces sent by a test; it ends when their sender is dropped.
pub struct Pieces(mpsc::UnboundedReceiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Headers of a peer's request, as (name, value).
pub type Headers = Vec<(&'static str, String)>;

/// Returns the headers of an admitted request.
pub fn headers(node: u16, lane: &str) -> Headers {
    vec![
        ("tribunal-peer-version", "1".into()),
        ("tribunal-cluster", CLUSTER.into()),
        ("tribunal-log", LOG.into()),
        ("tribunal-node", node.to_string()),
        ("tribunal-lane", lane.into()),
    ]
}

/// A request with its response, and the sender for pieces of its body.
pub struct Answered {
    pub response: Response<Incoming>,
    pub pieces: mpsc::UnboundedSender<Bytes>,
    _requests: http2::SendRequest<Pieces>,
}

impl Answered {
    /// Reads the response to its end.
    pub async fn text(self) -> String {
        let _pieces = self.pieces;
        let read = timeout(DEADLINE, self.response.into_body().collect()).await.expect("it ends");
        String::from_utf8(read.expect("a whole response").to_bytes().to_vec()).expect("text")
    }

    pub fn send(&self, piece: &[u8]) {
        self.pieces.send(Bytes::copy_from_slice(piece)).expect("the request is open");
    }
}

/// Sends a request on a connection.
pub async fn ask(socket: TlsStream<TcpStream>, path: &str, headers: Headers) -> Result<Answered, hyper::Error> {
    let (mut requests, running) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
    tokio::spawn(running);
    let (pieces, body) = mpsc::unbounded_channel();
    let mut request = Request::post(format!("https://peer{path}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Pieces(body)).expect("a request");
    let response = timeout(DEADLINE, requests.send_request(request)).await.expect("an answer")?;
    Ok(Answered { response, pieces, _requests: requests })
}
