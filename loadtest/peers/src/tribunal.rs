//! Tribunal over HTTP/JSON, in the way of four kinds of engine.
//!
//! `OwnRows`: the engine stores the rows itself, as the design intends, and posts the versions that it knows. All
//! clients are sessions of one engine and share its knowledge: its own commits, and the versions in conflicts.
//! `Gathered`: as `OwnRows`, but the engine posts the commits of its sessions together, one request at a time, as
//! databases group commits for one sync.
//! `HttpReads`: the engine stores nothing and reads its rows from the embedded store, those of a transaction in one
//! request, at one epoch: a read-only transaction ends with it.
//! `Batches`: as `OwnRows`, with many transactions per request, into a store that has a log but no storage.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::body::BodyWriter;
use tribunal_bench::engine::{self, Pacing};
use tribunal_bench::error::BenchError;
use tribunal_bench::lag::{self, Lag};
use tribunal_bench::model::RowModel;
use tribunal_bench::options::{Common, Shape, Workload};
use tribunal_bench::rpc::Rpc;
use tribunal_bench::traffic::{Preload, TxnTraffic};
use tribunal_bench::wire::write_put;

use crate::cluster::Cluster;
use crate::process::{Place, Process, command};
use crate::session::{Client, Session};
use crate::tribunal_sessions::{Batches, Post, Single};
use crate::tribunal_stores::{LOG_ONLY, PUSHED};

/// How an engine uses the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rows in the engine.
    OwnRows,
    /// Rows in the engine, commits posted together.
    Gathered,
    /// Rows read over HTTP.
    HttpReads,
    /// Rows in the engine, transactions posted many at a time.
    Batches,
}

/// A running service, and the engines' knowledge of its rows.
pub struct Tribunal {
    server: Server,
    pushed: Rc<RefCell<RowModel>>,
    log_only: Rc<RefCell<RowModel>>,
}

/// The process, or the cluster.
enum Server {
    One(Process),
    Cluster(Box<Cluster>),
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
}

impl Tribunal {
    /// Starts the service and writes all rows.
    ///
    /// # Errors
    /// If it does not start or does not accept the rows.
    pub fn start(
        binary: &Path,
        args: &[String],
        parent: &Path,
        shape: &Shape,
        stores: &[&str],
    ) -> Result<Tribunal, BenchError> {
        let place = Place::find("tribunal", parent)?;
        let mut server = command(binary, None);
        server.args(["dev", "--listen", &place.addr.to_string(), "--data"]).arg(place.path("data")).args(args);
        server.env("TRIBUNAL_LOG", "warn");
        let process = Process::start("tribunal", server, Signal::TERM, place)?;
        let mut tribunal = Tribunal::of(Server::One(process));
        tribunal.wait_ready()?;
        if stores.contains(&PUSHED) {
            tribunal.load_pushed(shape)?;
        }
        if stores.contains(&LOG_ONLY) {
            tribunal.declare(LOG_ONLY)?;
            let rows = tribunal.load(LOG_ONLY, shape)?;
            tribunal.log_only = Rc::new(RefCell::new(rows));
        }
        Ok(tribunal)
    }

    /// Starts a cluster and writes all rows.
    ///
    /// # Errors
    /// If it does not start or does not accept the rows.
    pub fn start_cluster(
        binary: &Path,
        parent: &Path,
        nodes: u16,
        rtt: Duration,
        shape: &Shape,
    ) -> Result<Tribunal, BenchError> {
        let cluster = Cluster::tribunal(binary, parent, nodes, rtt)?;
        let mut tribunal = Tribunal::of(Server::Cluster(Box::new(cluster)));
        tribunal.load_pushed(shape)?;
        Ok(tribunal)
    }

    fn of(server: Server) -> Tribunal {
        let empty = || Rc::new(RefCell::new(RowModel::new(0, 0)));
        Tribunal { server, pushed: empty(), log_only: empty() }
    }

    fn load_pushed(&mut self, shape: &Shape) -> Result<(), BenchError> {
        let rows = self.load(PUSHED, shape)?;
        self.load(PUSHED, &Shape { workload: Workload::Hot, ..shape.clone() })?;
        self.pushed = Rc::new(RefCell::new(rows));
        Ok(())
    }

    /// Returns the process, or the one that started the nodes.
    #[must_use]
    pub fn process(&self) -> &Process {
        match &self.server {
            Server::One(process) => process,
            Server::Cluster(nodes) => nodes.process(),
        }
    }

