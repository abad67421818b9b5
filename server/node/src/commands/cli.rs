//! The command line: names, flags and their help. What commands do is in `commands`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tribunal_member::NODE_MAX;

use crate::commands::plugin_flags::PluginCommand;
use crate::commands::target::Target;
use crate::config::{EpochLength, PolicyHost};
use crate::config_errors::ADDRESS_RULE;
use crate::plugins::signatures::SignerConfig;

/// Concurrency control as a service: engines post read and write sets and get a durable verdict.
#[derive(Debug, Parser)]
#[command(name = "tribunal", version, propagate_version = true, args_override_self = true)]
pub struct Cli {
    /// Command; without one, the first steps are printed.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one open node on loopback with an embedded store `kv`, for development.
    Dev(Dev),
    /// Run one node from a configuration file.
    Serve {
        /// TOML file; `tribunal config print` prints one.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Run a cluster, set one up on several machines, change its nodes, or see its state.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run a demonstration on this machine.
    #[command(subcommand)]
    Demo(Demo),
    /// Read or repair logs.
    #[command(subcommand)]
    Log(LogCommand),
    /// Declare and list the stores of a running service, read rows, and control pushes.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Create, build, test, upload and activate plugins.
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Checks an uploaded component in a limited process: for the service itself.
    #[command(name = crate::plugins::plugin_check::COMMAND, hide = true)]
    CheckPlugin {
        /// The component.
        #[arg(long)]
        file: PathBuf,
        /// The world that it should implement.
        #[arg(long)]
        world: Option<String>,
        /// Configuration.
        #[arg(long, default_value = "")]
        config: String,
    },
    /// List and delete log consumers.
    #[command(subcommand)]
    Consumer(ConsumerCommand),
    /// Have a store's log posted to an HTTP receiver.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Issue, list and revoke API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print or check the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| ADDRESS_RULE.to_owned())
}

/// Flags of `tribunal dev`.
#[derive(Debug, Args)]
pub struct Dev {
    /// Loopback address and port; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7420", value_parser = address)]
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
    /// Run built-in rules and validators as Wasm modules or as native code.
    #[arg(long, value_enum, default_value_t = PolicyHost::Wasm)]
    pub plugins: PolicyHost,
    /// Accept only plugins signed by NAME, whose public key is in FILE; may be repeated.
    #[arg(long, value_name = "NAME=FILE", value_parser = SignerConfig::from_flag)]
    pub signer: Vec<SignerConfig>,
    /// Partitions of the version map of a new log, which keeps them; one per core if left out.
    #[arg(long)]
    pub shards: Option<u16>,
    /// Threads that serve connections; one per core if left out.
    #[arg(long)]
    pub threads: Option<usize>,
}

/// Clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Run several open nodes on loopback that decide together, with an embedded store `kv`, for development.
    Up(ClusterUp),
    /// Write the certificates, the secret and the configurations of a cluster on separate machines.
    Certificates(ClusterCertificates),
    /// Make a node that ran alone the first node of a cluster, and write the cluster's files. The node must be stopped.
    ///
    /// It keeps its data directory: rows with their versions, verdicts, log positions, consumers, webhooks, keys, plugins and
    /// embedded stores. From then on it starts with the configuration written here, and other nodes can be added.
    Adopt(ClusterAdopt),
    /// Query all nodes of a cluster, and compare what they have decided.
    ///
    /// Exits with 0 if all nodes answer, none has a problem and all have decided the same, with 1 if no node answers the
    /// question, and with 2 otherwise.
    Status(ClusterStatus),
    /// Add a node to a running cluster: assign its number, and write its certificate and configuration.
    ///
    /// Commits do not wait for the node: it becomes a member once it has started and caught up.
    Add(ClusterAdd),
    /// Remove a node from a running cluster permanently, and wait until the removal is complete.
    ///
    /// Commits that the node has accepted are decided and answered first; then its process ends. A broken node is removed as well,
    /// while a majority of the others is reachable.
    Remove(ClusterChange),
    /// Drain a node, and wait until it is drained: it stays a member and votes, but leads nothing, takes no commits and pushes to no storage.
    ///
    /// For a node that is slow or needs maintenance: nothing waits for it then. It stays drained when it restarts, until
    /// `tribunal cluster resume`.
    Drain(ClusterChange),
    /// Let a drained node resume, and wait until it takes commits again.
    Resume(ClusterChange),
    /// Let one node continue alone after a majority of the nodes was lost permanently. The node must be stopped.
    ///
    /// All other nodes are removed. Commits that they acknowledged and this one has not received are lost. The numbers of nodes
    /// that are added afterwards continue 16 numbers later: the lost nodes may have assigned those in between.
    Recover {
        /// Configuration file of the node.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Accept that acknowledged commits may be lost.
        #[arg(long)]
        accept_loss: bool,
    },
}

