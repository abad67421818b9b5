//! `tribunal cluster add`, `remove`, `drain` and `resume`: change the nodes of a running cluster.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tribunal_api::{ClusterInfo, NodeAdmitted, NodeRequest, NodeStage};
use tribunal_client::Client;

use crate::cluster::authority::fingerprints;
use crate::commands::cli::{ClusterAdd, ClusterChange, program};
use crate::commands::cluster_files::{self, AUTHORITY_FILE, CONFIG_FILE, NodeFiles, SECRET_FILE, address_of};
use crate::commands::output::out;
use crate::commands::store::block_on;
use crate::config::{Cluster, ClusterNode, Config, Tls};

/// Time between two polls for the progress of a change.
const POLL: Duration = Duration::from_millis(200);

/// Minimum time for a node to answer a request: with a timeout of 0, the command does not wait for completion, but the
/// change is started.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The cluster's files on this machine, and the configuration of one of its nodes.
struct Template {
    root: PathBuf,
    config: Config,
    cluster: Cluster,
}

impl Template {
    fn read(root: &Path) -> Result<Template, String> {
        let missing = |what: &str| {
            format!(
                "{} has no {what}: run this where `tribunal cluster certificates` or `tribunal cluster up` has written the files of \
                 the cluster, and name that directory with --files. If another authority signs your certificates, admit the node \
                 with POST /v1/cluster/nodes, and write its configuration yourself",
                root.display()
            )
        };
        if !root.join(SECRET_FILE).exists() || !cluster_files::has_authority(root) {
            return Err(missing("authority and secret of a cluster"));
        }
        let found = (1..=tribunal_member::NODE_MAX).map(|id| root.join(format!("node-{id}")).join(CONFIG_FILE));
        let file = found.into_iter().find(|file| file.exists()).ok_or_else(|| missing("configuration of a node"))?;
        let config = Config::read(Some(&file))?;
        let cluster = config.cluster.clone().ok_or_else(|| format!("{} has no [cluster]", file.display()))?;
        let root = fs::canonicalize(root).map_err(|error| format!("{}: {error}", root.display()))?;
        Ok(Template { root, config, cluster })
    }

    /// Returns a new node's listen addresses for the other nodes and for clients, and its host as seen by the other
    /// nodes. On loopback its ports are free ones, elsewhere those of the other nodes.
    fn places(&self, flags: &ClusterAdd) -> Result<(SocketAddr, SocketAddr, String), String> {
        let (peers, api) = (self.cluster.listen, self.config.listen);
        let is_local = peers.ip().is_loopback();
        let host = match &flags.host {
            Some(host) => host.clone(),
            None if is_local => peers.ip().to_string(),
            None => {
                return Err(
                    "--host is missing: the name or IP address at which the other nodes reach the new one".into()
                );
            }
        };
        // Both ports stay taken until both are known.
        let free = is_local.then(|| Ok::<_, String>((free_port(peers.ip())?, free_port(api.ip())?))).transpose()?;
        let (free_peers, free_api) = free.as_ref().map(|(peers, api)| (peers.1, api.1)).unzip();
        let port = |wanted: Option<u16>, free: Option<u16>, of_others: SocketAddr| {
            SocketAddr::new(listen_ip(of_others.ip(), &host), wanted.or(free).unwrap_or(of_others.port()))
        };
        Ok((port(flags.peer_port, free_peers, peers), port(flags.port, free_api, api), host))
    }

