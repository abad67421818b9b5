//! `tribunal-bench`: measures a server over HTTP/JSON. Figures are ratios taken side by side in one run wherever
//! that is possible, because absolute ones drift with the machine.
//!
//! The client is one thread with hand-written HTTP (`wire`, `engine`): on a small machine its own CPU time is part
//! of what limits the server, so it prints that too.

mod body;
mod engine;
mod error;
mod idle;
mod lag;
mod machine;
mod measure;
mod model;
mod options;
mod reply;
mod report;
mod rpc;
mod server;
mod traffic;
mod wire;
mod workload;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use serde_json::json;

use error::BenchError;
use machine::Machine;
use measure::{Bench, median};
use options::{Cli, Command, Common};
use traffic::Mode;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tribunal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), BenchError> {
    let machine = Machine::look();
    match command {
        Command::Commit(common) => single(&machine, &common, Mode::Commit),
        Command::Batch(common) => single(&machine, &common, Mode::Batch),
        Command::Constant(common) => single(&machine, &common, Mode::Constant),
        Command::Compare { common, rounds } => compare(&machine, &common, rounds),
        Command::Idle { common, samples, pause_ms } => {
            let pause = Duration::from_millis(pause_ms);
            let idle = idle::measure(&common, samples.max(1), pause)?;
            report::print(&machine, common.json, &idle.text(samples, pause), json!(idle));
            Ok(())
        }
        Command::Sweep { common, axis, values } => {
            let steps = measure::sweep(&common, axis, &values)?;
            let text: String =
                steps.iter().map(|(value, report)| format!("{axis:?} {value}: {}", report.text())).collect();
            let document = steps.iter().map(|(value, report)| json!({ "value": value, "report": report })).collect();
            report::print(&machine, common.json, &text, document);
            Ok(())
        }
    }
}

fn single(machine: &Machine, common: &Common, mode: Mode) -> Result<(), BenchError> {
    let report = Bench::prepare(common)?.measure(mode)?;
    report::print(machine, common.json, &report.text(), json!(report));
    Ok(())
}

fn compare(machine: &Machine, common: &Common, rounds: usize) -> Result<(), BenchError> {
    let compared = measure::compare(common, rounds)?;
    let turns = compared.constant.iter().zip(&compared.commit).flat_map(|(constant, commit)| [constant, commit]);
    let mut text: String = turns.map(report::Report::text).collect();
    text += &format!(
        "compare: medians of {} turns each: commit {:.0}/s of constant {:.0}/s = {:.1} %\n",
        compared.commit.len(),
        median(&compared.commit, |turn| turn.attempted_per_s),
        median(&compared.constant, |turn| turn.attempted_per_s),
        compared.ratio * 100.0
    );
    let document = json!({ "ratio": compared.ratio, "constant": compared.constant, "commit": compared.commit });
    report::print(machine, common.json, &text, document);
    Ok(())
}
