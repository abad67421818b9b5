//! The command line: the server, the workload, the load. Checked once, before anything is sent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Measures a Tribunal server over HTTP, with a client that uses little CPU.
#[derive(Debug, Parser)]
#[command(name = "tribunal-bench", version)]
pub struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure single commits: one transaction per request, in a closed loop, or in an open loop with --rate.
    Commit(Common),
    /// Measure batch commits: many transactions per request, see --batch.
    Batch(Common),
    /// Measure the baseline: the requests of `commit`, sent to a route that parses them and returns a constant.
    Constant(Common),
    /// Measure `constant` and `commit` alternately on one server, and print the ratio of their medians.
    Compare {
        /// Workload and target.
        #[command(flatten)]
        common: Common,
        /// Turns of each kind.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Measure the end-to-end cost of the sandbox: the same load alternately on a server with Wasm policies and on one with
    /// native ones. Requires --spawn.
    Policies {
        /// Workload and target.
        #[command(flatten)]
        common: Common,
        /// Turns of each kind.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Post batches, where the policies' share of the work is largest, rather than single transactions.
        #[arg(long)]
        batched: bool,
    },
    /// Measure the cost of telemetry: the same load alternately on a server that exports traces and metrics to a collector
    /// and on one that does not. Requires --spawn.
    Telemetry {
        /// Workload and target.
        #[command(flatten)]
        common: Common,
        /// Turns of each kind.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Post batches rather than single transactions.
        #[arg(long)]
        batched: bool,
        /// Where spans go, and which.
        #[command(flatten)]
        telemetry: TelemetryFlags,
    },
    /// Compare the latency of one client with that of bare fdatasyncs on the same disk, in the same run.
    Idle {
        /// Workload and target.
        #[command(flatten)]
        common: Common,
        /// Commits, and fdatasyncs of each kind.
        #[arg(long, default_value_t = 500)]
        samples: usize,
        /// Pause before each commit, milliseconds: how idle the service is.
        #[arg(long, default_value_t = 10)]
        pause_ms: u64,
    },
    /// Measure the bytes stored per row and per transaction, and the syncs per epoch, from the server's metrics.
    Space {
        /// Workload and target.
        #[command(flatten)]
        common: Common,
        /// Post batches rather than single transactions.
        #[arg(long)]
        batched: bool,
    },
    /// Repeat a measurement with different values of one parameter.
    Sweep {
        /// Workload and target.
        #[command(flatten)]
        common: Common,
        /// Parameter to vary.
        #[arg(long, value_enum)]
        axis: Axis,
        /// Values of the parameter, separated by commas.
        #[arg(long, value_delimiter = ',', required = true)]
        values: Vec<String>,
    },
    /// Print earlier measurements, written with --json, as Markdown, and draw their charts.
    Record {
        /// Folder of the JSON documents, NAME.json each.
        #[arg(long)]
        results: PathBuf,
        /// Folder for the charts.
        #[arg(long)]
        charts: PathBuf,
        /// How the Markdown names that folder.
        #[arg(long, default_value = "charts")]
        link: String,
    },
}

/// Where spans go, and which.
#[derive(Clone, Debug, Args)]
pub struct TelemetryFlags {
    /// The collector that is started for it: what `tests/collector/build.sh` prints.
    #[arg(long)]
    pub collector: PathBuf,
    /// `OTEL_TRACES_SAMPLER` of the server; its default if absent.
    #[arg(long)]
    pub sampler: Option<String>,
}

/// What a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// Connections, with single commits.
    Connections,
    /// Reads per transaction, and as many writes, with single commits.
    Ops,
    /// Stored rows, with single commits.
    Rows,
    /// Transactions per request, with batch commits.
    Batch,
    /// Length of an epoch: `adaptive`, or milliseconds. Requires --spawn.
    Epoch,
    /// Zipf exponent of the row choice.
    Zipf,
    /// Isolation level.
    Isolation,
    /// Conflict rule: a built-in one; with --spawn also the folder or component of a plugin; with --addr also the name of an
    /// uploaded plugin.
    Rule,
    /// Milliseconds that --long-share of the transactions take between reading and committing.
    Long,
}

/// Isolation level asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Read Committed.
    ReadCommitted,
    /// Repeatable Read.
    RepeatableRead,
    /// Snapshot Isolation.
    Snapshot,
    /// Strict serializability.
    Serializable,
}

