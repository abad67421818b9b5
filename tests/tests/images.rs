//! Images of the resolver's state: taken and restored they change nothing, and a damaged one is refused, not loaded
//! and no crash.

use std::sync::OnceLock;

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::Policies;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_tests::cluster::{Cluster, EpochPlan, tracked};
use tribunal_tests::generate::START_MS;
use tribunal_tests::scenario::{Action, Keying, Row, TxnSpec, Value};
use tribunal_types::Isolation;
use tribunal_types::image::StateImage;

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

/// An image with every column sorted: the order within one is free.
fn sorted(mut image: StateImage) -> StateImage {
    image.columns.iter_mut().for_each(|column| column.words.sort_unstable());
    image.blobs.iter_mut().for_each(|blob| blob.bytes.sort_unstable());
    image
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

/// What happens to a column.
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
        // Only a panic can fail here: what was changed may well make another valid image.
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
