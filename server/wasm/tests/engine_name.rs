//! What a plugin can observe of the engine, measured. Nodes whose engines have the same name decide the same, so a wasmtime
//! that measures something else here needs another number (`ENGINE` in `src/fingerprint.rs`).

mod hostile;

use std::sync::Arc;

use hostile::Hostile;
use tribunal_core::policy::{ConflictRule, TxnColumns};
use tribunal_wasm::{Module, PluginEngine, PluginLimits, WasmRule, World};

/// Ends a body of `rank` with the ranks of the template.
const RANKS: &str = "(i32.store (i32.const 516) (local.get $csn)) (i32.store (i32.const 520) (local.get $csns))
     (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns)) (i32.const 512)";

fn two() -> TxnColumns {
    TxnColumns {
        csn: vec![20, 10],
        epoch: 7,
        start: vec![7; 2],
        origin: vec![1; 2],
        priority: vec![100; 2],
        reads: vec![0; 2],
        writes: vec![1; 2],
        first_attempt: vec![1; 2],
    }
}

fn rule(engine: &Arc<PluginEngine>, body: &str) -> WasmRule {
    let body: &'static str = Box::leak(format!("{body} {RANKS}").into_boxed_str());
    let component = Hostile { rank: body, ..Hostile::default() }.component();
    WasmRule::new(Module::load(engine, World::ConflictRule, &component, "").expect("loads")).expect("is a rule")
}

/// Returns the largest number for which a body, with `N` replaced by it, does not fault.
fn largest(engine: &Arc<PluginEngine>, body: &str, fault: &str) -> u32 {
    let (mut fits, mut fails) = (1_u32, 1_u32 << 24);
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        match rule(engine, &body.replace('N', &middle.to_string())).rank(&two()) {
            Ok(_) => fits = middle,
            Err(found) => {
                assert!(found.0.contains(fault), "{}", found.0);
                fails = middle;
            }
        }
    }
    fits
}

#[test]
fn fuel_is_that_of_this_engine() {
    let engine = PluginEngine::new(PluginLimits { instances_max: 2, ..PluginLimits::default() }).expect("starts");
    let loops = "(local $i i32) (loop $next (local.set $i (i32.add (local.get $i) (i32.const 1)))
                 (br_if $next (i32.lt_u (local.get $i) (i32.const 1000))))";
    let measured = [
        "",
        "(drop (i32.add (i32.const 1) (i32.const 2)))",
        "(drop (i64.div_u (i64.const 7) (i64.const 2))) (drop (i32.rem_s (i32.const 7) (i32.const 2)))",
        "(drop (f64.sqrt (f64.const 2))) (drop (f32.div (f32.const 1) (f32.const 3)))",
        loops,
        "(drop (memory.grow (i32.const 3)))",
        "(memory.copy (i32.const 2048) (i32.const 1024) (i32.const 512))",
        "(memory.fill (i32.const 2048) (i32.const 1) (i32.const 512))",
        "(block (block (br_table 0 1 (i32.const 1))))",
    ]
    .map(|body| rule(&engine, body).rank_metered(&two()).expect("ranks").1);
    assert_eq!(measured, FUEL, "another wasmtime? Then raise `ENGINE` in src/fingerprint.rs, and put these figures here");
}

#[test]
fn limits_are_reached_where_this_engine_reaches_them() {
    let engine = PluginEngine::new(PluginLimits { instances_max: 2, ..PluginLimits::default() }).expect("starts");
    let loops = "(local $i i32) (loop $next (local.set $i (i32.add (local.get $i) (i32.const 1)))
                 (br_if $next (i32.lt_u (local.get $i) (i32.const N))))";
    let rounds = largest(&engine, loops, "ran out of fuel");
    let pages = largest(
        &engine,
        "(if (i32.eq (memory.grow (i32.const N)) (i32.const -1)) (then (unreachable)))",
        "ran out of memory",
    );
    // A frame of the stack has the size that the compiler gives it on this architecture.
    let depth = largest(&engine, "(call $descend (i32.const N))", "stack overflowed");
    assert_eq!((rounds, pages), (ROUNDS, 254));
    if cfg!(target_arch = "x86_64") {
        assert_eq!(depth, DEPTH, "another wasmtime? Then raise `ENGINE` in src/fingerprint.rs");
    }
    let name = engine.name();
    assert!(name.starts_with(&format!("wasm-1-{}-", std::env::consts::ARCH)), "{name}");
}

const FUEL: [u64; 9] = [0; 9];
const ROUNDS: u32 = 0;
const DEPTH: u32 = 0;
