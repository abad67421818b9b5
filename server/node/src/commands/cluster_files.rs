//! The files of a cluster: its authority, its secret, and for each node a certificate, a key and a configuration.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use tribunal_disk::sync_directory;
use tribunal_peer::{Authority, NodeCertificate, check_host};
use tribunal_types::NodeId;

use crate::cluster::membership::{NAME_RULE, is_name};
use crate::commands::cli::{ClusterCertificates, NodeAt, program};
use crate::commands::output::out;
use crate::config::{Cluster, ClusterNode, Config};

/// The secret that all nodes share. It is written last: its presence means that the files are complete.
pub const SECRET_FILE: &str = "cluster.secret";
/// The certificate that signs the nodes' certificates.
pub const AUTHORITY_FILE: &str = "authority.pem";
pub const AUTHORITY_KEY_FILE: &str = "authority.key";
/// In the directory of a node: its certificate, its key and its configuration.
pub const CERTIFICATE_FILE: &str = "node.pem";
pub const KEY_FILE: &str = "node.key";
pub const CONFIG_FILE: &str = "tribunal.toml";

/// File mode for files only the owner of the process may read.
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// One node in new files.
pub struct NodeFiles {
    /// Its number.
    pub id: u16,
    /// Address at which the other nodes reach it.
    pub address: String,
    /// Address on which it listens for them.
    pub listen: SocketAddr,
    /// Host name or IP address in its certificate.
    pub host: String,
    /// Address of its API.
    pub api: SocketAddr,
    /// Its data directory.
    pub data: PathBuf,
    /// Directory of its own files.
    pub dir: PathBuf,
}

/// Writes the files of a cluster into `root`, which exists; the configurations refer to it as `from`. Callers of the
/// API need a key if `needs_keys`.
///
/// # Errors
/// If a file cannot be created or written.
pub fn create(root: &Path, from: &Path, name: &str, nodes: &[NodeFiles], needs_keys: bool) -> Result<(), String> {
    let authority = authority_in(root, name)?;
    let all: Vec<_> = nodes.iter().map(|node| ClusterNode { id: node.id, address: node.address.clone() }).collect();
    for node in nodes {
        let mut config = Config {
            listen: node.api,
            data: node.data.clone(),
            cluster: Some(cluster_of(root, from, name, node, all.clone())),
            ..Config::default()
        };
        config.auth.required = needs_keys;
        write_node(&authority, node, &config)?;
    }
    write(&root.join(SECRET_FILE), &draw_secret()?, PRIVATE)
}

/// Writes the files of a cluster that begins with one node, whose configuration was `config`; see [`create`].
///
/// # Errors
/// If a file cannot be created or written.
pub fn begin(
    root: &Path,
    from: &Path,
    name: &str,
    node: &NodeFiles,
    config: &Config,
    secret: &str,
) -> Result<(), String> {
    let authority = authority_in(root, name)?;
    let founder = ClusterNode { id: node.id, address: node.address.clone() };
    let cluster = cluster_of(root, from, name, node, vec![founder]);
    write_node(&authority, node, &Config { data: node.data.clone(), cluster: Some(cluster), ..config.clone() })?;
    write(&root.join(SECRET_FILE), secret, PRIVATE)
}

/// Returns the cluster section of a node's configuration.
fn cluster_of(root: &Path, from: &Path, name: &str, node: &NodeFiles, nodes: Vec<ClusterNode>) -> Cluster {
    let own = from.join(node.dir.strip_prefix(root).unwrap_or(&node.dir));
    Cluster {
        name: name.to_owned(),
        node: node.id,
        listen: node.listen,
        secret_file: from.join(SECRET_FILE),
        cert_file: own.join(CERTIFICATE_FILE),
        key_file: own.join(KEY_FILE),
        authority_file: from.join(AUTHORITY_FILE),
        // Written out: nodes whose addresses are listed later are not founders.
        founders: nodes.iter().map(|node| node.id).collect(),
        nodes,
    }
}

