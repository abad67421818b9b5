//! The files and networks that the configuration names: keys, certificates, networks and credentials. All of them are
//! read, and every fault found, at the start of a node, before the data directory is touched.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tribunal_http::listener::tls::{TlsAcceptor, acceptor};
use tribunal_peer::{Identity, IdentityFiles, expires_at, outside_of_period};
use tribunal_types::NodeId;

use crate::auth::jwt::JwtGate;
use crate::cluster::membership::Membership;
use crate::config::{Cluster, Config};
use crate::named_file::read_named;
use crate::plugins::signatures::Signers;
use crate::stores::tenant_egress::ConfiguredEgress;
use crate::telemetry;
use crate::telemetry::certificates::{Expiry, expiries};

/// The named files and networks, read and checked.
pub struct Configured {
    /// TLS of the REST API.
    pub tls: Option<TlsAcceptor>,
    /// Checks tokens.
    pub jwt: Option<JwtGate>,
    /// Accepted signers of plugins.
    pub signers: Signers,
    /// Permitted addresses of stores, and logins there.
    pub egress: ConfiguredEgress,
    /// The node's cluster, and its identity there.
    pub cluster: Option<(Membership, Identity)>,
    /// Expiry times of the certificates.
    pub expiries: Vec<Expiry>,
}

impl Configured {
    /// Checks the whole configuration and reads the files that it names. Logs warnings.
    ///
    /// # Errors
    /// All faults, one per line.
    pub fn read(config: &Config) -> Result<Configured, String> {
        let mut warnings = Vec::new();
        let checked = Configured::check(config, &mut warnings);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        checked
    }

    /// Checks as [`Configured::read`] does, but adds the warnings to `warnings`.
    ///
    /// # Errors
    /// All faults, one per line.
    pub fn check(config: &Config, warnings: &mut Vec<String>) -> Result<Configured, String> {
        let mut faults = config.faults();
        if !config.listen.ip().is_loopback() && !config.auth.required {
            faults.push(format!(
                "configuration: `listen` is {}, which other machines can reach, but callers need no key; set \
                 `auth.required = true`, or listen on loopback",
                config.listen
            ));
        }
        if config.data.exists() && !config.data.is_dir() {
            faults.push(format!("configuration: `data` is {}, which is not a directory", config.data.display()));
        }
        let tls = config.tls.as_ref().and_then(|tls| {
            let files = [("tls.cert_file", &tls.cert_file), ("tls.key_file", &tls.key_file)];
            let made = all_readable(&files, &mut faults).then(|| acceptor(&tls.cert_file, &tls.key_file))?;
            made.map_err(|fault| faults.push(format!("configuration: `tls`: {fault}"))).ok()
        });
        if let Some(tls) = &config.tls {
            // A member that no client can reach still votes, and has the log that the other nodes may need.
            let refuses = config.cluster.is_none();
            judge_period(("tls.cert_file", &tls.cert_file, "clients"), refuses, &mut faults, warnings);
        }
        if config.auth.required && config.tls.is_none() && !config.listen.ip().is_loopback() {
            warnings.push(
                "API keys are sent unencrypted: configure `tls`, unless a proxy in front of this node terminates TLS"
                    .into(),
            );
        }
        if config.auth.jwt.is_some() && !config.auth.required {
            warnings.push("`auth.jwt` has no effect, because callers need no key: set `auth.required = true`".into());
        }
        let jwt = config.auth.jwt.as_ref().map(JwtGate::new).transpose().unwrap_or_else(|found| {
            faults.extend(found);
            None
        });
        let signers = Signers::read(&config.uploads.signers).unwrap_or_else(|found| {
            faults.extend(found);
            Signers::default()
        });
        let egress = ConfiguredEgress::read(&config.push, &mut faults);
        let cluster = config.cluster.as_ref().and_then(|cluster| read_cluster(cluster, &mut faults, warnings));
        faults.extend(telemetry::faults());
        let expiries = expiries(config);
        let configured = Configured { tls, jwt, signers, egress, cluster, expiries };
        if faults.is_empty() { Ok(configured) } else { Err(faults.join("\n")) }
    }
}

