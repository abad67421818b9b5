//! Identity of a node: its certificate and key, and the authority that signs its peers' certificates.
//!
//! Both directions of a connection are checked: TLS 1.3 only, no resumption, so each connection checks the
//! certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use tribunal_types::NodeId;

use crate::validity;

/// HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// Returns the DNS name in a node's certificate.
#[must_use]
pub fn node_name(node: NodeId) -> String {
    format!("node-{node}.tribunal")
}

/// Returns whether a certificate contains a node's name.
pub(crate) fn is_of_node(certificate: &CertificateDer<'_>, node: NodeId) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    ServerName::try_from(node_name(node)).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
}

/// Returns the node that a certificate belongs to. Tries all nodes: only for messages, not on every connection.
pub(crate) fn node_of(certificate: &CertificateDer<'_>) -> Option<NodeId> {
    (0..1 << 10).map(NodeId).find(|node| is_of_node(certificate, *node))
}

/// PEM texts of an [`Identity`].
#[derive(Clone, Copy)]
pub struct IdentityPem<'a> {
    /// The node's certificate, followed by intermediate certificates, if any.
    pub certificate: &'a [u8],
    /// The certificate's private key.
    pub key: &'a [u8],
    /// Certificates of the authorities that sign the nodes' certificates: one, or two during a rotation.
    pub authority: &'a [u8],
}

/// PEM files of an [`Identity`]; see [`IdentityPem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The node's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority.
    pub authority: PathBuf,
}

/// A node's certificate and key, and the authority that it trusts.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Identity {
    /// Creates an identity from PEM texts.
    ///
    /// # Errors
    /// A message, if a text is invalid, or the key does not match the certificate.
    pub fn from_pem(pem: IdentityPem<'_>) -> Result<Identity, String> {
        let chain = certificates(pem.certificate).map_err(|error| format!("the certificate: {error}"))?;
        let key = private_key(pem.key).map_err(|error| format!("the key: {error}"))?;
        let authority = certificates(pem.authority).map_err(|error| format!("the authority: {error}"))?;
        Identity::new(chain, key, authority)
    }

    /// Reads an identity from PEM files.
    ///
    /// # Errors
    /// A message that names the file, as for [`Identity::from_pem`], and if a file cannot be read.
    pub fn from_files(files: &IdentityFiles) -> Result<Identity, String> {
        let in_file = |file: &Path, error: &dyn std::fmt::Display| format!("`{}`: {error}", file.display());
        let read = |file: &Path| std::fs::read(file).map_err(|error| in_file(file, &error));
        let list = |file: &Path| certificates(&read(file)?).map_err(|error| in_file(file, &error));
        let chain = list(&files.certificate)?;
        let key = private_key(&read(&files.key)?).map_err(|error| in_file(&files.key, &error))?;
        let authority = list(&files.authority)?;
        let names = format!("`{}` with `{}`", files.certificate.display(), files.key.display());
        Identity::new(chain, key, authority).map_err(|error| format!("{names}: {error}"))
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authority: Vec<CertificateDer<'static>>,
    ) -> Result<Identity, String> {
        let mut roots = RootCertStore::empty();
        for certificate in authority {
            roots.add(certificate).map_err(|error| format!("the authority cannot be used: {error}"))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(default_provider());
        let unusable = |error: Error| format!("the certificate cannot be used with its key: {error}");
        let callers = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| format!("the authority cannot be used: {error}"))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(callers)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key)
            .map_err(unusable)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(Identity { chain, roots, server: Arc::new(server), client: Arc::new(client) })
    }

    /// Checks that peers can recognize `node` by this identity. An expired certificate passes: peers refuse it when it
    /// is used.
    ///
    /// # Errors
    /// As for [`Identity::check_name`] and [`Identity::check_signature`].
    pub fn check(&self, node: NodeId) -> Result<(), String> {
        self.check_name(node)?;
        self.check_signature(node)
    }

    /// Checks that the certificate contains the name of `node`.
    ///
    /// # Errors
    /// A message with the node that it belongs to.
    pub fn check_name(&self, node: NodeId) -> Result<(), String> {
        let Some(leaf) = self.chain.first() else { return Err("there is no certificate".into()) };
        if !is_of_node(leaf, node) {
            let name = node_name(node);
            let other = node_of(leaf).map(|other| format!(" but that of node {other}")).unwrap_or_default();
            return Err(format!("the certificate is not that of node {node}{other}: it has no DNS name `{name}`"));
        }
        Ok(())
    }

    /// Checks that the authority has signed the certificate of `node`, expired or not.
    ///
    /// # Errors
    /// A message with the cause.
    pub fn check_signature(&self, node: NodeId) -> Result<(), String> {
        let [leaf, others @ ..] = &*self.chain else { return Err("there is no certificate".into()) };
        let parsed = ParsedCertificate::try_from(leaf).map_err(|error| format!("the certificate: {error}"))?;
        let algorithms = default_provider().signature_verification_algorithms.all;
        match verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, others, UnixTime::now(), algorithms) {
            Ok(()) => Ok(()),
            Err(Error::InvalidCertificate(error)) if validity::in_words(&error).is_some() => Ok(()),
            Err(error) => Err(format!("the certificate of node {node} is not signed by the authority: {error}")),
        }
    }
}

/// Returns the certificates in a PEM file, in DER.
///
/// # Errors
/// A message, if it cannot be read, or contains none.
pub fn certificates_in(file: &Path) -> Result<Vec<Vec<u8>>, String> {
    let in_file = |error: &dyn std::fmt::Display| format!("`{}`: {error}", file.display());
    let pem = std::fs::read(file).map_err(|error| in_file(&error))?;
    let list = certificates(&pem).map_err(|error| in_file(&error))?;
    Ok(list.iter().map(|certificate| certificate.to_vec()).collect())
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => "there is no private key in it".into(),
        error => error.to_string(),
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let list = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    if list.is_empty() { Err("there is no certificate in it".into()) } else { Ok(list) }
}
