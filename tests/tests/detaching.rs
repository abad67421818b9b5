//! When a replica proposes that a store be detached which holds the log back: a storage that has not told what it has
//! since its push was started has the whole quota from there, and only the node that pushes to it proposes anything.

use std::time::Duration;

use tribunal_core::batcher::Batcher;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::Epochs;
use tribunal_core::executor::Inline;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::visibility::Visibility;
use tribunal_replica::{Effect, Event, Now, PushReport, Replica, ReplicaStart, Settings};
use tribunal_tests::cluster::group;
use tribunal_tests::stand_ins::{Native, Numbered};
use tribunal_types::{
    ControlChange, ControlImage, ControlIndex, Csn, DeclaredStore, Epoch, Lsn, NodeId, Pusher, StoreId, StoreSpec,
};

const STORE: StoreId = StoreId(1);
/// The entry that names the node that pushes.
const PUSH: ControlIndex = ControlIndex(9);
/// The last epoch that was decided when the push was started.
const FROM: u64 = 1000;

struct Played {
    replica: Replica<Numbered, Native, Inline>,
    now: Now,
}

impl Played {
    /// Node 1, which starts after epoch 1000 of a log with records of the store. `pusher` pushes to its storage.
    fn new(pusher: Option<u16>) -> Played {
        let spec = StoreSpec { id: STORE, adaptor: Some("redis".into()), ..StoreSpec::default() };
        let pusher = pusher.map(|node| Pusher { node: NodeId(node), since: PUSH });
        let generation = if pusher.is_some() { ControlIndex(3) } else { PUSH };
        let declared = DeclaredStore { spec: spec.clone(), generation, pusher, ..DeclaredStore::default() };
        let mut resolver = Resolver::new(ResolverConfig::default());
        resolver.declare_store(spec);
        let mut visibility = Visibility::new(Epoch(FROM));
        visibility.note_epoch(Epoch(500), &[(STORE, Lsn(20))]);
        visibility.note_epoch(Epoch(FROM), &[(STORE, Lsn(50))]);
        let own = group(1);
        let start = ReplicaStart {
            group: own,
            leads: true,
            batcher: Batcher::new(own, Csn::new(0, own.node)),
            visibility,
            control: ControlIndex(0),
            resolver,
            epochs: Epochs::new(&[own], Epoch(FROM + 1), 0),
            replicated: ReplicatedState::restore(ControlImage { stores: vec![declared], ..ControlImage::default() }),
            run: 7,
            policies: Native,
            executor: Inline,
            replayed: 0,
            settings: Settings {
                epoch_length: None,
                image_every_bytes: u64::MAX,
                epoch_bytes: 0,
                quota: "24 hours".into(),
                in_flight_max: 1,
                pause_min: Duration::ZERO,
                batch_bytes_max: 1 << 20,
                take_over_after: None,
            },
        };
        let now = Now { monotonic: Duration::from_secs(1), unix_us: 1_000_000 };
        Played { replica: Replica::new(start, now), now }
    }

    fn step(&mut self, event: Event<Numbered>) -> Vec<ControlChange> {
        self.replica.step(event, self.now);
        let mut proposed = Vec::new();
        while let Some(effect) = self.replica.poll() {
            if let Effect::AppendControl(_, entry) = effect {
                proposed.push(entry.change);
            }
        }
        proposed
    }

    /// The quota leaves the epochs from `bound` on. Returns whether the replica proposes to detach the store.
    fn detaches_at(&mut self, bound: u64) -> bool {
        match self
            .step(Event::OverQuota {
                store: STORE,
                bound: Epoch(bound),
                complaint: None,
                opens_at: None,
                whole_elsewhere: false,
            })
            .as_slice()
        {
            [] => false,
            [ControlChange::DetachPush(detachment)] => detachment.store == STORE,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_storage_that_was_not_reached_since_the_push_was_started_has_the_quota_from_there() {
    for pusher in [None, Some(1)] {
        let mut played = Played::new(pusher);
        played.now.monotonic += Duration::from_secs(23 * 3600);
        assert!(!played.detaches_at(900), "the log was that long before the push was started");
        assert!(!played.detaches_at(FROM));
        assert!(played.detaches_at(FROM + 1));
        assert!(!played.detaches_at(FROM + 2), "that is on its way");
    }
}

#[test]
fn a_storage_that_has_told_what_it_has_is_detached_by_that() {
    let mut played = Played::new(Some(1));
    let report = PushReport { rewound: Some(Lsn(10)), acked: None, stopped: false };
    assert_eq!(played.step(Event::Pushed { store: STORE, generation: PUSH, report }), []);
    assert!(played.detaches_at(900), "it lacks records from before");
    let mut played = Played::new(Some(1));
    let report = PushReport { rewound: Some(Lsn(50)), acked: None, stopped: false };
    played.step(Event::Pushed { store: STORE, generation: PUSH, report });
    assert!(!played.detaches_at(900), "it has everything");
}

#[test]
fn only_the_node_that_pushes_proposes_to_detach() {
    let mut played = Played::new(Some(2));
    played.now.monotonic += Duration::from_secs(23 * 3600);
    assert!(!played.detaches_at(FROM + 500));
}
