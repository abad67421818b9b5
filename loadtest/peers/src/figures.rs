//! The document of a run, with its table and charts: medians with their spread, and ratios within the run.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tribunal_bench::chart::{self, Bar, Group, round};
use tribunal_bench::error::BenchError;
use tribunal_bench::machine::Machine;

use crate::contender::Name;
use crate::turns::{Load, Pace, Turn};

/// All turns of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    machine: String,
    pace: Pace,
    rows: usize,
    /// Round-trip time between the nodes of a cluster, milliseconds.
    #[serde(default)]
    rtt_ms: f64,
    loads: Vec<Measured>,
}

/// The turns of one workload.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    name: String,
    describe: String,
    turns: Vec<Turn>,
    /// Contenders that do not run it, and the reasons.
    #[serde(default)]
    left_out: Vec<(Name, String)>,
}

impl Document {
    /// Creates a document without turns.
    #[must_use]
    pub fn new(machine: &Machine, pace: Pace, rows: usize, rtt_ms: f64) -> Document {
        Document { machine: machine.line(), pace, rows, rtt_ms, loads: Vec::new() }
    }

    /// Adds the turns of one workload.
    pub fn take(&mut self, load: &Load, turns: Vec<Turn>, left_out: &[(Name, &str)]) {
        let left_out = left_out.iter().map(|(name, reason)| (*name, (*reason).to_owned())).collect();
        self.loads.push(Measured { name: load.name.to_owned(), describe: load.shape.describe(), turns, left_out });
    }

    /// Writes the document as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(self).expect("figures are JSON");
        std::fs::write(path, text + "\n").map_err(BenchError::io(format!("write {}", path.display())))
    }
}

/// Prints a run as Markdown and draws its charts.
///
/// # Errors
/// If there is no such run, or the charts cannot be written.
pub fn report(from: &Path, charts: &Path) -> Result<(), BenchError> {
    let text = std::fs::read_to_string(from).map_err(BenchError::io(format!("read {}", from.display())))?;
    let document: Document = serde_json::from_str(&text)
        .map_err(|error| BenchError::Usage(format!("{} is no run of tribunal-peers: {error}", from.display())))?;
    for (file, oracles) in [("peers.svg", false), ("peers-oracle.svg", true)] {
        let groups: Vec<_> = document.of(oracles).map(|load| load.group(|turn| turn.committed_per_s)).collect();
        if !groups.is_empty() {
            let title = "Committed transactions a second, medians and spread of turns";
            chart::write(&charts.join(file), &chart::bars(title, "/s", &groups))?;
        }
    }
    print!("{}", document.markdown());
    Ok(())
}

/// Targets: contender, baseline, workload, and the required ratio of their goodputs.
const TARGETS: [(Name, Name, &str, f64); 12] = [
    (Name::Tribunal, Name::Redis, "zipf", 2.0),
    (Name::TribunalGathered, Name::Redis, "zipf", 2.0),
    (Name::Tribunal, Name::Postgres, "zipf", 5.0),
    (Name::TribunalGathered, Name::Postgres, "zipf", 5.0),
    (Name::Tribunal, Name::Etcd, "zipf", 10.0),
    (Name::TribunalGathered, Name::Etcd, "zipf", 10.0),
    (Name::TribunalSdk, Name::Redis, "zipf", 3.0),
    (Name::TribunalSdk, Name::Postgres, "zipf", 12.0),
    (Name::TribunalSdk, Name::Etcd, "zipf", 25.0),
    (Name::TribunalSdkReads, Name::Redis, "zipf", 1.5),
    (Name::TribunalSdkReads, Name::Redis, "ycsb-b", 1.0),
    (Name::TribunalBatch, Name::Omid, "oracle-uniform", 2.0),
];

impl Document {
    fn of(&self, oracles: bool) -> impl Iterator<Item = &Measured> {
        self.loads.iter().filter(move |load| load.name.starts_with("oracle-") == oracles)
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        let Pace { clients, in_flight, oracle_connections, rounds, seconds, warmup } = self.pace;
        let _ = writeln!(
            out,
            "{}. {rounds} turns of {seconds} s each after {warmup} s of warm-up, interleaved; {} rows, keys of 11 \
             (inserted rows: 15) and values of 100 bytes. Figures are medians; in brackets the smallest and the largest turn.\n",
            self.machine, self.rows
        );
        if self.rtt_ms > 0.0 {
            let _ = writeln!(out, "Between nodes of a cluster, a round trip takes {} ms.\n", self.rtt_ms);
        }
        for load in &self.loads {
            let in_flight = if load.name.starts_with("oracle-") {
                format!("{in_flight} transactions in flight on {oracle_connections} connections")
            } else {
                format!("{clients} clients")
            };
            let _ = writeln!(out, "**{}**: {}, {in_flight}\n", load.name, load.describe);
            load.table(&mut out);
        }
        self.targets(&mut out);
        out
    }