impl Level {
    /// Returns the level's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read-committed",
            Level::RepeatableRead => "repeatable-read",
            Level::Snapshot => "snapshot",
            Level::Serializable => "serializable",
        }
    }
}

/// Which transactions are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// --reads rows read and --writes other rows put.
    Point,
    /// --reads + --writes operations, half of them updates.
    YcsbA,
    /// --reads + --writes operations, one in twenty an update.
    YcsbB,
    /// --reads + --writes reads.
    YcsbC,
    /// --reads + --writes operations, one in twenty an insert, the others reads of rows that were inserted last.
    YcsbD,
    /// --reads + --writes operations, one in twenty an insert, the others scans of 1 to 100 rows.
    YcsbE,
    /// --reads + --writes operations, half of them reads, the others read-modify-writes of a row.
    YcsbF,
    /// Two accounts read and written: money moves, and none may appear or vanish.
    Bank,
    /// One `add` to one of --hot-rows counters.
    Hot,
}

/// The shape of the transactions, independent of the peer that decides them.
#[derive(Clone, Debug, Args)]
pub struct Shape {
    /// Which transactions.
    #[arg(long, value_enum, default_value = "point")]
    pub workload: Workload,
    /// Rows (accounts) in play.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: usize,
    /// Zipf exponent of the row choice; 0 is uniform.
    #[arg(long, default_value_t = 0.9)]
    pub zipf: f64,
    /// Rows read by a transaction.
    #[arg(long, default_value_t = 5)]
    pub reads: usize,
    /// Rows written by a transaction.
    #[arg(long, default_value_t = 5)]
    pub writes: usize,
    /// Counters of the hot workload.
    #[arg(long, default_value_t = 1)]
    pub hot_rows: usize,
    /// Length of a value, quotes included.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Isolation level.
    #[arg(long, value_enum, default_value = "serializable")]
    pub isolation: Level,
    /// Seed of row choice and values.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Shape {
    /// Checks the constraints that clap cannot.
    ///
    /// # Errors
    /// If these flags do not permit any transaction.
    pub fn check(&self) -> Result<(), BenchError> {
        let usage = |text: &str| Err(BenchError::Usage(text.to_owned()));
        if self.rows == 0 || self.hot_rows == 0 {
            return usage("--rows and --hot-rows must be above 0");
        }
        if self.reads + self.writes == 0 || self.reads + self.writes > self.rows / 2 {
            return usage("--reads + --writes must be between 1 and half of --rows, for rows must be distinct");
        }
        if self.rows > 10_000_000 {
            return usage("--rows must be at most 10000000: keys have seven digits");
        }
        if self.value_bytes < 2 {
            return usage("--value-bytes must be at least 2: a value is a JSON string");
        }
        if !self.zipf.is_finite() || self.zipf < 0.0 {
            return usage("--zipf must be finite and not negative");
        }
        Ok(())
    }

    /// Describes the transactions in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let spread = if self.zipf == 0.0 { "uniform".to_owned() } else { format!("Zipf {}", self.zipf) };
        let (rows, operations) = (self.rows, self.reads + self.writes);
        match self.workload {
            Workload::Point => format!("{} reads + {} puts, {spread} over {rows} rows", self.reads, self.writes),
            Workload::YcsbA => format!("YCSB A, {operations} operations, {spread} over {rows} rows"),
            Workload::YcsbB => format!("YCSB B, {operations} operations, {spread} over {rows} rows"),
            Workload::YcsbC => format!("YCSB C, {operations} reads, {spread} over {rows} rows"),
            Workload::YcsbD => {
                format!("YCSB D, {operations} operations, inserts, reads of the latest, {spread}, {rows} rows")
            }
            Workload::YcsbE => {
                format!("YCSB E, {operations} operations, scans of 1 to 100 of {rows} rows, {spread}, inserts")
            }
            Workload::YcsbF => {
                format!("YCSB F, {operations} operations, read-modify-writes, {spread} over {rows} rows")
            }
            Workload::Bank => format!("bank transfer, {spread} over {rows} accounts"),
            Workload::Hot => format!("add to one of {} counters", self.hot_rows),
        }
    }
}

