//! Compiled code that was kept decides as what was compiled; what is no such code is compiled again.

mod hostile;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hostile::Hostile;
use tribunal_core::policy::{ConflictRule, Ranks, TxnColumns};
use tribunal_wasm::{CodeKey, CodeOrigin, CodeStore, Module, PluginEngine, PluginLimits, WasmRule, World};

/// A component's digest and an engine's fingerprint.
type Place = ([u8; 32], [u8; 32]);

#[derive(Default)]
struct Shelf(Mutex<BTreeMap<Place, Vec<u8>>>);

// SAFETY: it gives back what it was given under the key; what the tests put there besides is no object file at all.
unsafe impl CodeStore for Shelf {
    fn find(&self, key: &CodeKey) -> Option<Vec<u8>> {
        self.0.lock().expect("no test panics with it").get(&(key.component, key.engine.0)).cloned()
    }

    fn keep(&self, key: &CodeKey, code: &[u8]) {
        self.0.lock().expect("no test panics with it").insert((key.component, key.engine.0), code.to_vec());
    }
}

fn engine(fuel_per_txn: u64) -> Arc<PluginEngine> {
    let limits = PluginLimits { instances_max: 2, fuel_per_txn, ..PluginLimits::default() };
    PluginEngine::new(limits).expect("the engine starts")
}

/// Loads the rule; returns where its code came from, what it decides, and for how much fuel.
fn decide(engine: &Arc<PluginEngine>, shelf: &Shelf) -> (CodeOrigin, Ranks, u64) {
    let module = Module::load_kept(engine, World::ConflictRule, &Hostile::default().component(), "", shelf);
    let module = module.expect("loads");
    let origin = module.origin();
    let rule = WasmRule::new(module).expect("says what it needs");
    let columns = TxnColumns {
        csn: vec![30, 10, 20],
        epoch: 7,
        start: vec![7; 3],
        origin: vec![1, 2, 3],
        priority: vec![100; 3],
        reads: vec![0; 3],
        writes: vec![1; 3],
        first_attempt: vec![1; 3],
    };
    let (ranks, fuel) = rule.rank_metered(&columns).expect("behaves");
    assert_eq!(rule.rank(&columns).as_ref(), Ok(&ranks));
    (origin, ranks, fuel)
}

#[test]
fn kept_code_decides_alike_for_the_same_fuel() {
    let shelf = Shelf::default();
    let (origin, ranks, fuel) = decide(&engine(20_000), &shelf);
    assert_eq!(origin, CodeOrigin::Compiled);
    // Another engine of the same fingerprint, as after a restart.
    assert_eq!(decide(&engine(20_000), &shelf), (CodeOrigin::Kept, ranks.clone(), fuel));
    // One of other limits takes nothing from it, and keeps its own.
    assert_eq!(decide(&engine(20_001), &shelf).0, CodeOrigin::Compiled);
    assert_eq!(shelf.0.lock().expect("is free").len(), 2);

    for garbage in [&b""[..], b"\x7fELF\x02\x01\x01", &[0; 4096]] {
        for code in shelf.0.lock().expect("is free").values_mut() {
            *code = garbage.to_vec();
        }
        assert_eq!(decide(&engine(20_000), &shelf), (CodeOrigin::Compiled, ranks.clone(), fuel));
        assert_eq!(decide(&engine(20_000), &shelf).0, CodeOrigin::Kept, "it was kept anew");
    }
}

#[test]
fn without_a_store_nothing_is_kept() {
    let module = Module::load(&engine(20_000), World::ConflictRule, &Hostile::default().component(), "");
    assert_eq!(module.expect("loads").origin(), CodeOrigin::Compiled);
}
