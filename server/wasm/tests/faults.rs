//! Hostile modules: each kind of misbehaviour ends in a rejection or a fault with a clear message, never in a panic,
//! and the engine keeps working.

mod hostile;

use std::sync::Arc;

use hostile::Hostile;
use tribunal_core::policy::{ConflictRule, Ranks, TxnColumns};
use tribunal_wasm::{BUILTINS, Builtin, LoadError, Module, PluginEngine, PluginLimits, Refusal, WasmRule, World};

fn engine_with(limits: PluginLimits) -> Arc<PluginEngine> {
    PluginEngine::new(limits).expect("the engine starts")
}

fn engine() -> Arc<PluginEngine> {
    engine_with(PluginLimits { instances_max: 2, ..PluginLimits::default() })
}

fn three() -> TxnColumns {
    TxnColumns {
        csn: vec![30, 10, 20],
        epoch: 7,
        start: vec![7; 3],
        origin: vec![1, 2, 3],
        priority: vec![100; 3],
        reads: vec![0; 3],
        writes: vec![1; 3],
        first_attempt: vec![1; 3],
    }
}

/// Loads a hostile rule and returns its fault on three transactions, after checking that a second call gives the same.
#[track_caller]
fn rank(engine: &Arc<PluginEngine>, hostile: &Hostile) -> String {
    let module = Module::load(engine, World::ConflictRule, &hostile.component(), "").expect("passes the gate");
    let rule = WasmRule::new(module).expect("says what it needs");
    let fault = rule.rank(&three()).expect_err("misbehaves");
    assert_eq!(rule.rank(&three()), Err(fault.clone()), "a fault is the same each time");
    fault.0
}

#[test]
fn the_template_itself_is_harmless() {
    let engine = engine();
    let module = Module::load(&engine, World::ConflictRule, &Hostile::default().component(), "").expect("loads");
    assert_eq!(module.description().name, "evil");
    let rule = WasmRule::new(module).expect("says what it needs");
    assert_eq!(rule.rank(&three()), Ok(Ranks { hi: vec![30, 10, 20], lo: vec![30, 10, 20] }));
}

#[test]
fn deterministic_failures_become_faults() {
    let engine = engine();
    let cases = [
        ("(loop $again (br $again)) (unreachable)", "ran out of fuel"),
        ("(call $recurse (i32.const 0)) (unreachable)", "stack overflowed"),
        ("(unreachable)", "unreachable code"),
        ("(i32.load (i32.const -8))", "out of bounds memory"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "divide by zero"),
        // A growth beyond the limit is refused, and the module traps, as an allocator does. Also 2 GiB, the growth that
        // takes the most fuel.
        (
            "(if (i32.eq (memory.grow (i32.const 1000)) (i32.const -1)) (then (unreachable))) (i32.const 512)",
            "ran out of memory: it requested 65667072 bytes, and 16777216 are allowed",
        ),
        (
            "(if (i32.eq (memory.grow (i32.const 32768)) (i32.const -1)) (then (unreachable))) (i32.const 512)",
            "ran out of memory: it requested 2147614720 bytes",
        ),
        // A plugin that continued with less memory is not out of memory when it panics later.
        ("(drop (memory.grow (i32.const 32768))) (drop (memory.grow (i32.const 1))) (unreachable)", "unreachable code"),
        // Two high ranks and one low rank for three transactions.
        (
            "(i32.store (i32.const 516) (i32.const 1024)) (i32.store (i32.const 520) (i32.const 2))
             (i32.store (i32.const 524) (i32.const 1024)) (i32.store (i32.const 528) (i32.const 1)) (i32.const 512)",
            "2 high and 1 low ranks for 3",
        ),
        (
            "(i32.store (i32.const 512) (i32.const 1)) (i32.store (i32.const 516) (i32.const 64))
             (i32.store (i32.const 520) (i32.const 4)) (i32.const 512)",
            "returned a fault: evil",
        ),
        // A list outside memory, an invalid variant, a misaligned result, a fault whose text is not UTF-8.
        (
            "(i32.store (i32.const 516) (i32.const -64)) (i32.store (i32.const 520) (i32.const 99)) (i32.const 512)",
            "convention",
        ),
        ("(i32.store (i32.const 512) (i32.const 9)) (i32.const 512)", "convention"),
        ("(i32.const 513)", "convention"),
        (
            "(i32.store (i32.const 512) (i32.const 1)) (i32.store8 (i32.const 600) (i32.const 255))
             (i32.store (i32.const 516) (i32.const 600)) (i32.store (i32.const 520) (i32.const 1)) (i32.const 512)",
            "convention",
        ),
    ];
    for (body, expected) in cases {
        let text = rank(&engine, &Hostile { rank: body, ..Hostile::default() });
        assert!(text.contains(expected), "{body}: {text}");
    }
    let realloc = Hostile { realloc: "(i32.const -8)", config_free: true, ..Hostile::default() };
    assert!(rank(&engine, &realloc).contains("convention"));
    let trapping = Hostile { realloc: "(unreachable)", config_free: true, ..Hostile::default() };
    assert!(rank(&engine, &trapping).contains("unreachable"));
}

