//! `tribunal dev` and `tribunal serve`: run a node until it is stopped.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::JsonFields;

use crate::cluster::first_start::REMOVED;
use crate::cluster::links;
use crate::cluster::state_copy::{Lag, pulling};
use crate::commands::cli::Dev;
use crate::commands::last_line;
use crate::commands::log_lines::{JsonLines, TextLines};
use crate::config::{Config, LogFormat, Rule};
use crate::configured::Configured;
use crate::ignored_settings::ignored_in_environment;
use crate::node::{Node, NodeError};
use crate::signals::{Signals, StopsAtOnce};
use crate::{panics, supervisor};

/// Runs an open node on loopback with an embedded store `kv`.
///
/// # Errors
/// If the flags are wrong, the node cannot start, or durability came into doubt.
pub fn dev(flags: Dev) -> Result<(), String> {
    let mut config = read(None)?;
    if !flags.listen.ip().is_loopback() {
        return Err(format!(
            "`tribunal dev` lets every caller in, so it listens on loopback only, not on {}; use --listen 127.0.0.1:{}, or \
             `tribunal serve` with `auth.required`",
            flags.listen,
            flags.listen.port()
        ));
    }
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
    run(&config, None, true)
}

/// Runs a node from a configuration file.
///
/// # Errors
/// See [`dev`].
pub fn serve(file: &Path) -> Result<(), String> {
    run(&read(Some(file))?, Some(file), false)
}

/// Reads the configuration. From then on, even if it is invalid, the last line of the process has the configured
/// format.
fn read(file: Option<&Path>) -> Result<Config, String> {
    let (format, node) = Config::log_lines(file);
    if format == LogFormat::Json {
        last_line::use_json(node);
    }
    Config::read(file)
}

fn run(config: &Config, file: Option<&Path>, with_kv: bool) -> Result<(), String> {
    let filter = configured_log_filter()?;
    let node = config.cluster.as_ref().map(|cluster| cluster.node);
    // A line that cannot be written is lost. Reporting that, also on standard error, would panic.
    let logs =
        tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => {
            logs.with_ansi(std::io::stderr().is_terminal()).event_format(TextLines::new(node)).init();
        }
        LogFormat::Json => {
            logs.with_ansi(false).fmt_fields(JsonFields::new()).event_format(JsonLines::new(node)).init();
        }
    }
    panics::end_the_process();
    tell_start(config, file);
    ignored_in_environment().iter().for_each(|ignored| tracing::warn!("{ignored}"));
    // Before the first thread.
    crate::memory::use_small_pages();
    // Before the first file: a log may have many.
    crate::descriptors::raise_limit();
    match run_until_stopped(config.clone(), with_kv) {
        // The operator requested this, so it is no failure, now or at a later start: a supervisor that restarts failed
        // processes must leave the node stopped.
        Err(reason) if reason == REMOVED => {
            tracing::warn!("{reason}");
            // Without a report, systemd takes the end of the start for a failure.
            supervisor::tell_ready();
            supervisor::tell_stopping();
            Ok(())
        }
        Ok(()) => {
            tracing::info!("stopped");
            Ok(())
        }
        failed => failed,
    }
}

/// Logs the start, and its sources.
fn tell_start(config: &Config, file: Option<&Path>) {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let cluster = config.cluster.as_ref();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = file.map(|file| tracing::field::display(absolute(file).display().to_string())),
        data = %absolute(&config.data).display(),
        listen = %config.listen,
        cluster = cluster.map(|cluster| cluster.name.as_str()),
        node = cluster.map(|cluster| cluster.node),
        "starting"
    );
}

/// Runs a node until stopped. If it lacks entries that no other node retains, or its rows are broken, it copies the
/// state of another node and runs again.
fn run_until_stopped(mut config: Config, with_kv: bool) -> Result<(), String> {
    let mut starting = Some(StopsAtOnce::begin()?);
    loop {
        match run_once(&mut config, with_kv, &mut starting) {
            Err(NodeError::Lags(lag)) => match copy_state(&config, &lag, &mut starting)? {
                Some(copied) => starting = Some(copied),
                None => return Ok(()),
            },
            ended => return ended.map_err(|error| error.to_string()),
        }
    }
}

