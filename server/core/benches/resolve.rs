//! The cost of resolving: transactions per second on one core, against a loop in the same run that only probes the same
//! table, over epoch sizes, levels, skews, operations per transaction and stored rows.
//!
//! `cargo bench -p tribunal-core --bench resolve` prints a table, then lets criterion compare with its last run; with
//! `-- --report` it stops after the table, and with `-- --test` everything runs once. Times are CPU times of the
//! thread, so other load on the machine disturbs them only through its caches: compare ratios, and the rate that nine
//! epochs in ten do not reach. For profilers, `-- --one 5` measures a single line for this number of seconds, and `--
//! --count 40` resolves this number of epochs without a clock (with `valgrind --tool=callgrind
//! --toggle-collect='*decided*'` it counts instructions); both take `--zipf 0.9`, `--rows 10000` for a table that fits
//! in the caches, `--epoch 64` for smaller epochs, and `--generation 2` for the rules of an earlier one. `-- --image`
//! measures how long a state image delays epochs, taken at once and in steps; `-- --admit 2` measures the cost of looking
//! transactions up before they enter an epoch.

mod workload;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use tribunal_types::{Generation, Isolation};

/// The server's allocator: how it spreads the table over pages is part of the cost of resolving.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use workload::{BASE, Bench, Workload, cpu_time, native_policies};

/// Resolves some epochs without reading a clock, which not every profiler can emulate.
fn count(workload: Workload, epochs: usize) {
    let mut bench = Bench::new(workload, native_policies());
    for _ in 0..epochs {
        bench.resolve_by(|| Duration::ZERO);
    }
}

/// Measures for `seconds` and prints one line: alternates epochs and probes, so that both run under the same
/// conditions.
fn report(workload: Workload, seconds: f64) {
    let mut bench = Bench::new(workload, native_policies());
    let (mut resolving, mut probing) = (Vec::new(), Vec::new());
    let mut committed = 0;
    for _ in 0..600_000 / workload.epoch {
        bench.resolve();
    }
    let begun = cpu_time();
    while resolving.len() < 3 || (cpu_time() - begun).as_secs_f64() < seconds {
        let (took, commits) = bench.resolve();
        resolving.push(took);
        committed += commits;
        probing.push(bench.probe());
    }
    let txns = (resolving.len() * workload.epoch) as f64;
    let undisturbed = |epochs: &mut Vec<Duration>| {
        epochs.sort_unstable();
        workload.epoch as f64 / epochs[epochs.len() / 10].as_secs_f64() / 1e6
    };
    let (best, best_probing) = (undisturbed(&mut resolving), undisturbed(&mut probing));
    let (resolving, probing): (Duration, Duration) = (resolving.iter().sum(), probing.iter().sum());
    let stats = bench.resolver.stats();
    println!(
        "{:>9} rows, zipf {:.1}, {:>5} a batch, {:>2}+{:<2} {:<15} {:>6.2} M txn/s (best tenth {:>5.2})  \
         probes {:>6.2} M txn/s ({:>5.2})  ratio {:>3.0} %  \
         {:>5.1} ns/op  commits {:>3.0} %  {:.1} B/row",
        workload.rows,
        workload.skew,
        workload.epoch,
        workload.reads,
        workload.writes,
        workload.level.name(),
        txns / resolving.as_secs_f64() / 1e6,
        best,
        txns / probing.as_secs_f64() / 1e6,
        best_probing,
        100.0 * probing.as_secs_f64() / resolving.as_secs_f64(),
        resolving.as_secs_f64() * 1e9 / txns / (workload.reads + workload.writes) as f64,
        100.0 * committed as f64 / txns,
        stats.row_bytes as f64 / stats.rows as f64,
    );
}

fn reports(seconds: f64) {
    for level in [Isolation::Serializable, Isolation::Snapshot] {
        for skew in [0.9, 0.0] {
            for epoch in [100, 1_000, 4_096] {
                report(Workload { level, skew, epoch, ..BASE }, seconds);
            }
        }
    }
    println!("operations per transaction:");
    for ops in [1, 2, 5, 10, 20, 40] {
        report(Workload { skew: 0.0, reads: ops, writes: ops, epoch: 5_000 / ops, ..BASE }, seconds);
    }
    println!("stored rows:");
    for rows in [10_000, 100_000, 1_000_000, 4_000_000] {
        report(Workload { rows, skew: 0.0, ..BASE }, seconds);
    }
}

