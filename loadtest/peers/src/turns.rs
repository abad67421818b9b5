//! Turns of all contenders on one workload after the other, interleaved: a round gives each contender one turn, and
//! each round begins with a different one. A contender is stopped while it is not its turn.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tribunal_bench::error::BenchError;
use tribunal_bench::inserts::Inserts;
use tribunal_bench::key::Row;
use tribunal_bench::options::{Shape, Workload};
use tribunal_bench::workload::Planner;

use crate::cluster::Cluster;
use crate::contender::Name;
use crate::engine::{self, Window};
use crate::process::Process;
use crate::sdk::{self, Sessions};
use crate::session::Client;
use crate::tribunal::{Kind, Tribunal};
use crate::tribunal_stores::{LOG_ONLY, PUSHED};
use crate::{etcd, omid, postgres, redis};

/// Additional warm-up of a Java server before its first turn.
const JAVA_WARMUP: Duration = Duration::from_secs(5);

/// A workload of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name in tables and files.
    pub name: &'static str,
    /// Its transactions.
    pub shape: Shape,
    /// Whether the status oracles run it, rather than the other contenders.
    pub oracles: bool,
}

/// Locations of the contenders' programs and data.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Tribunal's binary.
    pub tribunal: PathBuf,
    /// Additional arguments for it.
    pub tribunal_args: Vec<String>,
    /// etcd's binary.
    pub etcd: PathBuf,
    /// Folder of Omid's jars.
    pub omid: PathBuf,
    /// Folder in which peers may create theirs.
    pub data: PathBuf,
    /// Round-trip time between the nodes of a cluster.
    pub rtt: Duration,
}

/// Load and duration.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// Clients, each with a connection and one transaction in flight.
    pub clients: usize,
    /// Transactions in flight at a status oracle.
    pub in_flight: usize,
    /// Connections shared by these transactions.
    pub oracle_connections: usize,
    /// Rounds.
    pub rounds: usize,
    /// Measured seconds of a turn.
    pub seconds: f64,
    /// Unmeasured seconds before the turn.
    pub warmup: f64,
}

/// Figures of one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// The contender.
    pub peer: Name,
    /// The workload.
    pub load: String,
    /// Ended transactions per second.
    pub attempted_per_s: f64,
    /// Committed transactions per second.
    pub committed_per_s: f64,
    /// Share of aborted transactions among the ended ones.
    pub aborted_share: f64,
    /// Share of aborted transactions by reason.
    pub aborted: std::collections::BTreeMap<String, f64>,
    /// Median latency, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of latency, milliseconds.
    pub p99_ms: f64,
    /// CPU time of the peer per committed transaction, microseconds.
    pub server_cpu_us: f64,
    /// CPU time of this client per ended transaction, microseconds.
    pub client_cpu_us: f64,
    /// Time that the storage took after the turn to apply everything, milliseconds.
    pub lag_ms: Option<u64>,
    /// Bytes that the nodes of a cluster sent to each other per ended transaction.
    #[serde(default)]
    pub wire_bytes: Option<f64>,
}

/// A running peer.
enum Peer {
    Tribunal(Box<Tribunal>),
    Redis(Process),
    Postgres(Process),
    Etcd(Process),
    Omid(Process),
    EtcdCluster(Box<Cluster>),
}

impl Peer {
    fn process(&self) -> &Process {
        match self {
            Peer::Tribunal(tribunal) => tribunal.process(),
            Peer::Redis(process) | Peer::Postgres(process) | Peer::Etcd(process) | Peer::Omid(process) => process,
            Peer::EtcdCluster(nodes) => nodes.process(),
        }
    }

    /// Returns the cluster, if the peer is one.
    fn nodes(&self) -> Option<&Cluster> {
        match self {
            Peer::Tribunal(tribunal) => tribunal.nodes(),
            Peer::EtcdCluster(nodes) => Some(nodes),
            _ => None,
        }
    }

    fn freeze(&self) {
        if self.nodes().is_none() {
            self.process().freeze();
        }
    }
}

/// A running peer, and the growth of its rows.
struct Running {
    peer: Peer,
    /// Rows inserted by earlier turns.
    inserted: u32,
}

/// All running peers, and the clients' settings.
pub struct Arena {
    running: Vec<Running>,
    names: Vec<Name>,
    pace: Pace,
    turns: u64,
    java_is_warm: bool,
}

