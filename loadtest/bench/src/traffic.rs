//! Converts plans to requests, and replies to counts and knowledge: the two directions of the client model.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::body::{BodyWriter, mint_id};
use crate::engine::Traffic;
use crate::key;
use crate::key::Row;
use crate::model::RowModel;
use crate::options::{Common, Workload};
use crate::plan::{Change, Plan};
use crate::reply::{Decision, conflicts, decision, ended_before, items};
use crate::wire::write_post;
use crate::workload::{OPENING_BALANCE, Planner, row_count};

/// Rows per preloading transaction.
const PRELOAD_ROWS_PER_TXN: Row = 250;
/// Transactions per preloading request.
const PRELOAD_TXNS_PER_REQUEST: Row = 20;

/// The way of posting transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One per request, to the commit route.
    Commit,
    /// The same bodies, to the route that returns a constant.
    Constant,
    /// Several per request.
    Batch,
}

/// Outcomes of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Answered transactions, committed or not.
    pub attempted: u64,
    /// Committed ones.
    pub committed: u64,
    /// Aborted ones by reason.
    pub aborted: BTreeMap<String, u64>,
    /// Transactions without a decision by the problem's code.
    pub problems: BTreeMap<String, u64>,
    /// Answered transactions that were held back before they were posted.
    pub long_attempted: u64,
    /// Committed transactions among these.
    pub long_committed: u64,
}

impl Counts {
    fn note(by_name: &mut BTreeMap<String, u64>, name: &str, count: u64) {
        match by_name.get_mut(name) {
            Some(sum) => *sum += count,
            None => drop(by_name.insert(name.to_owned(), count)),
        }
    }
}

/// A transaction in flight: the contents of its rows if it commits.
pub type Pending = Vec<(Row, i64)>;

/// The measured traffic.
#[derive(Debug)]
pub struct TxnTraffic {
    mode: Mode,
    batch: usize,
    host: String,
    bank: bool,
    planner: Planner,
    bodies: BodyWriter,
    model: RowModel,
    body: Vec<u8>,
    counts: Counts,
    long: Long,
    hold: Duration,
}

/// Transactions that are held back.
#[derive(Clone, Copy, Debug)]
struct Long {
    share: f64,
    time: Duration,
}

impl Long {
    fn new(common: &Common) -> Long {
        Long { share: common.long_share, time: Duration::from_millis(common.long_ms) }
    }
}

/// State of a request in flight.
#[derive(Debug)]
pub struct Request {
    /// The transactions' pending writes.
    items: Vec<Pending>,
    /// Whether it was held back.
    long: bool,
    /// The result of [`RowModel::posted`] for it.
    posted: Option<u64>,
}

impl From<Vec<Pending>> for Request {
    fn from(items: Vec<Pending>) -> Request {
        Request { items, long: false, posted: None }
    }
}

impl TxnTraffic {
    /// Creates the traffic for these flags, without knowledge of any row.
    #[must_use]
    pub fn new(common: &Common, host: &str) -> TxnTraffic {
        TxnTraffic {
            mode: Mode::Commit,
            batch: common.batch,
            host: host.to_owned(),
            bank: common.shape.workload == Workload::Bank,
            planner: Planner::new(&common.shape),
            bodies: BodyWriter::new(&common.shape, &common.store),
            model: RowModel::new(row_count(&common.shape), OPENING_BALANCE),
            body: Vec::new(),
            counts: Counts::default(),
            long: Long::new(common),
            hold: Duration::ZERO,
        }
    }

    /// Continues with transactions of other flags on the same rows, retaining the knowledge of them.
    pub fn reshape(&mut self, common: &Common) {
        self.planner = Planner::after(&common.shape, self.planner.inserted());
        self.bodies = BodyWriter::new(&common.shape, &common.store);
        self.batch = common.batch;
        self.long = Long::new(common);
    }