fn criterion_groups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resolve");
    for (name, skew) in [("zipf-0.9", 0.9), ("uniform", 0.0)] {
        for level in [Isolation::Serializable, Isolation::Snapshot] {
            let workload = Workload { skew, level, ..BASE };
            group.throughput(Throughput::Elements(workload.epoch as u64));
            group.bench_function(BenchmarkId::new(level.name(), name), |b| {
                let mut bench = Bench::new(workload, native_policies());
                b.iter_custom(|epochs| (0..epochs).map(|_| bench.resolve().0).sum());
            });
        }
    }
    group.finish();
}

/// Takes one image at once and one in steps between epochs, and prints the longest times without an epoch.
fn image(workload: Workload) {
    let mut bench = Bench::new(workload, native_policies());
    for _ in 0..1_000_000 / workload.epoch {
        bench.resolve();
    }
    let took = |work: &mut dyn FnMut() -> bool| {
        let begun = cpu_time();
        let done = work();
        (cpu_time() - begun, done)
    };
    let (at_once, _) = took(&mut || bench.resolver.image().columns.is_empty());
    let (begin, _) = took(&mut || {
        bench.resolver.begin_image();
        false
    });
    let (mut steps, mut longest, mut sum, mut done) = (0, Duration::ZERO, begin, false);
    while !done {
        bench.resolve();
        let (step, last) = took(&mut || bench.resolver.step_image().is_some());
        (steps, longest, sum, done) = (steps + 1, longest.max(step), sum + step, last);
    }
    let stats = bench.resolver.stats();
    println!(
        "{} rows, {} MB of history, {} ids: an image takes {:.1?} at once; {begin:.1?} to begin it and {steps} steps of \
         at most {longest:.1?}, {sum:.1?} in all",
        stats.rows,
        stats.history_bytes >> 20,
        stats.ids,
        at_once,
    );
}

/// Measures the cost of looking a transaction up before it enters an epoch, by how far ahead its rows are prefetched.
fn admit(workload: Workload, seconds: f64) {
    const AHEAD: [usize; 6] = [0, 1, 2, 3, 4, 8];
    let mut bench = Bench::new(workload, native_policies());
    let mut took: [Vec<Duration>; AHEAD.len()] = Default::default();
    let begun = cpu_time();
    while took[0].len() < 3 || (cpu_time() - begun).as_secs_f64() < seconds {
        for (took, ahead) in took.iter_mut().zip(AHEAD) {
            took.push(bench.admit(ahead));
        }
        bench.resolve();
    }
    for (took, ahead) in took.iter_mut().zip(AHEAD) {
        took.sort_unstable();
        let of = |share: usize| took[took.len() / share].as_nanos() / workload.epoch as u128;
        println!("{ahead} ahead: median {:>4} ns a transaction, best tenth {:>4} ns", of(2), of(10));
    }
}

/// Returns the number that follows an option.
fn number(option: &str) -> Option<f64> {
    let value = std::env::args().skip_while(|arg| arg != option).nth(1)?;
    Some(value.parse().unwrap_or_else(|_| panic!("{option} takes a number, not {value}")))
}

fn main() {
    let once = std::env::args().any(|arg| arg == "--test");
    let only_report = std::env::args().any(|arg| arg == "--report");
    let rows = number("--rows").map_or(BASE.rows, |rows| rows as usize);
    let generation = number("--generation").map_or(BASE.generation, |generation| Generation(generation as u32));
    let epoch = number("--epoch").map_or(BASE.epoch, |epoch| epoch as usize);
    let single = Workload { skew: number("--zipf").unwrap_or(0.0), rows, epoch, generation, ..BASE };
    if let Some(seconds) = number("--admit") {
        return admit(single, seconds);
    }
    if let Some(seconds) = number("--one") {
        report(single, seconds);
        return;
    }
    if std::env::args().any(|arg| arg == "--image") {
        return [1_000, 100, 10].into_iter().for_each(|epoch| image(Workload { epoch, ..single }));
    }
    if let Some(epochs) = number("--count") {
        count(single, epochs as usize);
        return;
    }
    reports(if once { 0.0 } else { 1.0 });
    if !only_report {
        let mut criterion = Criterion::default().sample_size(20).configure_from_args();
        criterion_groups(&mut criterion);
        criterion.final_summary();
    }
}