#[test]
fn long_faults_are_truncated() {
    let engine = engine();
    let body = "(memory.fill (i32.const 2048) (i32.const 97) (i32.const 30000))
                (i32.store (i32.const 512) (i32.const 1)) (i32.store (i32.const 516) (i32.const 2048))
                (i32.store (i32.const 520) (i32.const 30000)) (i32.const 512)";
    let text = rank(&engine, &Hostile { rank: body, ..Hostile::default() });
    assert_eq!(text.len(), engine.limits().fault_bytes_max);
}

#[test]
fn a_module_can_fail_at_start() {
    let engine = engine();
    let load = |hostile: Hostile| Module::load(&engine, World::ConflictRule, &hostile.component(), "{}");
    let looping = Hostile { start: "(loop $again (br $again))", ..Hostile::default() };
    assert!(matches!(load(looping), Err(LoadError::Start(text)) if text.contains("fuel")));
    let trapping = Hostile { start: "(unreachable)", ..Hostile::default() };
    assert!(matches!(load(trapping), Err(LoadError::Start(text)) if text.contains("unreachable")));
    assert!(load(Hostile { start: "(nop)", ..Hostile::default() }).is_ok(), "a harmless start function is fine");
    let refusing = Hostile {
        init: "(i32.store (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const 64))
               (i32.store (i32.const 136) (i32.const 4)) (i32.const 128)",
        ..Hostile::default()
    };
    assert!(matches!(load(refusing), Err(LoadError::Config(text)) if text.contains("evil")));
    let rotation = Builtin::find(World::ConflictRule, "fair-rotation").expect("is built in");
    assert!(matches!(rotation.load(&engine, r#"{"turns": -1}"#), Err(LoadError::Config(_))));
    assert!(matches!(rotation.load(&engine, r#"{"turn": 1}"#), Err(LoadError::Config(_))));
}

#[test]
fn static_checks_reject_components_before_compilation() {
    let engine = engine();
    let load = |bytes: &[u8]| match Module::load(&engine, World::ConflictRule, bytes, "") {
        Err(LoadError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    };
    let core = wat::parse_str("(module)").expect("parses");
    assert!(matches!(load(&core), Refusal::NotAComponent(why) if why.contains("core module")));
    assert!(matches!(load(b"\x7fELF\x02\x01\x01"), Refusal::NotAComponent(why) if why.contains("precompiled")));
    assert!(matches!(load(b""), Refusal::NotAComponent(_)));
    let wasi = r#"(component (import "wasi:clocks/wall-clock@0.2.0" (instance)))"#;
    let refusal = load(&wat::parse_str(wasi).expect("parses"));
    assert_eq!(refusal, Refusal::Imports("wasi:clocks/wall-clock@0.2.0".to_owned()));
    assert!(matches!(load(&wat::parse_str("(component)").expect("parses")), Refusal::OtherWorld { .. }));
    let validator = Builtin::find(World::IsolationValidator, "snapshot").expect("is built in");
    assert!(matches!(load(validator.bytes), Refusal::OtherWorld { world: "conflict-rule", .. }));
    let hungry = Hostile { pages: 257, ..Hostile::default() }.component();
    assert!(matches!(load(&hungry), Refusal::Memory(_)));
    let mut cut = Hostile::default().component();
    cut.truncate(cut.len() / 2);
    assert!(matches!(load(&cut), Refusal::Invalid(_)));
    let shared = wat::parse_str("(component (core module (memory 1 2 shared)))").expect("parses");
    assert!(matches!(load(&shared), Refusal::Invalid(_)));
    let wide = wat::parse_str("(component (core module (memory i64 1)))").expect("parses");
    assert!(matches!(load(&wide), Refusal::Invalid(_)));

    let small = engine_with(PluginLimits { component_bytes_max: 100, instances_max: 1, ..PluginLimits::default() });
    let refused = Module::load(&small, World::ConflictRule, &Hostile::default().component(), "");
    assert!(matches!(refused, Err(LoadError::Refused(Refusal::TooLarge { max: 100, .. }))));
}

#[test]
fn the_pool_survives_ten_thousand_calls_with_faults_in_between() {
    let limits = PluginLimits { instances_max: 2, fuel_per_call: 50_000, fuel_per_txn: 100, ..PluginLimits::default() };
    let engine = engine_with(limits);
    let load = |rank| {
        let hostile = Hostile { rank, ..Hostile::default() };
        let module = Module::load(&engine, World::ConflictRule, &hostile.component(), "").expect("passes the gate");
        WasmRule::new(module).expect("says what it needs")
    };
    let good = load(Hostile::default().rank);
    let bad = ["(unreachable)", "(loop $again (br $again)) (unreachable)", "(i32.const 513)"].map(load);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..2_500 {
                    if round % 5 == 4 {
                        assert!(bad[round / 5 % bad.len()].rank(&three()).is_err());
                    } else {
                        assert_eq!(good.rank(&three()).expect("still works").lo, [30, 10, 20]);
                    }
                }
            });
        }
    });
}

#[test]
fn every_builtin_passes_the_static_checks_under_its_own_name() {
    let engine = engine();
    assert_eq!(BUILTINS.len(), 10);
    for builtin in BUILTINS {
        let module = builtin.load(&engine, "").expect("loads");
        assert_eq!(module.description().name, builtin.name);
        assert!(module.description().about.ends_with('.'));
        assert_eq!(module.world(), builtin.world);
        let again = builtin.load(&engine, "").expect("loads");
        assert_eq!(module.digest(), again.digest());
    }
}
