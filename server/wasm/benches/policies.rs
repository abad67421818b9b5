//! Cost of policies in Wasm and natively: `cargo bench -p tribunal-wasm`. Divide by the batch size for the cost per
//! transaction; the batch of one transaction shows the cost of a call.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{
    ConflictRule, RangeColumns, ReadColumns, TxnColumns, Validator, ValidatorColumns, WriteColumns, write_flag,
};
use tribunal_types::Isolation;
use tribunal_wasm::{PluginEngine, PluginLimits, builtin};

const BATCHES: [usize; 4] = [1, 100, 1_000, 4_096];
/// Number of reads, and of writes, of each transaction.
const OPS: u32 = 5;

fn txns(n: usize) -> TxnColumns {
    TxnColumns {
        csn: (0..n as u64).map(|t| t << 10).collect(),
        epoch: 1_000,
        start: (0..n as u64).map(|t| 990 + t % 10).collect(),
        origin: (0..n as u64).map(|t| t.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect(),
        priority: (0..n).map(|t| t as u8).collect(),
        reads: vec![OPS; n],
        writes: vec![OPS; n],
        first_attempt: vec![0; n],
    }
}

/// Returns columns in which every read is current, so that validators must examine everything.
fn columns(n: usize) -> ValidatorColumns {
    let rows = n * OPS as usize;
    let ends: Vec<u32> = (1..=n as u32).map(|t| t * OPS).collect();
    let versions: Vec<u64> = (0..rows as u64).map(|row| row << 20 | 1).collect();
    ValidatorColumns {
        txns: txns(n),
        snapshot: vec![999; n],
        current_from: vec![900; n],
        current_until: vec![u64::MAX; n],
        multi_version: vec![0; n],
        reads: ReadColumns { ends: ends.clone(), seen: versions.clone(), latest: versions.clone() },
        writes: WriteColumns {
            ends,
            kind: vec![1; rows],
            flags: vec![write_flag::EXISTS | write_flag::WAS_READ | write_flag::READ_CURRENT; rows],
            latest: versions,
        },
        ranges: RangeColumns { ends: vec![0; n], changed: Vec::new() },
    }
}

fn rules(criterion: &mut Criterion) {
    let engine = PluginEngine::new(PluginLimits::default()).expect("the engine starts");
    for (name, config, turns) in [("first-writer-wins", "", 0), ("fair-rotation", r#"{"turns": 7}"#, 7)] {
        let wasm = builtin::rule(&engine, name, config).expect("is built in").expect("loads");
        let native = NativeRule::by_name(name, turns).expect("has a native counterpart");
        let mut group = criterion.benchmark_group(format!("rank/{name}"));
        for n in BATCHES {
            let txns = txns(n);
            group.throughput(Throughput::Elements(n as u64));
            group.bench_function(BenchmarkId::new("wasm", n), |b| b.iter(|| wasm.rank(black_box(&txns))));
            group.bench_function(BenchmarkId::new("native", n), |b| b.iter(|| native.rank(black_box(&txns))));
        }
    }
}

fn validators(criterion: &mut Criterion) {
    let engine = PluginEngine::new(PluginLimits::default()).expect("the engine starts");
    let wasm = builtin::validators(&engine).expect("load");
    for level in Isolation::ALL {
        let mut group = criterion.benchmark_group(format!("validate/{}", level.name()));
        for n in BATCHES {
            let columns = columns(n);
            group.throughput(Throughput::Elements(n as u64));
            group.bench_function(BenchmarkId::new("wasm", n), |b| b.iter(|| wasm.validate(level, black_box(&columns))));
            group.bench_function(BenchmarkId::new("native", n), |b| {
                b.iter(|| NativeValidator.validate(level, black_box(&columns)));
            });
        }
    }
}

criterion_group!(benches, rules, validators);
criterion_main!(benches);
