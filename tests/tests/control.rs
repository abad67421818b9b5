//! The fold of the control log, on random histories and on hand-written ones. `TRIBUNAL_MODEL_CASES` sets the number of
//! histories (10,000 if unset).

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tribunal_core::control::{Applied, Effect, Moment, Refusal, ReplicatedState};
use tribunal_tests::control::{check, histories};
use tribunal_types::{
    ApiKey, Component, ComponentReport, ControlChange, ControlEntry, ControlIndex, Epoch, Existence, FilledBy,
    NamespaceId, NodeId, PluginActivation, PluginChoice, ProposalId, StoreId, StoreSpec,
};

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

/// A control log and the state that it folds to.
#[derive(Default)]
struct Log(ReplicatedState, Vec<NodeId>);

impl Log {
    fn write(&mut self, change: &ControlChange) -> Applied {
        self.write_entry(&change.clone().into())
    }

    fn write_entry(&mut self, entry: &ControlEntry) -> Applied {
        let index = ControlIndex(self.0.index().0 + 1);
        self.0.apply(index, entry, Moment { next: Epoch(1), is_existence_fixed: &|_| false, members: &self.1 })
    }
}

fn store(name: &str, config: &str) -> ControlChange {
    let (name, adaptor_config) = (name.to_owned(), config.to_owned());
    ControlChange::DeclareStore(StoreSpec { name, adaptor_config, ..StoreSpec::default() })
}

fn key(id: &str, tenant: &str) -> ControlChange {
    ControlChange::CreateKey(ApiKey { id: id.into(), namespace_name: tenant.into(), ..ApiKey::default() })
}

/// Neither proposer has seen the other's entries, so neither knows which number the other takes.
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
        let admitted =
            log.write(&ControlChange::AdmitNode { name: name.into(), address: "h:1".into(), voters: Vec::new() });
        assert_eq!(admitted, Ok(Effect::NodeAdmitted(NodeId(node))), "{name}");
    }
}

