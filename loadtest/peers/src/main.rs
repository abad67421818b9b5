//! `tribunal-peers`: the same transactions on Tribunal and on its common alternatives, side by side in one run.
//!
//! Every peer is a child process with its own folder and port. One client drives all of them: one thread, one epoll,
//! hand-written protocols, closed loop, the same row choices, the same keys and values.

mod cluster;
mod contender;
mod engine;
mod etcd;
mod etcd_replies;
#[path = "../../../server/node/tests/support/faulty_proxy.rs"]
#[expect(dead_code, reason = "links are only slow here")]
mod faulty_proxy;
mod figures;
mod key;
mod omid;
mod postgres;
mod process;
mod redis;
mod resp;
mod scaling;
mod sdk;
mod session;
mod talk;
mod timeline;
mod tribunal;
mod tribunal_sessions;
mod tribunal_stores;
mod turns;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tribunal_bench::error::BenchError;
use tribunal_bench::machine::Machine;
use tribunal_bench::options::{Level, Shape, Workload};

use contender::Name;
use figures::Document;
use turns::{Arena, Installed, Load, Pace};

// The server's allocator, as an engine would use it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Tribunal against its peers.
#[derive(Debug, Parser)]
#[command(name = "tribunal-peers", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures, and writes the figures of every turn as JSON.
    Run(Box<Run>),
    /// Prints the figures of a run as Markdown and draws its charts.
    Report {
        /// What `run` has written.
        #[arg(long)]
        from: PathBuf,
        /// Folder of the charts.
        #[arg(long)]
        charts: PathBuf,
    },
    /// Draws what clients notice when a node is killed, and when one is added.
    Timeline(timeline::Timeline),
    /// Prints what clusters of up to 100 nodes would do by the costs of a run with one and three nodes.
    Scaling(scaling::Scaling),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Tribunal's binary.
    #[arg(long)]
    tribunal: PathBuf,
    /// A further argument of it; may be repeated.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    tribunal_arg: Vec<String>,
    /// etcd's binary.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// Folder of Omid's jars.
    #[arg(long, default_value = "omid")]
    omid: PathBuf,
    /// Round-trip time between the nodes of a cluster, milliseconds, by a proxy in front of each.
    #[arg(long, default_value_t = 0.0)]
    rtt_ms: f64,
    /// Where peers may put their folders.
    #[arg(long, default_value = ".")]
    data_dir: PathBuf,
    /// Who is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = ALL.into_iter().filter(|name| !name.is_cluster()))]
    peers: Vec<Name>,
    /// On which workloads, in this order; those with inserts (ycsb-d, ycsb-e) leave more rows to the ones after them.
    #[arg(long, value_delimiter = ',', default_value = LOADS)]
    loads: Vec<String>,
    /// Rows.
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// Clients, each with one transaction under way, and with a connection of its own unless commits are gathered.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Transactions in flight at Omid, and at Tribunal when it is compared with it.
    #[arg(long, default_value_t = 256)]
    in_flight: usize,
    /// Connections that they share.
    #[arg(long, default_value_t = 4)]
    oracle_connections: usize,
    /// Turns of each contender.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measured seconds of a turn.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Unmeasured seconds before them.
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// File for the figures.
    #[arg(long)]
    out: PathBuf,
}

const LOADS: &str = "zipf,uniform,ycsb-a,ycsb-b,ycsb-c,ycsb-f,hot,ycsb-d,ycsb-e,oracle-uniform,oracle-zipf";

