//! `tribunal cluster status`: the nodes of a cluster, as one of them sees them.

use tribunal_api::{ClusterInfo, ClusterNode, ClusterPush};

use crate::commands::cli::Target;
use crate::commands::output::out;
use crate::commands::store::block_on;

/// Prints the nodes.
///
/// # Errors
/// If the service cannot be reached.
pub fn run(target: &Target) -> Result<(), String> {
    let info = block_on(async { target.client()?.cluster().await })?;
    if target.json {
        out!("{}", serde_json::to_string(&info).map_err(|error| error.to_string())?);
        return Ok(());
    }
    let ClusterInfo { name, node, takes_commits, epoch, digest, control_leader, nodes, pushes } = info;
    match name {
        Some(name) => out!("cluster {name}, as node {node} sees it"),
        None => out!("node {node} runs alone"),
    }
    out!("decided up to epoch {epoch}, digest {digest}");
    if !takes_commits {
        out!("node {node} takes no transactions: it does not reach a majority, or does not lead its own log");
    }
    if let Some(leader) = control_leader {
        out!("changes of configuration go through node {leader}");
    }
    out!("\n{:>5}  {:<24} {:<14} {:<10} last message", "node", "address", "connection", "log led by");
    nodes.iter().for_each(|other| tell(node, other));
    if !pushes.is_empty() {
        out!("\n{:<24} {:<24} pushed by", "store", "namespace");
    }
    for ClusterPush { namespace, store, node } in pushes {
        let node = node.map_or_else(|| "nobody yet".to_owned(), |node| format!("node {node}"));
        out!("{store:<24} {namespace:<24} {node}");
    }
    Ok(())
}

fn tell(asked: u16, node: &ClusterNode) {
    let ClusterNode { node, address, connected, silent_ms, led_by, problem } = node;
    let connection = match (*node == asked, connected) {
        (true, _) => "itself",
        (false, true) => "connected",
        (false, false) => "not connected",
    };
    let led_by = led_by.map_or_else(|| "nobody".to_owned(), |leader| format!("node {leader}"));
    let silent = silent_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms ago"));
    out!("{node:>5}  {:<24} {connection:<14} {led_by:<10} {silent}", address.as_deref().unwrap_or("-"));
    if let Some(problem) = problem {
        out!("       {problem}");
    }
}
