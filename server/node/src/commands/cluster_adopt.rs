//! `tribunal cluster adopt`: turns a single node into the first node of a cluster.
//!
//! Everything is read, checked and prepared beside the existing files first. Then a note in the data directory turns it
//! into a member's, and the member starts once, without its connections. An interrupted command changes nothing before
//! the note; after it, the same command or the next start finishes.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribunal_log::ClusterIdentity;
use tribunal_peer::check_host;
use tribunal_types::NodeId;

use crate::cluster::adoption::FirstMember;
use crate::cluster::membership::{NAME_RULE, is_name};
use crate::cluster::{first_start, kept_log};
use crate::commands::cli::{ClusterAdopt, program};
use crate::commands::cluster_files::{self, CONFIG_FILE, NodeFiles, SECRET_FILE};
use crate::commands::output::out;
use crate::commit::recovery::recover;
use crate::config::{Config, ports_collide};
use crate::configured::Configured;
use crate::data_dir::log_dir;
use crate::plugins::plugin_loader::PluginLoader;
use crate::ready::Ready;

/// Turns a single node into the first node of a cluster, and writes the cluster's files.
///
/// # Errors
/// If the node runs, is a member of a cluster, or has state that a cluster could not continue with; if its log cannot
/// be opened, or a file cannot be written.
pub fn run(flags: &ClusterAdopt) -> Result<(), String> {
    check(flags)?;
    let mut config = Config::read(flags.config.as_deref())?;
    config.data = flags.data.clone().unwrap_or(config.data);
    if config.cluster.is_some() {
        return Err("the configuration has a [cluster]: its node is a member of one already".into());
    }
    let dir = log_dir(&config.data);
    if !dir.is_dir() {
        return Err(format!(
            "there is no log in {}: name the data directory of the node with --data, or its configuration with --config",
            config.data.display()
        ));
    }
    cluster_files::check_passwords(&config)?;
    tribunal_log::check_unused(&dir).map_err(|error| format!("{error}. Stop the node first"))?;
    config
        .make_files_absolute()
        .map_err(|error| format!("a file of the configuration cannot be made absolute: {error}"))?;
    config.data = fs::canonicalize(&config.data).map_err(|error| format!("{}: {error}", config.data.display()))?;
    let file =
        if first_start::has_note(&config.data) { adopted_before(flags, &config.data)? } else { adopt(flags, &config)? };
    finish(&file)?;
    tell(flags, &file);
    Ok(())
}

fn check(flags: &ClusterAdopt) -> Result<(), String> {
    if !is_name(&flags.name) {
        return Err(format!("--name: the name of a cluster is {NAME_RULE}"));
    }
    check_host(&flags.host).map_err(|error| format!("--host: {error}"))
}

/// Returns the configuration that an earlier call wrote for the node of this data directory.
fn adopted_before(flags: &ClusterAdopt, data: &Path) -> Result<PathBuf, String> {
    let cluster_of = |file: &Path| Config::read(Some(file)).ok().filter(|config| config.data == data)?.cluster;
    let files = (1..=tribunal_member::NODE_MAX).map(|id| flags.out.join(format!("node-{id}")).join(CONFIG_FILE));
    let found = files.filter(|file| file.exists()).find_map(|file| Some((cluster_of(&file)?, file)));
    let (cluster, file) = found.ok_or_else(|| {
        format!(
            "{} belongs to a member of a cluster already, and {} does not have its configuration. If it was adopted, name the directory \
             of its files with --out",
            data.display(),
            flags.out.display()
        )
    })?;
    let own = cluster.nodes.iter().find(|node| node.id == cluster.node).map_or("", |node| &node.address);
    let asked = cluster_files::address_of(&flags.host, flags.peer_port);
    if (&cluster.name, own) != (&flags.name, &asked) {
        return Err(format!(
            "the node was adopted before, as the first one of cluster {}, at {own}: nothing was changed. Repeat it with that name, host \
             and --peer-port; to move the node to another address, edit {}",
            cluster.name,
            file.display()
        ));
    }
    Ok(file)
}