    /// Returns the configuration of a new node: that of the others, except for its own settings.
    fn config_of(
        &self,
        admitted: &NodeAdmitted,
        info: &ClusterInfo,
        (listen, api): (SocketAddr, SocketAddr),
        over_https: bool,
    ) -> Config {
        let from = self.cluster.secret_file.parent().unwrap_or(Path::new(""));
        let directory = |id: u16| from.join(format!("node-{id}"));
        let own = directory(admitted.node);
        let is_known = |node: &&tribunal_api::ClusterNode| node.stage != NodeStage::Leaving;
        let known = info.nodes.iter().filter(is_known);
        let mut nodes: Vec<ClusterNode> =
            known.filter_map(|node| Some(ClusterNode { id: node.node, address: node.address.clone()? })).collect();
        if nodes.iter().all(|node| node.id != admitted.node) {
            nodes.push(ClusterNode { id: admitted.node, address: admitted.address.clone() });
        }
        let data = match self.config.data.strip_prefix(directory(self.cluster.node)) {
            Ok(rest) => own.join(rest),
            // On the same machine, but outside the files' directory: that of a formerly single node.
            Err(_) if from.is_absolute() => own.join("data"),
            Err(_) => self.config.data.clone(),
        };
        let cluster = Cluster {
            node: admitted.node,
            listen,
            cert_file: own.join(cluster_files::CERTIFICATE_FILE),
            key_file: own.join(cluster_files::KEY_FILE),
            founders: info.founders.clone(),
            nodes,
            ..self.cluster.clone()
        };
        let tls = self.tls_of(&cluster, &directory(self.cluster.node), over_https);
        Config { listen: api, data, cluster: Some(cluster), tls, ..self.config.clone() }
    }

    /// Returns the TLS settings of a new node's API. Settings that the other nodes share, or have at the same place,
    /// apply to the new one as well. Otherwise its API uses its peer certificate, which exists: if the other nodes'
    /// APIs use their own, or if they are reached over TLS although the configuration here does not show how.
    fn tls_of(&self, new: &Cluster, own_of_other: &Path, over_https: bool) -> Option<Tls> {
        let own = Tls { cert_file: new.cert_file.clone(), key_file: new.key_file.clone() };
        match &self.config.tls {
            Some(tls) if tls.cert_file.starts_with(own_of_other) || tls.key_file.starts_with(own_of_other) => Some(own),
            Some(tls) => Some(tls.clone()),
            None => over_https.then_some(own),
        }
    }
}

/// Describes what a new node's API needs for TLS, or requires of its clients.
fn about_tls(cluster: &Cluster, tls: &Tls) -> String {
    let (certificate, key) = (tls.cert_file.display(), tls.key_file.display());
    if tls.cert_file == cluster.cert_file {
        return format!(
            "Its API uses TLS with the certificate of the node, {certificate}: clients need --ca-file {AUTHORITY_FILE} (or \
             TRIBUNAL_CA_FILE). For a certificate of another authority, change [tls]."
        );
    }
    format!(
        "Its API uses TLS, with {certificate} and {key}, as the other nodes do: they must be there, for the host of the new node."
    )
}

/// Returns a free port, which stays taken as long as the listener exists.
fn free_port(ip: IpAddr) -> Result<(TcpListener, u16), String> {
    let listener = TcpListener::bind((ip, 0));
    let taken = listener.and_then(|listener| listener.local_addr().map(|address| (listener, address.port())));
    taken.map_err(|error| format!("cannot find a free port on {ip}: {error}; choose ports with --port and --peer-port"))
}

/// Admits a node, and writes its certificate, key and configuration.
///
/// # Errors
/// If the cluster's files are missing, the node is not admitted, or its files cannot be written. Repeating the command
/// continues.
pub fn add(flags: &ClusterAdd) -> Result<(), String> {
    let template = Template::read(&flags.files)?;
    cluster_files::check_passwords(&template.config)?;
    let (listen, api, host) = template.places(flags)?;
    let address = cluster_files::address_of(&host, listen.port());
    let request = NodeRequest { address, name: flags.name.clone() };
    let cluster = || block_on(async { flags.target.client()?.cluster().await });
    // First: an assigned number is used up.
    let present = cluster()?;
    if let Some(name) = present.name.clone().filter(|name| *name != template.cluster.name) {
        return Err(format!(
            "the service is the cluster {name}, but {} has the files of {}: name the directory of {name} with --files, or the nodes \
             of {} with --url",
            flags.files.display(),
            template.cluster.name,
            template.cluster.name
        ));
    }
    cluster_files::check_authority(&template.root, &template.cluster.name)?;
    check_authority(&template.root.join(AUTHORITY_FILE), &present)?;
    let admitted = block_on(async { flags.target.client()?.add_node(&request).await })?;
    let info = cluster()?;
    let dir = template.root.join(format!("node-{}", admitted.node));
    let node = NodeFiles {
        id: admitted.node,
        address: admitted.address.clone(),
        listen,
        host,
        api,
        data: PathBuf::new(),
        dir,
    };
    let over_https = flags.target.url.split(',').any(|url| url.trim().starts_with("https://"));
    let config = template.config_of(&admitted, &info, (listen, api), over_https);
    let is_new = cluster_files::add(&template.root, &template.cluster.name, &node, &config)?;
    tell_added(flags, &template, &node, &config, is_new)
}