/// Flags of `tribunal cluster add`.
#[derive(Debug, Default, Args)]
pub struct ClusterAdd {
    /// A node of the cluster, or several.
    #[command(flatten)]
    pub target: Target,
    /// Host name or IP address at which the other nodes reach the new one; may be left out on loopback.
    #[arg(long)]
    pub host: Option<String>,
    /// A name for people, unique in the cluster; its address if left out. Repeating the command refers to the same node.
    #[arg(long)]
    pub name: Option<String>,
    /// Directory with the files of the cluster: `--out` of `cluster certificates`, or `--data` of `cluster up`.
    #[arg(long, default_value = "cluster-files", value_name = "DIR")]
    pub files: PathBuf,
    /// Port of its API; that of the other nodes if left out, and a free one on loopback.
    #[arg(long)]
    pub port: Option<u16>,
    /// Port for the other nodes, likewise.
    #[arg(long)]
    pub peer_port: Option<u16>,
}

/// Flags of `tribunal cluster remove`, `drain` and `resume`.
#[derive(Debug, Args)]
pub struct ClusterChange {
    /// Number of the node.
    pub node: u16,
    /// A node of the cluster, or several. To remove a node, name another one: the removed node's process ends.
    #[command(flatten)]
    pub target: Target,
    /// Timeout of the wait until it is complete, seconds.
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub timeout_s: u64,
}

/// Flags of `tribunal cluster status`.
#[derive(Debug, Args)]
pub struct ClusterStatus {
    /// URLs of the nodes, separated by commas.
    #[command(flatten)]
    pub target: Target,
    /// Timeout for the answer of each node, milliseconds.
    // A node that misses the others takes up to four seconds to find that it cannot check the key.
    #[arg(long, value_name = "MS", default_value_t = 8000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub timeout_ms: u64,
}

/// Flags of `tribunal cluster up`.
#[derive(Debug, Args)]
pub struct ClusterUp {
    /// Number of nodes of a new cluster, 1 to 9; 3 if left out.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: Option<u16>,
    /// Directory of the nodes' files. A cluster that is already there continues.
    #[arg(long, default_value = "tribunal-cluster", value_name = "DIR")]
    pub data: PathBuf,
    /// Port of the first node's API in a new cluster; 7420 if left out. The other nodes use the ports after it, and traffic between
    /// nodes uses the ports from 10 above it. 0: free ports. A cluster that is already there keeps its ports.
    #[arg(long)]
    pub port: Option<u16>,
}

/// Flags of `tribunal cluster certificates`.
#[derive(Debug, Args)]
pub struct ClusterCertificates {
    /// Name of the cluster.
    #[arg(long)]
    pub name: String,
    /// Number and host (name or IP address) of a node, such as 1=10.1.0.1; once for each node.
    #[arg(long, required = true, value_name = "NUMBER=HOST", value_parser = NodeAt::from_flag)]
    pub node: Vec<NodeAt>,
    /// Directory of the files.
    #[arg(long, default_value = "cluster-files", value_name = "DIR")]
    pub out: PathBuf,
    /// Port of the API on each node.
    #[arg(long, default_value_t = 7420)]
    pub port: u16,
    /// Port for the other nodes on each node.
    #[arg(long, default_value_t = 7421)]
    pub peer_port: u16,
}

/// Flags of `tribunal cluster adopt`.
#[derive(Debug, Args)]
pub struct ClusterAdopt {
    /// Name of the cluster.
    #[arg(long)]
    pub name: String,
    /// Host name or IP address at which other nodes will reach this one.
    #[arg(long)]
    pub host: String,
    /// Configuration file of the node; the defaults if left out.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data directory of the node; that of its configuration if left out.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Directory of the cluster's files.
    #[arg(long, default_value = "cluster-files", value_name = "DIR")]
    pub out: PathBuf,
    /// Port for the other nodes.
    #[arg(long, default_value_t = 7421)]
    pub peer_port: u16,
}

/// A node and where it is.
#[derive(Clone, Debug)]
pub struct NodeAt {
    /// Its number.
    pub id: u16,
    /// Host name or IP address.
    pub host: String,
}

impl NodeAt {
    fn from_flag(text: &str) -> Result<NodeAt, String> {
        let parts = text.split_once('=').filter(|(_, host)| !host.is_empty());
        let parsed =
            parts.and_then(|(id, host)| Some((id.parse().ok().filter(|id| (1..=NODE_MAX).contains(id))?, host)));
        let (id, host) = parsed.ok_or("a node is NUMBER=HOST, with a number from 1 to 1023, such as 1=10.1.0.1")?;
        Ok(NodeAt { id, host: host.to_owned() })
    }
}