/// Writes the files of a node that is added to the cluster with files in `root`; returns `false` if they are complete
/// already, and then leaves them as they are.
///
/// # Errors
/// If a file cannot be created or written.
pub fn add(root: &Path, name: &str, node: &NodeFiles, config: &Config) -> Result<bool, String> {
    if node.dir.join(CONFIG_FILE).exists() {
        return Ok(false);
    }
    write_node(&authority_in(root, name)?, node, config).map(|()| true)
}

/// Checks that the cluster's authority can sign a new node's certificate.
///
/// # Errors
/// A description of the failure.
pub fn check_authority(root: &Path, name: &str) -> Result<(), String> {
    authority_in(root, name).map(drop)
}

fn write_node(authority: &Authority, node: &NodeFiles, config: &Config) -> Result<(), String> {
    tribunal_disk::create_private_directories(&node.dir)
        .map_err(|error| format!("cannot create {}: {error}", node.dir.display()))?;
    let certificate = authority.node_certificate(NodeId(node.id), std::slice::from_ref(&node.host))?;
    write(&node.dir.join(CERTIFICATE_FILE), &certificate.certificate_pem, PUBLIC)?;
    write(&node.dir.join(KEY_FILE), &certificate.key_pem, PRIVATE)?;
    let text = text_of(config)?;
    // Last: its presence means that the node's files are complete.
    write(&node.dir.join(CONFIG_FILE), &text, PUBLIC)
}

/// Returns the text of a configuration. Settings that depend on the machine's cores are omitted unless configured: the
/// node may run on another machine.
fn text_of(config: &Config) -> Result<String, String> {
    let text = toml::to_string(config).map_err(|error| format!("cannot write the configuration: {error}"))?;
    let is_default = config.shards == Config::default().shards;
    let kept = text.lines().filter(|line| !(is_default && line.starts_with("shards = ")));
    Ok(kept.flat_map(|line| [line, "\n"]).collect())
}

/// Refuses to write a configuration that contains a password: every user may read such a file, and a printed
/// configuration does not show passwords.
///
/// # Errors
/// The places of the passwords, and the remedy.
pub fn check_passwords(config: &Config) -> Result<(), String> {
    match config.passwords() {
        places if places.is_empty() => Ok(()),
        places => Err(format!(
            "{} contains a password, which is not written into a new configuration: put it into a file, and name that with \
             `password_file`",
            places.join(", ")
        )),
    }
}

/// Returns whether the cluster's authority is in `root`, with its key.
#[must_use]
pub fn has_authority(root: &Path) -> bool {
    root.join(AUTHORITY_FILE).exists() && root.join(AUTHORITY_KEY_FILE).exists()
}