/// Checks that the nodes of a cluster trust the authority in `file`, if they report the ones they trust.
fn check_authority(file: &Path, cluster: &ClusterInfo) -> Result<(), String> {
    let (own, trusted) = (fingerprints(file), &cluster.authorities);
    if trusted.is_empty() || own.iter().any(|fingerprint| trusted.contains(fingerprint)) {
        return Ok(());
    }
    let list = |fingerprints: &[String]| fingerprints.join(", ");
    Err(format!(
        "the authority in {} is not the one that the nodes of the cluster trust, so they would refuse the new node's certificate. Its \
         SHA-256 is {}; node {} trusts {}. Name the directory with the files of that authority with --files. If this is a new \
         authority, add its certificate to `cluster.authority_file` of all nodes and restart them first",
        file.display(),
        list(&own),
        cluster.node,
        list(trusted)
    ))
}

/// Prints what remains to be done for an admitted node, whose files may have existed already.
fn tell_added(
    flags: &ClusterAdd,
    template: &Template,
    node: &NodeFiles,
    config: &Config,
    is_new: bool,
) -> Result<(), String> {
    let file = node.dir.join(CONFIG_FILE);
    if flags.target.json {
        let told = serde_json::json!({ "node": node.id, "address": node.address, "config": file });
        out!("{}", serde_json::to_string(&told).map_err(|error| error.to_string())?);
        return Ok(());
    }
    out!(
        "node {} is admitted at {}: it becomes a member once it runs and has what the others have.",
        node.id,
        node.address
    );
    if !is_new {
        out!(
            "It had been admitted before: {} and the files beside it exist, and were left as they are.",
            file.display()
        );
    }
    if template.cluster.secret_file.is_absolute() {
        out!("A running `cluster up` starts it. Otherwise: {} serve --config {}", program(), file.display());
    } else {
        let own = format!("node-{}", node.id);
        out!(
            "Review {}. Copy {own}/, {SECRET_FILE} and {AUTHORITY_FILE} from {} into one directory on {}, and start it there: {} \
             serve --config {own}/{CONFIG_FILE}",
            file.display(),
            template.root.display(),
            node.host,
            program()
        );
    }
    if let Some((cluster, tls)) = config.cluster.as_ref().zip(config.tls.as_ref()) {
        out!("{}", about_tls(cluster, tls));
    }
    let listen = config.listen;
    let host = if listen.ip().is_unspecified() { node.host.clone() } else { listen.ip().to_string() };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let is_local = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let target = if is_local(&host) && !is_local(&node.host) {
        // It listens on its own machine only.
        flags.target.clone()
    } else {
        flags.target.with_url(&format!("{scheme}://{}", address_of(&host, listen.port())))
    };
    out!("State: {} cluster status{}", program(), target.as_flags());
    Ok(())
}

/// Removes a node, and waits until it is in no group of the cluster.
///
/// # Errors
/// If it is not removed, or that takes longer than the flags allow: the removal then continues.
pub fn remove(flags: &ClusterChange) -> Result<(), String> {
    let node = flags.node;
    let removed = Awaited {
        change: "removal",
        is_complete: |info, node| info.nodes.iter().all(|other| other.node != node),
        waits_for: "A log releases a node only while most of its other nodes are connected, and once nodes that \
                    are being added vote in it",
    };
    must_outlive(flags)?;
    removed.carry_out(flags, async |client| client.remove_node(node).await)?;
    flags.tell(
        "removed",
        &format!("node {node} was removed. Its process ends by itself; its data directory can be deleted."),
    );
    Ok(())
}

