//! Tribunal over HTTP/JSON, as four kinds of engine would use it.
//!
//! `OwnRows`: the engine holds the rows itself, as the design has it, and posts the versions that it knows. All
//! clients are sessions of one engine and share what it knows: its own commits, and what conflicts told it.
//! `Gathered`: as `OwnRows`, but the engine posts the commits of its sessions together, in one request at a time, as
//! databases gather commits for one sync.
//! `HttpReads`: the engine holds nothing and reads its rows from the embedded store, those of a transaction in one
//! request, as of one epoch: a transaction that only reads ends with it.
//! `Batches`: as `OwnRows`, many transactions a request, into a store that has a log and no storage.

use std::cell::RefCell;
use std::net::TcpStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::body::{BodyWriter, mint_id};
use tribunal_bench::engine::{self, Pacing};
use tribunal_bench::error::BenchError;
use tribunal_bench::lag::{self, Lag};
use tribunal_bench::model::{Row, RowModel, Versions};
use tribunal_bench::options::{Common, Shape, Workload};
use tribunal_bench::reply::{Decision, conflicts, decision, items, number};
use tribunal_bench::rpc::Rpc;
use tribunal_bench::traffic::{Preload, TxnTraffic};
use tribunal_bench::wire::{read_head, write_post, write_put};
use tribunal_bench::workload::Plan;

use crate::key;
use crate::process::{Place, Process, command};
use crate::session::{Client, Outcome, Session, reason_of};

/// Store with the embedded storage, which the push keeps up to date.
pub const PUSHED: &str = "kv";
/// Store with a log only.
pub const LOG_ONLY: &str = "log";

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

/// A running service, and what engines know of its rows.
pub struct Tribunal {
    process: Process,
    pushed: Rc<RefCell<RowModel>>,
    log_only: Rc<RefCell<RowModel>>,
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
    /// If it does not start or does not take the rows.
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
        let empty = || Rc::new(RefCell::new(RowModel::new(0, 0)));
        let mut tribunal = Tribunal { process, pushed: empty(), log_only: empty() };
        tribunal.wait_ready()?;
        if stores.contains(&PUSHED) {
            let rows = tribunal.load(PUSHED, shape)?;
            tribunal.load(PUSHED, &Shape { workload: Workload::Hot, ..shape.clone() })?;
            tribunal.pushed = Rc::new(RefCell::new(rows));
        }
        if stores.contains(&LOG_ONLY) {
            tribunal.declare(LOG_ONLY)?;
            let rows = tribunal.load(LOG_ONLY, shape)?;
            tribunal.log_only = Rc::new(RefCell::new(rows));
        }
        Ok(tribunal)
    }

    /// Returns the process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Connects one client of so many slots.
    ///
    /// # Errors
    /// If nobody listens.
    pub fn client(&self, kind: Kind, shape: &Shape, slots: usize, seed: u64) -> Result<Client, BenchError> {
        let stream = TcpStream::connect(self.process.addr()).map_err(BenchError::io("connect to tribunal"))?;
        let (store, rows) = match kind {
            Kind::OwnRows | Kind::Gathered | Kind::HttpReads => (PUSHED, &self.pushed),
            Kind::Batches => (LOG_ONLY, &self.log_only),
        };
        // The peers' values have no quotes.
        let quoted = Shape { value_bytes: shape.value_bytes + 2, ..shape.clone() };
        let post = Post {
            host: self.process.addr().to_string(),
            bodies: BodyWriter::new(&quoted, store),
            rows: Rc::clone(rows),
            rng: SmallRng::seed_from_u64(seed),
            body: Vec::new(),
        };
        let session: Box<dyn Session> = match kind {
            Kind::OwnRows | Kind::HttpReads => {
                let reads_over_http = kind == Kind::HttpReads;
                Box::new(Single { post, reads_over_http, plan: Plan::default(), seen: Seen::default(), reading: false })
            }
            Kind::Batches | Kind::Gathered => {
                Box::new(Batches { post, slots, gathering: Vec::new(), under_way: Vec::new() })
            }
        };
        Ok(Client { stream, session, slots })
    }

    /// Returns what an engine knows of the rows of the store with the embedded storage.
    #[must_use]
    pub fn known_rows(&self) -> &RefCell<RowModel> {
        &self.pushed
    }

    /// Waits until the store has applied what is committed, and tells how long that took.
    ///
    /// # Errors
    /// If it does not.
    pub fn lag(&self, kind: Kind) -> Result<Option<Lag>, BenchError> {
        if kind == Kind::Batches {
            return Ok(None);
        }
        lag::measure(self.process.addr(), PUSHED).map(Some)
    }

    fn wait_ready(&self) -> Result<(), BenchError> {
        let mut rpc = Rpc::connect(self.process.addr())?;
        for _ in 0..600 {
            if rpc.get("/readyz")?.0 == 200 && rpc.get("/v1/snapshot?store=kv")?.0 == 200 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(BenchError::TooLate("tribunal does not become ready".to_owned()))
    }

    fn declare(&self, store: &str) -> Result<(), BenchError> {
        let host = self.process.addr();
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
        common.addr = self.process.addr();
        common.shape = Shape { value_bytes: shape.value_bytes + 2, ..shape.clone() };
        let mut traffic = TxnTraffic::new(&common, &self.process.addr().to_string());
        let long = Duration::from_secs(600);
        engine::run(&mut Preload::new(&mut traffic, &common), common.addr, 4, Pacing::Closed, long)?;
        let counts = traffic.take_counts();
        if counts.attempted == 0 || counts.committed < counts.attempted {
            let answer = format!("{} of {} transactions committed: {counts:?}", counts.committed, counts.attempted);
            return Err(BenchError::Refused { what: "the rows".to_owned(), answer });
        }
        if store == PUSHED {
            lag::measure(common.addr, store)?;
        }
        Ok(traffic.into_model())
    }
}

