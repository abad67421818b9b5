//! Plays runs of the simulated cluster: `sim --seed 7 --trace` one of them, readably; `sim --seeds 2000` many.

use std::process::ExitCode;

use tribunal_tests::sim::{Run, play};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut from, mut count, mut trace) = (1, 1, false);
    while let Some(argument) = arguments.next() {
        let number = || arguments.next().and_then(|number| number.parse::<u64>().ok());
        match (argument.as_str(), argument == "--trace") {
            (_, true) => trace = true,
            ("--seed", _) => from = number_or_exit(number, "--seed"),
            ("--seeds", _) => count = number_or_exit(number, "--seeds"),
            _ => {
                eprintln!("usage: sim [--seed N] [--seeds COUNT] [--trace]");
                return ExitCode::FAILURE;
            }
        }
    }
    let mut failed = 0;
    for seed in from..from + count {
        match play(Run { seed, trace, planted: None }) {
            Ok((report, played)) => {
                played.lines().iter().for_each(|line| println!("{line}"));
                println!("seed {seed}: {report:?}");
            }
            Err((wrong, played)) => {
                played.lines().iter().for_each(|line| println!("{line}"));
                println!("BROKEN: {wrong}");
                println!("replay: cargo run --release -p tribunal-tests --bin sim -- --seed {seed} --trace");
                failed += 1;
            }
        }
    }
    println!("{} seeds, {failed} broken", count);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number_or_exit(number: impl FnOnce() -> Option<u64>, name: &str) -> u64 {
    number().unwrap_or_else(|| {
        eprintln!("{name} needs a number");
        std::process::exit(2)
    })
}
