//! The command line: names, flags and their help. What commands do is in `commands`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tribunal_client::{Client, ClientOptions, Error};

use crate::commands::plugin_flags::PluginCommand;
use crate::config::{EpochLength, PolicyHost};
use crate::plugins::signatures::SignerConfig;

/// Concurrency control as a service: engines post read and write sets, and get a durable verdict.
#[derive(Debug, Parser)]
#[command(name = "tribunal", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs one open node on loopback, with an embedded store `kv`: for development.
    Dev(Dev),
    /// Runs one node from a configuration file.
    Serve {
        /// TOML file; `tribunal config print` prints one.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Shows the service at work on this machine.
    #[command(subcommand)]
    Demo(Demo),
    /// Reads or mends logs.
    #[command(subcommand)]
    Log(LogCommand),
    /// Shows stores of a running service, and mends their pushes.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Writes, builds, tests, uploads and activates plugins.
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Checks an uploaded component in a limited process: for the service itself.
    #[command(name = crate::plugins::plugin_check::COMMAND, hide = true)]
    CheckPlugin {
        /// The component.
        #[arg(long)]
        file: PathBuf,
        /// The world that it is said to be of.
        #[arg(long)]
        world: Option<String>,
        /// Configuration.
        #[arg(long, default_value = "")]
        config: String,
    },
    /// Shows who reads logs with checkpoints.
    #[command(subcommand)]
    Consumer(ConsumerCommand),
    /// Gives API keys out and takes them back.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Shows the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Prints a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Flags of `tribunal dev`.
#[derive(Debug, Args)]
pub struct Dev {
    /// Loopback address and port; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7420")]
    pub listen: SocketAddr,
    /// Directory of the log and of embedded stores.
    #[arg(long, default_value = "tribunal-data", value_name = "DIR")]
    pub data: PathBuf,
    /// `adaptive`, or a fixed length of 1 to 200 milliseconds.
    #[arg(long, default_value = "adaptive", value_name = "MS")]
    pub epoch_ms: EpochLength,
    /// Conflict rule: first-writer-wins, shorter-txn-wins, fair-rotation, priority.
    #[arg(long, default_value = "first-writer-wins")]
    pub rule: String,
    /// Run rules and validators as Wasm modules, or as their native twins.
    #[arg(long, value_enum, default_value_t = PolicyHost::Wasm)]
    pub plugins: PolicyHost,
    /// Take only plugins that NAME signed, by the public key in FILE; may be repeated.
    #[arg(long, value_name = "NAME=FILE", value_parser = SignerConfig::from_flag)]
    pub signer: Vec<SignerConfig>,
    /// Shards of the version map; one per core if left out.
    #[arg(long)]
    pub shards: Option<u16>,
    /// Threads that serve connections; one per core if left out.
    #[arg(long)]
    pub threads: Option<usize>,
}

/// Demonstrations.
#[derive(Debug, Subcommand)]
pub enum Demo {
    /// Concurrent clients move money between accounts over HTTP; at the end no cent is missing.
    Bank(Bank),
    /// TPC-C's NewOrder and Payment on an engine that reads from PostgreSQL; at the end its conditions hold.
    Tpcc(Box<Tpcc>),
}

/// Flags of `tribunal demo bank`.
#[derive(Debug, Args)]
pub struct Bank {
    /// Concurrent clients.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// Accounts.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub accounts: u32,
    /// How long to run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Use a running service instead of starting one.
    #[arg(long)]
    pub url: Option<String>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `tribunal demo tpcc`.
#[derive(Debug, Args)]
pub struct Tpcc {
    /// Sizes and length.
    #[command(flatten)]
    pub options: tribunal_tpcc::Options,
    /// Use a running PostgreSQL instead of starting one: `postgres://role:password@host:port/database`.
    #[arg(long, value_name = "URL")]
    pub postgres: Option<tribunal_tpcc::Database>,
    /// Use a running service instead of starting one. It must know the role's password, by `push.credentials`.
    #[arg(long, requires = "postgres")]
    pub url: Option<String>,
}

/// Which service to ask.
#[derive(Debug, Args)]
pub struct Target {
    /// Address of the service.
    #[arg(long, env = "TRIBUNAL_URL", default_value = "http://127.0.0.1:7420")]
    pub url: String,
    /// File with the API key; without it, the variable `TRIBUNAL_API_KEY` counts.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// PEM file with the certificate authority of an `https` service, if the machine does not trust it; without it, the
    /// variable `TRIBUNAL_CA_FILE` counts.
    // Not read by clap, which refuses every command if the variable is empty.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

impl Target {
    /// Makes a client of the service. A key is never taken from the command line, where others can read it.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub fn client(&self) -> Result<Client, Error> {
        let api_key = self.api_key().map_err(Error::Misuse)?;
        let ca_file = self.ca_file.clone().or_else(|| ClientOptions::from_env().ca_file);
        Client::with_options(&self.url, ClientOptions { api_key, ca_file, ..ClientOptions::default() })
    }

    /// Returns the caller's API key, if there is one.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn api_key(&self) -> Result<Option<String>, String> {
        match &self.api_key_file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| format!("`{}`: {error}", file.display()))?;
                Ok(Some(text.trim().to_owned()))
            }
            None => Ok(ClientOptions::from_env().api_key),
        }
    }
}

/// Keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Gives a key out and prints it.
    Create {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// What its owner calls it.
        #[arg(long)]
        name: String,
        /// The tenant that it speaks for; the caller's own if left out.
        #[arg(long)]
        namespace: Option<String>,
        /// What it may do; may be given several times.
        #[arg(long = "role", value_enum, required = true)]
        roles: Vec<KeyRole>,
    },
    /// Lists keys, without their secrets.
    Ls {
        /// Which service.
        #[command(flatten)]
        target: Target,
    },
    /// Takes a key back.
    Revoke {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Public part of the key, as `ls` shows it.
        id: String,
    },
}

/// What a key may do.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum KeyRole {
    /// Begin and commit transactions, read what they need.
    Engine,
    /// Read logs and keep checkpoints.
    Store,
    /// Bring plugins and choose among them.
    PluginAdmin,
    /// Declare stores, mend pushes, give keys out.
    Operator,
}

impl KeyRole {
    /// Returns the role's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyRole::Engine => "engine",
            KeyRole::Store => "store",
            KeyRole::PluginAdmin => "plugin-admin",
            KeyRole::Operator => "operator",
        }
    }
}

/// Logs.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Prints a store's committed log.
    Tail {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Which store.
        #[arg(long, default_value = "kv")]
        store: String,
        /// Start behind this LSN; without it, at the newest ten records.
        #[arg(long)]
        after: Option<u64>,
        /// Go on as records arrive.
        #[arg(long, short)]
        follow: bool,
        /// Start behind this consumer's checkpoint, and move it as records are printed.
        #[arg(long, value_name = "NAME", conflicts_with = "after")]
        consumer: Option<String>,
    },
    /// Rebuilds a damaged log from what can be proved in it, and reports what is lost.
    Salvage {
        /// The node's data directory; the node must not run.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Give up what cannot be proved, acknowledged commits included.
        #[arg(long)]
        accept_loss: bool,
    },
}

/// Stores.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Lists stores with their head, what is applied, and their lag.
    Ls {
        /// Which service.
        #[command(flatten)]
        target: Target,
    },
    /// Reads one row of an embedded store.
    Get {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// The row's key.
        key: String,
        /// Which store.
        #[arg(long, default_value = "kv")]
        store: String,
    },
    /// Tries a store's push again that stopped or waits.
    Resume {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Which store.
        store: String,
    },
    /// Passes by the record that a push stopped at: the storage never gets it. Kept for ever, see `skips`.
    Skip {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Which store.
        store: String,
        /// The record that the push stopped at.
        #[arg(long)]
        lsn: u64,
    },
    /// Lists the records that were skipped, and by whom.
    Skips {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Which store.
        store: String,
    },
    /// Pushes to a detached store again.
    Attach {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Which store.
        store: String,
        /// The storage was loaded from elsewhere with everything up to this record.
        #[arg(long)]
        loaded_lsn: Option<u64>,
    },
}

/// Consumers.
#[derive(Debug, Subcommand)]
pub enum ConsumerCommand {
    /// Lists consumers with their checkpoints and lag.
    Ls {
        /// Which service.
        #[command(flatten)]
        target: Target,
    },
    /// Forgets a consumer: the log is no longer held for it.
    Rm {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Its name.
        name: String,
    },
}

/// Configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Prints the configuration in force, as TOML: defaults, the file, then `TRIBUNAL__*` variables.
    Print {
        /// TOML file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON instead.
        #[arg(long)]
        json: bool,
    },
}