    /// Changes the way of posting transactions from now on.
    pub fn post_as(&mut self, mode: Mode, batch: usize) {
        self.mode = mode;
        self.batch = batch;
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Returns the knowledge of the rows, for another kind of traffic to continue with.
    #[must_use]
    pub fn into_model(self) -> RowModel {
        self.model
    }

    /// Returns the knowledge of the rows.
    #[must_use]
    pub fn model(&self) -> &RowModel {
        &self.model
    }

    fn plan(&mut self, txn_id: Option<&str>) -> Pending {
        let plan = self.planner.next(&self.model);
        self.bodies.commit(&mut self.body, txn_id, &plan, &self.model, self.planner.rng());
        promised(&plan)
    }

    fn learn(&mut self, pending: &Pending, decision: Decision<'_>) {
        self.counts.attempted += 1;
        self.planner.end_inserts(pending.iter().map(|(row, _)| *row).filter(|row| key::is_inserted(*row)));
        match decision {
            Decision::Committed { version, epoch } => {
                self.counts.committed += 1;
                self.model.committed(epoch.unwrap_or(0), version.unwrap_or(0), pending);
            }
            Decision::Aborted { reason, object } => {
                Counts::note(&mut self.counts.aborted, reason, 1);
                self.model.reached(ended_before(object));
                // A version without its balance could create money: the bank waits for the winner's reply.
                if !self.bank {
                    for (key, version) in conflicts(object) {
                        if let Some(row) = self.bodies.row_of(key) {
                            self.model.conflicting(row, version);
                        }
                    }
                }
            }
            Decision::Problem { code } => Counts::note(&mut self.counts.problems, code, 1),
        }
    }
}

fn promised(plan: &Plan) -> Pending {
    let balance = |change: &Change| if let Change::Balance(balance) = change { *balance } else { 0 };
    plan.writes.iter().map(|(row, change)| (*row, balance(change))).collect()
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl Traffic for TxnTraffic {
    type InFlight = Request;

    fn request(&mut self, out: &mut Vec<u8>) -> Option<Request> {
        self.body.clear();
        self.hold = Duration::ZERO;
        let mut text = [0_u8; 36];
        match self.mode {
            Mode::Commit => {
                let pending = self.plan(None);
                let id = mint_id(unix_ms(), self.planner.rng(), &mut text);
                write_post(out, &self.host, &["/v1/txns/", id, "/commit"], &self.body);
                if !self.long.time.is_zero() && self.planner.rng().random_bool(self.long.share) {
                    self.hold = self.long.time;
                }
                let long = !self.hold.is_zero();
                Some(Request { items: vec![pending], long, posted: Some(self.model.posted()) })
            }
            Mode::Constant => {
                let pending = self.plan(None);
                write_post(out, &self.host, &["/v1/debug/constant"], &self.body);
                Some(vec![pending].into())
            }
            Mode::Batch => {
                let now = unix_ms();
                let mut pending = Vec::with_capacity(self.batch);
                self.body.extend_from_slice(b"{\"txns\":[");
                for index in 0..self.batch {
                    if index > 0 {
                        self.body.push(b',');
                    }
                    let id = mint_id(now, self.planner.rng(), &mut text);
                    pending.push(self.plan(Some(id)));
                }
                self.body.extend_from_slice(b"]}");
                write_post(out, &self.host, &["/v1/txns/batch-commit"], &self.body);
                Some(Request { items: pending, long: false, posted: Some(self.model.posted()) })
            }
        }
    }

    fn hold(&mut self) -> Duration {
        self.hold
    }

    fn reply(&mut self, request: Request, status: u16, body: &[u8]) {
        let (before, Request { items: request, long, posted }) = (self.counts.committed, request);
        match self.mode {
            Mode::Constant if status == 200 => self.counts.attempted += 1,
            Mode::Batch if status == 200 => {
                let mut answers = items(body);
                for pending in &request {
                    self.learn(pending, answers.next().map_or(Decision::Problem { code: "missing" }, decision));
                }
            }
            _ => request.iter().for_each(|pending| self.learn(pending, decision(body))),
        }
        if let Some(posted) = posted {
            self.model.answered(posted);
        }
        if long {
            self.counts.long_attempted += 1;
            self.counts.long_committed += self.counts.committed - before;
        }
    }
}

/// Writes every row once, so that each has a version.
#[derive(Debug)]
pub struct Preload<'t> {
    traffic: &'t mut TxnTraffic,
    change: Change,
    next: Row,
    rows: Row,
    rng: SmallRng,
}

impl<'t> Preload<'t> {
    /// Creates the preload of `traffic`'s rows.
    ///
    /// # Panics
    /// If the flags were not checked.
    pub fn new(traffic: &'t mut TxnTraffic, common: &Common) -> Preload<'t> {
        let change = match common.shape.workload {
            Workload::Bank => Change::Balance(OPENING_BALANCE),
            Workload::Hot => Change::Balance(0),
            _ => Change::Text,
        };
        let rows = Row::try_from(row_count(&common.shape)).expect("rows were checked");
        Preload { traffic, change, next: 0, rows, rng: SmallRng::seed_from_u64(common.shape.seed ^ 1) }
    }
}

impl Traffic for Preload<'_> {
    type InFlight = Request;