const ALL: [Name; 17] = [
    Name::Tribunal,
    Name::TribunalGathered,
    Name::TribunalReads,
    Name::TribunalSdk,
    Name::TribunalSdkReads,
    Name::TribunalStream,
    Name::Redis,
    Name::Postgres,
    Name::Etcd,
    Name::TribunalThree,
    Name::TribunalThreeAtOne,
    Name::EtcdThree,
    Name::TribunalFive,
    Name::TribunalFiveAtOne,
    Name::EtcdFive,
    Name::TribunalBatch,
    Name::Omid,
];

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(flags) => run(&flags),
        Command::Report { from, charts } => figures::report(&from, &charts),
        Command::Timeline(timeline) => timeline.run(),
        Command::Scaling(costs) => {
            print!("{}", costs.table());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tribunal-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Run) -> Result<(), BenchError> {
    let loads = flags.loads.iter().map(|name| load(name, flags.rows)).collect::<Result<Vec<_>, _>>()?;
    let shape = point(flags.rows, 0.9);
    shape.check()?;
    let pace = Pace {
        clients: flags.clients,
        in_flight: flags.in_flight,
        oracle_connections: flags.oracle_connections,
        rounds: flags.rounds,
        seconds: flags.seconds,
        warmup: flags.warmup,
    };
    if pace.clients == 0 || pace.rounds == 0 || pace.oracle_connections == 0 || pace.in_flight < pace.oracle_connections
    {
        return Err(BenchError::Usage(
            "--clients, --rounds and --oracle-connections must be above 0, --in-flight at least --oracle-connections"
                .to_owned(),
        ));
    }
    if !(pace.seconds.is_finite() && pace.seconds > 0.0 && pace.warmup.is_finite() && pace.warmup >= 0.0) {
        return Err(BenchError::Usage("--seconds must be above 0, --warmup not below 0".to_owned()));
    }
    let needed = |name: &Name| loads.iter().any(|load| load.oracles == name.is_oracle());
    let names: Vec<_> = ALL.into_iter().filter(|name| flags.peers.contains(name)).filter(needed).collect();
    let installed = Installed {
        tribunal: flags.tribunal.clone(),
        tribunal_args: flags.tribunal_arg.clone(),
        etcd: flags.etcd.clone(),
        omid: flags.omid.clone(),
        data: flags.data_dir.clone(),
        rtt: Duration::from_secs_f64(flags.rtt_ms / 1000.0),
    };
    if !(0.0..=10_000.0).contains(&flags.rtt_ms) {
        return Err(BenchError::Usage("--rtt-ms must be 0 to 10000".to_owned()));
    }
    let machine = Machine::look();
    let mut arena = Arena::open(&installed, &names, pace, &shape)?;
    let mut document = Document::new(&machine, pace, flags.rows, flags.rtt_ms);
    for load in &loads {
        document.take(load, arena.run(load)?, &arena.left_out(load));
        // Keep the measured turns even if a later workload fails.
        document.write(&flags.out)?;
    }
    Ok(())
}

fn point(rows: usize, zipf: f64) -> Shape {
    Shape {
        workload: Workload::Point,
        rows,
        zipf,
        reads: 5,
        writes: 5,
        hot_rows: 1,
        value_bytes: 100,
        isolation: Level::Serializable,
        seed: 1,
    }
}

fn load(name: &str, rows: usize) -> Result<Load, BenchError> {
    let plain = |name, shape| Load { name, shape, oracles: false };
    let zipf = |workload| Shape { workload, ..point(rows, 0.9) };
    Ok(match name {
        "zipf" => plain("zipf", point(rows, 0.9)),
        "uniform" => plain("uniform", point(rows, 0.0)),
        "ycsb-a" => plain("ycsb-a", zipf(Workload::YcsbA)),
        "ycsb-b" => plain("ycsb-b", zipf(Workload::YcsbB)),
        "ycsb-c" => plain("ycsb-c", zipf(Workload::YcsbC)),
        "ycsb-d" => plain("ycsb-d", zipf(Workload::YcsbD)),
        "ycsb-e" => plain("ycsb-e", zipf(Workload::YcsbE)),
        "ycsb-f" => plain("ycsb-f", zipf(Workload::YcsbF)),
        "hot" => plain("hot", zipf(Workload::Hot)),
        "oracle-uniform" => Load { name: "oracle-uniform", shape: point(rows, 0.0), oracles: true },
        "oracle-zipf" => Load { name: "oracle-zipf", shape: point(rows, 0.9), oracles: true },
        other => return Err(BenchError::Usage(format!("there is no workload {other}"))),
    })
}