/// Flags of every measurement.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Address of a running server.
    #[arg(long, default_value = "127.0.0.1:7420")]
    pub addr: SocketAddr,
    /// File with the API key that the running server requires; the default is the variable `TRIBUNAL_API_KEY`.
    #[arg(long, value_name = "FILE", conflicts_with = "spawn")]
    pub api_key_file: Option<PathBuf>,
    /// Its process id, for its CPU time.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Start this `tribunal` binary with `dev` on a free port instead, and stop it at the end.
    #[arg(long, conflicts_with = "server_pid")]
    pub spawn: Option<PathBuf>,
    /// A further argument of the spawned server; may be repeated.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, requires = "spawn")]
    pub serve_arg: Vec<String>,
    /// Environment variables of the spawned server.
    #[arg(skip)]
    pub serve_env: Vec<(String, String)>,
    /// Plugin that is to be the conflict rule before anything is measured: with --spawn a folder or component to upload,
    /// otherwise the name of a plugin that the server has.
    #[arg(skip)]
    pub rule: Option<String>,
    /// Directory in which a new folder is created for the data of a spawned server, and for the file that `idle` syncs.
    #[arg(long, default_value = ".")]
    pub data_dir: PathBuf,
    /// Store to use; it must be tracked.
    #[arg(long, default_value = "kv")]
    pub store: String,
    /// Which transactions.
    #[command(flatten)]
    pub shape: Shape,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = 128)]
    pub connections: usize,
    /// Share of the single-request transactions that take --long-ms between reading and committing.
    #[arg(long, default_value_t = 0.1)]
    pub long_share: f64,
    /// Milliseconds that these take; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub long_ms: u64,
    /// Declare --store first, as a log without a storage.
    #[arg(long)]
    pub declare: bool,
    /// Transactions per request of `batch`.
    #[arg(long, default_value_t = 100)]
    pub batch: usize,
    /// Requests per second of an open loop, whose latency counts from when a request was due. The default is a closed loop.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Measured time (of each turn or step), seconds.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Unmeasured time before it, seconds.
    #[arg(long, default_value_t = 2.0)]
    pub warmup: f64,
    /// Skip the preload. Versions are then learned from conflicts, so that most early reads abort.
    #[arg(long)]
    pub no_preload: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Returns the API key of the running server. It is never taken from the command line, where other users can read
    /// it.
    ///
    /// # Errors
    /// If its file cannot be read, or it has characters that a header cannot have.
    pub fn api_key(&self) -> Result<Option<String>, BenchError> {
        let text = match &self.api_key_file {
            Some(file) => {
                let name = format!("read the API key in {}", file.display());
                Some(std::fs::read_to_string(file).map_err(BenchError::io(name))?)
            }
            None => std::env::var("TRIBUNAL_API_KEY").ok(),
        };
        let Some(key) = text.map(|text| text.trim().to_owned()).filter(|key| !key.is_empty()) else { return Ok(None) };
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BenchError::Usage("the API key has characters that no header can have".to_owned()));
        }
        Ok(Some(key))
    }

    /// Checks what clap cannot.
    /// Checks the constraints that clap cannot.
    /// # Errors
    /// If no transaction can be made of these flags.
    pub fn check(&self) -> Result<(), BenchError> {
        self.shape.check()?;
        let usage = |text: &str| Err(BenchError::Usage(text.to_owned()));
        if self.connections == 0 || self.batch == 0 {
            return usage("--connections and --batch must be above 0");
        }
        let finite = |n: f64| n.is_finite() && n >= 0.0;
        if !finite(self.seconds) || !finite(self.warmup) || self.seconds == 0.0 {
            return usage("--seconds and --warmup must be finite and not negative, --seconds not 0");
        }
        if !(0.0..=1.0).contains(&self.long_share) {
            return usage("--long-share must be between 0 and 1");
        }
        if self.rate.is_some_and(|rate| !finite(rate) || rate == 0.0) {
            return usage("--rate must be finite and above 0");
        }
        Ok(())
    }

    /// Returns the measured time.
    #[must_use]
    pub fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Describes the workload in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        let pace = self.rate.map_or("closed loop".to_owned(), |rate| format!("open loop at {rate}/s"));
        let long = match self.long_ms {
            0 => String::new(),
            ms => format!(", {:.0} % of the transactions take {ms} ms", 100.0 * self.long_share),
        };
        format!(
            "{}, values of {} bytes, {}, {} connections, {pace}{long}",
            self.shape.describe(),
            self.shape.value_bytes,
            self.shape.isolation.name(),
            self.connections
        )
    }
}