/// Refuses to query only the node that is to be removed: it ends before the others have completed its removal.
fn must_outlive(flags: &ClusterChange) -> Result<(), String> {
    let limit = Duration::from_secs(flags.timeout_s).max(ANSWER_TIMEOUT_MIN);
    let asked = block_on(async { Ok(timeout(limit, flags.target.client()?.cluster()).await) })?;
    let Ok(asked) = asked else {
        return Err(format!(
            "no node has answered within {} s, so the removal of node {} has not begun: ask with --url of another node",
            limit.as_secs(),
            flags.node
        ));
    };
    let asked = block_on(async { asked })?;
    let is_alone = !flags.target.url.contains(',');
    let others = asked.nodes.iter().filter(|other| other.node != flags.node && other.connected).count();
    if is_alone && asked.node == flags.node && others > 0 {
        return Err(format!(
            "{} reached node {} itself, which ends once it is removed, and cannot tell that it was: name another node with --url",
            flags.target.url, flags.node
        ));
    }
    Ok(())
}

/// Drains a node, and waits until it leads nothing and pushes to no storage.
///
/// # Errors
/// If it is not drained, or that takes longer than the flags allow: the draining then continues.
pub fn drain(flags: &ClusterChange) -> Result<(), String> {
    let node = flags.node;
    let drained = Awaited {
        change: "draining",
        is_complete: |info, node| {
            let is_drained =
                |other: &tribunal_api::ClusterNode| other.node == node && other.stage == NodeStage::Drained;
            let leads = |other: &tribunal_api::ClusterNode| other.led_by == Some(node);
            info.nodes.iter().any(is_drained)
                && !info.nodes.iter().any(leads)
                && info.control_leader != Some(node)
                && info.pushes.iter().all(|push| push.node != Some(node))
        },
        waits_for: "A log moves to another node that is connected, has its entries and is not drained",
    };
    drained.carry_out(flags, async |client| client.drain_node(node, true).await)?;
    flags.tell(
        "drained",
        &format!(
            "node {node} is drained: it votes, but leads nothing, takes no commits and pushes to no storage. It takes part again with {} \
             cluster resume {node}{}",
            program(),
            flags.target.as_flags()
        ),
    );
    Ok(())
}

/// Lets a drained node resume, and waits until it leads its own log.
///
/// # Errors
/// If it does not resume, or that takes longer than the flags allow: the resumption then continues.
pub fn resume(flags: &ClusterChange) -> Result<(), String> {
    let node = flags.node;
    let resumed = Awaited {
        change: "resumption",
        is_complete: |info, node| {
            let leads_its_own = |other: &tribunal_api::ClusterNode| {
                other.node == node && other.stage == NodeStage::Member && other.led_by == Some(node)
            };
            info.nodes.iter().any(leads_its_own)
        },
        waits_for: "A node leads its own log once it runs and has what the others have",
    };
    resumed.carry_out(flags, async |client| client.drain_node(node, false).await)?;
    flags.tell("resumed", &format!("node {node} has resumed: it leads its own log, and takes commits."));
    Ok(())
}

/// Returns the listen address of a new node, given that another one listens on `of_other`: an address of that machine
/// is not valid on the new one.
fn listen_ip(of_other: IpAddr, host: &str) -> IpAddr {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) if of_other.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
        _ if of_other.is_unspecified() => of_other,
        Ok(own) if own.is_loopback() || !of_other.is_loopback() => own,
        _ if of_other.is_loopback() => of_other,
        _ if of_other.is_ipv4() => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Describes the nodes that a change of `changed` may be waiting for, and the remedy.
fn not_connected(info: &ClusterInfo, changed: u16) -> String {
    let is_staying = |other: &&tribunal_api::ClusterNode| other.node != changed && other.stage != NodeStage::Leaving;
    let silent = info.nodes.iter().filter(is_staying).filter(|other| !other.connected);
    let silent: Vec<String> = silent.map(|other| other.node.to_string()).collect();
    if silent.is_empty() {
        return String::new();
    }
    format!(
        " Node {} is not connected with node {}: start what can be started, or add a node, which counts among the others.",
        info.node,
        silent.join(", ")
    )
}

/// A change of a node that takes a while after its acceptance.
struct Awaited {
    /// The change's name.
    change: &'static str,
    /// Returns whether a cluster shows the change as complete for a node.
    is_complete: fn(&ClusterInfo, u16) -> bool,
    /// Its possible obstacle.
    waits_for: &'static str,
}

