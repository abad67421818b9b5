//! The built-in rules and validators give the same results as their native counterparts on thousands of random columns,
//! and use the same fuel each time.

use std::sync::Arc;

use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{ConflictRule, Validator};
use tribunal_types::Isolation;
use tribunal_wasm::conformance::random::Random;
use tribunal_wasm::{PluginEngine, PluginLimits, builtin};

const ROUNDS: u64 = 1_000;

fn engine(columns_bytes_max: usize) -> Arc<PluginEngine> {
    let limits = PluginLimits { instances_max: 2, columns_bytes_max, ..PluginLimits::default() };
    PluginEngine::new(limits).expect("the engine starts")
}

#[test]
fn rules_rank_like_their_native_counterparts() {
    let (whole, cut) = (engine(PluginLimits::default().columns_bytes_max), engine(500));
    let mut random = Random(1);
    for (name, turns) in [
        ("first-writer-wins", 0),
        ("shorter-txn-wins", 0),
        ("priority", 0),
        ("fair-rotation", 0),
        ("fair-rotation", 1),
        ("fair-rotation", 7),
        ("fair-rotation", u32::MAX),
    ] {
        let config = if turns == 0 { String::new() } else { format!(r#"{{"turns": {turns}}}"#) };
        let load = |engine| builtin::rule(engine, name, &config).expect("is built in").expect("loads");
        let (wasm, in_pieces) = (load(&whole), load(&cut));
        let native = NativeRule::by_name(name, turns).expect("has a native counterpart");
        for round in 0..ROUNDS {
            let n = random.below(40) as usize;
            let txns = random.txns(n);
            let expected = native.rank(&txns).expect("natives never fail");
            let (ranks, fuel) = wasm.rank_metered(&txns).expect("no fault");
            assert_eq!(ranks, expected, "{name}, round {round}");
            if round % 10 == 0 {
                assert_eq!(wasm.rank_metered(&txns), Ok((ranks, fuel)), "the same fuel");
                assert_eq!(in_pieces.rank(&txns), Ok(expected), "{name} in pieces, round {round}");
            }
        }
    }
}

#[test]
fn validators_judge_like_their_native_counterparts() {
    let whole = builtin::validators(&engine(PluginLimits::default().columns_bytes_max)).expect("load");
    let cut = builtin::validators(&engine(700)).expect("load");
    let mut random = Random(2);
    let mut reasons = std::collections::BTreeSet::new();
    for level in Isolation::ALL {
        for round in 0..ROUNDS {
            let n = random.below(40) as usize;
            let columns = random.evidence(n);
            let expected = NativeValidator.validate(level, &columns).expect("natives never fail");
            reasons.extend(expected.code.iter().copied());
            let (judged, fuel) = whole.of(level).validate_metered(&columns).expect("no fault");
            assert_eq!(judged, expected, "{}, round {round}", level.name());
            if round % 10 == 0 {
                assert_eq!(whole.of(level).validate_metered(&columns), Ok((judged, fuel)), "the same fuel");
                assert_eq!(cut.validate(level, &columns), Ok(expected), "{} in pieces, round {round}", level.name());
            }
        }
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), [0, 128, 129, 130], "every reason was met");
}

#[test]
fn large_batches_fit() {
    let engine = engine(PluginLimits::default().columns_bytes_max);
    let validators = builtin::validators(&engine).expect("load");
    let rule = builtin::rule(&engine, "first-writer-wins", "").expect("is built in").expect("loads");
    let mut random = Random(3);
    let columns = random.evidence(70_000);
    for level in Isolation::ALL {
        let expected = NativeValidator.validate(level, &columns).expect("natives never fail");
        assert_eq!(validators.validate(level, &columns), Ok(expected));
    }
    assert_eq!(rule.rank(&columns.txns), NativeRule::FirstWriterWins.rank(&columns.txns));
}
