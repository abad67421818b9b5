//! When a replica seals while an earlier batch of its own waits for the other nodes: new items queue for a while,
//! unless other nodes need the epoch. How tenants share batches that are full. And after how many epochs a replica takes a
//! state image, however little they contained.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tribunal_core::batcher::Batcher;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::Epochs;
use tribunal_core::executor::Inline;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::visibility::Visibility;
use tribunal_replica::{Answer, Commit, DecidedEpoch, Effect, Event, KnownNow, Now, Replica, ReplicaStart, Settings};
use tribunal_tests::cluster::group;
use tribunal_tests::scenario::txn_id;
use tribunal_tests::stand_ins::{Native, Numbered};
use tribunal_types::limits::ID_WINDOW_MS;
use tribunal_types::{Batch, ControlIndex, Csn, Epoch, NamespaceId, TxnId, TxnRequest};

const PAUSE: Duration = Duration::from_millis(1);
const BATCH_BYTES_MAX: usize = 1 << 20;

struct Played {
    replica: Replica<Numbered, Native, Inline>,
    now: Now,
    ids: u8,
    images: u32,
    /// The number of items that were answered without an epoch.
    answered: u32,
    /// The replies to clients waiting for decided items.
    answers: Vec<(u64, Answer)>,
}

impl Played {
    /// Node 1 of two, which leads its own group and takes no images.
    fn new() -> Played {
        Self::with_images_every(u64::MAX, 0)
    }

    /// An epoch counts as 1,000 bytes in addition to its items; `replayed` epochs were decided again at the start.
    fn with_images_every(image_every_bytes: u64, replayed: u64) -> Played {
        let own = group(1);
        let start = ReplicaStart {
            group: own,
            leads: true,
            batcher: Batcher::new(own, Csn::new(0, own.node)),
            visibility: Visibility::new(Epoch(0)),
            control: ControlIndex(0),
            resolver: Resolver::new(ResolverConfig::default()),
            epochs: Epochs::new(&[own, group(2)], Epoch(1), 0),
            replicated: ReplicatedState::default(),
            run: 7,
            policies: Native,
            executor: Inline,
            replayed,
            settings: Settings {
                epoch_length: None,
                image_every_bytes,
                epoch_bytes: 1_000,
                quota: String::new(),
                in_flight_max: 4,
                pause_min: PAUSE,
                batch_bytes_max: BATCH_BYTES_MAX,
                take_over_after: None,
            },
        };
        let now = Now { monotonic: Duration::from_secs(1), unix_us: 1_000_000 };
        Played { replica: Replica::new(start, now), now, ids: 0, images: 0, answered: 0, answers: Vec::new() }
    }

    /// Delivers an event; returns the proposed batches.
    fn step(&mut self, event: Event<Numbered>) -> Vec<Arc<Batch>> {
        self.replica.step(event, self.now);
        let mut proposed = Vec::new();
        while let Some(effect) = self.replica.poll() {
            match effect {
                Effect::Append(batch) => proposed.push(batch),
                Effect::Image { .. } => self.images += 1,
                Effect::Answer(..) => self.answered += 1,
                Effect::Decided(decided) => {
                    let DecidedEpoch { outcome, own, .. } = *decided;
                    let own = own.map(|own| (own.items, own.places));
                    let answers = &mut self.answers;
                    own.map(|(items, places)| items.answer(&outcome, places, |w, answer, _| answers.push((w, answer))));
                }
                _ => {}
            }
        }
        proposed
    }

    fn after(&mut self, passed: Duration) -> Vec<Arc<Batch>> {
        self.now.monotonic += passed;
        self.step(Event::Tick)
    }

    /// Delivers a client's request.
    fn request(&mut self) {
        self.ids += 1;
        let proposed = self.step(Event::Fence(NamespaceId(0), TxnId([self.ids; 16]), u64::from(self.ids)));
        assert!(proposed.is_empty(), "a batch is sealed at a tick");
    }

    /// Commits a batch whose epoch the other node has sealed, so that it is decided. Returns the batches proposed then.
    fn agreed(&mut self, batch: &Arc<Batch>) -> Vec<Arc<Batch>> {
        let sealed = Batch { group: group(2), first: batch.first, last: batch.last, ..Batch::default() };
        assert!(self.step(Event::Entry(Arc::clone(batch))).is_empty());
        self.step(Event::Entry(Arc::new(sealed)))
    }
}