#[test]
fn a_change_that_arrives_again_undoes_nothing_that_came_in_between() {
    let mut log = Log::default();
    let entry = |run, change| ControlEntry { proposal: ProposalId { run, number: 1 }, change };
    let (first, second) = (entry(7, store("kv", "here")), entry(8, store("kv", "there")));
    let declared = |created| Ok(Effect::StoreDeclared { store: StoreId(1), created });
    assert_eq!(log.write_entry(&first), declared(true));
    assert_eq!(log.write_entry(&second), declared(false));
    assert_eq!(log.write_entry(&first), Ok(Effect::Repeated), "its proposer did not know that it was agreed on");
    assert_eq!(log.0.stores().store(StoreId(1)).map(|store| store.spec.adaptor_config.as_str()), Some("there"));
    let mut log = Log(ReplicatedState::restore(log.0.image()), log.1);
    assert_eq!(log.write_entry(&second), Ok(Effect::Repeated), "an image knows it, too");
    let next = ControlEntry { proposal: ProposalId { run: 7, number: 2 }, change: store("orders", "") };
    assert_eq!(log.write_entry(&next), Ok(Effect::StoreDeclared { store: StoreId(5), created: true }));
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

fn announced(code: u8, by: FilledBy, replaces: u64) -> ControlChange {
    let choice = PluginChoice {
        name: "p".into(),
        digest: [code; 32],
        host: "a".into(),
        announced: true,
        ..PluginChoice::default()
    };
    let replaces = ControlIndex(replaces);
    ControlChange::ActivatePlugin(PluginActivation { choice, by, replaces, ..PluginActivation::default() })
}

fn report_of(problem: &str) -> ComponentReport {
    ComponentReport { engine: "a".into(), problem: problem.into() }
}

/// An activation counts only after every current member has reported, whatever its proposer has seen.
#[test]
fn an_announced_plugin_is_activated_when_every_member_has_it_ready() {
    let mut log = Log(ReplicatedState::default(), vec![NodeId(1), NodeId(2)]);
    let digest = [7; 32];
    let activate = || announced(7, FilledBy::Request, 0);
    let report =
        |node, problem: &str| ControlChange::ReportComponent { digest, node: NodeId(node), report: report_of(problem) };
    assert_eq!(log.write(&activate()), Err(Refusal::PluginNotReady), "nobody has announced it");
    let component = Component { digest, name: "p".into(), ..Component::default() };
    assert_eq!(log.write(&ControlChange::AnnounceComponent(component.clone())), Ok(Effect::ComponentAnnounced(digest)));
    assert_eq!(log.write(&report(1, "")), Ok(Effect::ComponentReported(digest)));
    assert_eq!(log.write(&activate()), Err(Refusal::PluginNotReady), "2 has not reported");
    assert_eq!(log.write(&report(2, "no memory")), Ok(Effect::ComponentReported(digest)));
    assert_eq!(log.write(&activate()), Err(Refusal::PluginNotReady), "2 cannot run it");
    assert!(log.write(&report(2, "")).is_ok());
    let mut log = Log(ReplicatedState::restore(log.0.image()), log.1);
    log.1.push(NodeId(3));
    assert_eq!(log.write(&activate()), Err(Refusal::PluginNotReady), "3 has joined meanwhile");
    log.1.pop();
    assert!(matches!(log.write(&activate()), Ok(Effect::PluginActivated { holds: true, .. })));
    assert_eq!(log.write(&ControlChange::ForgetPlugin { digest }), Err(Refusal::PluginInUse));
    // During an upgrade, a member runs another engine version: the members could not decide alike.
    let other = ComponentReport { engine: "b".into(), ..report_of("") };
    assert!(log.write(&ControlChange::ReportComponent { digest, node: NodeId(2), report: other }).is_ok());
    for by in [FilledBy::Request, FilledBy::Rollback] {
        assert_eq!(log.write(&announced(7, by, 0)), Err(Refusal::EnginesDiffer), "{by:?}");
    }
}

/// A deletion and an activation on two nodes race: the first to commit counts.
#[test]
fn a_deleted_plugin_is_not_activated() {
    let mut log = Log(ReplicatedState::default(), vec![NodeId(1)]);
    let digest = [7; 32];
    let component = Component { digest, name: "p".into(), ..Component::default() };
    assert!(log.write(&ControlChange::AnnounceComponent(component)).is_ok());
    assert!(log.write(&ControlChange::ReportComponent { digest, node: NodeId(1), report: report_of("") }).is_ok());
    assert_eq!(log.write(&ControlChange::ForgetPlugin { digest }), Ok(Effect::PluginForgotten(digest)));
    for by in [FilledBy::Request, FilledBy::Rollback] {
        assert_eq!(log.write(&announced(7, by, 0)), Err(Refusal::PluginNotReady), "{by:?}");
    }
}

/// Every member reports the faults of a plugin, one of them late: an activation in force by then is not rolled back.
#[test]
fn a_late_notice_of_faults_does_not_roll_the_next_activation_back() {
    let mut log = Log::default();
    let activation = |code, by, replaces| {
        let choice = PluginChoice { name: format!("p{code}"), digest: [code; 32], ..PluginChoice::default() };
        let replaces = ControlIndex(replaces);
        ControlChange::ActivatePlugin(PluginActivation { choice, by, replaces, ..PluginActivation::default() })
    };
    assert!(log.write(&activation(1, FilledBy::Configuration, 0)).is_ok(), "entry 1");
    assert!(log.write(&activation(2, FilledBy::Request, 0)).is_ok(), "entry 2, which fails");
    assert!(log.write(&activation(3, FilledBy::Request, 0)).is_ok(), "entry 3");
    assert_eq!(log.write(&activation(1, FilledBy::Faults, 2)), Ok(Effect::Unchanged), "of entry 2, and 3 holds");
    assert!(matches!(log.write(&activation(2, FilledBy::Faults, 3)), Ok(Effect::PluginActivated { .. })));
    assert_eq!(
        log.write(&activation(1, FilledBy::Faults, 3)),
        Ok(Effect::Unchanged),
        "another member's notice of entry 3"
    );
}