impl Arena {
    /// Starts the peers one after the other, and loads the rows of each.
    ///
    /// # Errors
    /// If a peer does not start or does not accept the rows.
    pub fn open(installed: &Installed, names: &[Name], pace: Pace, shape: &Shape) -> Result<Arena, BenchError> {
        let mut arena = Arena { running: Vec::new(), names: names.to_vec(), pace, turns: 0, java_is_warm: false };
        let data = &installed.data;
        let has = |name: Name| names.contains(&name);
        let mut stores = Vec::new();
        let single = |name: &&Name| !name.is_cluster();
        if names.iter().filter(single).any(|name| name.kind().is_some_and(|kind| kind != Kind::Batches)) {
            stores.push(PUSHED);
        }
        if has(Name::TribunalBatch) {
            stores.push(LOG_ONLY);
        }
        if !stores.is_empty() {
            let (binary, args) = (&installed.tribunal, &installed.tribunal_args);
            arena.add(|| Ok(Peer::Tribunal(Box::new(Tribunal::start(binary, args, data, shape, &stores)?))))?;
        }
        if has(Name::Redis) {
            arena.add(|| redis::start(data).and_then(|it| redis::load(&it, shape).map(|()| Peer::Redis(it))))?;
        }
        if has(Name::Postgres) {
            arena
                .add(|| postgres::start(data).and_then(|it| postgres::load(&it, shape).map(|()| Peer::Postgres(it))))?;
        }
        if has(Name::Etcd) {
            let start = || etcd::start(&installed.etcd, data);
            arena.add(|| start().and_then(|it| etcd::load(it.addr(), shape).map(|()| Peer::Etcd(it))))?;
        }
        for (nodes, etcd) in [(3, Name::EtcdThree), (5, Name::EtcdFive)] {
            if names.iter().any(|name| name.kind().is_some() && name.nodes() == nodes) {
                let start = || Tribunal::start_cluster(&installed.tribunal, data, nodes, installed.rtt, shape);
                arena.add(|| Ok(Peer::Tribunal(Box::new(start()?))))?;
            }
            if has(etcd) {
                let start = || Cluster::etcd(&installed.etcd, data, nodes, installed.rtt, &etcd::limits());
                let load = |it: Cluster| etcd::load(it.addrs()[0], shape).map(|()| Peer::EtcdCluster(Box::new(it)));
                arena.add(|| start().and_then(load))?;
            }
        }
        if has(Name::Omid) {
            arena.add(|| omid::start(&installed.omid, data).map(Peer::Omid))?;
        }
        Ok(arena)
    }

    fn add(&mut self, start: impl FnOnce() -> Result<Peer, BenchError>) -> Result<(), BenchError> {
        let peer = start()?;
        eprintln!("{} is up, with its rows", peer.process().name());
        peer.freeze();
        self.running.push(Running { peer, inserted: 0 });
        Ok(())
    }

    fn of(&self, load: &Load) -> impl Iterator<Item = Name> {
        self.names.iter().copied().filter(|name| name.is_oracle() == load.oracles)
    }

    /// Returns the contenders that do not run a workload, and the reasons.
    #[must_use]
    pub fn left_out(&self, load: &Load) -> Vec<(Name, &'static str)> {
        self.of(load).filter_map(|name| Some((name, name.leaves_out(load.shape.workload)?))).collect()
    }

    /// Runs all rounds of one workload.
    ///
    /// # Errors
    /// If a turn fails.
    pub fn run(&mut self, load: &Load) -> Result<Vec<Turn>, BenchError> {
        for (name, reason) in self.left_out(load) {
            eprintln!("{}: without {}: {reason}", load.name, name.label());
        }
        let who: Vec<_> = self.of(load).filter(|name| name.leaves_out(load.shape.workload).is_none()).collect();
        self.prepare(load)?;
        let mut turns = Vec::new();
        for round in 0..self.pace.rounds {
            for step in 0..who.len() {
                let turn = self.turn(who[(round + step) % who.len()], load, round)?;
                eprintln!(
                    "{} {}/{} {}: {:.0} committed/s, {:.1} % aborted, p50 {:.2} ms, p99 {:.2} ms, server {:.0} us a commit, client {:.0} us",
                    load.name,
                    round + 1,
                    self.pace.rounds,
                    turn.peer.label(),
                    turn.committed_per_s,
                    100.0 * turn.aborted_share,
                    turn.p50_ms,
                    turn.p99_ms,
                    turn.server_cpu_us,
                    turn.client_cpu_us
                );
                turns.push(turn);
            }
        }
        Ok(turns)
    }

    /// Prepares peers for the special needs of this workload, before its first turn.
    fn prepare(&self, load: &Load) -> Result<(), BenchError> {
        let redis = self.running.iter().find_map(|running| match &running.peer {
            Peer::Redis(process) if load.shape.workload == Workload::YcsbE => Some(process),
            _ => None,
        });
        let Some(process) = redis else { return Ok(()) };
        process.thaw();
        redis::index(process)?;
        process.freeze();
        Ok(())
    }

    fn index(&self, name: Name) -> usize {
        let has_nodes = |nodes: &Cluster| nodes.addrs().len() == usize::from(name.nodes());
        let found = self.running.iter().position(|running| match &running.peer {
            Peer::Tribunal(it) => name.kind().is_some() && it.nodes().map_or(!name.is_cluster(), has_nodes),
            Peer::EtcdCluster(it) => matches!(name, Name::EtcdThree | Name::EtcdFive) && has_nodes(it),
            Peer::Redis(_) => name == Name::Redis,
            Peer::Postgres(_) => name == Name::Postgres,
            Peer::Etcd(_) => name == Name::Etcd,
            Peer::Omid(_) => name == Name::Omid,
        });
        found.expect("a contender that is measured was started")
    }