#[test]
fn what_comes_while_a_batch_is_not_decided_gathers() {
    let mut played = Played::new();
    played.request();
    let first = played.after(Duration::ZERO);
    assert_eq!(first.len(), 1, "nothing is under way: at once");
    played.request();
    assert!(played.after(PAUSE / 4).is_empty());
    assert_eq!(played.replica.wake_in(played.now), Some(PAUSE - PAUSE / 4));
    played.request();
    let second = played.after(PAUSE - PAUSE / 4);
    assert_eq!((second.len(), second[0].fences.len()), (1, 2), "what has gathered goes together");
    assert!(played.agreed(&first[0]).is_empty());
    played.request();
    assert!(played.after(PAUSE / 4).is_empty(), "the second one is still under way");
    assert_eq!(played.agreed(&second[0]).len(), 1, "nothing is");
}

#[test]
fn an_image_is_taken_after_so_many_epochs_however_little_was_in_them() {
    let mut played = Played::with_images_every(20_000, 0);
    let images = (0..60).map(|_| {
        played.request();
        let batch = played.after(PAUSE).remove(0);
        assert!(played.agreed(&batch).is_empty());
        while played.replica.takes_image() {
            assert!(played.step(Event::CopyImage).is_empty());
        }
        played.images
    });
    let images: Vec<u32> = images.collect();
    assert_eq!(images[17], 0, "{images:?}");
    assert!((2..=3).contains(&images[59]), "one every 20 epochs, or a little earlier: {images:?}");
}

#[test]
fn what_a_start_has_decided_again_counts_for_the_next_image() {
    let mut played = Played::with_images_every(20_000, 18);
    for _ in 0..4 {
        played.request();
        let batch = played.after(PAUSE).remove(0);
        played.agreed(&batch);
        while played.replica.takes_image() {
            played.step(Event::CopyImage);
        }
    }
    assert_eq!(
        played.images, 1,
        "a node that is killed again and again would decide more and more again at each start"
    );
}

#[test]
fn a_batch_that_others_wait_for_is_not_held_back() {
    let mut played = Played::new();
    played.request();
    let first = played.after(Duration::ZERO);
    played.request();
    assert!(played.after(Duration::ZERO).is_empty());
    let demanded = played.step(Event::Appended(first[0].last.next()));
    assert_eq!((demanded.len(), demanded[0].fences.len()), (1, 1));
}

/// Returns the last epoch of a request's batch if the other node has sealed 100 epochs and this duration has passed
/// since the last decided one.
fn sealed_upto_after(passed: Duration) -> Epoch {
    let mut played = Played::new();
    let ahead = Batch { group: group(2), first: Epoch(1), last: Epoch(100), clock_ms: 1_000, ..Batch::default() };
    played.step(Event::Entry(Arc::new(ahead)));
    let start = Batch { group: group(1), first: Epoch(1), last: Epoch(1), clock_ms: 1_000, ..Batch::default() };
    played.step(Event::Entry(Arc::new(start)));
    assert_eq!(played.replica.epochs().epoch_time_ms(), 1_000);
    played.now.unix_us += passed.as_micros() as u64;
    played.now.monotonic += passed;
    played.request();
    played.after(Duration::ZERO)[0].last
}

#[test]
fn a_batch_goes_past_what_others_have_sealed_ahead_once_epoch_time_is_late() {
    assert_eq!(sealed_upto_after(Duration::from_secs(10)), Epoch(2), "epoch time is not late");
    assert_eq!(
        sealed_upto_after(Duration::from_millis(10_001)),
        Epoch(101),
        "the other node has to contribute a clock"
    );
}

/// An id with this timestamp, in Unix milliseconds.
fn id_of(unix_ms: u64) -> TxnId {
    txn_id(unix_ms, 7)
}

