//! Code from a store decides as freshly compiled code does; anything else found in the store is ignored.

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

// SAFETY: it returns what was stored under the key. The other bytes that the tests store are not object files.
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

/// Loads the rule. Returns the origin of its code, its ranks, and the fuel used.
fn decide(engine: &Arc<PluginEngine>, shelf: &Shelf) -> (CodeOrigin, Ranks, u64) {
    let module = Module::load_kept(engine, World::ConflictRule, &Hostile::default().component(), Some(""), shelf);
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
fn stored_code_gives_equal_results_for_the_same_fuel() {
    let shelf = Shelf::default();
    let (origin, ranks, fuel) = decide(&engine(20_000), &shelf);
    assert_eq!(origin, CodeOrigin::Compiled);
    // Another engine with the same fingerprint, as after a restart.
    assert_eq!(decide(&engine(20_000), &shelf), (CodeOrigin::Kept, ranks.clone(), fuel));
    // An engine with other limits does not use that code, and stores its own.
    assert_eq!(decide(&engine(20_001), &shelf).0, CodeOrigin::Compiled);
    assert_eq!(shelf.0.lock().expect("is free").len(), 2);

    for garbage in [&b""[..], b"\x7fELF\x02\x01\x01", &[0; 4096]] {
        for code in shelf.0.lock().expect("is free").values_mut() {
            *code = garbage.to_vec();
        }
        assert_eq!(decide(&engine(20_000), &shelf), (CodeOrigin::Compiled, ranks.clone(), fuel));
        assert_eq!(decide(&engine(20_000), &shelf).0, CodeOrigin::Kept, "it was stored again");
    }
}

#[test]
fn without_a_store_code_is_compiled_each_time() {
    let module = Module::load(&engine(20_000), World::ConflictRule, &Hostile::default().component(), "");
    assert_eq!(module.expect("loads").origin(), CodeOrigin::Compiled);
}
