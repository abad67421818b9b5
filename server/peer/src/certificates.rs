//! Creates the credentials of a cluster's nodes: an authority, and a certificate for each node.
//!
//! Keys exist only as strings; the caller writes them with mode 0600 and keeps the authority's key away from the nodes.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use tribunal_types::NodeId;

use crate::identity::{Identity, IdentityPem, node_name};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Validity of certificates: about ten years.
const VALID: Duration = Duration::from_secs(3_653 * 24 * 60 * 60);

/// The authority that signs the certificates of a cluster's nodes.
pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A node's certificate and key, as PEM.
pub struct NodeCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key: only for the node.
    pub key_pem: String,
}

impl Authority {
    /// Creates an authority for a cluster.
    ///
    /// # Errors
    /// A message, if there are no random numbers or the clock is before 1970.
    pub fn create(cluster: &str) -> Result<Authority, String> {
        let key = KeyPair::generate().map_err(failed)?;
        let params = authority_params(cluster)?;
        let certificate_pem = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Authority { certificate_pem, issuer: Issuer::new(params, key) })
    }

    /// Restores an authority from the texts returned by [`Authority::certificate_pem`] and [`Authority::key_pem`].
    ///
    /// # Errors
    /// A message, if the key is invalid, or does not match this cluster's certificate.
    pub fn restore(cluster: &str, pem: &NodeCertificate) -> Result<Authority, String> {
        let key = KeyPair::from_pem(&pem.key_pem).map_err(|error| format!("the key of the authority: {error}"))?;
        let issuer = Issuer::new(authority_params(cluster)?, key);
        let authority = Authority { certificate_pem: pem.certificate_pem.clone(), issuer };
        // Certificates that it signs must be valid under the certificate that the nodes have.
        let node = NodeId(0);
        let trial = authority.node_certificate(node, &[])?;
        let identity = Identity::from_pem(trial.identity(&authority.certificate_pem))?;
        identity.check(node).map_err(|error| {
            format!(
                "the key and the certificate of the authority of cluster `{cluster}` do not belong together: {error}"
            )
        })?;
        Ok(authority)
    }

    /// Returns the authority's certificate, which every node needs.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns the authority's private key, which no node needs.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Creates a certificate for a node, with the node's name and `hosts`: host names or IP addresses.
    ///
    /// # Errors
    /// A message, if a host is neither.
    pub fn node_certificate(&self, node: NodeId, hosts: &[String]) -> Result<NodeCertificate, String> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(&node_name(node))?;
        params.subject_alt_names =
            std::iter::once(&node_name(node)).chain(hosts).map(|host| subject(host)).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(NodeCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

impl NodeCertificate {
    /// Returns the PEM texts of the node's identity under an authority's certificate.
    #[must_use]
    pub fn identity<'a>(&'a self, authority_pem: &'a str) -> IdentityPem<'a> {
        IdentityPem {
            certificate: self.certificate_pem.as_bytes(),
            key: self.key_pem.as_bytes(),
            authority: authority_pem.as_bytes(),
        }
    }
}

fn authority_params(cluster: &str) -> Result<CertificateParams, String> {
    let mut params = params(&format!("authority of Tribunal cluster {cluster}"))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn params(name: &str) -> Result<CertificateParams, String> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = since_1970.map_err(|_| "the clock of this machine is before 1970; set it".to_owned())?;
    let mut params = CertificateParams::default();
    // A day in the past, because the nodes' clocks differ.
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970.saturating_sub(DAY);
    params.not_after = params.not_before + VALID;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Checks that a certificate can be created for `host`.
///
/// # Errors
/// A message, if it is neither a host name nor an IP address.
pub fn check_host(host: &str) -> Result<(), String> {
    subject(host).map(drop)
}

fn subject(host: &str) -> Result<SanType, String> {
    if let Ok(address) = host.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let name = host.to_owned().try_into().ok().filter(|_| !host.is_empty() && host.bytes().all(of_name));
    let no_name = || format!("`{}` is neither a host name nor an IP address", host.escape_debug());
    name.map(SanType::DnsName).ok_or_else(no_name)
}

fn failed(error: rcgen::Error) -> String {
    format!("cannot make a certificate: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(made: &NodeCertificate, authority: &Authority, node: NodeId) -> Result<(), String> {
        Identity::from_pem(made.identity(authority.certificate_pem())).expect("it is one").check(node)
    }

    #[test]
    fn a_certificate_is_valid_for_its_node_and_authority_only() {
        let authority = Authority::create("a").expect("made");
        let made = authority.node_certificate(NodeId(2), &["db.example".into(), "::1".into()]).expect("made");
        assert_eq!(check(&made, &authority, NodeId(2)), Ok(()));
        let wrong_node = check(&made, &authority, NodeId(3)).expect_err("refused");
        assert!(wrong_node.contains("not that of node 3 but that of node 2"), "{wrong_node}");
        // An authority of the same name, with another key.
        for other in ["a", "b"] {
            let other = Authority::create(other).expect("made");
            let refused = check(&made, &other, NodeId(2)).expect_err("refused");
            assert!(refused.contains("not signed by the authority"), "{refused}");
        }
    }

    #[test]
    fn a_restored_authority_signs_for_the_same_cluster() {
        let authority = Authority::create("a").expect("made");
        let pem =
            |certificate: &str, key: String| NodeCertificate { certificate_pem: certificate.into(), key_pem: key };
        let stored = pem(authority.certificate_pem(), authority.key_pem());
        let restored = Authority::restore("a", &stored).expect("restored");
        let made = restored.node_certificate(NodeId(7), &[]).expect("made");
        assert_eq!(check(&made, &authority, NodeId(7)), Ok(()));
        assert!(Authority::restore("b", &stored).is_err());
        let other = Authority::create("a").expect("made");
        assert!(Authority::restore("a", &pem(authority.certificate_pem(), other.key_pem())).is_err());
        assert!(Authority::restore("a", &pem("", authority.key_pem())).is_err());
        assert!(Authority::restore("a", &pem(authority.certificate_pem(), "garbage".into())).is_err());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let authority = Authority::create("a").expect("made");
        let made = [1, 2].map(|node| authority.node_certificate(NodeId(node), &[]).expect("made"));
        let mixed = IdentityPem { key: made[1].key_pem.as_bytes(), ..made[0].identity(authority.certificate_pem()) };
        assert!(Identity::from_pem(mixed).is_err());
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        let authority = Authority::create("a").expect("made");
        for host in ["", "a b", "ü.example", "a,b"] {
            assert!(authority.node_certificate(NodeId(1), &[host.into()]).is_err(), "{host}");
        }
    }
}
