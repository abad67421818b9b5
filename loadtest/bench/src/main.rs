//! `tribunal-bench`: measures a server over HTTP/JSON. Figures are ratios taken side by side in one run wherever
//! possible, because absolute values drift with the machine.
//!
//! The client is one thread with hand-written HTTP: on a small machine, its own CPU time is part of the server's limit,
//! so it reports that, too.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use serde_json::json;

use tribunal_bench::error::BenchError;
use tribunal_bench::machine::Machine;
use tribunal_bench::measure::{self, Bench};
use tribunal_bench::options::{Cli, Command, Common};
use tribunal_bench::traffic::Mode;
use tribunal_bench::{idle, record, report, space, sweep};

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
        Command::Compare { common, rounds } => {
            let compared = measure::against_constant(&common, rounds)?;
            report::print(&machine, common.json, &compared.text("commit", "constant"), json!(compared));
            Ok(())
        }
        Command::Policies { common, rounds, batched } => {
            let mode = if batched { Mode::Batch } else { Mode::Commit };
            let compared = measure::against_native(&common, rounds, mode)?;
            report::print(&machine, common.json, &compared.text("Wasm", "native"), json!(compared));
            Ok(())
        }
        Command::Telemetry { common, rounds, batched, telemetry } => {
            let mode = if batched { Mode::Batch } else { Mode::Commit };
            let (compared, spans) = measure::against_untraced(&common, rounds, mode, &telemetry)?;
            let text = compared.text("with telemetry", "without") + &spans.text();
            let mut document = json!(compared);
            document["spans"] = json!(spans);
            report::print(&machine, common.json, &text, document);
            Ok(())
        }
        Command::Space { common, batched } => {
            let space = space::measure(&common, if batched { Mode::Batch } else { Mode::Commit })?;
            report::print(&machine, common.json, &space.text(), json!(space));
            Ok(())
        }
        Command::Idle { common, samples, pause_ms } => {
            let pause = Duration::from_millis(pause_ms);
            let idle = idle::measure(&common, samples.max(1), pause)?;
            report::print(&machine, common.json, &idle.text(samples, pause), json!(idle));
            Ok(())
        }
        Command::Sweep { common, axis, values } => {
            let swept = sweep::measure(&common, axis, &values)?;
            report::print(&machine, common.json, &swept.text(), json!(swept));
            Ok(())
        }
        Command::Record { results, charts, link } => record::print(&results, &charts, &link),
    }
}

fn single(machine: &Machine, common: &Common, mode: Mode) -> Result<(), BenchError> {
    let report = Bench::prepare(common)?.measure(mode)?;
    report::print(machine, common.json, &report.text(), json!(report));
    Ok(())
}