/// Adopts the node, and returns its configuration as a member.
fn adopt(flags: &ClusterAdopt, config: &Config) -> Result<PathBuf, String> {
    let configured = Configured::read(config)?;
    let loader = Arc::new(PluginLoader::open(config, configured.signers)?);
    let first = FirstMember::of(recover(config, Arc::clone(&loader))?, &config.data, &loader)?;
    let file = write_files(flags, config, first.node, first.identity)?;
    first.prepare(&config.data)?;
    first_start::note_adopted(&config.data, first.node)?;
    Ok(file)
}

/// Writes the files of the cluster, and returns the configuration of its node.
fn write_files(
    flags: &ClusterAdopt,
    config: &Config,
    node: NodeId,
    identity: ClusterIdentity,
) -> Result<PathBuf, String> {
    let (out, secret) = (&flags.out, kept_log::text(identity));
    let found = fs::read_to_string(out.join(SECRET_FILE)).ok();
    if found.is_some_and(|found| found != secret) {
        return Err(format!(
            "{} holds the files of another cluster; choose another directory with --out",
            out.display()
        ));
    }
    tribunal_disk::create_private_directories(out)
        .map_err(|error| format!("cannot create {}: {error}", out.display()))?;
    let root = fs::canonicalize(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let ip: Option<IpAddr> = flags.host.parse().ok();
    let loopback = ip.filter(IpAddr::is_loopback);
    let node = NodeFiles {
        id: node.0,
        address: cluster_files::address_of(&flags.host, flags.peer_port),
        listen: SocketAddr::new(loopback.unwrap_or_else(|| cluster_files::all_addresses(&flags.host)), flags.peer_port),
        host: flags.host.clone(),
        api: config.listen,
        data: config.data.clone(),
        dir: root.join(format!("node-{node}")),
    };
    if ports_collide(node.api, node.listen) {
        return Err(format!("--peer-port is {}, the port of the API; a node needs two ports", flags.peer_port));
    }
    // On separate machines, the operator places the files.
    let from = if loopback.is_some() { &*root } else { Path::new("") };
    cluster_files::begin(&root, from, &flags.name, &node, config, &secret)?;
    Ok(node.dir.join(CONFIG_FILE))
}

/// Starts the member as far as it needs no other node: from then on its log is a member's.
fn finish(file: &Path) -> Result<(), String> {
    let mut config = Config::read(Some(file))?;
    // The files are still where they were written.
    let root = file.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    if let Some(cluster) = &mut config.cluster {
        let files =
            [&mut cluster.secret_file, &mut cluster.cert_file, &mut cluster.key_file, &mut cluster.authority_file];
        files.into_iter().for_each(|file| *file = root.join(&*file));
    }
    let configured = Configured::read(&config)?;
    let (membership, _) = configured.cluster.ok_or_else(|| format!("{} has no [cluster]", file.display()))?;
    let loader = Arc::new(PluginLoader::open(&config, configured.signers)?);
    Ready::member(&config, &membership, loader).map(drop).map_err(|error| {
        format!(
            "{error}. The node is the first one of cluster {} already: repeat this, or start it with {}",
            membership.name,
            file.display()
        )
    })
}

fn tell(flags: &ClusterAdopt, file: &Path) {
    let (program, out) = (program(), flags.out.display());
    out!("The node is the first one of cluster {}; its log, rows and readers go on.", flags.name);
    if flags.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()) {
        out!("Start it: {program} serve --config {}", file.display());
    } else {
        let own = file.strip_prefix(file.parent().and_then(Path::parent).unwrap_or(Path::new(""))).unwrap_or(file);
        out!("Review {}. Start the node in {out}: {program} serve --config {}", file.display(), own.display());
        out!(
            "Keep {out}/{} away from the nodes once all are added: it signs certificates of this cluster.",
            cluster_files::AUTHORITY_KEY_FILE
        );
    }
    out!(
        "It does not start without [cluster] any more. Add others to it while it runs: {program} cluster add --files {out}"
    );
}