/// Reads the files of `[cluster]`; returns `None` with the reasons added to the faults.
fn read_cluster(
    cluster: &Cluster,
    faults: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Option<(Membership, Identity)> {
    let membership = Membership::read(cluster).map_err(|found| faults.extend(found)).ok();
    let files = IdentityFiles {
        certificate: cluster.cert_file.clone(),
        key: cluster.key_file.clone(),
        authority: cluster.authority_file.clone(),
    };
    let named = [
        ("cluster.cert_file", &files.certificate),
        ("cluster.key_file", &files.key),
        ("cluster.authority_file", &files.authority),
    ];
    let identity = all_readable(&named, faults)
        .then(|| Identity::from_files(&files))
        .and_then(|identity| identity.map_err(|fault| faults.push(format!("configuration: `cluster`: {fault}"))).ok());
    faults.extend(identity.iter().filter_map(|identity| fault_of(identity, &files, NodeId(cluster.node))));
    judge_period(("cluster.cert_file", &files.certificate, "the other nodes"), true, faults, warnings);
    warnings.extend(contradiction_of(cluster));
    membership.zip(identity)
}

/// Returns whether the files of these settings are readable and not empty; adds the others to the faults. Later errors
/// name the file only.
fn all_readable(files: &[(&str, &PathBuf)], faults: &mut Vec<String>) -> bool {
    // A pipe can be read only once.
    let is_pipe = |file: &Path| file.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
    let files = files.iter().filter(|(_, file)| !is_pipe(file));
    let unreadable: Vec<String> = files.filter_map(|(setting, file)| read_named(setting, file).err()).collect();
    let is_readable = unreadable.is_empty();
    faults.extend(unreadable.into_iter().map(|fault| format!("configuration: {fault}")));
    is_readable
}

/// Returns a warning if a node does not listen where the other nodes are told to connect. It is no fault, because
/// connections may be forwarded: a port may be mapped, and an address translated.
fn contradiction_of(cluster: &Cluster) -> Option<String> {
    let own = cluster.nodes.iter().find(|node| node.id == cluster.node)?;
    let (host, port) = own.address.rsplit_once(':')?;
    let listens = cluster.listen;
    let listens_there = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        // A listener on all IPv6 addresses also accepts IPv4 connections, but not the other way around.
        Ok(ip) if listens.ip().is_unspecified() => ip.is_ipv4() || listens.is_ipv6(),
        Ok(ip) => listens.ip() == ip,
        // A host name, which other machines may resolve differently.
        Err(_) => true,
    };
    let is_there = listens_there && port.parse() == Ok(listens.port());
    (!is_there).then(|| {
        format!(
            "`cluster.listen` is {listens}, but in `cluster.nodes` this node, {}, is at {}: other nodes cannot connect to it \
             there, unless something forwards the connections. Correct one of the two",
            own.id, own.address
        )
    })
}

/// Returns why the other nodes would not accept the node's certificate, with the settings and their files.
fn fault_of(identity: &Identity, files: &IdentityFiles, node: NodeId) -> Option<String> {
    let (certificate, authority) = (files.certificate.display(), files.authority.display());
    if let Err(fault) = identity.check_name(node) {
        return Some(format!("configuration: `cluster.cert_file`: `{certificate}`: {fault}"));
    }
    let fault = identity.check_signature(node).err()?;
    Some(format!(
        "configuration: `cluster.cert_file` `{certificate}` and `cluster.authority_file` `{authority}` do not belong \
         together: {fault}"
    ))
}

