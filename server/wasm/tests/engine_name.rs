//! The fuel that a plugin spends, measured. Nodes whose engines have the same name must decide alike, so a wasmtime
//! version that measures something else here needs another number (`ENGINE` in `src/fingerprint.rs`).

mod hostile;

use std::sync::Arc;

use hostile::Hostile;
use tribunal_core::policy::TxnColumns;
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
    let name = engine.name();
    assert!(name.starts_with(&format!("wasm-1-{}-", std::env::consts::ARCH)), "{name}");
    let known = [112, 115, 136, 131, 8112, 337, 647, 647, 117];
    assert_eq!(
        measured, known,
        "another wasmtime? Then raise `ENGINE` in src/fingerprint.rs, and put these figures here"
    );
}
