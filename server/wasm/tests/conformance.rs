//! Every built-in plugin passes the conformance kit, and modules with one violation each fail at the expected check.

mod hostile;

use std::sync::Arc;

use hostile::Hostile;
use tribunal_types::Isolation;
use tribunal_wasm::conformance::{Failure, Report, check};
use tribunal_wasm::{BUILTINS, Builtin, FaultKind, PluginEngine, PluginLimits, World, encode};

fn engine_with(limits: PluginLimits) -> Arc<PluginEngine> {
    PluginEngine::new(limits).expect("the engine starts")
}

fn engine() -> Arc<PluginEngine> {
    engine_with(PluginLimits { instances_max: 1, ..PluginLimits::default() })
}

fn report(engine: &Arc<PluginEngine>, world: World, name: &str) -> Report {
    let builtin = Builtin::find(world, name).expect("is built in");
    check(engine, builtin.bytes, "", None).unwrap_or_else(|failure| panic!("{name}: {failure}"))
}

#[test]
fn every_builtin_passes_within_its_budget() {
    let engine = engine();
    for builtin in BUILTINS {
        let report = report(&engine, builtin.world, builtin.name);
        assert_eq!(report.world, builtin.world);
        assert_eq!((&*report.description.name, &*report.description.about), (builtin.name, builtin.about));
        assert!(report.checks.len() >= 4, "{}: {:?}", builtin.name, report.checks);
        assert!(report.cost.fuel_per_item > 0, "{}: {:?}", builtin.name, report.cost);
        assert!(report.cost.fuel_per_item < report.cost.budget_per_item, "{}: {:?}", builtin.name, report.cost);
    }
}

#[test]
fn built_in_validators_keep_their_own_levels() {
    use Isolation::{ReadCommitted, RepeatableRead, Serializable, Snapshot};
    let engine = engine();
    for (name, levels) in [
        ("read-committed", vec![ReadCommitted]),
        ("repeatable-read", vec![ReadCommitted, RepeatableRead]),
        ("snapshot", vec![ReadCommitted, Snapshot]),
        ("serializable", vec![ReadCommitted, RepeatableRead, Serializable]),
    ] {
        let report = report(&engine, World::IsolationValidator, name);
        assert_eq!(report.levels, levels, "{name}: {:?}", report.misses);
        assert_eq!(report.misses.len() + report.levels.len(), 4);
    }
}

#[test]
fn equal_behaviour_has_equal_digests() {
    let engine = engine();
    let of = |hostile: Hostile| check(&engine, &hostile.component(), "", None).expect("passes").behaviour;
    let template = of(Hostile::default());
    // The template ranks by CSN in both halves of the rank, the built-in in one; the resulting order is the same.
    assert_eq!(template, report(&engine, World::ConflictRule, "first-writer-wins").behaviour);
    assert_ne!(template, report(&engine, World::ConflictRule, "priority").behaviour);
}

/// Returns the kit's failure for a hostile rule.
#[track_caller]
fn refusal(engine: &Arc<PluginEngine>, hostile: &Hostile) -> Failure {
    check(engine, &hostile.component(), "", Some(World::ConflictRule)).expect_err("breaks a promise")
}

/// A rule that overwrites the high ranks; `item` computes the rank of transaction `$i`.
fn ranking(item: &str) -> Hostile {
    let rank = format!(
        "(local $i i32)
         (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (local.get $csns)))
            (i64.store (i32.add (i32.const 8192) (i32.shl (local.get $i) (i32.const 3))) {item})
            (local.set $i (i32.add (local.get $i) (i32.const 1))) (br $next)))
         (i32.store (i32.const 516) (i32.const 8192)) (i32.store (i32.const 520) (local.get $csns))
         (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
         (i32.const 512)"
    );
    Hostile { rank: Box::leak(rank.into_boxed_str()), top: 1 << 20, pages: 64, ..Hostile::default() }
}

#[test]
fn a_rank_by_position_is_not_invariant_under_shuffles() {
    let failure = refusal(&engine(), &ranking("(i64.extend_i32_u (local.get $i))"));
    assert!(
        matches!(&failure, Failure::Broken { check: "shuffled batches", why, .. } if why.contains("another order")),
        "{failure}"
    );
}