/// Checks the validity period of a setting's certificate file; `refused_by` refuses it outside the period. An expired
/// certificate is a fault if the node is useless with it. A certificate that is not valid yet becomes valid while the
/// node runs, or the clock is wrong; that is a warning.
fn judge_period(
    (setting, file, refused_by): (&str, &Path, &str),
    refuses: bool,
    faults: &mut Vec<String>,
    warnings: &mut Vec<String>,
) {
    let Some((pem, outside)) =
        std::fs::read(file).ok().and_then(|pem| outside_of_period(&pem).map(|found| (pem, found)))
    else {
        return;
    };
    let (name, now) = (file.display(), SystemTime::now());
    let end = expires_at(&pem).next().and_then(|end| UNIX_EPOCH.checked_add(end));
    match end.filter(|end| refuses && *end < now) {
        Some(end) => faults.push(format!(
            "configuration: `{setting}`: the certificate in {name} {outside}, on {}, and it is {} now: {refused_by} refuse it. Replace \
             it, or correct the clock of this machine",
            httpdate::fmt_http_date(end),
            httpdate::fmt_http_date(now)
        )),
        None => warnings.push(format!(
            "`{setting}`: the certificate in {name} {outside}: {refused_by} refuse it. Replace it and restart, or correct the clock of \
             this machine"
        )),
    }
}

#[cfg(test)]
mod tests {
    use tribunal_peer::Authority;

    use super::*;
    use crate::config::ClusterNode;

    #[test]
    fn a_node_that_listens_elsewhere_than_the_others_connect_is_told_both_addresses() {
        let told = |listen: &str, address: &str| {
            let nodes = vec![
                ClusterNode { id: 1, address: "10.1.0.9:9".into() },
                ClusterNode { id: 2, address: address.into() },
            ];
            let cluster = Cluster {
                name: "c".into(),
                node: 2,
                listen: listen.parse().unwrap(),
                secret_file: "s".into(),
                cert_file: "c".into(),
                key_file: "k".into(),
                authority_file: "a".into(),
                founders: Vec::new(),
                nodes,
            };
            contradiction_of(&cluster)
        };
        for (listen, address) in [
            ("10.1.0.2:7421", "10.1.0.2:7421"),
            ("0.0.0.0:7421", "10.1.0.2:7421"),
            ("[::]:7421", "10.1.0.2:7421"),
            ("[fd00::2]:7421", "[fd00::2]:7421"),
            ("10.1.0.2:7421", "db-2.example:7421"),
        ] {
            assert_eq!(told(listen, address), None, "{listen} {address}");
        }
        for (listen, address) in [
            ("10.1.0.2:7422", "10.1.0.2:7421"),
            ("0.0.0.0:7422", "db-2.example:7421"),
            ("127.0.0.1:7421", "10.1.0.2:7421"),
            ("10.1.0.2:7421", "10.1.0.3:7421"),
        ] {
            let text = told(listen, address).expect("they differ");
            assert!(text.contains(listen) && text.contains(address) && text.contains("this node, 2,"), "{text}");
        }
    }

    #[test]
    fn a_certificate_that_others_would_refuse_is_told_with_its_setting_and_file() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (Authority::create("a").unwrap(), Authority::create("b").unwrap());
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let made = own.node_certificate(NodeId(2), &[]).unwrap();
        let fault = |authority: &Authority, node| {
            let files = IdentityFiles {
                certificate: file("node.pem", &made.certificate_pem),
                key: file("node.key", &made.key_pem),
                authority: file("authority.pem", authority.certificate_pem()),
            };
            fault_of(&Identity::from_files(&files).unwrap(), &files, NodeId(node))
        };
        assert_eq!(fault(&own, 2), None);
        let named = fault(&own, 1).expect("it is that of node 2");
        assert!(named.contains("`cluster.cert_file`") && named.contains("node.pem"), "{named}");
        assert!(named.contains("that of node 2"), "{named}");
        let signed = fault(&other, 2).expect("another authority");
        assert!(signed.contains("`cluster.authority_file`") && signed.contains("authority.pem"), "{signed}");
    }
}