    fn turn(&mut self, name: Name, load: &Load, round: usize) -> Result<Turn, BenchError> {
        self.turns += 1;
        // A Java server is slow until its code is compiled: it gets a longer warm-up the first time.
        let cold = name == Name::Omid && !std::mem::replace(&mut self.java_is_warm, true);
        let window = Window {
            warmup: Duration::from_secs_f64(self.pace.warmup) + if cold { JAVA_WARMUP } else { Duration::ZERO },
            measured: Duration::from_secs_f64(self.pace.seconds),
        };
        // In one round, every contender gets the same transactions in the same order.
        let shape = Shape { seed: load.shape.seed + round as u64, ..load.shape.clone() };
        let index = self.index(name);
        let Running { peer, inserted } = &self.running[index];
        let process = peer.process();
        process.thaw();
        if let (Peer::Tribunal(tribunal), Some(Kind::OwnRows | Kind::Gathered | Kind::HttpReads)) = (peer, name.kind())
        {
            tribunal.catch_up()?;
        }
        let mut planner = Planner::after(&shape, *inserted);
        // The engine calls this at the beginning and at the end of the measured time.
        let sent = RefCell::new(Vec::new());
        let cpu = || {
            sent.borrow_mut().extend(peer.nodes().map(Cluster::sent_bytes));
            process.cpu()
        };
        let ran = match (peer, name.sdk_reads()) {
            (Peer::Tribunal(tribunal), Some(reads)) => {
                let (count, seed) = (self.pace.clients, self.seed(0));
                let (addr, rows) = (process.addr(), tribunal.known_rows());
                let streams = name == Name::TribunalStream;
                let sessions = Sessions { addr, store: PUSHED, reads, streams, shape: &shape, rows, count, seed };
                sdk::run(&sessions, &mut planner, window, &cpu)?
            }
            _ => engine::run(self.clients(peer, name, &shape)?, &mut planner, window, &cpu)?,
        };
        let lag = match (peer, name.kind()) {
            (Peer::Tribunal(tribunal), Some(kind)) => tribunal.lag(kind)?,
            _ => None,
        };
        peer.freeze();
        let sent: Vec<f64> = sent.into_inner().into_iter().collect::<Result<_, _>>()?;
        let inserted = planner.inserted();
        if inserted > Inserts::limit(Row::try_from(shape.rows).expect("rows were checked")) {
            return Err(BenchError::Usage(format!(
                "{} rows leave no room for {inserted} more: more --rows",
                shape.rows
            )));
        }
        self.running[index].inserted = inserted;
        let seconds = ran.elapsed.as_secs_f64();
        let lost: u64 = ran.aborted.values().sum();
        let ended = (ran.committed + lost) as f64;
        let ms = |quantile| ran.latency_us.value_at_quantile(quantile) as f64 / 1000.0;
        Ok(Turn {
            peer: name,
            load: load.name.to_owned(),
            attempted_per_s: ended / seconds,
            committed_per_s: ran.committed as f64 / seconds,
            aborted_share: lost as f64 / ended.max(1.0),
            aborted: ran.aborted.iter().map(|(why, n)| ((*why).to_owned(), *n as f64 / ended.max(1.0))).collect(),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            server_cpu_us: ran.server_cpu.as_secs_f64() * 1e6 / (ran.committed as f64).max(1.0),
            client_cpu_us: ran.client_cpu.as_secs_f64() * 1e6 / ended.max(1.0),
            lag_ms: lag.map(|lag| lag.caught_up_ms),
            wire_bytes: sent.last().zip(sent.first()).map(|(after, before)| (after - before) / ended.max(1.0)),
        })
    }

    /// Returns a seed for values and ids, which are new in every turn.
    fn seed(&self, index: usize) -> u64 {
        self.turns * 1_000_003 + index as u64
    }

    fn clients(&self, peer: &Peer, name: Name, shape: &Shape) -> Result<Vec<Client>, BenchError> {
        let (count, slots) = match name {
            Name::TribunalGathered => (1, self.pace.clients),
            name if name.is_oracle() => {
                (self.pace.oracle_connections, self.pace.in_flight / self.pace.oracle_connections)
            }
            _ => (self.pace.clients, 1),
        };
        let spread = peer.nodes().filter(|_| !name.is_at_one()).map(Cluster::addrs);
        let at = |index: usize| spread.map_or(peer.process().addr(), |addrs| addrs[index % addrs.len()]);
        let connect = |index| match peer {
            Peer::Tribunal(tribunal) => {
                let kind = name.kind().expect("a name of Tribunal's");
                tribunal.client(at(index), kind, shape, slots, self.seed(index))
            }
            Peer::Redis(process) => redis::client(process, shape, self.seed(index)),
            Peer::Postgres(process) => postgres::client(process, shape, self.seed(index)),
            Peer::Etcd(_) | Peer::EtcdCluster(_) => etcd::client(at(index), shape, self.seed(index)),
            Peer::Omid(process) => omid::client(process, slots),
        };
        (0..count).map(connect).collect()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Resume all before the first is stopped: a suspended process would not receive the signal.
        self.running.iter().for_each(|running| running.peer.process().thaw());
    }
}