/// Returns the listen address of a node that is reached as `host`: all addresses of its family. A host name is assumed
/// to have an IPv4 address, as most do.
#[must_use]
pub fn all_addresses(host: &str) -> IpAddr {
    match host.parse() {
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Returns the address at which the other nodes reach a node.
#[must_use]
pub fn address_of(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Restores the authority written by an earlier attempt, or creates one.
fn authority_in(root: &Path, name: &str) -> Result<Authority, String> {
    let (certificate, key) = (root.join(AUTHORITY_FILE), root.join(AUTHORITY_KEY_FILE));
    if let (Ok(certificate_pem), Ok(key_pem)) = (fs::read_to_string(&certificate), fs::read_to_string(&key)) {
        return Authority::restore(name, &NodeCertificate { certificate_pem, key_pem }).map_err(|error| {
            format!(
                "{} and {}: {error}. Only an authority that `tribunal cluster certificates` or `tribunal cluster up` made can sign \
                 certificates here; with one of your own, write the files of the new node yourself",
                certificate.display(),
                key.display()
            )
        });
    }
    let authority = Authority::create(name)?;
    write(&certificate, authority.certificate_pem(), PUBLIC)?;
    write(&key, &authority.key_pem(), PRIVATE)?;
    Ok(authority)
}

/// Runs `tribunal cluster certificates`: writes the files of a cluster on separate machines.
///
/// # Errors
/// If the directory contains a cluster, or a file cannot be written.
pub fn run(flags: &ClusterCertificates) -> Result<(), String> {
    let root = &flags.out;
    if root.join(SECRET_FILE).exists() {
        return Err(holds_cluster(root));
    }
    // Before anything is written: leftovers of an attempt would block the next one.
    if !is_name(&flags.name) {
        return Err(format!("--name: the name of a cluster is {NAME_RULE}"));
    }
    if flags.port == flags.peer_port {
        return Err(format!("--port and --peer-port are both {}; a node needs two ports", flags.port));
    }
    let mut seen = BTreeSet::new();
    for at in &flags.node {
        if !seen.insert(at.id.to_string()) || !seen.insert(at.host.clone()) {
            return Err(format!("--node {}={}: two nodes have that number, or that host", at.id, at.host));
        }
        check_host(&at.host).map_err(|error| format!("--node {}={}: {error}", at.id, at.host))?;
    }
    tribunal_disk::create_private_directories(root)
        .map_err(|error| format!("cannot create {}: {error}", root.display()))?;
    let nodes: Vec<NodeFiles> = flags.node.iter().map(|at| of_machine(at, flags)).collect();
    create(root, Path::new(""), &flags.name, &nodes, true)?;
    for node in &nodes {
        let own = node.dir.file_name().unwrap_or_default().display();
        out!("node {}: copy {own}/, {SECRET_FILE} and {AUTHORITY_FILE} into one directory on {}", node.id, node.host);
    }
    if nodes.len() < 3 {
        out!("\nWith fewer than three nodes, the cluster stops when one fails: decisions take a majority.");
    }
    out!(
        "\nKeep {} away from the nodes: it signs certificates of this cluster.",
        root.join(AUTHORITY_KEY_FILE).display()
    );
    out!(
        "Review node-*/tribunal.toml: without [tls], API keys cross the network unencrypted. Then, in that directory on each \
         machine: {} serve --config node-N/tribunal.toml",
        program()
    );
    Ok(())
}

/// Returns the error for a directory with the files of a cluster: a caller that wants more of them needs another way.
fn holds_cluster(root: &Path) -> String {
    let (shown, key, program) = (root.display(), root.join(AUTHORITY_KEY_FILE), program());
    format!(
        "{shown} holds the files of a cluster, and nothing was changed. For the files of another node: {program} cluster add --files \
         {shown}, which also admits it. To renew a node's certificate, sign a new one for the same names with {}, by any X.509 tool, \
         replace its {CERTIFICATE_FILE} and {KEY_FILE}, and restart that node. For another cluster, choose another directory with --out",
        key.display()
    )
}

fn of_machine(at: &NodeAt, flags: &ClusterCertificates) -> NodeFiles {
    let all = all_addresses(&at.host);
    NodeFiles {
        id: at.id,
        address: address_of(&at.host, flags.peer_port),
        listen: SocketAddr::from((all, flags.peer_port)),
        host: at.host.clone(),
        api: SocketAddr::from((all, flags.port)),
        data: PathBuf::from("tribunal-data"),
        dir: flags.out.join(format!("node-{}", at.id)),
    }
}

fn draw_secret() -> Result<String, String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the operating system gives no random bytes".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
}

fn write(path: &Path, content: &str, mode: u32) -> Result<(), String> {
    let written = tribunal_disk::replace_with_mode(path, content.as_bytes(), mode);
    // The directory entry of its directory may be new, too.
    let above = path.ancestors().nth(2).filter(|dir| dir.is_dir());
    let named = || above.map_or(Ok(()), sync_directory);
    written.and_then(|()| named()).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