impl Awaited {
    /// Starts the change, and waits until it is complete.
    fn carry_out(
        &self,
        flags: &ClusterChange,
        begin: impl AsyncFn(&Client) -> Result<(), tribunal_client::Error>,
    ) -> Result<(), String> {
        let (node, limit) = (flags.node, Duration::from_secs(flags.timeout_s));
        let complete = block_on(async {
            let client = flags.target.client()?;
            let deadline = Instant::now() + limit;
            // A node that hangs never answers, and the client would wait as long as its own timeouts allow.
            let within = || deadline.max(Instant::now() + ANSWER_TIMEOUT_MIN);
            let Ok(begun) = timeout_at(within(), begin(&client)).await else {
                return Ok(Err(Incomplete::NotAccepted));
            };
            begun?;
            let mut seen = Incomplete::Unknown("No node has answered since".into());
            loop {
                match timeout_at(within(), client.cluster()).await {
                    Ok(Ok(info)) if (self.is_complete)(&info, node) => return Ok(Ok(())),
                    Ok(Ok(info)) => seen = Incomplete::Waits(Box::new(info)),
                    Ok(Err(error)) => seen = Incomplete::Unknown(error.to_string()),
                    Err(_) => return Ok(Err(seen)),
                }
                if Instant::now() + POLL >= deadline {
                    return Ok(Err(seen));
                }
                tokio::time::sleep(POLL).await;
            }
        })?;
        complete.map_err(|seen| self.incomplete(flags, &seen))
    }

    /// Describes why a change is not known to be complete in time, and the remedy.
    fn incomplete(&self, flags: &ClusterChange, seen: &Incomplete) -> String {
        let (node, limit) = (flags.node, flags.timeout_s);
        let state = format!("State: {} cluster status{}", program(), flags.target.as_flags());
        let why = match seen {
            Incomplete::NotAccepted => {
                return format!(
                    "no node has accepted the {} of node {node} within {limit} s; it may have begun. A node that hangs accepts \
                     nothing, nor does one that reaches no majority: ask with --url of another node. {state}",
                    self.change
                );
            }
            Incomplete::Unknown(error) => {
                format!("{error}. If that was node {node} itself, it may have ended: ask with --url of another node.")
            }
            Incomplete::Waits(info) => format!("{}.{}", self.waits_for, not_connected(info, node)),
        };
        format!(
            "the {} of node {node} has begun and goes on, but is not known to be complete after {limit} s. {why} {state}",
            self.change
        )
    }
}

/// The known state of a change when its time is over.
enum Incomplete {
    /// No node has answered the request to start it.
    NotAccepted,
    /// It has started, and the queried node reports nothing more.
    Unknown(String),
    /// It has started, and is not complete.
    Waits(Box<ClusterInfo>),
}