/// Runs a node until stopped, or until it lacks state that only a copy of another node's state provides. `starting`
/// ends the process on a signal until the node has started.
fn run_once(config: &mut Config, with_kv: bool, starting: &mut Option<StopsAtOnce>) -> Result<(), NodeError> {
    let node = Node::start(config, with_kv)?;
    // A port chosen by the system stays the same.
    config.listen = node.address();
    // Before the node reports that it listens: a supervisor may stop it immediately.
    let signals = node.catch_signals()?;
    drop(starting.take());
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    // A server keeps running if its output is not read.
    let _ = writeln!(std::io::stdout(), "tribunal listens on {scheme}://{}", node.address());
    supervisor::tell_ready();
    node.run_until(signals)
}

/// Copies the state of another member; returns `None` if the process must stop instead.
fn copy_state(config: &Config, lag: &Lag, starting: &mut Option<StopsAtOnce>) -> Result<Option<StopsAtOnce>, String> {
    let cluster = (config.cluster.as_ref()).zip(Configured::read(config)?.cluster);
    let Some((settings, (membership, identity))) = cluster else {
        return Err("a node that runs alone lacks entries of another one".into());
    };
    let runtime = Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    supervisor::keep_alive(runtime.handle());
    let (copied, signals) = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        drop(starting.take());
        let listener = links::listen(settings.listen)?;
        let copied = tokio::select! {
            copied = pulling::copy_state(&config.data, listener, &membership, identity, lag) => copied.map(|()| true)?,
            () = signals.first() => false,
        };
        Ok::<_, String>((copied, signals))
    })?;
    if copied {
        return Ok(Some(StopsAtOnce::new(runtime, signals)));
    }
    // Disks may hang, and tasks that wait for one hang too.
    runtime.shutdown_timeout(Duration::from_secs(2));
    Ok(None)
}

/// Returns the filter of log lines.
///
/// # Errors
/// If `TRIBUNAL_LOG` is wrong.
pub fn configured_log_filter() -> Result<EnvFilter, String> {
    match std::env::var("TRIBUNAL_LOG") {
        Ok(text) if !text.trim().is_empty() => log_filter(&text),
        Ok(_) | Err(_) => Ok(EnvFilter::new(LOGGED)),
    }
}

/// What is logged by default. `h2` warns of each connection that it ends for a flood: a line for each one that a stranger
/// opens.
const LOGGED: &str = "info,h2=error";

/// Parses `TRIBUNAL_LOG`. A bare level applies to our own crates: at `debug` and `trace` third-party crates, such as
/// the compiler of plugins, write a thousand lines for each of ours, and stay at `info`.
fn log_filter(text: &str) -> Result<EnvFilter, String> {
    let text = text.trim();
    let mut directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let has_level = directives.any(|directive| directive.parse::<LevelFilter>().is_ok());
    let filter = if matches!(text.to_ascii_lowercase().as_str(), "debug" | "trace") {
        // Targets are matched by prefix, and the names of all our crates begin with this one.
        format!("{LOGGED},tribunal={text}")
    } else if has_level {
        text.to_owned()
    } else {
        // Levels of single crates leave all others unchanged.
        format!("{LOGGED},{text}")
    };
    let refused = |error: String| {
        format!(
            "TRIBUNAL_LOG is `{text}`: {error}; use a level (error, warn, info, debug, trace) or a list such as \
             info,tribunal_push=debug"
        )
    };
    // A single word would be read as the name of a crate, and a misspelled level would turn logging off.
    let is_word = !text.is_empty() && text.chars().all(char::is_alphanumeric);
    if is_word && text.parse::<LevelFilter>().is_err() {
        return Err(refused("not a level".to_owned()));
    }
    EnvFilter::try_new(&filter).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_without_a_crate_applies_to_our_own_crates() {
        let filter = log_filter("debug").expect("a level").to_string();
        assert!(
            filter.contains("tribunal=debug") && filter.contains("info") && !filter.starts_with("debug"),
            "{filter}"
        );
        assert_eq!(log_filter("warn").expect("a level").to_string(), "warn");
        assert_eq!(log_filter("info,hyper=debug").expect("a list").to_string().matches("hyper=debug").count(), 1);
        let filter = log_filter("tribunal_push=debug,").expect("a list").to_string();
        assert!(filter.contains("info") && filter.contains("tribunal_push=debug"), "{filter}");
        for level in ["off", "ERROR", "Debug", "trace", ""] {
            assert!(log_filter(level).is_ok(), "{level}");
        }
        let error = log_filter("dbug").expect_err("a misspelled level");
        assert!(error.contains("not a level") && error.contains("info,tribunal_push=debug"), "{error}");
        let error = log_filter("tribunal=loud").expect_err("no level");
        assert!(error.contains("`tribunal=loud`") && error.contains("debug"), "{error}");
    }
}
