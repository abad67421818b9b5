//! When a replica proposes to detach a store that holds the log back. A storage that has reported no position since its
//! push started may lag by the whole quota from that start, and only the node that pushes to it proposes anything.
//! Every member has a copy of an embedded store, so its detachment is never proposed while there are other members; the
//! tests check instead which epoch the log waits for.

use std::time::Duration;

use tribunal_core::batcher::Batcher;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::Epochs;
use tribunal_core::executor::Inline;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::visibility::Visibility;
use tribunal_replica::{AppliedTo, Effect, Event, Now, PushReport, Replica, ReplicaStart, Settings, StorageAt};
use tribunal_tests::cluster::group;
use tribunal_tests::stand_ins::{Native, Numbered};
use tribunal_types::{
    ClusterNode, ControlChange, ControlImage, ControlIndex, Csn, DeclaredStore, EMBEDDED_ADAPTOR, Epoch, Lsn, NodeId,
    Pusher, StoreId, StoreSpec,
};

const STORE: StoreId = StoreId(1);
/// The control entry that names the pushing node.
const PUSH: ControlIndex = ControlIndex(9);
/// The last epoch decided when the push started.
const FROM: u64 = 1000;

struct Played {
    replica: Replica<Numbered, Native, Inline>,
    now: Now,
    /// Whether the embedded store is damaged, and needs its whole log to be filled again.
    needs_all: bool,
}

impl Played {
    /// Node 1, started after epoch 1000 of a log with records of the store. `pusher` pushes to its storage.
    fn new(pusher: Option<u16>) -> Played {
        let spec = StoreSpec { id: STORE, adaptor: Some("redis".into()), ..StoreSpec::default() };
        let pusher = pusher.map(|node| Pusher { node: NodeId(node), since: PUSH });
        let generation = if pusher.is_some() { ControlIndex(3) } else { PUSH };
        Played::of(DeclaredStore { spec, generation, pusher, ..DeclaredStore::default() }, 1)
    }

    /// The same for an embedded store with `members` members.
    fn embedded(members: u16) -> Played {
        let spec = StoreSpec { id: STORE, adaptor: Some(EMBEDDED_ADAPTOR.into()), ..StoreSpec::default() };
        Played::of(DeclaredStore { spec, generation: PUSH, ..DeclaredStore::default() }, members)
    }

