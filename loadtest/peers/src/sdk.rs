//! Tribunal through its Rust client, as the author of an engine would first write it: default options, one task per
//! session, one transaction at a time in each, all on one thread.
//!
//! `OwnRows`: the engine knows its rows and their versions, from its own commits and from conflicts. `HttpReads`: it
//! knows nothing; Begin reads the transaction's rows, and a read-only transaction is one read of all of them, at one
//! epoch. With `streams`, all sessions commit over one stream.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tribunal_bench::error::BenchError;
use tribunal_bench::key::Row;
use tribunal_bench::machine::own_cpu;
use tribunal_bench::model::{RowModel, Versions as _};
use tribunal_bench::options::Shape;
use tribunal_bench::plan::{Change, Plan};
use tribunal_bench::workload::Planner;
use tribunal_client::api::IsolationLevel;
use tribunal_client::{
    BeginOptions, Client, CommitStream, Epoch, Error, KeyRange, Outcome, RowRead, Transaction, Version,
};

use crate::engine::{Ran, Window};
use crate::key::{self, Key};
use crate::session;

/// Location of the rows to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// In the engine.
    OwnRows,
    /// From the embedded store.
    Http,
}

/// State shared by all sessions of a turn.
struct Turn<'a> {
    client: Client,
    store: &'a str,
    reads: Reads,
    stream: Option<CommitStream>,
    shape: &'a Shape,
    rows: &'a RefCell<RowModel>,
    planner: RefCell<&'a mut Planner>,
    rng: RefCell<SmallRng>,
    ran: RefCell<Ran>,
    is_over: Cell<bool>,
}

/// The sessions of a turn.
pub struct Sessions<'a> {
    /// The service.
    pub addr: SocketAddr,
    /// Their store.
    pub store: &'a str,
    /// Location of their reads.
    pub reads: Reads,
    /// Whether they commit over one stream.
    pub streams: bool,
    /// Their transactions.
    pub shape: &'a Shape,
    /// The engine's knowledge of the rows.
    pub rows: &'a RefCell<RowModel>,
    /// Number of sessions.
    pub count: usize,
    /// Seed of the values.
    pub seed: u64,
}

/// Runs one turn; `server_cpu` returns the service's CPU time so far.
///
/// # Errors
/// If a request fails.
pub fn run(
    sessions: &Sessions<'_>,
    planner: &mut Planner,
    window: Window,
    server_cpu: &dyn Fn() -> Duration,
) -> Result<Ran, BenchError> {
    let client = Client::new(&format!("http://{}", sessions.addr)).map_err(refused)?;
    let turn = Turn {
        stream: sessions.streams.then(|| client.commit_stream()),
        client,
        store: sessions.store,
        reads: sessions.reads,
        shape: sessions.shape,
        rows: sessions.rows,
        planner: RefCell::new(planner),
        rng: RefCell::new(SmallRng::seed_from_u64(sessions.seed)),
        ran: RefCell::new(Ran::nothing()),
        is_over: Cell::new(false),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::io("start the client's runtime"))?;
    runtime.block_on(async {
        let timing = async {
            tokio::time::sleep(window.warmup).await;
            *turn.ran.borrow_mut() = Ran::nothing();
            let (start, client, server) = (Instant::now(), own_cpu(), server_cpu());
            tokio::time::sleep(window.measured).await;
            let mut measured = turn.ran.replace(Ran::nothing());
            (measured.elapsed, measured.client_cpu) = (start.elapsed(), own_cpu() - client);
            measured.server_cpu = server_cpu().saturating_sub(server);
            turn.is_over.set(true);
            Ok(measured)
        };
        let all = try_join_all((0..sessions.count).map(|_| turn.session()));
        let (measured, _) = tokio::try_join!(timing, all)?;
        Ok(measured)
    })
}

