//! Runs measurements: warm-up, CPU clocks around the measured part, and the order of turns in a comparison.

use std::time::Duration;

use crate::engine::{self, Pacing};
use crate::error::BenchError;
use crate::lag;
use crate::machine::own_cpu;
use crate::options::{Axis, Common, Workload};
use crate::report::{CpuUsed, Percentiles, Report};
use crate::server::Server;
use crate::traffic::{Mode, Preload, TxnTraffic};
use crate::workload::{OPENING_BALANCE, row_count};

/// A server with its rows in place, and a client that knows their versions.
#[derive(Debug)]
pub struct Bench {
    common: Common,
    server: Server,
    traffic: TxnTraffic,
}

impl Bench {
    /// Reaches the server and writes the rows.
    ///
    /// # Errors
    /// If the flags are contradictory, there is no server, or it does not take the rows.
    pub fn prepare(common: &Common) -> Result<Bench, BenchError> {
        common.check()?;
        let server = Server::reach(common)?;
        let traffic = TxnTraffic::new(common, &server.addr().to_string());
        let mut bench = Bench { common: common.clone(), server, traffic };
        if !common.no_preload {
            bench.preload()?;
        }
        Ok(bench)
    }

    /// Writes every row again and forgets what was known.
    ///
    /// # Errors
    /// If the server does not take a row.
    pub fn preload(&mut self) -> Result<(), BenchError> {
        let long = Duration::from_secs(600);
        self.traffic = TxnTraffic::new(&self.common, &self.server.addr().to_string());
        let mut preload = Preload::new(&mut self.traffic, &self.common);
        engine::run(&mut preload, self.server.addr(), 4, Pacing::Closed, long)?;
        let counts = self.traffic.take_counts();
        if counts.committed < counts.attempted || counts.attempted == 0 {
            let answer = format!("{} of {} transactions committed: {counts:?}", counts.committed, counts.attempted);
            return Err(BenchError::Refused { what: "the preload".to_owned(), answer });
        }
        // What the preload left to push is not part of what is measured.
        lag::measure(self.server.addr(), &self.common.store).map(|_| ())
    }

    /// Measures one mode for `seconds`, without a warm-up.
    ///
    /// # Errors
    /// If the traffic breaks off.
    pub fn turn(&mut self, mode: Mode, measured: Duration) -> Result<Report, BenchError> {
        let batch = if mode == Mode::Batch { self.common.batch } else { 1 };
        self.traffic.post_as(mode, batch);
        self.traffic.take_counts();
        let pacing = self.common.rate.map_or(Pacing::Closed, |per_second| Pacing::Open { per_second });
        let (client, server) = (own_cpu(), self.server.cpu());
        let ran = engine::run(&mut self.traffic, self.server.addr(), self.common.connections, pacing, measured)?;
        let cpu = CpuUsed {
            client: own_cpu() - client,
            server: server.zip(self.server.cpu()).map(|(before, after)| after.saturating_sub(before)),
        };
        let report = Report {
            mode,
            workload: self.common.describe(),
            txns_per_request: batch,
            seconds: 0.0,
            counts: self.traffic.take_counts(),
            attempted_per_s: 0.0,
            committed_per_s: 0.0,
            latency_us: Percentiles::of(&ran.latency_us),
            unsent: ran.unsent,
            client_cpu_us: 0.0,
            server_cpu_us: None,
            push_lag: None,
        };
        Ok(report.with_rates(ran.elapsed, cpu))
    }

    /// Measures one mode after its warm-up, and the lag behind it.
    ///
    /// # Errors
    /// If the traffic breaks off, or money has appeared or vanished.
    pub fn measure(&mut self, mode: Mode) -> Result<Report, BenchError> {
        if self.common.warmup > 0.0 {
            self.turn(mode, Duration::from_secs_f64(self.common.warmup))?;
        }
        let mut report = self.turn(mode, self.common.measured())?;
        if mode != Mode::Constant {
            report.push_lag = Some(lag::measure(self.server.addr(), &self.common.store)?);
            self.check_money()?;
        }
        Ok(report)
    }

    fn check_money(&self) -> Result<(), BenchError> {
        let expected = OPENING_BALANCE * i64::try_from(row_count(&self.common)).unwrap_or(i64::MAX);
        if self.common.workload == Workload::Bank && self.traffic.model().total() != expected {
            return Err(BenchError::Reply("the balances of all commits no longer add up"));
        }
        Ok(())
    }

    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the traffic.
    pub fn traffic(&mut self) -> &mut TxnTraffic {
        &mut self.traffic
    }
}

/// Turns of both kinds, one after the other, so that a change of the machine's mood hits both.
#[derive(Debug)]
pub struct Comparison {
    /// The yardstick's turns.
    pub constant: Vec<Report>,
    /// The commits' turns.
    pub commit: Vec<Report>,
    /// Median of attempted commits a second over the median of the yardstick's.
    pub ratio: f64,
}

/// Measures `constant` and `commit` in turns.
///
/// # Errors
/// If the traffic breaks off.
pub fn compare(common: &Common, rounds: usize) -> Result<Comparison, BenchError> {
    let mut bench = Bench::prepare(common)?;
    let warmup = Duration::from_secs_f64(common.warmup.max(0.1));
    bench.turn(Mode::Constant, warmup)?;
    bench.turn(Mode::Commit, warmup)?;
    let (mut constant, mut commit) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        constant.push(bench.turn(Mode::Constant, common.measured())?);
        let mut turn = bench.turn(Mode::Commit, common.measured())?;
        turn.push_lag = Some(lag::measure(bench.server().addr(), &common.store)?);
        commit.push(turn);
    }
    let ratio = median(&commit, |turn| turn.attempted_per_s) / median(&constant, |turn| turn.attempted_per_s);
    Ok(Comparison { constant, commit, ratio })
}

/// Returns the median of one figure of several turns.
///
/// # Panics
/// If there is no turn.
pub fn median(turns: &[Report], figure: impl Fn(&Report) -> f64) -> f64 {
    let mut figures: Vec<_> = turns.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures each value along an axis.
///
/// # Errors
/// If a value makes no sense or the traffic breaks off.
pub fn sweep(common: &Common, axis: Axis, values: &[usize]) -> Result<Vec<(usize, Report)>, BenchError> {
    let mode = if axis == Axis::Batch { Mode::Batch } else { Mode::Commit };
    let mut reports = Vec::new();
    for value in values {
        let mut step = common.clone();
        match axis {
            Axis::Connections => step.connections = *value,
            Axis::Ops => (step.reads, step.writes) = (*value, *value),
            Axis::Rows => step.rows = *value,
            Axis::Batch => step.batch = *value,
        }
        reports.push((*value, Bench::prepare(&step)?.measure(mode)?));
    }
    Ok(reports)
}
