//! Images of the resolver's state: taking and restoring one changes nothing; a damaged one is refused, neither loaded
//! nor a crash.

use std::sync::{Mutex, OnceLock};

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_core::executor::Inline;
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{Policies, PolicyFault, Validation, Validator, ValidatorColumns};
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::row_key::RowKeyer;
use tribunal_tests::cluster::{Cluster, EpochPlan, tracked};
use tribunal_tests::generate::START_MS;
use tribunal_tests::scenario::{Action, Keying, ROW_SECRET, Row, Scan, TxnSpec, Value};
use tribunal_types::image::StateImage;
use tribunal_types::{Bounds, Epoch, EpochOutcome, Isolation, NamespaceId, StoreId, StoreSpec};

const POLICIES: Policies<'_> = Policies {
    rule: &NativeRule::FirstWriterWins,
    validator: &NativeValidator,
    rule_fallback: NativeRule::FirstWriterWins,
};

/// Twenty epochs that put, overwrite and delete a few rows.
fn busy_cluster() -> Cluster {
    let mut cluster =
        Cluster::new(1, Keying::Hashed, ResolverConfig::default(), &[tracked(1, "kv"), tracked(2, "sql")]);
    for epoch in 0..20_u64 {
        let txns = (0..3).map(|i| {
            let mut txn = TxnSpec::new(epoch * 3 + i, START_MS, Isolation::ReadCommitted);
            let row = Row::new(1 + (i % 2) as u32, &format!("row{}", (epoch + i * 7) % 11));
            txn.writes.push((row.clone(), Action::Put(Value::Int(epoch as i64))));
            if epoch % 5 == 4 {
                txn.writes[0].1 = Action::Delete;
            } else if epoch % 3 == 2 {
                txn.writes[0].1 = Action::Add(i64::MAX / 9);
            }
            txn
        });
        let plan = EpochPlan { clock_ms: START_MS + epoch, txns: txns.collect(), ..EpochPlan::default() };
        cluster.play(&plan, &POLICIES);
    }
    cluster
}

fn busy_image() -> &'static StateImage {
    static IMAGE: OnceLock<StateImage> = OnceLock::new();
    IMAGE.get_or_init(|| busy_cluster().resolver.image())
}

/// An image with every column sorted: the order within a column is arbitrary.
fn sorted(mut image: StateImage) -> StateImage {
    image.columns.iter_mut().for_each(|column| column.words.sort_unstable());
    image.blobs.iter_mut().for_each(|blob| blob.bytes.sort_unstable());
    image
}

/// Sets the number of partitions, as an entry of the control log does.
fn set_partitions(resolver: &mut Resolver, partitions: u16) -> bool {
    let bounds = Bounds { window_bytes_max: 1 << 30, status_bytes_max: 1 << 30, plugin_faults_max: 16, partitions };
    resolver.set_bounds(bounds)
}

#[test]
fn another_number_of_partitions_changes_nothing_of_the_state() {
    let mut resolver = busy_cluster().resolver;
    for partitions in [3, 8, 1] {
        assert!(set_partitions(&mut resolver, partitions));
        assert!(!set_partitions(&mut resolver, partitions), "it has them");
        assert_eq!(sorted(resolver.image()), sorted(busy_image().clone()), "{partitions} partitions");
    }
}

/// A validator with fuel for this number of reads per call.
struct Fuelled(usize);

impl Validator for Fuelled {
    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        let reads = columns.reads.ends.last().map_or(0, |&end| end as usize);
        if reads > self.0 { Err(PolicyFault("out of fuel".into())) } else { NativeValidator.validate(level, columns) }
    }
}

/// A busy epoch under a validator whose fuel covers half of it per call.
fn with_little_fuel(start: u16, then: Option<u16>) -> EpochOutcome {
    let config = ResolverConfig { shards: start, ..ResolverConfig::default() };
    let mut cluster = Cluster::new(1, Keying::Hashed, config, &[tracked(1, "kv")]);
    if let Some(partitions) = then {
        set_partitions(&mut cluster.resolver, partitions);
    }
    let txns = (0..64).map(|i| {
        let mut txn = TxnSpec::new(i, START_MS, Isolation::RepeatableRead);
        txn.reads.push((Row::new(1, &format!("row{i}")), None));
        txn.writes.push((Row::new(1, &format!("other{i}")), Action::Put(Value::Int(1))));
        txn
    });
    let plan = EpochPlan { clock_ms: START_MS, txns: txns.collect(), ..EpochPlan::default() };
    let policies = Policies { validator: &Fuelled(32), ..POLICIES };
    cluster.play(&plan, &policies).expect("it carries items").outcome.clone()
}

#[test]
fn partitions_of_the_control_log_decide_which_calls_fail_whatever_a_node_started_with() {
    let of_eight = with_little_fuel(8, None);
    assert!(of_eight.fallbacks.is_empty(), "an eighth of the epoch is within the fuel");
    let of_one = with_little_fuel(1, None);
    assert_eq!(of_one.fallbacks.len(), 1, "the whole epoch is not");
    for start in [1, 2, 8, 16] {
        assert_eq!(with_little_fuel(start, Some(8)), of_eight, "{start}");
        assert_eq!(with_little_fuel(start, Some(1)), of_one, "{start}");
    }
}

/// Judges natively and records which ranges had changed, call by call.
#[derive(Default)]
struct Observer(Mutex<Vec<Vec<u8>>>);