    fn targets(&self, out: &mut String) {
        let mut rows = String::new();
        for (ours, theirs, name, goal) in TARGETS {
            let Some(load) = self.loads.iter().find(|load| load.name == name) else { continue };
            let of = |peer: Name, figure: fn(&Turn) -> f64| load.figure(peer, figure).map(|spread| spread.median);
            let rate = of(ours, |turn| turn.committed_per_s).zip(of(theirs, |turn| turn.committed_per_s));
            let Some((us, them)) = rate else { continue };
            let met = |holds: bool| if holds { "met" } else { "**missed**" };
            let compare = |figure: fn(&Turn) -> f64, show: &dyn Fn(f64) -> String| {
                of(ours, figure).zip(of(theirs, figure)).map_or(String::new(), |(us, them)| {
                    format!("{} against {}: {}", show(us), show(them), met(us < them))
                })
            };
            let p99 = compare(|turn| turn.p99_ms, &|ms| format!("{} ms", round(ms)));
            let aborts = compare(|turn| turn.aborted_share, &|share| format!("{:.1} %", 100.0 * share));
            let ratio = us / them.max(f64::MIN_POSITIVE);
            let _ = writeln!(
                rows,
                "| {} | {} | {name} | {ratio:.2} | {goal}: {} | {p99} | {aborts} |",
                ours.label(),
                theirs.label(),
                met(ratio >= goal)
            );
        }
        if !rows.is_empty() {
            out.push_str(
                "| who | against | workload | goodput, times | goal | p99 | aborted |\n|---|---|---|---|---|---|---|\n",
            );
            out.push_str(&rows);
            out.push('\n');
        }
    }
}

#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Option<Spread> {
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        Some(Spread { median: figures[figures.len() / 2], least, most })
    }

    fn text(self) -> String {
        format!("{} ({} to {})", round(self.median), round(self.least), round(self.most))
    }
}

impl Measured {
    /// Returns the contenders with turns, in the order of their names.
    fn peers(&self) -> Vec<Name> {
        let mut peers: Vec<_> = self.turns.iter().map(|turn| turn.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn figure(&self, peer: Name, figure: impl Fn(&Turn) -> f64) -> Option<Spread> {
        Spread::of(self.turns.iter().filter(|turn| turn.peer == peer).map(figure).collect())
    }

    fn group(&self, figure: impl Fn(&Turn) -> f64) -> Group {
        let bar = |peer: Name| {
            let Spread { median, least, most } = self.figure(peer, &figure)?;
            Some(Bar { name: peer.label().to_owned(), median, least, most })
        };
        Group {
            name: format!("{}: {}", self.name, self.describe),
            bars: self.peers().into_iter().filter_map(bar).collect(),
        }
    }

    fn table(&self, out: &mut String) {
        out.push_str("| | committed/s | aborted | p50 ms | p99 ms | server CPU a commit | client CPU an attempt |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
        for peer in self.peers() {
            let median = |figure: fn(&Turn) -> f64| self.figure(peer, figure).map_or(0.0, |spread| spread.median);
            let spread = |figure: fn(&Turn) -> f64| self.figure(peer, figure).map_or(String::new(), Spread::text);
            let _ = writeln!(
                out,
                "| {} | {} | {:.1} % | {} | {} | {} us | {} us |",
                peer.label(),
                spread(|turn| turn.committed_per_s),
                100.0 * median(|turn| turn.aborted_share),
                round(median(|turn| turn.p50_ms)),
                spread(|turn| turn.p99_ms),
                round(median(|turn| turn.server_cpu_us)),
                round(median(|turn| turn.client_cpu_us))
            );
        }
        for peer in self.peers() {
            if let Some(bytes) =
                Spread::of(self.turns.iter().filter(|it| it.peer == peer).filter_map(|it| it.wire_bytes).collect())
            {
                let _ = writeln!(
                    out,
                    "\nBytes between nodes for an ended transaction, {}: {}.",
                    peer.label(),
                    bytes.text()
                );
            }
        }
        let lag = self.turns.iter().filter_map(|turn| turn.lag_ms).max();
        if let Some(lag) = lag {
            let _ = writeln!(out, "\nPush: everything was applied within {lag} ms after each turn.");
        }
        for (name, reason) in &self.left_out {
            let _ = writeln!(out, "\nWithout {}: {reason}.", name.label());
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_comes_with_its_spread() {
        let spread = Spread::of(vec![3.0, 1.0, 2_000.0]).unwrap();
        assert_eq!(spread.text(), "3.00 (1.00 to 2,000)");
        assert!(Spread::of(Vec::new()).is_none());
    }
}