    /// Returns the cluster, if there is one.
    #[must_use]
    pub fn nodes(&self) -> Option<&Cluster> {
        match &self.server {
            Server::One(_) => None,
            Server::Cluster(nodes) => Some(nodes),
        }
    }

    /// Connects one client, with the given number of slots, to a node.
    ///
    /// # Errors
    /// If the address does not listen.
    pub fn client(
        &self,
        addr: SocketAddr,
        kind: Kind,
        shape: &Shape,
        slots: usize,
        seed: u64,
    ) -> Result<Client, BenchError> {
        let stream = TcpStream::connect(addr).map_err(BenchError::io("connect to tribunal"))?;
        let (store, rows) = match kind {
            Kind::OwnRows | Kind::Gathered | Kind::HttpReads => (PUSHED, &self.pushed),
            Kind::Batches => (LOG_ONLY, &self.log_only),
        };
        // The peers' values have no quotes.
        let quoted = Shape { value_bytes: shape.value_bytes + 2, ..shape.clone() };
        let bodies = BodyWriter::new(&quoted, store);
        let rng = SmallRng::seed_from_u64(seed);
        let post = Post::new(addr.to_string(), bodies, Rc::clone(rows), rng);
        let session: Box<dyn Session> = match kind {
            Kind::OwnRows | Kind::HttpReads => Box::new(Single::new(post, kind == Kind::HttpReads)),
            Kind::Batches | Kind::Gathered => Box::new(Batches::new(post, slots)),
        };
        Ok(Client { stream, session, slots })
    }

    /// Returns the engine's knowledge of the rows in the store with the embedded storage.
    #[must_use]
    pub fn known_rows(&self) -> &RefCell<RowModel> {
        &self.pushed
    }

    /// Updates the engine's knowledge of the current epoch before a turn, while no commit is in flight.
    ///
    /// # Errors
    /// If the service does not respond.
    pub fn catch_up(&self) -> Result<(), BenchError> {
        let applied = lag::applied(self.process().addr(), PUSHED)?;
        self.pushed.borrow_mut().reached(applied);
        Ok(())
    }

    /// Waits until the store has applied all commits, and returns how long that took.
    ///
    /// # Errors
    /// If it does not catch up.
    pub fn lag(&self, kind: Kind) -> Result<Option<Lag>, BenchError> {
        if kind == Kind::Batches {
            return Ok(None);
        }
        lag::measure(Rpc::connect(self.process().addr())?, PUSHED).map(Some)
    }

    fn wait_ready(&self) -> Result<(), BenchError> {
        let mut rpc = Rpc::connect(self.process().addr())?;
        for _ in 0..600 {
            if rpc.get("/readyz")?.0 == 200 && rpc.get("/v1/snapshot?store=kv")?.0 == 200 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(BenchError::TooLate("tribunal does not become ready".to_owned()))
    }

    fn declare(&self, store: &str) -> Result<(), BenchError> {
        let host = self.process().addr();
        let mut put = Vec::new();
        write_put(&mut put, &host.to_string(), &format!("/v1/stores/{store}"), b"{}");
        let mut rpc = Rpc::connect(host)?;
        let (status, body) = rpc.exchange(&put)?;
        if status != 200 && status != 201 {
            let answer = format!("{status} {}", String::from_utf8_lossy(body));
            return Err(BenchError::Refused { what: format!("the store {store}"), answer });
        }
        Ok(())
    }

    fn load(&self, store: &str, shape: &Shape) -> Result<RowModel, BenchError> {
        let mut common = Flags::parse_from(["", "--store", store]).common;
        common.addr = self.process().addr();
        common.shape = Shape { value_bytes: shape.value_bytes + 2, ..shape.clone() };
        let mut traffic = TxnTraffic::new(&common, &self.process().addr().to_string());
        let long = Duration::from_secs(600);
        engine::run(&mut Preload::new(&mut traffic, &common), common.addr, 4, Pacing::Closed, long)?;
        let counts = traffic.take_counts();
        if counts.attempted == 0 || counts.committed < counts.attempted {
            let answer = format!("{} of {} transactions committed: {counts:?}", counts.committed, counts.attempted);
            return Err(BenchError::Refused { what: "the rows".to_owned(), answer });
        }
        if store == PUSHED {
            lag::measure(Rpc::connect(common.addr)?, store)?;
        }
        Ok(traffic.into_model())
    }
}
