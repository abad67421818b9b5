//! Runs measurements: warm-up, CPU clocks around the measured part, and the order of turns in a comparison.

use std::time::Duration;

use serde::Serialize;

use crate::collector::{Collector, Spans};
use crate::engine::{self, Pacing};
use crate::error::BenchError;
use crate::lag;
use crate::machine::own_cpu;
use crate::options::{Common, TelemetryFlags, Workload};
use crate::report::{CpuUsed, Percentiles, Report};
use crate::server::Server;
use crate::traffic::{Mode, Preload, TxnTraffic};
use crate::workload::{OPENING_BALANCE, row_count};

/// A loaded server, and a client that knows its rows' versions.
#[derive(Debug)]
pub struct Bench {
    common: Common,
    server: Server,
    traffic: TxnTraffic,
}

impl Bench {
    /// Connects to the server and writes the rows.
    ///
    /// # Errors
    /// If the flags are contradictory, there is no server, or it does not accept the rows.
    pub fn prepare(common: &Common) -> Result<Bench, BenchError> {
        common.check()?;
        let server = Server::reach(common)?;
        if let Some(rule) = &common.rule {
            server.activate_rule(rule, common.spawn.as_deref())?;
        }
        if common.declare {
            server.declare(&common.store)?;
        }
        let traffic = TxnTraffic::new(common, server.host());
        let mut bench = Bench { common: common.clone(), server, traffic };
        if !common.no_preload {
            bench.preload()?;
        }
        Ok(bench)
    }

    /// Writes every row again and drops all knowledge.
    ///
    /// # Errors
    /// If the server does not accept a row.
    pub fn preload(&mut self) -> Result<(), BenchError> {
        let long = Duration::from_secs(600);
        self.traffic = TxnTraffic::new(&self.common, self.server.host());
        let mut preload = Preload::new(&mut self.traffic, &self.common);
        engine::run(&mut preload, self.server.addr(), 4, Pacing::Closed, long)?;
        let counts = self.traffic.take_counts();
        if counts.committed < counts.attempted || counts.attempted == 0 {
            let answer = format!("{} of {} transactions committed: {counts:?}", counts.committed, counts.attempted);
            return Err(BenchError::Refused { what: "the preload".to_owned(), answer });
        }
        // The push of the preloaded rows is not part of the measurement.
        lag::measure(self.server.rpc()?, &self.common.store).map(|_| ())
    }

    /// Continues with other flags if they only change the requests: the same server with the same rows.
    ///
    /// # Errors
    /// If the flags are contradictory.
    pub fn reshaped(mut self, common: &Common) -> Result<Option<Bench>, BenchError> {
        common.check()?;
        let rows = |flags: &Common| (flags.shape.workload, flags.shape.rows, flags.shape.hot_rows, flags.store.clone());
        if rows(common) != rows(&self.common)
            || common.serve_arg != self.common.serve_arg
            || common.rule != self.common.rule
        {
            return Ok(None);
        }
        self.traffic.reshape(common);
        self.common = common.clone();
        Ok(Some(self))
    }

    /// Measures one mode for `seconds`, without a warm-up.
    ///
    /// # Errors
    /// If the traffic fails.
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

    /// Measures one mode after its warm-up, and the lag after it.
    ///
    /// # Errors
    /// If the traffic fails, or money has appeared or vanished.
    pub fn measure(&mut self, mode: Mode) -> Result<Report, BenchError> {
        self.warm_up(mode)?;
        if mode == Mode::Constant {
            return self.turn(mode, self.common.measured());
        }
        let report = self.turn_and_lag(mode)?;
        self.check_money()?;
        Ok(report)
    }

    fn warm_up(&mut self, mode: Mode) -> Result<(), BenchError> {
        if self.common.warmup > 0.0 {
            self.turn(mode, Duration::from_secs_f64(self.common.warmup))?;
        }
        Ok(())
    }

    /// Measures one mode without a warm-up, and the lag after it.
    ///
    /// # Errors
    /// If the traffic fails, or the server does not return its watermarks.
    pub fn turn_and_lag(&mut self, mode: Mode) -> Result<Report, BenchError> {
        let mut report = self.turn(mode, self.common.measured())?;
        report.push_lag = Some(lag::measure(self.server.rpc()?, &self.common.store)?);
        Ok(report)
    }

