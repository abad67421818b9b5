//! Converts the JSON documents of a record to Markdown and charts. A missing or broken document is reported as such,
//! and does not affect the other ones.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::chart::{self, Line, Panel, round};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::options::Axis;
use crate::report::Report;
use crate::sweep::{Step, Swept};

#[derive(Deserialize)]
struct Document<T> {
    machine: Machine,
    result: T,
}

#[derive(Deserialize)]
struct Compared {
    baseline: Vec<Report>,
    measured: Vec<Report>,
    rate_ratio: f64,
    cpu_ratio: Option<f64>,
}

#[derive(Deserialize)]
struct Idle {
    commit_us: crate::report::Percentiles,
    sync_in_place_us: crate::report::Percentiles,
    ratio_in_place: f64,
}

#[derive(Deserialize)]
struct Space {
    bytes_per_row: Option<f64>,
    payload_bytes: usize,
    encoded_overhead_bytes: Option<f64>,
    answered_overhead_bytes: Option<f64>,
    syncs_per_epoch: Option<f64>,
    txns_per_epoch: Option<f64>,
    idle_syncs: Option<f64>,
}

/// Prints the folder's documents as Markdown and draws the sweeps.
///
/// # Errors
/// If the folder cannot be read, or the charts cannot be written.
pub fn print(results: &Path, charts: &Path, link: &str) -> Result<(), BenchError> {
    let entries = std::fs::read_dir(results).map_err(BenchError::io(format!("read {}", results.display())))?;
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    let of = |prefix: &str| names.iter().filter(move |name| name.starts_with(prefix)).cloned().collect::<Vec<_>>();
    let mut out = String::new();
    singles(&mut out, results, &of("load-"));
    comparisons(&mut out, results, &of("compare-"));
    for name in of("idle") {
        if let Some(Document { result, .. }) = read::<Idle>(&mut out, results, &name) {
            idle(&mut out, &result);
        }
    }
    for name in of("space-") {
        if let Some(Document { result, .. }) = read::<Space>(&mut out, results, &name) {
            space(&mut out, &name, &result);
        }
    }
    for name in of("sweep-") {
        let Some(Document { machine, result }) = read::<Swept>(&mut out, results, &name) else { continue };
        let file = format!("{name}.svg");
        chart::write(&charts.join(&file), &draw(&result))?;
        sweep(&mut out, &machine, &result, &format!("{link}/{file}"));
    }
    print!("{out}");
    Ok(())
}

fn read<T: DeserializeOwned>(out: &mut String, results: &Path, name: &str) -> Option<Document<T>> {
    let text = std::fs::read_to_string(results.join(format!("{name}.json"))).unwrap_or_default();
    match serde_json::from_str(&text) {
        Ok(document) => Some(document),
        Err(error) => {
            let _ = writeln!(out, "`{name}` has no figures: {error}.\n");
            None
        }
    }
}

const HEAD: &str = "attempted/s | committed/s | aborted | p50 ms | p99 ms | server CPU | client CPU | push lag |\n";
const RULE: &str = "---|---|---|---|---|---|---|---|\n";

/// Returns the cells after the first one.
fn cells(report: &Report) -> String {
    let ms = |us: u64| round(us as f64 / 1000.0);
    let undecided: u64 = report.counts.problems.values().sum();
    let undecided = if undecided > 0 { format!(", {undecided} undecided") } else { String::new() };
    format!(
        "{} | {} | {:.1} %{undecided} | {} | {} | {} us | {} us | {} |",
        round(report.attempted_per_s),
        round(report.committed_per_s),
        100.0 * aborted(report),
        ms(report.latency_us.p50),
        ms(report.latency_us.p99),
        report.server_cpu_us.map_or("?".to_owned(), round),
        round(report.client_cpu_us),
        report.push_lag.map_or("-".to_owned(), |lag| format!("{} ms", lag.caught_up_ms)),
    )
}

fn aborted(report: &Report) -> f64 {
    report.counts.aborted.values().sum::<u64>() as f64 / report.counts.attempted.max(1) as f64
}