/// Demonstrations.
#[derive(Debug, Subcommand)]
pub enum Demo {
    /// Transfer money between accounts over HTTP with concurrent clients, then verify that no cent is missing.
    Bank(Bank),
    /// Run TPC-C's NewOrder and Payment over PostgreSQL, then verify TPC-C's consistency conditions.
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
    /// Use a running service instead of starting one. Its `push.credentials` must contain the role's password.
    #[arg(long, requires = "postgres")]
    pub url: Option<String>,
}

/// Returns the name under which this program was called, so that hints can be copied to the command line.
#[must_use]
pub fn program() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "tribunal".to_owned())
}

/// Keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Issue a key and print it; its secret is not shown again.
    Create {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the key, for people.
        #[arg(long)]
        name: String,
        /// Namespace that the key belongs to; the default is the caller's own.
        #[arg(long)]
        namespace: Option<String>,
        /// Role of the key; may be repeated.
        #[arg(long = "role", value_enum, required = true)]
        roles: Vec<KeyRole>,
        /// How long the key is valid: a number and `s`, `m`, `h` or `d`, such as `90d`; the default is until it is revoked.
        #[arg(long, value_name = "TIME", value_parser = key_lifetime)]
        expires_in: Option<u32>,
    },
    /// List keys with their last use and expiry, without their secrets.
    #[command(visible_alias = "list")]
    Ls {
        /// The service.
        #[command(flatten)]
        target: Target,
    },
    /// Revoke a key.
    Revoke {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Id of the key, as printed by `key ls`.
        id: String,
        /// Revoke it even if it is the last operator key of the namespace `default`.
        #[arg(long)]
        force: bool,
    },
}

/// Parses the time until a key expires, seconds.
fn key_lifetime(text: &str) -> Result<u32, String> {
    let max = tribunal_types::limits::KEY_EXPIRES_IN_S_MAX;
    let unit = |unit: char| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    };
    let parts =
        text.char_indices().next_back().and_then(|(at, last)| Some((text[..at].parse::<u32>().ok()?, unit(last)?)));
    let seconds = parts.and_then(|(number, unit)| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=max).contains(seconds));
    seconds.ok_or_else(|| format!("a number and `s`, `m`, `h` or `d`, such as `90d`; from 1s to {}d", max / 86_400))
}

/// What a key may do.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum KeyRole {
    /// Begin and commit transactions, read rows and logs, and store consumer positions.
    Engine,
    /// Read stores, rows and logs, store consumer positions, and import versions of rows.
    Store,
    /// Upload and activate plugins.
    PluginAdmin,
    /// Declare stores, control pushes, create keys, read rows and logs.
    Operator,
    /// Read metrics, statistics and the state of the cluster, and nothing else.
    Metrics,
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
            KeyRole::Metrics => "metrics",
        }
    }
}

/// Logs.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print a store's committed log.
    Tail {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        #[arg(long, default_value = "kv")]
        store: String,
        /// Start after this LSN; the default is the newest ten records.
        #[arg(long)]
        after: Option<u64>,
        /// Continue as records arrive.
        #[arg(long, short)]
        follow: bool,
        /// Start after this consumer's position, and advance it as records are printed.
        #[arg(long, value_name = "NAME", conflicts_with = "after")]
        consumer: Option<String>,
    },
    /// Rebuild a damaged log from the records that can be verified, and report what is lost.
    ///
    /// Without --accept-loss, reports the damage and what would be kept and lost. If nothing is damaged, nothing is changed.
    Salvage {
        /// The node's data directory; the node must not be running.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Discard what cannot be verified, including acknowledged commits.
        #[arg(long)]
        accept_loss: bool,
        /// Rebuild the log although no damage is found in it: when the node reports damage all the same.
        #[arg(long, requires = "accept_loss")]
        rebuild: bool,
    },
}

/// Flags of `tribunal store declare`.
#[derive(Debug, Args)]
pub struct Declare {
    /// The service.
    #[command(flatten)]
    pub target: Target,
    /// Name of the store.
    pub store: String,
    /// LogAdaptor that writes to its storage: `kv` for a store embedded in the service, `redis`, `postgres` or an uploaded one;
    /// if left out, the store is only a log.
    #[arg(long)]
    pub adaptor: Option<String>,
    /// Take the adaptor away from a store that has one: its records are no longer pushed, and an embedded store cannot be read
    /// any more.
    #[arg(long, conflicts_with = "adaptor")]
    pub log_only: bool,
    /// The adaptor's configuration in JSON, such as `{"endpoint": "127.0.0.1:6379"}` for `redis`. No credentials.
    #[arg(long, value_name = "JSON", requires = "adaptor")]
    pub config: Option<String>,
    /// The engine reports in its read sets which rows exist; Tribunal does not track them. To have Tribunal track the rows of a
    /// store that has none yet, pass `--declared-existence=false`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub declared_existence: Option<bool>,
    /// The engine itself reads the store at the snapshot of Begin (multi-version storage). Not for embedded stores. To
    /// take it away from a store that has it, pass `--multi-version=false`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub multi_version: Option<bool>,
    /// Has no effect: every adaptor moves its watermark in the same transaction as the rows.
    #[arg(long, hide = true)]
    pub transactional: bool,
}