    fn of(declared: DeclaredStore, members: u16) -> Played {
        let spec = declared.spec.clone();
        let nodes = (1..=members).map(|id| ClusterNode { id: NodeId(id), ..ClusterNode::default() }).collect();
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
            replicated: ReplicatedState::restore(ControlImage {
                stores: vec![declared],
                nodes,
                ..ControlImage::default()
            }),
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
        Played { replica: Replica::new(start, now), now, needs_all: false }
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

    /// Delivers a report of its copy of an embedded store.
    fn reports(&mut self, report: PushReport) {
        assert_eq!(self.step(Event::Pushed { store: STORE, push: PUSH, report }), []);
    }

    /// Returns the position up to which it reports its copy durable, if the copy is whole.
    fn tells(&self) -> Option<Lsn> {
        self.replica.pushed_by(NodeId(1)).map(|at| at.acked).next()
    }

    /// Delivers another node's report that its copy is durable up to this record.
    fn told(&mut self, from: u16, acked: u64) {
        let stores = vec![StorageAt { store: STORE, push: PUSH, acked: Lsn(acked) }];
        assert_eq!(self.step(Event::PushesReported { from: NodeId(from), stores }), []);
    }

    /// Raises the quota's bound to `bound` while the copy is broken. Returns whether the log is retained for it.
    fn keeps_log_at(&mut self, bound: u64) -> bool {
        let complaint = Some("no space".to_owned());
        self.replica.step(
            Event::OverQuota {
                store: STORE,
                bound: Epoch(bound),
                complaint,
                opens_at: None,
                needs_all: self.needs_all,
            },
            self.now,
        );
        let mut kept = false;
        while let Some(effect) = self.replica.poll() {
            assert!(!matches!(effect, Effect::AppendControl(..)), "nothing is proposed");
            kept |= matches!(effect, Effect::OnlyInLog(STORE, _));
        }
        kept
    }

    /// Returns the epoch that the log waits for.
    fn waits_for(&self) -> u64 {
        let [AppliedTo { store: STORE, epoch, .. }] = self.replica.applied()[..] else { panic!("one store") };
        epoch.0
    }

    /// Raises the quota's bound to `bound`. Returns whether the replica proposes to detach the store.
    fn detaches_at(&mut self, bound: u64) -> bool {
        match self
            .step(Event::OverQuota {
                store: STORE,
                bound: Epoch(bound),
                complaint: None,
                opens_at: None,
                needs_all: self.needs_all,
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
    let report = PushReport { rewound: Some(Lsn(10)), ..PushReport::default() };
    assert_eq!(played.step(Event::Pushed { store: STORE, push: PUSH, report }), []);
    assert!(played.detaches_at(900), "it lacks records from before");
    let mut played = Played::new(Some(1));
    let report = PushReport { rewound: Some(Lsn(50)), ..PushReport::default() };
    played.step(Event::Pushed { store: STORE, push: PUSH, report });
    assert!(!played.detaches_at(900), "it has everything");
}

#[test]
fn only_the_node_that_pushes_proposes_to_detach() {
    let mut played = Played::new(Some(2));
    played.now.monotonic += Duration::from_secs(23 * 3600);
    assert!(!played.detaches_at(FROM + 500));
}

/// The report of a copy that has records up to this one and whose next flush fails.
fn broken_at(lsn: u64) -> PushReport {
    PushReport { rewound: Some(Lsn(lsn)), stopped: true, ..PushReport::default() }
}

#[test]
fn the_log_waits_for_whole_copies_of_others_instead_of_a_broken_one_and_keeps_what_none_has() {
    let mut played = Played::embedded(3);
    played.reports(broken_at(10));
    assert_eq!(played.waits_for(), 499, "the first epoch that it lacks is 500");
    assert!(played.keeps_log_at(600), "nobody has told of a copy");
    played.told(2, 15);
    assert!(played.keeps_log_at(600) && played.waits_for() == 499, "the other one does not have epoch 500 either");
    played.told(2, 20);
    assert!(!played.keeps_log_at(600), "node 2 has it");
    assert_eq!(played.waits_for(), FROM - 1, "and lacks the last records");
    // Node 2 disconnects, or its copy breaks as well. The records counted on are on its disk; later ones are not.
    played.now.monotonic += Duration::from_secs(60);
    assert!(played.keeps_log_at(FROM + 1) && played.waits_for() == FROM - 1);
    played.told(3, 50);
    assert!(!played.keeps_log_at(FROM) && played.waits_for() == FROM, "node 3 has everything");
    played.reports(PushReport { opened: true, ..PushReport::default() });
    assert_eq!(
        played.waits_for(),
        499,
        "it was opened again, perhaps without what it had, and fills itself from the log"
    );
    played.reports(PushReport { stopped: true, ..PushReport::default() });
    assert_eq!(
        played.waits_for(),
        499,
        "it has failed before it reported: the log waits until the quota is passed again"
    );
    played.told(3, 50);
    assert!(!played.keeps_log_at(FROM) && played.waits_for() == FROM);
    played.reports(PushReport { rewound: Some(Lsn(10)), ..PushReport::default() });
    assert_eq!(played.waits_for(), 499, "it was repaired");
}

#[test]
fn a_damaged_store_that_needs_its_whole_log_is_detached_by_its_quota_whatever_it_applies() {
    let mut played = Played::embedded(1);
    played.reports(PushReport { opened: true, rewound: Some(Lsn(50)), damaged: true, ..PushReport::default() });
    assert!(!played.detaches_at(FROM), "the log cannot fill it again, so it holds nothing back");
    played.needs_all = true;
    assert!(played.detaches_at(600));
}

#[test]
fn the_log_waits_for_whole_copies_of_others_instead_of_a_damaged_one_that_applies_on() {
    let mut played = Played::embedded(3);
    played.needs_all = true;
    played.reports(PushReport { opened: true, rewound: Some(Lsn(50)), damaged: true, ..PushReport::default() });
    assert!(played.keeps_log_at(600), "nobody has told of a copy");
    played.told(2, 20);
    assert!(!played.keeps_log_at(600) && played.waits_for() == FROM - 1, "node 2 has it");
    played.reports(PushReport { acked: Some(Lsn(50)), ..PushReport::default() });
    assert_eq!(played.waits_for(), FROM - 1, "what this node flushes does not replace the damaged rows");
    played.reports(PushReport { opened: true, rewound: Some(Lsn(50)), ..PushReport::default() });
    assert_eq!(played.waits_for(), FROM, "it was filled again");
}

#[test]
fn a_copy_is_told_to_others_only_while_it_is_whole() {
    let mut played = Played::embedded(3);
    assert_eq!(played.tells(), None, "it has not reported");
    played.reports(PushReport { opened: true, rewound: Some(Lsn(20)), ..PushReport::default() });
    assert_eq!(played.tells(), Some(Lsn(20)));
    played.reports(PushReport { damaged: true, ..PushReport::default() });
    played.reports(PushReport { acked: Some(Lsn(50)), ..PushReport::default() });
    assert_eq!(played.tells(), None, "it continues, and some of its rows are gone");
    played.reports(PushReport { opened: true, ..PushReport::default() });
    assert_eq!(played.tells(), None, "it is filled again, and what it had on its disk before is gone");
    played.reports(PushReport { rewound: Some(Lsn(0)), ..PushReport::default() });
    assert_eq!(played.tells(), Some(Lsn(0)));
    played.reports(PushReport { acked: Some(Lsn(50)), ..PushReport::default() });
    assert_eq!(played.tells(), Some(Lsn(50)));
    let report = PushReport { rewound: Some(Lsn(50)), damaged: true, ..PushReport::default() };
    played.reports(PushReport { opened: true, ..report });
    assert_eq!(played.tells(), None, "what was found damaged before a restart still is");
}

#[test]
fn what_another_copy_had_when_this_one_broke_counts_for_a_while_only() {
    let mut played = Played::embedded(3);
    played.told(2, 50);
    played.now.monotonic += Duration::from_secs(60);
    played.reports(broken_at(10));
    assert!(played.keeps_log_at(600) && played.waits_for() == 499);
}

#[test]
fn the_only_member_detaches_its_embedded_store_as_a_lone_node_does() {
    let mut played = Played::embedded(1);
    played.reports(broken_at(10));
    assert!(played.detaches_at(600));
}

/// An operator attaches a stopped store by detaching it first, and the log thread puts truncations off while it does not know
/// what a store needs. Without commits, no image would lead to another one.
#[test]
fn a_truncation_that_is_put_off_comes_back_with_the_positions_of_then() {
    let mut played = Played::new(Some(1));
    let mut truncated = |event, seconds: u64| {
        played.now.monotonic = Duration::from_secs(1 + seconds);
        played.replica.step(event, played.now);
        let mut found = Vec::new();
        while let Some(effect) = played.replica.poll() {
            if let Effect::Truncate { applied, at_start: false, .. } = effect {
                assert_eq!(applied, played.replica.applied());
                found.push(seconds);
            }
        }
        // It is woken in time.
        let wakes = played.replica.wake_in(played.now).is_some_and(|wake| wake <= Duration::from_secs(35));
        (found, wakes)
    };
    truncated(Event::Tick, 0);
    assert_eq!(truncated(Event::TruncationPutOff, 0), (vec![], true));
    assert_eq!(truncated(Event::Tick, 34), (vec![], true));
    assert_eq!(truncated(Event::Tick, 35).0, [35], "once");
    assert!(truncated(Event::Tick, 36).0.is_empty());
    assert_eq!(truncated(Event::TruncationPutOff, 40), (vec![], true));
    assert!(truncated(Event::Stop, 50).0.is_empty());
    assert!(truncated(Event::Tick, 90).0.is_empty(), "the next start does it");
}