impl Validator for Observer {
    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        self.0.lock().expect("no panic").push(columns.ranges.changed.clone());
        NativeValidator.validate(level, columns)
    }
}

#[test]
fn a_restored_resolver_finds_the_changes_of_ranges_in_the_partitions_in_which_others_do() {
    let config = ResolverConfig { shards: 4, ..ResolverConfig::default() };
    let stores = [StoreSpec { namespace: NamespaceId(7), ..tracked(1, "kv") }];
    let mut cluster = Cluster::new(1, Keying::Hashed, config, &stores);
    let in_namespace = |mut txn: TxnSpec| {
        txn.namespace = NamespaceId(7);
        txn
    };
    let plan = |epoch, txns: Vec<TxnSpec>| EpochPlan {
        clock_ms: START_MS + epoch,
        txns: txns.into_iter().map(in_namespace).collect(),
        ..EpochPlan::default()
    };
    for epoch in 0..3 {
        let txns = (0..8).map(|i| {
            let mut txn = TxnSpec::new(epoch * 8 + i, START_MS, Isolation::ReadCommitted);
            txn.writes.push((Row::new(1, &format!("{}", epoch * 8 + i)), Action::Put(Value::Int(1))));
            txn
        });
        cluster.play(&plan(epoch, txns.collect()), &POLICIES);
    }
    let scans = (0..24).map(|i| {
        let mut txn = TxnSpec::new(100 + i, START_MS, Isolation::Serializable);
        let (start, end) = (format!("{i}"), format!("{i}!"));
        txn.scans.push(Scan { store: StoreId(1), start, end });
        txn.snapshots = vec![(StoreId(1), Epoch(0))];
        txn
    });
    let input = cluster.fold(&plan(4, scans.collect())).expect("it carries transactions");
    let image = cluster.resolver.image();
    let judged = |resolver: &mut Resolver| {
        let observer = Observer::default();
        resolver.resolve(&input, &Policies { validator: &observer, ..POLICIES }, &Inline);
        observer.0.into_inner().expect("no panic")
    };
    let config = ResolverConfig { keyer: RowKeyer::new(ROW_SECRET), ..config };
    let restored = judged(&mut Resolver::restore(config, image.clone()).expect("its own image"));
    let mut repartitioned = Resolver::restore(ResolverConfig { shards: 3, ..config }, image).expect("its own image");
    assert!(set_partitions(&mut repartitioned, 4));
    let running = judged(&mut cluster.resolver);
    assert!(running.len() == 4 && running.iter().all(|changed| changed.contains(&1)), "{running:?}");
    assert_eq!(restored, running);
    assert_eq!(judged(&mut repartitioned), running);
}

#[test]
fn an_image_of_a_restored_resolver_is_the_same_image() {
    let image = busy_cluster().resolver.image();
    for shards in [1, 2, 5] {
        let config = ResolverConfig { shards, ..ResolverConfig::default() };
        let restored = Resolver::restore(config, image.clone()).expect("its own image");
        assert_eq!(sorted(restored.image()), sorted(image.clone()));
    }
}

/// A modification of a column.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Set(usize, u64),
    Flip(usize, u32),
    Lose,
    Repeat(usize),
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    let at = || 0..4_096_usize;
    let how = prop_oneof![
        at().prop_map(Damage::Cut),
        (at(), prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>()])
            .prop_map(|(i, to)| Damage::Set(i, to)),
        (at(), 0..64_u32).prop_map(|(i, bit)| Damage::Flip(i, bit)),
        Just(Damage::Lose),
        at().prop_map(Damage::Repeat),
    ];
    (0..16_usize, how)
}

fn apply(image: &mut StateImage, column: usize, damage: &Damage) {
    let columns = image.columns.len();
    let column = column % (columns + image.blobs.len());
    if column < columns {
        spoil(&mut image.columns[column].words, damage, |word, bit| *word ^= 1 << bit, |to| to);
    } else {
        spoil(&mut image.blobs[column - columns].bytes, damage, |byte, bit| *byte ^= 1 << (bit % 8), |to| to as u8);
    }
}

fn spoil<T: Clone>(items: &mut Vec<T>, damage: &Damage, flip: impl Fn(&mut T, u32), set: impl Fn(u64) -> T) {
    let len = items.len().max(1);
    match *damage {
        Damage::Cut(at) => items.truncate(at % len),
        Damage::Lose => items.clear(),
        Damage::Repeat(at) => items.extend_from_within(at % len..),
        _ if items.is_empty() => {}
        Damage::Set(at, to) => items[at % len] = set(to),
        Damage::Flip(at, bit) => flip(&mut items[at % len], bit),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_image_is_refused_or_read_but_never_a_crash(damages in vec(damage(), 1..4)) {
        let mut image = busy_image().clone();
        damages.iter().for_each(|(column, damage)| apply(&mut image, *column, damage));
        // Only a panic can fail here: the modified image may well be valid.
        drop(Resolver::restore(ResolverConfig::default(), image));
    }
}

#[test]
fn a_lost_column_is_named() {
    let whole = busy_image();
    for column in 0..whole.columns.len() {
        let mut image = whole.clone();
        image.columns.remove(column);
        let refused = Resolver::restore(ResolverConfig::default(), image).expect_err("a column is missing");
        assert!(!refused.what.is_empty());
    }
}
