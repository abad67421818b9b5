//! `tribunal cluster recover`: one node continues as the only member, after a majority was lost permanently.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tribunal_member::Stage;
use tribunal_recover::{Accepted, StoppedNode};
use tribunal_types::NodeId;

use crate::cluster::{lost_entries, roster, unfinished_recovery};
use crate::commands::cli::program;
use crate::commands::output::out;
use crate::config::Config;
use crate::configured::Configured;
use crate::data_dir::log_dir;
use crate::plugins::plugin_loader::PluginLoader;
use crate::ready::{Deciding, Ready, draw};

/// How long another node may take to accept a connection before it counts as lost.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// File in the data directory that lists the transactions in doubt.
const IN_DOUBT_FILE: &str = "in-doubt.txt";

/// Makes a configuration's node the only one of its cluster.
///
/// # Errors
/// If the loss was not accepted, the node is running or is not a member, or its log cannot be continued.
pub fn run(file: &Path, accept_loss: bool) -> Result<(), String> {
    let config = Config::read(Some(file))?;
    let configured = Configured::read(&config)?;
    let Some((membership, _)) = &configured.cluster else {
        return Err(format!("{} has no [cluster]: the node runs alone", file.display()));
    };
    let dir = log_dir(&config.data);
    if !dir.is_dir() {
        return Err(format!("there is no log in {}", config.data.display()));
    }
    tribunal_log::check_unused(&dir).map_err(|error| {
        format!(
            "{error}. Stop the node first, and use `cluster recover` only if a majority of the nodes is lost for good"
        )
    })?;
    if !accept_loss {
        return Err(format!(
            "this makes node {} the only member, and removes all other nodes for good. Commits that they have acknowledged, and \
             that this node has not received, are lost. Do it only if a majority of the nodes and their disks are lost, on the \
             node that has decided most (`{} cluster status`), and never start another one with its old directory again. Then repeat \
             the command with --accept-loss",
            membership.node,
            program()
        ));
    }
    let configured_nodes = membership.nodes.iter().map(|(node, address)| (*node, address.as_str()));
    must_be_the_last(membership.node, configured_nodes)?;
    let loader = Arc::new(PluginLoader::open(&config, configured.signers)?);
    let mut ready = Ready::member(&config, membership, loader)?;
    let Deciding::Member(member, first_start) = &ready.deciding else {
        return Err("the node runs alone".into());
    };
    if first_start.stage() != Stage::Member {
        return Err(format!("{} is of a node that has never been a member", config.data.display()));
    }
    // Nodes that were added later are in no configuration file.
    let known = roster::addresses(membership, ready.replicated.members());
    must_be_the_last(membership.node, known.iter().map(|(node, address)| (*node, address.as_str())))?;
    let stopped = StoppedNode {
        node: membership.node,
        log: &mut ready.log,
        reader: &ready.reader,
        image: &ready.image,
        keyer: &ready.keyer,
        member,
        run: draw()?,
        again: unfinished_recovery::is_marked(&config.data),
    };
    let list = config.data.join(IN_DOUBT_FILE);
    let accepted = stopped.go_on_alone(|accepted| {
        keep(&list, accepted)?;
        unfinished_recovery::mark(&config.data)
    })?;
    lost_entries::remove_mark(&config.data)?;
    unfinished_recovery::remove_mark(&config.data)?;
    tell(&list, file, &accepted);
    Ok(())
}

/// Refuses while another node listens: its acknowledged commits would be lost although it still exists.
fn must_be_the_last<'a>(me: NodeId, nodes: impl Iterator<Item = (NodeId, &'a str)>) -> Result<(), String> {
    for (node, address) in nodes.filter(|(node, _)| *node != me) {
        let places = match address.to_socket_addrs() {
            Ok(places) => places,
            Err(error) => {
                out!(
                    "node {node} was not asked whether it still runs: {address} is no address that this machine can resolve ({error}). \
                     Make sure that it is stopped"
                );
                continue;
            }
        };
        if places.into_iter().any(|place| TcpStream::connect_timeout(&place, ANSWERS_WITHIN).is_ok()) {
            return Err(format!(
                "node {node} answers at {address}. If a majority of the nodes runs, remove those that are lost instead (`{} cluster \
                 remove`). If a majority is lost for good, stop all nodes that are left first",
                program()
            ));
        }
    }
    Ok(())
}

/// Adds the transactions in doubt to the list. Earlier lines stay: the command may be repeated.
fn keep(list: &Path, accepted: &Accepted) -> Result<(), String> {
    let write = || {
        let earlier = if list.exists() { std::fs::read_to_string(list)? } else { String::new() };
        let listed: HashSet<&str> = earlier.lines().collect();
        let mut text = String::new();
        for (namespace, id) in &accepted.in_doubt {
            let line = format!("{id} namespace {namespace}");
            if !listed.contains(line.as_str()) {
                let _ = writeln!(text, "{line}");
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        if !earlier.is_empty() && !earlier.ends_with('\n') {
            text.insert(0, '\n');
        }
        let mut file = OpenOptions::new().create(true).append(true).open(list)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| format!("cannot write {}, so nothing was changed: {error}", list.display()))
}

fn tell(list: &Path, file: &Path, accepted: &Accepted) {
    let removed: Vec<String> = accepted.removed.iter().map(ToString::to_string).collect();
    match removed.is_empty() {
        false => out!("This node is the only member now. Removed: node {}.", removed.join(", ")),
        true => out!("This node is the only member now; the others were removed when this was done before."),
    }
    match accepted.in_doubt.len() {
        0 if list.exists() => out!("{} lists what was in doubt when this was done before.", list.display()),
        0 => out!("No transaction of its log was in doubt."),
        count => out!(
            "{count} transactions of its log were in doubt, and are decided at its start; {} lists them. A client that asks for an id \
             learns its verdict.",
            list.display()
        ),
    }
    out!(
        "What other nodes have acknowledged and this one had not received is lost; its clients' ids are unknown here."
    );
    let program = program();
    out!("Start it: {program} serve --config {}. Then add nodes: {program} cluster add", file.display());
}

#[cfg(test)]
mod tests;