impl Turn<'_> {
    /// Runs one session: transactions, one after another, until the turn is over.
    async fn session(&self) -> Result<(), BenchError> {
        while !self.is_over.get() {
            let plan = self.planner.borrow_mut().next(&self.rows.borrow());
            let began = Instant::now();
            let outcome = self.transaction(&plan).await.map_err(refused)?;
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.planner.borrow_mut().end(&plan);
            self.ran.borrow_mut().count(us, outcome);
            // Process all available replies before the next transactions begin, as the other clients do.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn transaction(&self, plan: &Plan) -> Result<session::Outcome, Error> {
        match self.reads {
            Reads::OwnRows => self.on_own_rows(plan).await,
            Reads::Http => self.on_read_rows(plan).await,
        }
    }

    async fn on_own_rows(&self, plan: &Plan) -> Result<session::Outcome, Error> {
        let mut txn = self.client.begin_local(IsolationLevel::Serializable);
        for row in &plan.reads {
            let version = self.rows.borrow().version(*row).and_then(Version::from_bits);
            txn.observe(self.store, key::row(*row), version);
        }
        for scan in &plan.scans {
            let end = self.rows.borrow().last_of(*scan).map_or(Vec::new(), |last| key::after(&key::row(last)));
            txn.observe_range(self.store, key::row(scan.start), end);
        }
        self.write(&mut txn, plan)?;
        if !plan.scans.is_empty() {
            txn.set_snapshot(self.store, Epoch(self.rows.borrow().scanned_at()));
        }
        let posted = self.rows.borrow_mut().posted();
        let outcome = match &self.stream {
            Some(stream) => stream.commit(&txn.prepare()).await?,
            None => txn.commit().await?,
        };
        let ended = self.learn(plan, &outcome);
        self.rows.borrow_mut().answered(posted);
        Ok(ended)
    }

    async fn on_read_rows(&self, plan: &Plan) -> Result<session::Outcome, Error> {
        let keys: Vec<Key> = plan.reads.iter().map(|row| key::row(*row)).collect();
        let ranges = plan.scans.iter().map(|scan| KeyRange::new(key::row(scan.start), [], scan.count as usize));
        let ranges: Vec<KeyRange> = ranges.collect();
        if plan.writes.is_empty() && (ranges.is_empty() || keys.is_empty()) {
            if ranges.is_empty() {
                let rows: Vec<RowRead<'_>> = keys.iter().map(|key| RowRead { key, known: None }).collect();
                self.client.read_rows(self.store, &rows).await?;
            } else {
                self.client.read_ranges(self.store, &ranges).await?;
            }
            return Ok(session::Outcome::Committed);
        }
        let mut options = BeginOptions::stores([self.store]).read(self.store, &keys);
        options.ranges = ranges.iter().map(|range| (self.store.to_owned(), range.clone())).collect();
        let mut txn = self.client.begin(options).await?;
        for key in &keys {
            txn.get(self.store, key).await?;
        }
        for range in &ranges {
            txn.scan(self.store, &range.start, &range.end, range.limit).await?;
        }
        self.write(&mut txn, plan)?;
        let outcome = match &self.stream {
            Some(stream) => stream.commit(&txn.prepare()).await?,
            None => txn.commit().await?,
        };
        Ok(self.learn(plan, &outcome))
    }

    fn write(&self, txn: &mut Transaction, plan: &Plan) -> Result<(), Error> {
        let mut value = Vec::with_capacity(self.shape.value_bytes);
        for (row, change) in &plan.writes {
            if *change == Change::AddOne {
                txn.add(self.store, key::hot(*row), 1)?;
                continue;
            }
            value.clear();
            key::text(&mut value, self.shape.value_bytes, &mut *self.rng.borrow_mut());
            let value = str::from_utf8(&value).expect("letters and digits");
            match change {
                Change::Insert => txn.insert(self.store, key::row(*row), &value)?,
                _ => txn.put(self.store, key::row(*row), &value)?,
            }
        }
        Ok(())
    }

    /// Records a verdict's information on the rows.
    fn learn(&self, plan: &Plan, outcome: &Outcome) -> session::Outcome {
        let mut rows = self.rows.borrow_mut();
        match outcome {
            Outcome::Committed(committed) => {
                let written = plan.writes.iter().filter(|(_, change)| *change != Change::AddOne);
                let written: Vec<(Row, i64)> = written.map(|(row, _)| (*row, 0)).collect();
                rows.committed(committed.epoch.0, committed.version.map_or(0, Version::bits), &written);
                session::Outcome::Committed
            }
            Outcome::Aborted(aborted) => {
                rows.reached(aborted.epoch.0.saturating_sub(1));
                // The key of a range is its start, and the version is another row's.
                for conflict in aborted.conflicts.iter().filter(|conflict| conflict.op != "range") {
                    if let (Some(row), Some(version)) = (key::number(&conflict.key), conflict.current_version) {
                        rows.conflicting(row, version.bits());
                    }
                }
                session::Outcome::Aborted(session::reason_of(&aborted.reason))
            }
        }
    }
}

fn refused(error: Error) -> BenchError {
    BenchError::Refused { what: "a request of the Rust client".to_owned(), answer: error.to_string() }
}