#[test]
fn a_rank_by_batch_size_depends_on_other_transactions() {
    // The rank is the CSN or its complement, depending on the number of transactions.
    let csn = "(i64.load (i32.add (local.get $csn) (i32.shl (local.get $i) (i32.const 3))))";
    let item = format!(
        "(if (result i64) (i32.and (local.get $csns) (i32.const 1))
            (then {csn}) (else (i64.sub (i64.const -1) {csn})))"
    );
    let failure = refusal(&engine(), &ranking(Box::leak(item.into_boxed_str())));
    assert!(
        matches!(&failure, Failure::Broken { check: "subsets of a batch", why, .. } if why.contains("when the rest is not")),
        "{failure}"
    );
}

#[test]
fn faults_on_input_of_the_kit_name_the_check() {
    let engine = engine();
    for (rank, kind, text) in [
        ("(unreachable)", FaultKind::Trap, "unreachable"),
        ("(loop $again (br $again)) (unreachable)", FaultKind::OutOfFuel, "out of fuel"),
        ("(call $recurse (i32.const 0)) (unreachable)", FaultKind::StackOverflow, "stack"),
        ("(i32.const 513)", FaultKind::Convention, "convention"),
    ] {
        let failure = refusal(&engine, &Hostile { rank, ..Hostile::default() });
        let Failure::Fault { check: "golden vectors", fault, .. } = &failure else { panic!("{failure}") };
        assert_eq!(fault.kind, kind);
        assert!(failure.to_string().contains(text), "{failure}");
    }
    let short = "(i32.store (i32.const 516) (i32.const 1024)) (i32.store (i32.const 520) (i32.const 2))
                 (i32.store (i32.const 524) (i32.const 1024)) (i32.store (i32.const 528) (i32.const 1))
                 (i32.const 512)";
    let failure = refusal(&engine, &Hostile { rank: short, ..Hostile::default() });
    assert!(failure.to_string().contains("2 high and 1 low ranks for 1 transactions"), "{failure}");
}

#[test]
fn the_world_of_a_plugin_is_the_one_that_it_exports() {
    let engine = engine();
    let validator = Builtin::find(World::IsolationValidator, "snapshot").expect("is built in");
    let failure = check(&engine, validator.bytes, "", Some(World::ConflictRule)).expect_err("lies");
    assert_eq!(failure.to_string(), "the component is of world isolation-validator, not of conflict-rule");
    let empty = wat::parse_str("(component)").expect("parses");
    let failure = check(&engine, &empty, "", None).expect_err("is nothing");
    assert!(failure.to_string().contains("tribunal:plugin/rule@1.0.0"), "{failure}");
    // The name of the interface alone is not enough.
    let named = wat::parse_str(
        r#"(component (component $inner) (instance $i (instantiate $inner))
            (export "tribunal:plugin/rule@1.0.0" (instance $i)))"#,
    )
    .expect("parses");
    let failure = check(&engine, &named, "", None).expect_err("has no functions");
    assert!(failure.to_string().contains("not of world conflict-rule"), "{failure}");
}

#[test]
fn a_component_for_another_version_of_the_interfaces_is_told_both() {
    let exporting = |name: &str| {
        let text = format!(
            r#"(component (component $inner) (instance $i (instantiate $inner)) (export "{name}" (instance $i)))"#
        );
        check(&engine(), &wat::parse_str(text).expect("parses"), "", None).expect_err("has no functions").to_string()
    };
    for (found, known) in [
        ("tribunal:plugin/rule@2.0.0", "tribunal:plugin/rule@1.0.0"),
        ("tribunal:plugin/lifecycle@0.9.0", "tribunal:plugin/lifecycle@1.0.0"),
    ] {
        let refused = exporting(found);
        assert!(refused.contains(&format!("{found}, and this release of Tribunal has {known}")), "{refused}");
    }
    assert!(!exporting("tribunal:other/rule@2.0.0").contains("this release"), "it has nothing to do with plugins");
}

#[test]
fn core_modules_without_imports_become_components() {
    let importing = wat::parse_str(
        r#"(module (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32))))"#,
    );
    let refused = encode::encode(&importing.expect("parses"), World::ConflictRule).expect_err("imports");
    assert_eq!(refused.to_string(), "it imports wasi_snapshot_preview1::random_get; plugins must not import anything");
    let empty =
        encode::encode(&wat::parse_str("(module)").expect("parses"), World::ConflictRule).expect_err("is empty");
    assert!(empty.to_string().contains("does not fit the world conflict-rule"), "{empty}");
    assert!(encode::encode(b"\0asm\x0d\0\x01\0", World::ConflictRule).is_err(), "a component is no module");
    let plain = Hostile::default().module();
    let component = encode::encode(&plain, World::ConflictRule).expect("fits");
    assert!(check(&engine(), &component, "", None).is_ok());
}