impl ClusterChange {
    /// Prints that the change is complete.
    fn tell(&self, what: &str, text: &str) {
        if self.target.json {
            out!("{}", serde_json::json!({ "node": self.node, what: true }));
        } else {
            out!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_listens_on_an_address_of_its_own() {
        let ip = |other: &str, host: &str| listen_ip(other.parse().unwrap(), host).to_string();
        assert_eq!(ip("0.0.0.0", "10.1.0.4"), "0.0.0.0");
        assert_eq!(ip("0.0.0.0", "fd00::4"), "::", "the others connect to it by IPv6");
        assert_eq!(ip("10.1.0.1", "10.1.0.4"), "10.1.0.4");
        assert_eq!(ip("10.1.0.1", "db4.example"), "0.0.0.0");
        assert_eq!(ip("fd00::1", "db4.example"), "::");
        assert_eq!(ip("127.0.1.1", "127.0.1.5"), "127.0.1.5");
        assert_eq!(ip("127.0.0.1", "10.1.0.4"), "127.0.0.1", "its clients are on its machine");
        assert_eq!(ip("127.0.0.1", "localhost"), "127.0.0.1");
    }

    fn template(from: &str, data: &str) -> Template {
        let file = |name: &str| Path::new(from).join(name);
        let cluster = Cluster {
            name: "orders".into(),
            node: 2,
            listen: "0.0.0.0:7421".parse().unwrap(),
            secret_file: file(SECRET_FILE),
            cert_file: file("node-2/node.pem"),
            key_file: file("node-2/node.key"),
            authority_file: file(AUTHORITY_FILE),
            founders: Vec::new(),
            nodes: Vec::new(),
        };
        let config = Config { data: data.into(), cluster: Some(cluster.clone()), ..Config::default() };
        Template { root: PathBuf::from("/files"), config, cluster }
    }

    fn info() -> ClusterInfo {
        let node = |node: u16, stage| tribunal_api::ClusterNode {
            node,
            address: Some(format!("10.1.0.{node}:7421")),
            stage,
            ..tribunal_api::ClusterNode::default()
        };
        let nodes = vec![node(2, NodeStage::Member), node(3, NodeStage::Leaving), node(4, NodeStage::Joining)];
        ClusterInfo { founders: vec![1, 2, 3], nodes, ..ClusterInfo::default() }
    }

    #[test]
    fn a_new_node_has_the_configuration_of_the_others_but_for_what_is_its_own() {
        let admitted = NodeAdmitted { node: 4, address: "10.1.0.4:7421".into(), name: "d".into() };
        let (listen, api) = ("0.0.0.0:7421".parse().unwrap(), "0.0.0.0:7420".parse().unwrap());
        let config = template("", "tribunal-data").config_of(&admitted, &info(), (listen, api), false);
        assert!(config.tls.is_none());
        let cluster = config.cluster.unwrap();
        assert_eq!((cluster.node, &*cluster.founders), (4, &[1, 2, 3][..]));
        assert_eq!(cluster.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [2, 4], "3 leaves");
        assert_eq!(cluster.cert_file, Path::new("node-4/node.pem"));
        assert_eq!(config.data, Path::new("tribunal-data"));
        let local = template("/files", "/var/lib/alone").config_of(&admitted, &info(), (listen, api), false);
        assert_eq!(local.data, Path::new("/files/node-4/data"));
        let local = template("/files", "/files/node-2/own").config_of(&admitted, &info(), (listen, api), false);
        assert_eq!(local.data, Path::new("/files/node-4/own"));
        assert_eq!(local.cluster.unwrap().key_file, Path::new("/files/node-4/node.key"));
    }

    #[test]
    fn a_node_that_is_added_over_https_has_a_certificate_for_its_api() {
        let admitted = NodeAdmitted { node: 4, address: "10.1.0.4:7421".into(), name: "d".into() };
        let addresses = ("0.0.0.0:7421".parse().unwrap(), "0.0.0.0:7420".parse().unwrap());
        let tls_of = |tls: Option<(&str, &str)>, over_https| {
            let mut template = template("", "tribunal-data");
            template.config.tls = tls.map(|(cert, key)| Tls { cert_file: cert.into(), key_file: key.into() });
            let config = template.config_of(&admitted, &info(), addresses, over_https);
            config.tls.map(|tls| (tls.cert_file.display().to_string(), tls.key_file.display().to_string()))
        };
        let files = |cert: &str, key: &str| Some((cert.to_owned(), key.to_owned()));
        let own = files("node-4/node.pem", "node-4/node.key");
        assert_eq!(tls_of(None, false), None);
        assert_eq!(tls_of(None, true), own);
        assert_eq!(tls_of(Some(("cert.pem", "key.pem")), true), files("cert.pem", "key.pem"));
        assert_eq!(tls_of(Some(("node-2/node.pem", "node-2/node.key")), false), own);
        assert_eq!(tls_of(Some(("node-2/api.pem", "node-2/api.key")), true), own, "node 4 has no such file");
    }

    #[test]
    fn a_host_must_be_named_unless_all_is_on_loopback() {
        let flags = |host: Option<&str>, peer_port| ClusterAdd {
            host: host.map(str::to_owned),
            peer_port,
            ..ClusterAdd::default()
        };
        let mut template = template("", "data");
        assert!(template.places(&flags(None, None)).unwrap_err().contains("--host"));
        let (listen, _, host) = template.places(&flags(Some("d.example"), Some(9))).unwrap();
        assert_eq!((listen.to_string(), &*host), ("0.0.0.0:9".into(), "d.example"));
        template.cluster.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 7430));
        let (listen, api, host) = template.places(&flags(None, None)).unwrap();
        assert!(host == "127.0.0.1" && listen.port() != 7430 && listen != api);
    }
}