/// Stores.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// List stores with the head of their log, the last applied epoch, and the push's lag and durability.
    Ls {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Another namespace; only for operators of the service.
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// All namespaces; only for operators of the service.
        #[arg(long, conflicts_with = "namespace")]
        all_namespaces: bool,
    },
    /// Declare or change a store: options that are left out take their defaults. Leaving out the adaptor, `--multi-version` or
    /// `--declared-existence` of a store that has it is refused. A store cannot be deleted.
    Declare(Declare),
    /// Print the declaration and the state of one store.
    Show {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Another namespace; only for operators of the service.
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// Name of the store.
        store: String,
    },
    /// Print one row of an embedded store.
    Get {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// The row's key.
        key: String,
        /// Name of the store.
        #[arg(long, default_value = "kv")]
        store: String,
    },
    /// Retry a store's push and the deliveries to its webhook, if they have stopped or are waiting; print the state of both.
    Resume {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        store: String,
    },
    /// Skip the record at which a push stopped: the storage never gets it. Recorded permanently, see `skips`. For a webhook,
    /// `tribunal webhook set --after LSN` leaves a record out.
    Skip {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        store: String,
        /// LSN of the record at which the push stopped.
        #[arg(long)]
        lsn: u64,
    },
    /// List the records that were skipped, and by whom.
    Skips {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        store: String,
    },
    /// Resume the push to a store that is detached, or that has stopped because it needs records that the log no longer has.
    Attach {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        store: String,
        /// The storage was loaded from another source and contains every record up to this LSN.
        #[arg(long)]
        loaded_lsn: Option<u64>,
    },
}

/// Consumers.
#[derive(Debug, Subcommand)]
pub enum ConsumerCommand {
    /// List consumers with their positions and lag.
    Ls {
        /// The service.
        #[command(flatten)]
        target: Target,
    },
    /// Delete a consumer; the log is no longer retained for it.
    Rm {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the consumer.
        name: String,
    },
}

/// Webhooks.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Register the receiver of a store's log, or change the one that is registered: limits that are left out remain.
    Set(Receiver),
    /// Print the registered receiver and the state of its deliveries.
    Show {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        store: String,
    },
    /// Delete the receiver; nothing is delivered to it any more.
    Rm {
        /// The service.
        #[command(flatten)]
        target: Target,
        /// Name of the store.
        store: String,
    },
}

/// Flags of `tribunal webhook set`.
#[derive(Debug, Args)]
pub struct Receiver {
    /// The service.
    #[command(flatten)]
    pub target: Target,
    /// Name of the store.
    pub store: String,
    /// Where records are posted: `https://` or `http://`. A private address must be listed in the node's `push.allow`.
    pub receiver: String,
    /// File with the key of the signatures, 16 to 256 characters.
    #[arg(long, value_name = "FILE")]
    pub secret_file: PathBuf,
    /// Start after this position; the default is the last position of a receiver of this store, or the start of the log. The LSN
    /// of a record that the receiver rejects leaves out that record.
    #[arg(long, value_name = "LSN")]
    pub after: Option<u64>,
    /// Maximum number of records in one request [default: 500].
    #[arg(long, value_name = "N")]
    pub records_max: Option<u32>,
    /// Bytes of keys and values after which no further record is added to a request [default: 1 MiB].
    #[arg(long, value_name = "N")]
    pub bytes_max: Option<u32>,
    /// Timeout of one request, milliseconds [default: 10000].
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u32>,
}

/// Configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective configuration as commented TOML: defaults, the file, then `TRIBUNAL__*` variables.
    ///
    /// Relative paths are relative to the working directory of the process, not to the file.
    Print {
        /// TOML file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON instead.
        #[arg(long)]
        json: bool,
    },
    /// Check the configuration as `tribunal serve` does, without starting a node: the keys, and the files that they name.
    ///
    /// Prints what would apply, and warnings to standard error. Exits with 2 if a node would refuse to start with it, and prints all
    /// errors. Whether the addresses are free and the data directory can be used is not checked: a node may be running.
    Check {
        /// TOML file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON: the configuration, the warnings and the errors.
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
