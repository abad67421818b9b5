//! What the configuration names beside numbers: keys, certificates, networks and credentials. All of it is read at the
//! start of a node, and every fault of it is found, before the data directory is touched.

use tribunal_http::listener::tls::{TlsAcceptor, acceptor};
use tribunal_peer::{Identity, IdentityFiles};

use crate::auth::jwt::JwtGate;
use crate::cluster::membership::Membership;
use crate::config::{Cluster, Config};
use crate::plugins::signatures::Signers;
use crate::stores::tenant_egress::ConfiguredEgress;
use crate::telemetry;

/// What the configuration names, read and checked.
pub struct Configured {
    /// TLS of the REST API.
    pub tls: Option<TlsAcceptor>,
    /// Who checks tokens.
    pub jwt: Option<JwtGate>,
    /// Who signs plugins.
    pub signers: Signers,
    /// Where stores may be, and how to log in there.
    pub egress: ConfiguredEgress,
    /// The cluster that the node belongs to, and how it proves who it is.
    pub cluster: Option<(Membership, Identity)>,
}

impl Configured {
    /// Checks the whole configuration and reads the files that it names.
    ///
    /// # Errors
    /// All faults, one a line.
    pub fn read(config: &Config) -> Result<Configured, String> {
        let mut faults = config.faults();
        if !config.listen.ip().is_loopback() && !config.auth.required {
            faults.push(format!(
                "configuration: `listen` is {}, which other machines can reach, but callers need no key; set \
                 `auth.required = true`, or listen on loopback",
                config.listen
            ));
        }
        let tls = config.tls.as_ref().map(|tls| acceptor(&tls.cert_file, &tls.key_file)).transpose();
        let tls = tls.unwrap_or_else(|fault| {
            faults.push(format!("configuration: `tls`: {fault}"));
            None
        });
        let jwt = config.auth.jwt.as_ref().map(JwtGate::new).transpose().unwrap_or_else(|fault| {
            faults.push(fault);
            None
        });
        let signers = Signers::read(&config.uploads.signers).unwrap_or_else(|fault| {
            faults.push(fault);
            Signers::default()
        });
        let egress = ConfiguredEgress::read(&config.push, &mut faults);
        let cluster = config.cluster.as_ref().and_then(|cluster| read_cluster(cluster, &mut faults));
        faults.extend(telemetry::faults());
        if faults.is_empty() { Ok(Configured { tls, jwt, signers, egress, cluster }) } else { Err(faults.join("\n")) }
    }
}

/// Reads what `[cluster]` names; `None` with the reasons among the faults.
fn read_cluster(cluster: &Cluster, faults: &mut Vec<String>) -> Option<(Membership, Identity)> {
    let membership = Membership::read(cluster).map_err(|found| faults.extend(found)).ok();
    let files = IdentityFiles {
        certificate: cluster.cert_file.clone(),
        key: cluster.key_file.clone(),
        authority: cluster.authority_file.clone(),
    };
    let identity = Identity::from_files(&files);
    let identity = identity.map_err(|fault| faults.push(format!("configuration: `cluster`: {fault}"))).ok();
    membership.zip(identity)
}
