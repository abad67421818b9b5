//! `tribunal cluster recover`: one node goes on alone, after a majority was lost for good.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use tribunal_member::Stage;

use crate::cluster::majority_loss::{Accepted, StoppedNode};
use crate::commands::cli::program;
use crate::commands::output::out;
use crate::commit::recovery::log_dir;
use crate::config::Config;
use crate::configured::Configured;
use crate::plugins::plugin_loader::PluginLoader;
use crate::ready::{Deciding, Ready, draw};

/// Lists the transactions that were in doubt, in the data directory.
const IN_DOUBT_FILE: &str = "in-doubt.txt";

/// Makes the node of a configuration the only one of its cluster.
///
/// # Errors
/// If the loss was not accepted, the node runs, is not a member, or its log cannot be continued.
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
        format!("{error}. Stop the node first; while a majority of the cluster lives, recover nothing")
    })?;
    if !accept_loss {
        return Err(format!(
            "with this, node {} goes on alone, and all other nodes are removed for good. Commits that they have acknowledged, and \
             that this node has not received, are lost. Do it only if a majority of the nodes and their disks are lost, on the \
             node that has decided most (`{} cluster status`), and never start another one with its old directory again. Then repeat \
             the command with --accept-loss",
            membership.node,
            program()
        ));
    }
    let loader = Arc::new(PluginLoader::open(&config, configured.signers)?);
    let mut ready = Ready::member(&config, membership, loader)?;
    let Deciding::Member(member, first_start) = &ready.deciding else {
        return Err("the node runs alone".into());
    };
    if first_start.stage() != Stage::Member {
        return Err(format!("{} is of a node that has never been a member", config.data.display()));
    }
    let stopped = StoppedNode {
        membership,
        log: &mut ready.log,
        reader: &ready.reader,
        image: &ready.image,
        keyer: &ready.keyer,
        member,
        run: draw()?,
    };
    let accepted = stopped.go_on_alone()?;
    tell(&config.data, file, &accepted)
}

fn tell(data: &Path, file: &Path, accepted: &Accepted) -> Result<(), String> {
    let removed: Vec<String> = accepted.removed.iter().map(ToString::to_string).collect();
    out!("This node goes on alone. Removed: node {}.", removed.join(", "));
    let list = data.join(IN_DOUBT_FILE);
    match accepted.in_doubt.len() {
        0 => out!("No transaction of its log was in doubt."),
        count => {
            let mut text = String::new();
            for (namespace, id) in &accepted.in_doubt {
                let _ = writeln!(text, "{id} namespace {}", namespace.0);
            }
            std::fs::write(&list, text).map_err(|error| format!("cannot write {}: {error}", list.display()))?;
            out!(
                "{count} transactions of its log were in doubt, and are decided at its start; {} lists them. A client that asks for an \
                 id learns its verdict.",
                list.display()
            );
        }
    }
    out!(
        "What other nodes have acknowledged and this one had not received is lost; its clients' ids are unknown here."
    );
    let program = program();
    out!("Start it: {program} serve --config {}. Then add nodes: {program} cluster add", file.display());
    Ok(())
}