#[test]
fn an_abort_that_is_not_remembered_is_not_acknowledged() {
    for (ahead_ms, is_remembered) in [(0, true), (1, false)] {
        let mut played = Played::new();
        let id = id_of(1_000 + ID_WINDOW_MS + ahead_ms);
        played.step(Event::Abort(NamespaceId(0), id, 1));
        let batch = played.after(Duration::ZERO).remove(0);
        assert_eq!(batch.early_aborts.len(), 1, "its epoch tells whether it is ahead of the window");
        played.agreed(&batch);
        let answer = played.answers.pop().expect("the abort is decided");
        assert_eq!(matches!(answer, (1, Answer::Decided { .. })), is_remembered, "{ahead_ms} ms ahead: {answer:?}");
        assert_eq!(matches!(answer, (1, Answer::Expired)), !is_remembered, "{ahead_ms} ms ahead: {answer:?}");
        assert_eq!(
            matches!(played.replica.known(NamespaceId(0), id), KnownNow::At(_)),
            is_remembered,
            "a delayed commit of the id may be decided: {ahead_ms} ms ahead"
        );
    }
}

/// Returns a commit of a tenant that writes nothing and carries this many bytes.
fn commit(namespace: u32, number: u64, bytes: usize) -> Commit<u64> {
    let txn = TxnRequest {
        id: txn_id(1_000, number),
        namespace: NamespaceId(namespace),
        values: vec![0; bytes],
        ..TxnRequest::default()
    };
    Commit { txn: Box::new(txn), waiter: number }
}

#[test]
fn a_tenants_commit_does_not_wait_for_all_commits_of_another_one() {
    let mut played = Played::new();
    // Ten batches full.
    let flood = (0..100).map(|number| commit(1, number, BATCH_BYTES_MAX / 10)).collect();
    assert!(played.step(Event::Commits(flood)).is_empty(), "a batch is sealed at a tick");
    let id = txn_id(1_000, 1_000);
    played.step(Event::Commits(vec![commit(2, 1_000, 100), commit(2, 1_001, 100)]));
    played.step(Event::Fence(NamespaceId(2), id, 1_002));
    let (mut order, mut proposed) = (Vec::new(), VecDeque::new());
    while order.len() < 102 {
        if proposed.is_empty() {
            proposed.extend(played.after(PAUSE));
        }
        let batch = proposed.pop_front().expect("a batch is due");
        let of_two = batch.txns.iter().filter(|txn| txn.namespace == NamespaceId(2)).count();
        let is_second = (1..20).contains(&order.len());
        assert_eq!((of_two, batch.fences.len()), if is_second { (2, 1) } else { (0, 0) }, "after {}", order.len());
        order.extend(batch.txns.iter().filter(|txn| txn.namespace == NamespaceId(1)).map(|txn| txn.id));
        order.extend(batch.txns.iter().filter(|txn| txn.namespace == NamespaceId(2)).map(|txn| txn.id));
        proposed.extend(played.agreed(&batch));
    }
    // While others wait, a decided id is answered at once all the same.
    played.step(Event::Commits((0..20).map(|n| commit(3, 2_000 + n, BATCH_BYTES_MAX / 10)).collect()));
    let before = played.answered;
    played.step(Event::Abort(NamespaceId(2), id, 1_003));
    assert_eq!(played.answered, before + 1);
    order.retain(|of| played.replica.known(NamespaceId(1), *of) != KnownNow::Unknown);
    assert!(order.len() == 100 && order.is_sorted(), "the commits of one tenant keep their order");
}

#[test]
fn tenants_with_large_commits_share_the_batches_equally() {
    let mut played = Played::new();
    let tenants = 1..=5_u32;
    let of =
        |tenant: u32| (0..60).map(move |n| commit(tenant, u64::from(tenant) * 1_000 + n, BATCH_BYTES_MAX / 3 - 5_000));
    played.step(Event::Commits(tenants.clone().flat_map(of).collect()));
    let (mut batches, mut proposed) = (Vec::new(), VecDeque::new());
    while batches.len() < 60 {
        if proposed.is_empty() {
            proposed.extend(played.after(PAUSE));
        }
        let batch = proposed.pop_front().expect("a batch is due");
        batches.push(batch.txns.iter().map(|txn| txn.namespace.0).collect::<Vec<u32>>());
        proposed.extend(played.agreed(&batch));
    }
    // The first one was filled before anything waited.
    for window in batches[1..].windows(5) {
        let shares = tenants.clone().map(|tenant| window.iter().flatten().filter(|of| **of == tenant).count());
        let shares: Vec<usize> = shares.collect();
        assert!(shares.iter().all(|share| (2..=4).contains(share)), "{shares:?} of {window:?}");
    }
}
