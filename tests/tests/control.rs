//! The fold of the control log: on random histories, and told by hand. `TRIBUNAL_MODEL_CASES` sets how many histories
//! (10,000 if unset).

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tribunal_core::control::{Applied, Effect, Moment, Refusal, ReplicatedState};
use tribunal_tests::control::{check, histories};
use tribunal_types::{ApiKey, ControlChange, ControlIndex, Epoch, Existence, NamespaceId, NodeId, StoreId, StoreSpec};

#[test]
fn random_histories_add_up_to_one_state_from_every_image() {
    let cases = std::env::var("TRIBUNAL_MODEL_CASES").ok();
    let cases = cases.map_or(10_000, |n| n.parse().expect("TRIBUNAL_MODEL_CASES is a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&histories(), |history| check(&history).map_err(TestCaseError::fail));
    if let Err(failed) = result {
        panic!("{failed}");
    }
}

/// A control log and what it adds up to.
#[derive(Default)]
struct Log(ReplicatedState);

impl Log {
    fn write(&mut self, change: &ControlChange) -> Applied {
        let index = ControlIndex(self.0.index().0 + 1);
        self.0.apply(index, change, Moment { next: Epoch(1), has_records: &|_| false })
    }
}

fn store(name: &str, config: &str) -> ControlChange {
    let (name, adaptor_config) = (name.to_owned(), config.to_owned());
    ControlChange::DeclareStore(StoreSpec { name, adaptor_config, ..StoreSpec::default() })
}

fn key(id: &str, tenant: &str) -> ControlChange {
    ControlChange::CreateKey(ApiKey { id: id.into(), namespace_name: tenant.into(), ..ApiKey::default() })
}

/// Both proposers have seen nothing of each other: neither knows a number.
#[test]
fn two_proposers_race_for_the_same_names_and_for_others() {
    let mut log = Log::default();
    let declared = |store, created| Ok(Effect::StoreDeclared { store: StoreId(store), created });
    assert_eq!(log.write(&store("kv", "")), declared(1, true), "A");
    assert_eq!(log.write(&store("kv", "")), Ok(Effect::StoreKnown(StoreId(1))), "B: the same store");
    assert_eq!(log.write(&store("orders", "")), declared(3, true), "A");
    assert_eq!(log.write(&store("carts", "")), declared(4, true), "B: another store, another number");
    assert_eq!(log.write(&store("kv", "elsewhere")), declared(1, false), "B changes A's store");
    let tenant = |applied| match applied {
        Ok(Effect::KeyCreated { key, founded }) => (key.namespace, founded),
        other => panic!("{other:?}"),
    };
    assert_eq!(tenant(log.write(&key("a", "shop"))), (NamespaceId(6), true), "A");
    assert_eq!(tenant(log.write(&key("b", "shop"))), (NamespaceId(6), false), "B: the same tenant");
    assert_eq!(tenant(log.write(&key("c", "bank"))), (NamespaceId(8), true), "B");
    assert_eq!(log.write(&key("c", "shop")), Err(Refusal::KeyIdTaken), "A drew the id that B drew");
    for (name, node) in [("x", 1), ("y", 2), ("x", 1)] {
        let admitted = log.write(&ControlChange::AdmitNode { name: name.into() });
        assert_eq!(admitted, Ok(Effect::NodeAdmitted(NodeId(node))), "{name}");
    }
}

#[test]
fn what_was_lost_in_a_salvage_changes_no_number_of_what_is_left() {
    let history = [store("a", ""), store("b", ""), key("k", "shop"), store("c", ""), key("l", "bank")];
    let mut whole = Log::default();
    history.iter().for_each(|change| drop(whole.write(change)));
    for lost in 0..history.len() {
        let mut log = Log::default();
        for (at, change) in history.iter().enumerate() {
            let _ = log.write(if at == lost { &ControlChange::Lost } else { change });
        }
        for declared in log.0.stores().stores() {
            assert_eq!(whole.0.stores().store(declared.spec.id), Some(declared), "without entry {}", lost + 1);
        }
        assert!(log.0.keys().tenants().all(|(name, number)| whole.0.keys().namespace(name) == Some(number)));
    }
}

#[test]
fn a_later_declaration_carries_the_number_over_the_loss_of_the_first() {
    let mut log = Log::default();
    let _ = log.write(&ControlChange::Lost);
    let known = StoreSpec { id: StoreId(1), name: "kv".into(), existence: Existence::Declared, ..StoreSpec::default() };
    let declared = Ok(Effect::StoreDeclared { store: StoreId(1), created: true });
    assert_eq!(log.write(&ControlChange::DeclareStore(known)), declared, "its rows are under that number");
}