/// What every kind posts, and what it learns.
struct Post {
    host: String,
    bodies: BodyWriter,
    rows: Rc<RefCell<RowModel>>,
    rng: SmallRng,
    body: Vec<u8>,
}

impl Post {
    fn commit(&mut self, plan: &Plan, seen: &impl Versions, out: &mut Vec<u8>) {
        self.body.clear();
        self.bodies.commit(&mut self.body, None, plan, seen, &mut self.rng);
        let mut text = [0; 36];
        let id = mint_id(unix_ms(), &mut self.rng, &mut text);
        write_post(out, &self.host, &["/v1/txns/", id, "/commit"], &self.body);
    }

    fn learn(&mut self, plan: &Plan, decided: Decision<'_>) -> Result<Outcome, BenchError> {
        match decided {
            Decision::Committed { version, epoch } => {
                let written: Vec<(Row, i64)> = plan.writes.iter().map(|(row, _)| (*row, 0)).collect();
                let mut rows = self.rows.borrow_mut();
                if !self.bodies.counts() {
                    rows.committed(epoch.unwrap_or(0), version.unwrap_or(0), &written);
                }
                Ok(Outcome::Committed)
            }
            Decision::Aborted { reason, object } => {
                let mut rows = self.rows.borrow_mut();
                for (key, version) in conflicts(object) {
                    if let Some(row) = self.bodies.row_of(key) {
                        rows.conflicting(row, version);
                    }
                }
                Ok(Outcome::Aborted(reason_of(reason)))
            }
            Decision::Problem { code } => {
                Err(BenchError::Refused { what: "a transaction".to_owned(), answer: code.to_owned() })
            }
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Versions that one transaction has read over HTTP.
#[derive(Default)]
struct Seen(Vec<(Row, Option<u64>)>);

impl Versions for Seen {
    fn version(&self, row: Row) -> Option<u64> {
        self.0.iter().find(|seen| seen.0 == row)?.1
    }

    fn last_epoch(&self) -> u64 {
        0
    }
}

struct Single {
    post: Post,
    reads_over_http: bool,
    plan: Plan,
    seen: Seen,
    /// The reply to the read is still to come.
    reading: bool,
}

impl Single {
    fn commit(&mut self, out: &mut Vec<u8>) {
        if self.reads_over_http {
            self.post.commit(&self.plan, &self.seen, out);
        } else {
            let rows = Rc::clone(&self.post.rows);
            self.post.commit(&self.plan, &*rows.borrow(), out);
        }
    }

    fn read(&mut self, status: u16, body: &[u8]) -> Result<(), BenchError> {
        if status != 200 {
            let answer = format!("{status} {}", String::from_utf8_lossy(body));
            return Err(BenchError::Refused { what: "the rows".to_owned(), answer });
        }
        let versions = items(body).map(|row| number(row, b"\"version\":\""));
        self.seen.0.extend(self.plan.reads.iter().copied().zip(versions));
        if self.seen.0.len() < self.plan.reads.len() {
            return Err(BenchError::Reply("fewer rows than were asked for"));
        }
        self.reading = false;
        Ok(())
    }
}

impl Session for Single {
    fn begin(&mut self, _slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plan = plan;
        self.seen.0.clear();
        if !self.reads_over_http || self.plan.reads.is_empty() {
            return self.commit(out);
        }
        self.reading = true;
        self.post.body.clear();
        self.post.body.extend_from_slice(b"{\"read\":[");
        for (index, row) in self.plan.reads.iter().enumerate() {
            let comma: &[u8] = if index == 0 { b"{\"key\":\"" } else { b",{\"key\":\"" };
            self.post.body.extend_from_slice(comma);
            self.post.body.extend_from_slice(&key::row(*row));
            self.post.body.extend_from_slice(b"\"}");
        }
        self.post.body.extend_from_slice(b"]}");
        write_post(out, &self.post.host, &["/v1/stores/", PUSHED, "/rows/read"], &self.post.body);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let mut used = 0;
        while let Some(head) = read_head(&bytes[used..])?
            && bytes.len() >= used + head.head_len + head.body_len
        {
            let body = &bytes[used + head.head_len..][..head.body_len];
            used += head.head_len + head.body_len;
            if !self.reading {
                done.push((0, self.post.learn(&self.plan, decision(body))?));
                break;
            }
            self.read(head.status, body)?;
            if self.plan.writes.is_empty() {
                // The rows are as of one epoch: there is nothing left to decide.
                done.push((0, Outcome::Committed));
                break;
            }
            self.commit(out);
        }
        Ok(used)
    }
}

/// Posts what all slots have ready, and waits for the answer.
struct Batches {
    post: Post,
    slots: usize,
    gathering: Vec<(usize, Plan)>,
    under_way: Vec<(usize, Plan)>,
}

impl Session for Batches {
    fn begin(&mut self, slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.gathering.push((slot, plan));
        if self.gathering.len() < self.slots {
            return;
        }
        let (rows, now) = (Rc::clone(&self.post.rows), unix_ms());
        let (rows, post) = (rows.borrow(), &mut self.post);
        post.body.clear();
        post.body.extend_from_slice(b"{\"txns\":[");
        for (index, (_, plan)) in self.gathering.iter().enumerate() {
            if index > 0 {
                post.body.push(b',');
            }
            let mut text = [0; 36];
            let id = mint_id(now, &mut post.rng, &mut text);
            post.bodies.commit(&mut post.body, Some(id), plan, &*rows, &mut post.rng);
        }
        post.body.extend_from_slice(b"]}");
        write_post(out, &post.host, &["/v1/txns/batch-commit"], &post.body);
        std::mem::swap(&mut self.gathering, &mut self.under_way);
        self.gathering.clear();
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        _out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let Some(head) = read_head(bytes)? else { return Ok(0) };
        let used = head.head_len + head.body_len;
        if bytes.len() < used {
            return Ok(0);
        }
        let mut answers = items(&bytes[head.head_len..used]);
        for (slot, plan) in std::mem::take(&mut self.under_way) {
            let answer = answers.next().ok_or(BenchError::Reply("a batch short of answers"))?;
            done.push((slot, self.post.learn(&plan, decision(answer))?));
        }
        Ok(used)
    }
}