fn singles(out: &mut String, results: &Path, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let _ = write!(out, "### Loads\n\n| load | {HEAD}|---|{RULE}");
    let mut broken = String::new();
    for name in names {
        if let Some(Document { result, .. }) = read::<Report>(&mut broken, results, name) {
            let _ = writeln!(out, "| {}: {} | {}", name.trim_start_matches("load-"), result.workload, cells(&result));
        }
    }
    let _ = write!(out, "\n{broken}");
}

fn comparisons(out: &mut String, results: &Path, names: &[String]) {
    if names.is_empty() {
        return;
    }
    out.push_str("### Ratios\n\n| what | rate | baseline | rate of it | its spread over turns | server CPU of it |\n|---|---|---|---|---|---|\n");
    let mut broken = String::new();
    for name in names {
        let Some(Document { result, .. }) = read::<Compared>(&mut broken, results, name) else { continue };
        let mut ratios: Vec<_> = result
            .measured
            .iter()
            .zip(&result.baseline)
            .map(|(measured, baseline)| 100.0 * measured.attempted_per_s / baseline.attempted_per_s)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let median = |turns: &[Report]| {
            let mut rates: Vec<_> = turns.iter().map(|report| report.attempted_per_s).collect();
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied().unwrap_or(0.0)
        };
        let at = |index: usize| ratios.get(index).copied().unwrap_or(0.0);
        let _ = writeln!(
            out,
            "| {} | {}/s | {}/s | **{:.1} %** | {:.1} to {:.1} % | {} |",
            name.trim_start_matches("compare-"),
            round(median(&result.measured)),
            round(median(&result.baseline)),
            100.0 * result.rate_ratio,
            at(0),
            at(ratios.len().saturating_sub(1)),
            result.cpu_ratio.map_or("?".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio))
        );
    }
    let _ = write!(out, "\n{broken}");
}

fn idle(out: &mut String, idle: &Idle) {
    let _ = writeln!(
        out,
        "### One client on an idle service\n\nCommit p50 {} us, p99 {} us; fdatasync of 4 KiB in place p50 {} us in the \
         same run: a commit takes **{:.2}** of it.\n",
        idle.commit_us.p50, idle.commit_us.p99, idle.sync_in_place_us.p50, idle.ratio_in_place
    );
}

fn space(out: &mut String, name: &str, space: &Space) {
    let show = |figure: Option<f64>| figure.map_or("?".to_owned(), round);
    let _ = writeln!(
        out,
        "### Bytes and syncs, {}\n\n{} bytes a tracked row; over {} bytes of keys and values a transaction {} encoded for a committed \
         one, {} for an answered one; {} syncs an epoch of {} commits; {} syncs while idle.\n",
        name.trim_start_matches("space-"),
        show(space.bytes_per_row),
        space.payload_bytes,
        show(space.encoded_overhead_bytes),
        show(space.answered_overhead_bytes),
        show(space.syncs_per_epoch),
        show(space.txns_per_epoch),
        show(space.idle_syncs)
    );
}

fn title(axis: Axis) -> (&'static str, &'static str) {
    match axis {
        Axis::Connections => ("Clients", "connections, one transaction each"),
        Axis::Ops => ("Operations of a transaction", "reads, and as many writes"),
        Axis::Rows => ("Stored rows", "rows"),
        Axis::Batch => ("Transactions of a request", "transactions"),
        Axis::Epoch => ("Length of an epoch", "milliseconds"),
        Axis::Zipf => ("Skew", "Zipf exponent"),
        Axis::Isolation => ("Isolation level", "level"),
        Axis::Rule => ("Conflict rule", "rule"),
        Axis::Long => ("Long transactions", "milliseconds that a tenth of them take"),
    }
}

/// Short forms of names that would not fit under a chart.
const SHORT: [(&str, &str); 7] = [
    ("read-committed", "RC"),
    ("repeatable-read", "RR"),
    ("snapshot", "SI"),
    ("serializable", "SER"),
    ("first-writer-wins", "first"),
    ("shorter-txn-wins", "shorter"),
    ("fair-rotation", "rotation"),
];

