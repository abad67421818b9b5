//! A replica and the code that decides its epochs: it passes no epoch whose code is missing, and reports which
//! activation failed.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tribunal_core::batcher::Batcher;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::Epochs;
use tribunal_core::executor::Inline;
use tribunal_core::policy::Policies;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::visibility::Visibility;
use tribunal_replica::{Effect, Event, Now, PolicyRunner, Replica, ReplicaStart, Settings};
use tribunal_tests::cluster::group;
use tribunal_tests::stand_ins::{Native, Numbered};
use tribunal_types::{
    Batch, ControlChange, ControlIndex, Csn, Epoch, EpochOutcome, FenceItem, Generation, Isolation, NamespaceId,
    PluginActivation, PluginSlot, TxnId,
};

/// The behaviour of a test's code.
#[derive(Default)]
struct Code {
    is_missing: Cell<bool>,
    fails: Cell<bool>,
}

/// The native policies, as if they were code that may be missing or fail.
struct Runner(Rc<Code>);

impl PolicyRunner for Runner {
    fn policies(&self) -> Policies<'_> {
        assert!(!self.0.is_missing.get(), "nothing is decided without the code");
        Native.policies()
    }

    fn activated(&mut self, _: &PluginActivation, _: bool) {}

    fn is_complete(&mut self) -> bool {
        !self.0.is_missing.get()
    }

    fn set_generation(&mut self, _: Generation) {}

    fn install(&mut self, _: &PluginSlot) {}

    fn set_faults_max(&mut self, _: u32) {}

    fn fell_back(&self, _: Option<Isolation>) {}

    fn count_faults(&mut self, _: &EpochOutcome) -> Vec<PluginSlot> {
        if self.0.fails.get() { vec![PluginSlot::Rule] } else { Vec::new() }
    }
}

struct Played {
    code: Rc<Code>,
    replica: Replica<Numbered, Runner, Inline>,
    time_ms: u64,
}

impl Played {
    fn new() -> Played {
        let code = Rc::new(Code::default());
        let own = group(1);
        let start = ReplicaStart {
            group: own,
            leads: false,
            batcher: Batcher::new(own, Csn::new(0, own.node)),
            visibility: Visibility::new(Epoch(0)),
            control: ControlIndex(0),
            resolver: Resolver::new(ResolverConfig::default()),
            // The other member leads nothing, and has sealed everything requested from it.
            epochs: Epochs::new(&[group(2)], Epoch(1), 0),
            replicated: ReplicatedState::default(),
            run: 7,
            policies: Runner(Rc::clone(&code)),
            executor: Inline,
            replayed: 0,
            settings: Settings {
                epoch_length: None,
                image_every_bytes: u64::MAX,
                epoch_bytes: 0,
                quota: String::new(),
                in_flight_max: 1,
                pause_min: Duration::ZERO,
                batch_bytes_max: 1 << 20,
                take_over_after: Some(Duration::from_millis(700)),
            },
        };
        Played { code, replica: Replica::new(start, Now::default()), time_ms: 0 }
    }

    /// Delivers an event; returns the decided epochs and the failed activations.
    fn step(&mut self, event: Event<Numbered>) -> (Vec<u64>, Vec<u64>) {
        self.time_ms += 100;
        let monotonic = Duration::from_millis(self.time_ms);
        self.replica.step(event, Now { monotonic, unix_us: 1_000 * self.time_ms });
        let (mut decided, mut failed) = (Vec::new(), Vec::new());
        while let Some(effect) = self.replica.poll() {
            match effect {
                Effect::Decided(epoch) => decided.push(epoch.outcome.epoch.0),
                Effect::SlotFailing(PluginSlot::Rule, entry) => failed.push(entry.0),
                Effect::TakeOver(group) => panic!("node {} is not to blame", group.node),
                _ => {}
            }
        }
        (decided, failed)
    }

    /// Delivers the other member's entry for one epoch, with an item.
    fn entry(&mut self, epoch: u64, control: u64) -> (Vec<u64>, Vec<u64>) {
        let fence = FenceItem { id: TxnId([epoch as u8; 16]), namespace: NamespaceId(0) };
        let batch = Batch {
            group: group(2),
            first: Epoch(epoch),
            last: Epoch(epoch),
            control: ControlIndex(control),
            clock_ms: 5,
            fences: vec![fence],
            ..Batch::default()
        };
        self.step(Event::Entry(Arc::new(batch)))
    }

    fn activate(&mut self, index: u64) {
        let change = ControlChange::ActivatePlugin(PluginActivation::default());
        self.step(Event::ControlEntry(ControlIndex(index), change.into()));
    }
}

#[test]
fn no_epoch_is_decided_while_code_is_missing_and_all_are_afterwards() {
    let mut played = Played::new();
    assert_eq!(played.entry(1, 0).0, [1]);
    played.code.is_missing.set(true);
    for epoch in 2..20 {
        assert_eq!(played.entry(epoch, 0).0, [0; 0]);
        assert_eq!(played.replica.last_complete(), Epoch(1), "nobody is told that more is complete");
        assert!(played.replica.waits_for_code());
    }
    played.code.is_missing.set(false);
    assert_eq!(played.step(Event::Tick).0, (2..20).collect::<Vec<_>>());
    assert!(!played.replica.waits_for_code());
}

#[test]
fn faults_name_the_activation_that_failed() {
    let mut played = Played::new();
    played.code.fails.set(true);
    assert_eq!(played.entry(1, 0), (vec![1], vec![]), "nothing is active");
    played.activate(1);
    played.activate(2);
    // Epoch 2 carries both; 3 is the first epoch for which they count.
    assert_eq!(played.entry(2, 2).0, [2]);
    assert_eq!(played.entry(3, 2), (vec![3], vec![2]));
    played.activate(3);
    assert_eq!(played.entry(4, 3), (vec![4], vec![2]), "3 does not hold yet");
    assert_eq!(played.entry(5, 3), (vec![5], vec![3]));
}
