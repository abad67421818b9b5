//! Cost of resolving with the built-in Wasm policies, compared with their native counterparts on the same workload in
//! the same run: `cargo bench -p tribunal-wasm --bench resolve`. Measures CPU time of the thread. As in the core's
//! bench, the 90th percentile of the epochs' rates is the undisturbed rate.

#[path = "../../core/benches/workload/mod.rs"]
mod workload;

use std::time::Duration;

use tribunal_core::native::NativeRule;
use tribunal_core::policy::Policies;
use tribunal_types::Isolation;
use tribunal_wasm::{PluginEngine, PluginLimits, builtin};
/// The server's allocator, as in the core's own bench.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use workload::{BASE, Bench, Workload, cpu_time, native_policies};

/// Returns the built-in modules, which are never dropped.
fn wasm_policies() -> Policies<'static> {
    let engine = PluginEngine::new(PluginLimits::default()).expect("this machine runs the engine");
    let rule = builtin::rule(&engine, "first-writer-wins", "").expect("it is built in").expect("it loads");
    let validators = builtin::validators(&engine).expect("they load");
    Policies {
        rule: Box::leak(Box::new(rule)),
        validator: Box::leak(Box::new(validators)),
        rule_fallback: NativeRule::FirstWriterWins,
    }
}

/// Alternates epochs of both kinds, so that both run under the same conditions, and prints one line.
fn report(workload: Workload, wasm: Policies<'static>, seconds: f64) {
    let mut benches = [Bench::new(workload, native_policies()), Bench::new(workload, wasm)];
    let mut spent = [Vec::new(), Vec::new()];
    for _ in 0..300_000 / workload.epoch {
        for bench in &mut benches {
            bench.resolve();
        }
    }
    let begun = cpu_time();
    let (mut epochs, mut probing) = (0, Duration::ZERO);
    while epochs < 3 || (cpu_time() - begun).as_secs_f64() < seconds {
        for (bench, spent) in benches.iter_mut().zip(&mut spent) {
            spent.push(bench.resolve().0);
        }
        // One would be enough, but their states must remain equal.
        benches.iter_mut().for_each(|bench| probing += bench.probe() / 2);
        epochs += 1;
    }
    assert_eq!(benches[0].resolver.digest(), benches[1].resolver.digest(), "both decide the same");
    let rate = |spent: Duration, epochs: usize| (epochs * workload.epoch) as f64 / spent.as_secs_f64() / 1e6;
    let rates = spent.map(|mut spent| {
        spent.sort_unstable();
        (rate(spent.iter().sum(), epochs), rate(spent[epochs / 10], 1))
    });
    let ([(native, best_native), (wasm, best_wasm)], probes) = (rates, rate(probing, epochs));
    println!(
        "zipf {:.1}, {:>5} a batch, {:<15} native {native:>5.2} M txn/s (best tenth {best_native:>5.2})  wasm {wasm:>5.2} M \
         txn/s ({best_wasm:>5.2})  cost {:>4.1} % ({:>4.1} %)  probes {probes:>5.2} M txn/s",
        workload.skew,
        workload.epoch,
        workload.level.name(),
        100.0 * (native / wasm - 1.0),
        100.0 * (best_native / best_wasm - 1.0),
    );
}

fn main() {
    let seconds = if std::env::args().any(|arg| arg == "--test") { 0.0 } else { 4.0 };
    let wasm = wasm_policies();
    for level in [Isolation::Serializable, Isolation::Snapshot] {
        for skew in [0.9, 0.0] {
            for epoch in [100, 1_000, 4_096] {
                report(Workload { level, skew, epoch, ..BASE }, wasm, seconds);
            }
        }
    }
}
