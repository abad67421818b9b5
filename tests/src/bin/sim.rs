//! Plays runs of the simulated cluster: `sim --seed 7 --trace` plays one with a readable trace, `sim --seeds 2000`
//! plays many. `--faults members` only adds, removes and breaks nodes; `--faults StuckDisk` only has that kind of
//! fault.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use tribunal_tests::sim::faults::Faults;
use tribunal_tests::sim::{Run, Trace, play};

const USAGE: &str = "usage: sim [--seed N] [--seeds COUNT] [--faults all|members|KIND] [--trace]";

/// The runs to play.
struct Runs {
    from: u64,
    count: u64,
    trace: bool,
    faults: Faults,
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let runs = match arguments(std::env::args().skip(1)) {
        Ok(runs) => runs,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match play_all(&runs, &mut io::stdout().lock()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        // The reader has closed the pipe: `sim --trace | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the output cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments(mut arguments: impl Iterator<Item = String>) -> Result<Runs, String> {
    let mut runs = Runs { from: 1, count: 1, trace: false, faults: Faults::All };
    while let Some(name) = arguments.next() {
        let number = match name.as_str() {
            "--trace" => {
                runs.trace = true;
                continue;
            }
            "--faults" => {
                let kind = arguments.next().ok_or("`--faults` needs a kind after it")?;
                runs.faults = kind.parse()?;
                continue;
            }
            "--seed" => &mut runs.from,
            "--seeds" => &mut runs.count,
            _ => return Err(format!("`{name}` is no argument")),
        };
        let value = arguments.next().ok_or_else(|| format!("`{name}` needs a number after it"))?;
        *number = value.parse().map_err(|_| format!("`{name}` needs a number after it, not `{value}`"))?;
    }
    match runs.from.checked_add(runs.count) {
        Some(_) => Ok(runs),
        None => Err("seeds have 64 bits; begin with a smaller one".into()),
    }
}

/// Plays the runs and prints the covered events; returns the number of broken runs.
fn play_all(runs: &Runs, out: &mut impl Write) -> io::Result<u64> {
    let mut broken = 0;
    for seed in runs.from..runs.from + runs.count {
        let run = Run { seed, trace: runs.trace, planted: None, faults: runs.faults };
        match play(run) {
            Ok((report, trace)) => {
                print_trace(&trace, out)?;
                writeln!(out, "seed {seed}: {report:?}")?;
            }
            Err((wrong, trace)) => {
                print_trace(&trace, out)?;
                writeln!(out, "BROKEN: {wrong}")?;
                writeln!(out, "replay: {}", run.replay())?;
                broken += 1;
            }
        }
    }
    writeln!(out, "{} seeds, {broken} broken", runs.count)?;
    Ok(broken)
}

fn print_trace(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    trace.lines().iter().try_for_each(|line| writeln!(out, "{line}"))
}
