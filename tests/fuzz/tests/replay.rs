//! Replays every target over its corpus, over what it makes itself, and over mutations of both: the same inputs each
//! time, on every machine.
//!
//! `TRIBUNAL_FUZZ_ROUNDS` (1 by default) says how often as many mutations are tried, each round with another seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tribunal_fuzz::memory::{Counting, peak_of};
use tribunal_fuzz::mutate::{Random, mutated};
use tribunal_fuzz::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Panics of all threads.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn rounds() -> u64 {
    std::env::var("TRIBUNAL_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// Returns inputs and their names. Those whose names begin with `ok-` must be taken.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = target.corpus();
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = files.map(|entry| {
        let path = entry.expect("an entry").path();
        (path.file_name().expect("a name").to_string_lossy().into_owned(), std::fs::read(&path).expect("a file"))
    });
    let made = (target.made)().into_iter().enumerate().map(|(n, input)| (format!("ok-made-{n}"), input));
    let mut inputs: Vec<_> = read.chain(made).collect();
    inputs.sort();
    assert!(inputs.iter().any(|(name, _)| name.starts_with("ok-")), "{}: none must be taken", folder.display());
    inputs
}

/// Runs one input and tells whether it was taken; says which it was if anything is wrong.
fn check(target: &Target, input: &[u8]) -> bool {
    let before = PANICS.load(Ordering::SeqCst);
    let mut outcome = Ok(false);
    let peak = peak_of(|| outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let panics = PANICS.load(Ordering::SeqCst) - before;
    let fault = match outcome {
        Err(_) => "it panicked".to_owned(),
        Ok(_) if panics > 0 && !target.catches_panics => format!("{panics} panics in other threads"),
        Ok(_) if peak > target.memory_bytes_max + 64 * input.len() => format!("it took {peak} bytes"),
        Ok(taken) => return taken,
    };
    let file = std::env::temp_dir().join(format!("tribunal-fuzz-{}-{}", target.name, std::process::id()));
    std::fs::write(&file, input).expect("written");
    panic!("{}: {fault}, over the {} bytes that lie in {} now", target.name, input.len(), file.display());
}

#[test]
fn every_input_gets_a_result() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        hook(info);
    }));
    let mut refused = Vec::new();
    for target in &TARGETS {
        let begun = std::time::Instant::now();
        (target.warm_up)();
        let inputs = corpus(target);
        for (name, input) in &inputs {
            // Some are given up after milliseconds, which may be too soon on a busy machine.
            let tries = if name.starts_with("ok-") { 50 } else { 1 };
            if !(0..tries).any(|_| check(target, input)) && tries > 1 {
                refused.push(format!("{}/{name}", target.name));
            }
        }
        check(target, &[]);
        let mut taken = 0;
        for round in 0..rounds() {
            let mut random = Random(round);
            for _ in 0..target.mutations {
                let (one, other) = (random.below(inputs.len()), random.below(inputs.len()));
                taken += u64::from(check(target, &mutated(&inputs[one].1, &inputs[other].1, &mut random)));
            }
        }
        let (tried, took) = (target.mutations as u64 * rounds(), begun.elapsed());
        println!("{}: {} inputs, {taken} of {tried} mutations taken, {took:?}", target.name, inputs.len());
    }
    assert!(refused.is_empty(), "refused, but must be taken: {refused:?}");
}

#[test]
fn every_target_has_a_program_for_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    for target in &TARGETS {
        let name = target.name;
        let program = std::fs::read_to_string(folder.join(format!("fuzz_targets/{name}.rs"))).expect("a program");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(program.contains(&format!("\"{name}\"")), "{name}: {program}");
    }
}