    fn request(&mut self, out: &mut Vec<u8>) -> Option<Request> {
        if self.next == self.rows {
            return None;
        }
        let (now, mut text) = (unix_ms(), [0_u8; 36]);
        let mut body = b"{\"txns\":[".to_vec();
        let mut pending: Vec<Pending> = Vec::new();
        for index in 0..PRELOAD_TXNS_PER_REQUEST {
            let rows = self.next..self.rows.min(self.next + PRELOAD_ROWS_PER_TXN);
            if rows.is_empty() {
                break;
            }
            if index > 0 {
                body.push(b',');
            }
            self.next = rows.end;
            let id = mint_id(now, &mut self.rng, &mut text);
            self.traffic.bodies.preload(&mut body, id, rows.clone(), self.change, &mut self.rng);
            let balance = if let Change::Balance(balance) = self.change { balance } else { 0 };
            pending.push(rows.map(|row| (row, balance)).collect());
        }
        body.extend_from_slice(b"]}");
        write_post(out, &self.traffic.host, &["/v1/txns/batch-commit"], &body);
        Some(pending.into())
    }

    fn reply(&mut self, request: Request, status: u16, body: &[u8]) {
        self.traffic.post_as(Mode::Batch, self.traffic.batch);
        self.traffic.reply(request, status, body);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::model::Versions as _;
    use crate::options::{Cli, Command};

    fn traffic(flags: &[&str]) -> (TxnTraffic, Common) {
        let args = ["tribunal-bench", "commit"].iter().chain(flags);
        let Command::Commit(common) = Cli::parse_from(args).command else { panic!("commit was asked for") };
        (TxnTraffic::new(&common, "h"), common)
    }

    #[test]
    fn replies_update_versions_and_are_counted() {
        let (mut traffic, _) = traffic(&["--rows", "20"]);
        let committed = br#"{"status":"committed","epoch":"7","version":"70"}"#;
        traffic.reply(vec![vec![(3, 0)]].into(), 200, committed);
        let aborted = br#"{"status":"aborted","reason":"read_conflict","conflicts":[{"key":"row/0000004","current_version":"60"}]}"#;
        traffic.reply(vec![vec![(5, 0)]].into(), 200, aborted);
        traffic.reply(vec![vec![(5, 0)]].into(), 503, br#"{"status":503,"code":"overloaded"}"#);
        let known: Vec<_> = (3..6).map(|row| traffic.model().version(row)).collect();
        assert_eq!(known, [Some(70), Some(60), None]);
        let counts = traffic.take_counts();
        assert_eq!((counts.attempted, counts.committed), (3, 1));
        assert_eq!(counts.aborted, BTreeMap::from([("read_conflict".to_owned(), 1)]));
        assert_eq!(counts.problems, BTreeMap::from([("overloaded".to_owned(), 1)]));
        assert_eq!(traffic.take_counts(), Counts::default());
    }

    #[test]
    fn the_bank_ignores_a_version_without_its_balance() {
        let (mut traffic, _) = traffic(&["--workload", "bank", "--rows", "20"]);
        let aborted = br#"{"status":"aborted","reason":"read_conflict","conflicts":[{"key":"acct/0000004","current_version":"60"}]}"#;
        traffic.reply(vec![vec![(4, 1)]].into(), 200, aborted);
        assert_eq!(traffic.model().version(4), None);
    }

    #[test]
    fn a_batch_with_too_few_results_is_detected() {
        let (mut traffic, _) = traffic(&["--rows", "20"]);
        traffic.post_as(Mode::Batch, 2);
        let mut out = Vec::new();
        let request = traffic.request(&mut out).unwrap();
        assert_eq!(request.items.len(), 2);
        traffic.reply(request, 200, br#"{"results":[{"status":"committed","epoch":"1","version":"9"}]}"#);
        let counts = traffic.take_counts();
        assert_eq!((counts.attempted, counts.committed), (2, 1));
        assert_eq!(counts.problems["missing"], 1);
    }

    #[test]
    fn the_preload_writes_every_row_once() {
        let (mut traffic, common) = traffic(&["--rows", "12345"]);
        let mut preload = Preload::new(&mut traffic, &common);
        let mut rows = Vec::new();
        let mut out = Vec::new();
        while let Some(request) = preload.request(&mut out) {
            rows.extend(request.items.into_iter().flatten().map(|(row, _)| row));
        }
        assert_eq!(rows, (0..12_345).collect::<Vec<_>>());
    }
}
