//! `tribunal dev` and `tribunal serve`: run a node until it is told to stop.

use std::io::IsTerminal;
use std::path::Path;

use tracing_subscriber::EnvFilter;

use crate::commands::cli::Dev;
use crate::config::{Config, Rule};
use crate::node::{Node, NodeError};

/// Runs an open node on loopback with an embedded store `kv`.
///
/// # Errors
/// If the flags are wrong, the node cannot start, or durability came into doubt.
pub fn dev(flags: Dev) -> Result<(), String> {
    if !flags.listen.ip().is_loopback() {
        return Err(format!(
            "`tribunal dev` is open to everybody who can reach it, so it listens on loopback only, not on {}",
            flags.listen
        ));
    }
    let mut config = Config::load(None)?;
    config.listen = flags.listen;
    config.data = flags.data;
    config.epoch = flags.epoch_ms;
    config.rule = Rule { name: flags.rule, ..config.rule };
    config.plugins = flags.plugins;
    config.uploads.signers.extend(flags.signer);
    config.shards = flags.shards.unwrap_or(config.shards);
    config.http.threads = flags.threads.unwrap_or(config.http.threads);
    config.http.debug_routes = true;
    // Open, on loopback only.
    config.auth.required = false;
    config.check()?;
    run(&config, true)
}

/// Runs a node from a configuration file.
///
/// # Errors
/// As for [`dev`].
pub fn serve(file: &Path) -> Result<(), String> {
    let config = Config::load(Some(file))?;
    if !config.listen.ip().is_loopback() && !config.auth.required {
        return Err(format!(
            "`listen` is {}, which others can reach, and nobody has to say who it is: set `auth.required`, or listen on \
             loopback",
            config.listen
        ));
    }
    run(&config, false)
}

fn run(config: &Config, with_kv: bool) -> Result<(), String> {
    let filter = EnvFilter::try_from_env("TRIBUNAL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    // Before the first file: a log may have many.
    crate::descriptors::raise_limit();
    let node = Node::start(config, with_kv).map_err(|error: NodeError| error.to_string())?;
    if config.auth.required && config.tls.is_none() && !config.listen.ip().is_loopback() {
        tracing::warn!("keys travel in the clear: configure `tls`, unless a proxy before this node does that");
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    println!("tribunal listens on {scheme}://{}", node.address());
    node.run_until_signal().map_err(|error| error.to_string())
}