    fn check_money(&self) -> Result<(), BenchError> {
        let expected = OPENING_BALANCE * i64::try_from(row_count(&self.common.shape)).unwrap_or(i64::MAX);
        if self.common.shape.workload == Workload::Bank && self.traffic.model().total() != expected {
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

/// Alternating turns of two kinds, so that changes of the machine's state affect both.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Turns of the baseline.
    pub baseline: Vec<Report>,
    /// Turns of the alternative.
    pub measured: Vec<Report>,
    /// Ratio of the median attempted transactions per second to the baseline's.
    pub rate_ratio: f64,
    /// Ratio of the server's median CPU time per transaction to the baseline's.
    pub cpu_ratio: Option<f64>,
}

impl Comparison {
    fn of(baseline: Vec<Report>, measured: Vec<Report>) -> Comparison {
        let rate = |report: &Report| report.attempted_per_s;
        let cpu = |report: &Report| report.server_cpu_us.unwrap_or(f64::NAN);
        let cpu_ratio = median(&measured, cpu) / median(&baseline, cpu);
        Comparison {
            rate_ratio: median(&measured, rate) / median(&baseline, rate),
            cpu_ratio: Some(cpu_ratio).filter(|ratio| ratio.is_finite()),
            baseline,
            measured,
        }
    }

    /// Returns all turns and the ratios as lines of text.
    #[must_use]
    pub fn text(&self, measured: &str, baseline: &str) -> String {
        let turns = self.baseline.iter().zip(&self.measured).flat_map(|(one, other)| [one, other]);
        let mut text: String = turns.map(Report::text).collect();
        let rate = |report: &Report| report.attempted_per_s;
        text += &format!(
            "medians of {} turns each: {measured} {:.0}/s, {baseline} {:.0}/s: {:.1} %",
            self.measured.len(),
            median(&self.measured, rate),
            median(&self.baseline, rate),
            self.rate_ratio * 100.0
        );
        if let Some(ratio) = self.cpu_ratio {
            text += &format!("; server CPU a transaction {:.1} %", ratio * 100.0);
        }
        text + "\n"
    }
}

/// Measures commits against `constant`, alternating on one server.
///
/// # Errors
/// If the traffic fails.
pub fn against_constant(common: &Common, rounds: usize) -> Result<Comparison, BenchError> {
    let mut bench = Bench::prepare(common)?;
    bench.warm_up(Mode::Constant)?;
    bench.warm_up(Mode::Commit)?;
    let (mut constant, mut commit) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        constant.push(bench.turn(Mode::Constant, common.measured())?);
        commit.push(bench.turn_and_lag(Mode::Commit)?);
    }
    Ok(Comparison::of(constant, commit))
}

/// Measures a server with Wasm policies against one with native policies, alternately.
///
/// # Errors
/// If no server may be spawned, or the traffic fails.
pub fn against_native(common: &Common, rounds: usize, mode: Mode) -> Result<Comparison, BenchError> {
    let with = |host: &str| {
        let mut flags = common.clone();
        flags.serve_arg.extend(["--plugins".to_owned(), host.to_owned()]);
        flags
    };
    two_servers([&with("native"), &with("wasm")], rounds, mode)
}

/// Measures a server that sends traces and metrics to a collector against one that does not, alternately. The collector
/// runs on the same machine, and its resources are not available to the server: that is part of the price.
///
/// # Errors
/// If no server may be spawned, the collector does not start, or the traffic fails.
pub fn against_untraced(
    common: &Common,
    rounds: usize,
    mode: Mode,
    telemetry: &TelemetryFlags,
) -> Result<(Comparison, Spans), BenchError> {
    let collector = Collector::start(&telemetry.collector, &common.data_dir)?;
    let with = |variables: Vec<(&str, String)>| {
        let mut flags = common.clone();
        flags.serve_env.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        flags
    };
    let mut on = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())];
    on.extend(telemetry.sampler.clone().map(|sampler| ("OTEL_TRACES_SAMPLER", sampler)));
    let flags = [with(vec![("OTEL_SDK_DISABLED", "true".to_owned())]), with(on)];
    let mut spans = Spans::default();
    let look = |bench: &Bench| {
        spans = Spans::of(bench.server.addr())?;
        Ok(())
    };
    let compared = two_servers_then([&flags[0], &flags[1]], rounds, mode, look)?;
    if spans.sent == 0.0 {
        return Err(BenchError::Reply("the server sent no spans, so this measures nothing"));
    }
    Ok((compared, spans))
}

/// Measures two servers alternately, the baseline first.
fn two_servers(flags: [&Common; 2], rounds: usize, mode: Mode) -> Result<Comparison, BenchError> {
    two_servers_then(flags, rounds, mode, |_| Ok(()))
}

fn two_servers_then(
    flags: [&Common; 2],
    rounds: usize,
    mode: Mode,
    look: impl FnOnce(&Bench) -> Result<(), BenchError>,
) -> Result<Comparison, BenchError> {
    if flags[0].spawn.is_none() {
        return Err(BenchError::Usage("two servers are compared: name their binary by --spawn".to_owned()));
    }
    let prepare = |flags: &Common| {
        let mut bench = Bench::prepare(flags)?;
        bench.warm_up(mode)?;
        Ok::<_, BenchError>(bench)
    };
    let (mut baseline, mut measured) = (prepare(flags[0])?, prepare(flags[1])?);
    let (mut baseline_turns, mut measured_turns) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        baseline_turns.push(baseline.turn_and_lag(mode)?);
        measured_turns.push(measured.turn_and_lag(mode)?);
    }
    look(&measured)?;
    Ok(Comparison::of(baseline_turns, measured_turns))
}

/// Returns the median of a figure over several turns.
///
/// # Panics
/// If there are no turns.
pub fn median(turns: &[Report], figure: impl Fn(&Report) -> f64) -> f64 {
    let mut figures: Vec<_> = turns.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