fn short(value: &str) -> String {
    let number = value.parse::<u64>().ok().filter(|number| *number >= 1000 && number.is_multiple_of(1000));
    match number {
        Some(number) if number.is_multiple_of(1_000_000) => format!("{}M", number / 1_000_000),
        Some(number) => format!("{}k", number / 1000),
        None => SHORT.iter().find(|(long, _)| *long == value).map_or(value, |(_, short)| short).to_owned(),
    }
}

fn draw(swept: &Swept) -> String {
    let line = |name: &str, figure: &dyn Fn(&Report) -> Option<f64>| Line {
        name: name.to_owned(),
        figures: swept.steps.iter().map(|step| figure(&step.report)).collect(),
    };
    let places: Vec<_> = swept.steps.iter().map(|step| short(&step.value)).collect();
    let operations = |report: &Report| Some(report.server_cpu_us? / operations(swept, report));
    let mut shares = vec![line("all", &|report| Some(100.0 * aborted(report)))];
    if swept.axis == Axis::Long {
        shares.push(line("long ones", &long_aborted));
    }
    let panels = [
        Panel {
            name: "transactions a second".to_owned(),
            lines: vec![
                line("committed", &|report| Some(report.committed_per_s)),
                line("attempted", &|report| Some(report.attempted_per_s)),
            ],
        },
        Panel { name: "aborted, %".to_owned(), lines: shares },
        Panel {
            name: "latency, ms".to_owned(),
            lines: vec![
                line("p50", &|report| Some(report.latency_us.p50 as f64 / 1000.0)),
                line("p99", &|report| Some(report.latency_us.p99 as f64 / 1000.0)),
            ],
        },
        if swept.axis == Axis::Ops {
            Panel { name: "server CPU an operation, us".to_owned(), lines: vec![line("", &operations)] }
        } else {
            Panel {
                name: "server CPU a transaction, us".to_owned(),
                lines: vec![line("", &|report| report.server_cpu_us)],
            }
        },
    ];
    let (title, axis) = title(swept.axis);
    chart::panels(title, axis, &places, &panels)
}

fn long_aborted(report: &Report) -> Option<f64> {
    let counts = &report.counts;
    let lost = counts.long_attempted.checked_sub(counts.long_committed)?;
    (counts.long_attempted > 0).then(|| 100.0 * lost as f64 / counts.long_attempted as f64)
}

/// Returns the numbers of reads and writes per transaction of this step; 1 if the axis is another one.
fn operations(swept: &Swept, report: &Report) -> f64 {
    let step = swept.steps.iter().find(|step| std::ptr::eq(&raw const step.report, report));
    let each = step.and_then(|step| step.value.parse::<f64>().ok()).unwrap_or(0.5);
    2.0 * each
}

fn sweep(out: &mut String, machine: &Machine, swept: &Swept, file: &str) {
    let (title, axis) = title(swept.axis);
    let first = swept.steps.first().map_or("", |step| step.report.workload.as_str());
    let _ = write!(
        out,
        "### {title}\n\n![{title}]({file})\n\nAt the first place: {first}; load {}.\n\n| {axis} | {HEAD}|---|{RULE}",
        machine.load_1m
    );
    for Step { value, report } in &swept.steps {
        let long = match long_aborted(report) {
            Some(share) => format!(" (long ones: {share:.1} % aborted)"),
            None => String::new(),
        };
        let _ = writeln!(out, "| {value}{long} | {}", cells(report));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_short() {
        let shown: Vec<_> = ["1", "4096", "1000", "10000000", "0.9", "snapshot"].into_iter().map(short).collect();
        assert_eq!(shown, ["1", "4096", "1k", "10M", "0.9", "SI"]);
    }

    #[test]
    fn a_missing_document_is_reported() {
        let mut out = String::new();
        assert!(read::<Swept>(&mut out, Path::new("nowhere"), "sweep-x").is_none());
        assert!(out.starts_with("`sweep-x` has no figures"));
    }
}
