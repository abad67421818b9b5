//! Random small worlds, as choices: the version that a read has seen is determined only when the epoch is played,
//! because only then the existing versions are known. Choices shrink well.

use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_core::native::NativeRule;
use tribunal_types::limits::{ADD_START_MAX, ID_WINDOW_MS};
use tribunal_types::{Csn, Epoch, Existence, Generation, Isolation, StoreId, StoreSpec, TxnId, Version};

use crate::cluster::tracked;
use crate::oracle::Oracle;
use crate::scenario::{Action, Row, Scan, TxnSpec, Value, txn_id};

/// Keys of every store, ascending. One is a prefix of another, so that ranges compare keys of different lengths.
pub const KEYS: [&str; 3] = ["a", "ab", "b"];
/// Time of the first epoch, Unix milliseconds.
pub const START_MS: u64 = 1_800_000_000_000;
/// Number of ids per second: the id table forgets ids in units of a second.
const IDS_PER_SECOND: u64 = 4;
/// One in this many ids is ahead of the window, until a few milliseconds have passed.
const AHEAD_EVERY: u64 = 16;
const AHEAD_OFFSET: u64 = 5;

/// A world: its stores, and its epochs.
#[derive(Clone, Debug)]
pub struct World {
    /// Members of the cluster.
    pub nodes: u16,
    /// Kinds of the stores.
    pub stores: Vec<StoreKind>,
    /// Age up to which history is kept, milliseconds; an epoch advances the clock by 0 to 3.
    pub floor_age_ms: u64,
    /// Number of ids that are remembered.
    pub ids_max: u64,
    /// Rows that the first epoch creates, one bit for each of [`World::rows`].
    pub seeded: u8,
    /// The generation whose rules decide.
    pub generation: u32,
    /// The following epochs.
    pub epochs: Vec<EpochChoice>,
}

/// The properties of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// The version map knows every row.
    Tracked,
    /// Tracked, and its engine reads snapshots.
    MultiVersion,
    /// The engine decides on existence.
    Declared,
}

/// One epoch.
#[derive(Clone, Debug)]
pub struct EpochChoice {
    /// Milliseconds since the previous epoch.
    pub after_ms: u64,
    /// Empty epochs before this one.
    pub idle_before: u64,
    /// The rule that selects winners.
    pub rule: NativeRule,
    /// Transactions.
    pub txns: Vec<TxnChoice>,
    /// Early aborts (client aborts): the numbers of transactions, over all epochs, before or after their use.
    pub early_aborts: Vec<u8>,
    /// Fences: the number of the transaction, over all epochs, whose id is fenced (before or after its use).
    pub fences: Vec<u8>,
    /// Rows whose versions are imported, and the ages of the versions.
    pub imports: Vec<(RowChoice, u8)>,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct TxnChoice {
    /// Node that receives it.
    pub node: u16,
    /// Isolation level.
    pub level: Isolation,
    /// Position in the order of stamps.
    pub stamp: u8,
    /// The earlier transaction, counted from the start, whose id it repeats, and whether it repeats the body, too.
    pub repeats: Option<(u8, bool)>,
    /// Age of the snapshots in epochs; 254 is the first epoch after the last one with items, which may have been sealed
    /// empty; 255 is in the future.
    pub snapshot_age: u8,
    /// Whether to omit snapshots, where that is allowed.
    pub no_snapshots: bool,
    /// Whether reads report the versions at the snapshot, instead of those of their own choices.
    pub honest: bool,
    /// Reads: the row, and the version seen.
    pub reads: Vec<(RowChoice, SeenChoice)>,
    /// Ranges: the store, the first key, the number of keys.
    pub scans: Vec<(u8, u8, u8)>,
    /// Writes: the row and the action.
    pub writes: Vec<(RowChoice, Action)>,
    /// Client's priority.
    pub priority: u8,
    /// Client.
    pub origin: u64,
    /// Number of epochs since it began.
    pub began: Option<u8>,
}

/// A row, by store and key number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChoice {
    store: u8,
    key: u8,
}

/// The version that a read has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenChoice {
    /// The newest.
    Newest,
    /// The version this many writes ago.
    Older(u8),
    /// None: the row was absent.
    Absent,
    /// A version that never existed.
    Invented,
}

/// Generates small worlds, many of which can be played: up to four epochs of up to six transactions.
pub fn world() -> impl Strategy<Value = World> {
    sized(Size { epochs: 1..=4, txns: 1..=6, snapshot_age: 3, reads: 0..=3, action: any_action })
}

/// Generates worlds of many epochs, with old snapshots.
pub fn long_world() -> impl Strategy<Value = World> {
    sized(Size { epochs: 20..=60, txns: 1..=3, snapshot_age: 50, reads: 0..=3, action: any_action })
}

/// Generates worlds of crowded epochs.
pub fn wide_world() -> impl Strategy<Value = World> {
    sized(Size { epochs: 1..=3, txns: 20..=80, snapshot_age: 3, reads: 0..=3, action: any_action })
}

/// Generates worlds that mostly add, with deltas so large that two adds of one epoch can overflow 64 bits together
/// though neither does alone.
pub fn adding_world() -> impl Strategy<Value = World> {
    sized(Size { epochs: 1..=3, txns: 2..=8, snapshot_age: 3, reads: 0..=1, action: mostly_far_adds })
}

#[derive(Clone)]
struct Size {
    epochs: RangeInclusive<usize>,
    txns: RangeInclusive<usize>,
    snapshot_age: u8,
    reads: RangeInclusive<usize>,
    action: fn() -> BoxedStrategy<Action>,
}

fn sized(size: Size) -> impl Strategy<Value = World> {
    let kind = prop_oneof![
        5 => Just(StoreKind::Tracked),
        1 => Just(StoreKind::MultiVersion),
        2 => Just(StoreKind::Declared)
    ];
    let floor_age_ms = prop_oneof![3 => Just(60_000_u64), 1 => 0..5_u64, 1 => 0..60_u64];
    let ids_max = prop_oneof![3 => Just(1_000_000_u64), 1 => 2..16_u64];
    let seeded = prop_oneof![3 => Just(0xff_u8), 1 => any::<u8>()];
    let generation = Generation::OLDEST.0..=Generation::NEWEST.0;
    let epochs = vec(epoch(&size), size.epochs);
    (1..=3_u16, vec(kind, 1..=2), floor_age_ms, ids_max, seeded, generation, epochs).prop_map(
        |(nodes, stores, floor_age_ms, ids_max, seeded, generation, epochs)| World {
            nodes,
            stores,
            floor_age_ms,
            ids_max,
            seeded,
            generation,
            epochs,
        },
    )
}

fn epoch(size: &Size) -> impl Strategy<Value = EpochChoice> + use<> {
    let rule = prop_oneof![
        4 => Just(NativeRule::FirstWriterWins),
        1 => Just(NativeRule::ShorterTxnWins),
        1 => (1..4_u32).prop_map(|turns| NativeRule::FairRotation { turns }),
        1 => Just(NativeRule::Priority),
    ];
    let idle = prop_oneof![4 => Just(0_u64), 1 => 1..3_u64];
    let ids = || prop_oneof![6 => Just(Vec::new()), 1 => vec(0..24_u8, 1..=2)];
    let txns = vec(txn(size), size.txns.clone());
    let import = (0..2_u8, 0..3_u8, 0..4_u8).prop_map(|(store, key, age)| (RowChoice { store, key }, age));
    let imports = prop_oneof![4 => Just(Vec::new()), 1 => vec(import, 1..=2)];
    (0..4_u64, idle, rule, txns, ids(), ids(), imports).prop_map(
        |(after_ms, idle_before, rule, txns, early_aborts, fences, imports)| EpochChoice {
            after_ms,
            idle_before,
            rule,
            txns,
            early_aborts,
            fences,
            imports,
        },
    )
}

fn txn(size: &Size) -> impl Strategy<Value = TxnChoice> + use<> {
    let level = prop_oneof![
        2 => Just(Isolation::ReadCommitted),
        2 => Just(Isolation::RepeatableRead),
        3 => Just(Isolation::Snapshot),
        5 => Just(Isolation::Serializable),
    ];
    let seen = prop_oneof![
        10 => Just(SeenChoice::Newest),
        2 => (1..3_u8).prop_map(SeenChoice::Older),
        1 => Just(SeenChoice::Absent),
        1 => Just(SeenChoice::Invented),
    ];
    let row = || (0..2_u8, 0..3_u8).prop_map(|(store, key)| RowChoice { store, key });
    let scans = prop_oneof![3 => Just(Vec::new()), 1 => vec((0..2_u8, 0..3_u8, 1..4_u8), 1..=2)];
    let repeats = prop_oneof![12 => Just(None), 1 => (0..16_u8, any::<bool>()).prop_map(Some)];
    let who = (1..=3_u16, level, any::<u8>(), repeats);
    let snapshot = prop_oneof![20 => 0..size.snapshot_age, 1 => Just(254_u8), 1 => Just(255_u8)];
    let what = (snapshot, prop::bool::weighted(0.3), prop::bool::weighted(0.7));
    let ops = (vec((row(), seen), size.reads.clone()), scans, vec((row(), (size.action)()), 0..=3));
    let rank = (0..3_u8, 0..4_u64, prop_oneof![Just(None), (0..3_u8).prop_map(Some)]);
    (who, what, ops, rank).prop_map(
        |((node, level, stamp, repeats), (snapshot_age, no_snapshots, honest), ops, (priority, origin, began))| {
            TxnChoice {
                node,
                level,
                stamp,
                repeats,
                snapshot_age,
                no_snapshots,
                honest,
                reads: ops.0,
                scans: ops.1,
                writes: ops.2,
                priority,
                origin,
                began,
            }
        },
    )
}

fn mostly_far_adds() -> BoxedStrategy<Action> {
    let far = prop_oneof![Just(i64::MAX / 2), Just(i64::MIN / 2)];
    prop_oneof![6 => far.prop_map(Action::Add), 2 => (-9..9_i64).prop_map(Action::Add), 1 => any_action()].boxed()
}

fn any_action() -> BoxedStrategy<Action> {
    let far = || {
        let edges = [i64::MAX, i64::MAX - 3, i64::MIN, i64::MIN + 3, 9_999_999_999_999_999, 10_000_000_000_000_000];
        prop::sample::select(edges.to_vec())
    };
    let value = || {
        prop_oneof![
            9 => (0..9_i64).prop_map(Value::Int),
            1 => far().prop_map(Value::Int),
            1 => Just(Value::Text("text".to_owned()))
        ]
    };
    let delta =
        prop_oneof![12 => 1..9_i64, 2 => -9..0_i64, 1 => far(), 1 => Just(i64::MAX / 2), 1 => Just(i64::MIN / 2)];
    let or = prop_oneof![6 => Just(0), 1 => Just(ADD_START_MAX), 1 => Just(-ADD_START_MAX)];
    prop_oneof![
        2 => value().prop_map(Action::Insert),
        3 => value().prop_map(Action::Update),
        4 => value().prop_map(Action::Put),
        2 => Just(Action::Delete),
        3 => delta.clone().prop_map(Action::Add),
        2 => (delta, or).prop_map(|(delta, or)| Action::AddOr(delta, or)),
    ]
    .boxed()
}

impl World {
    /// Returns the stores' declarations.
    #[must_use]
    pub fn specs(&self) -> Vec<StoreSpec> {
        let spec = |(i, kind): (usize, &StoreKind)| StoreSpec {
            existence: if *kind == StoreKind::Declared { Existence::Declared } else { Existence::Tracked },
            multi_version: *kind == StoreKind::MultiVersion,
            ..tracked(i as u32 + 1, &format!("s{i}"))
        };
        self.stores.iter().enumerate().map(spec).collect()
    }

    /// Returns all rows that may ever exist.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let stores = 1..=self.stores.len() as u32;
        stores.flat_map(|store| KEYS.iter().map(move |key| Row::new(store, key))).collect()
    }

    /// Returns the transaction that creates the seeded rows, number 0 of the world; `None` if there are none.
    #[must_use]
    pub fn seed(&self) -> Option<TxnSpec> {
        let mut txn = TxnSpec::new(0, id_time_ms(0), Isolation::ReadCommitted);
        let rows = self.rows().into_iter().enumerate().filter(|(i, _)| self.seeded >> (i % 8) & 1 != 0);
        txn.writes = rows.map(|(_, row)| (row, Action::Put(Value::Int(0)))).collect();
        (!txn.writes.is_empty()).then_some(txn)
    }

    fn row(&self, choice: RowChoice) -> Row {
        Row::new(u32::from(choice.store) % self.stores.len() as u32 + 1, KEYS[usize::from(choice.key) % KEYS.len()])
    }

    fn kind(&self, store: StoreId) -> StoreKind {
        self.stores[store.0 as usize - 1]
    }

    /// Returns the generation whose rules decide.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Converts an import's choice to a version at or below the floor: imported versions are older than any snapshot.
    /// In the first generation, an old version may follow a deletion, which no history of a row can represent.
    #[must_use]
    pub fn import(&self, (row, age): (RowChoice, u8), oracle: &Oracle) -> Option<(Row, Version, bool)> {
        let version = Version::new(Epoch(oracle.floor.0.saturating_sub(u64::from(age))), 1 + u32::from(age))?;
        (self.generation() >= Generation::SECOND).then(|| (self.row(row), version, age.is_multiple_of(2)))
    }

    /// Converts a choice to a transaction, given the history so far. `number` counts transactions over all epochs;
    /// `earlier` contains the preceding ones.
    #[must_use]
    pub fn txn(&self, choice: &TxnChoice, number: u64, oracle: &Oracle, earlier: &[TxnSpec]) -> TxnSpec {
        let mut txn = TxnSpec::new(number, id_time_ms(number), choice.level);
        txn.node = choice.node;
        txn.csn = Csn((oracle.last.0 + 1) << 40 | u64::from(choice.stamp) << 32 | number << 8 | u64::from(choice.node));
        txn.priority = choice.priority;
        txn.origin = choice.origin;
        txn.start = choice.began.map(|ago| Epoch(oracle.last.0.saturating_sub(u64::from(ago))));
        if let Some((of, same_body)) = choice.repeats
            && let Some(first) = earlier.get(usize::from(of))
        {
            txn.id = first.id;
            txn.body = if same_body { first.body } else { number };
        }
        for &(store, start, keys) in &choice.scans {
            let row = self.row(RowChoice { store, key: start });
            let end = KEYS.get(usize::from(start + keys)).map_or(String::new(), |&key| key.to_owned());
            txn.scans.push(Scan { store: row.store, start: row.key, end });
        }
        for (row, action) in &choice.writes {
            let row = self.row(*row);
            if !txn.writes.iter().any(|(written, _)| *written == row) {
                txn.writes.push((row, action.clone()));
            }
        }
        self.reads(&mut txn, choice, oracle);
        txn
    }

    /// Sets snapshots and reads, within the rules that the API enforces.
    fn reads(&self, txn: &mut TxnSpec, choice: &TxnChoice, oracle: &Oracle) {
        let mut rows: Vec<(Row, SeenChoice)> = Vec::new();
        let read = choice.reads.iter().map(|&(row, seen)| (self.row(row), seen));
        let relied_on = txn.writes.iter().filter(|(row, action)| {
            // A declared store relies on the engine for existence, so the engine has to state it. At the snapshot
            // level, some engines read every row that they write.
            self.kind(row.store) == StoreKind::Declared && !matches!(action, Action::Put(_))
                || choice.level == Isolation::Snapshot && choice.origin == 0
        });
        for (row, seen) in read.chain(relied_on.map(|(row, _)| (row.clone(), SeenChoice::Newest))) {
            if !rows.iter().any(|(known, _)| *known == row) {
                rows.push((row, seen));
            }
        }
        let mut stores: Vec<StoreId> = rows.iter().map(|(row, _)| row.store).collect();
        stores.extend(txn.writes.iter().map(|(row, _)| row.store));
        stores.extend(txn.scans.iter().map(|scan| scan.store));
        stores.sort_unstable();
        stores.dedup();
        let may_omit = txn.scans.is_empty()
            && (txn.level != Isolation::Snapshot || rows.is_empty())
            && stores.iter().all(|&store| self.kind(store) != StoreKind::Declared);
        if !(choice.no_snapshots && may_omit) {
            let multi_version = |store: &StoreId| self.kind(*store) == StoreKind::MultiVersion;
            let one_cut = stores.iter().any(multi_version) && !choice.stamp.is_multiple_of(8);
            let at = |i: usize| match choice.snapshot_age {
                254 => oracle.last.next(),
                255 => Epoch(oracle.last.0 + 9),
                // The second store may lag the first; Begin gives stores that keep versions the same snapshot.
                age if one_cut => Epoch(oracle.last.0.saturating_sub(u64::from(age))),
                age => Epoch(oracle.last.0.saturating_sub(u64::from(age) * (i as u64 % 2 + 1) / 2)),
            };
            txn.snapshots = stores.iter().enumerate().map(|(i, &store)| (store, at(i))).collect();
        }
        for (row, seen) in rows {
            let at = txn.snapshot_of(row.store).unwrap_or(oracle.last);
            let honest = choice.honest || self.kind(row.store) == StoreKind::Declared;
            let seen = if honest { oracle.version_at(&row, at) } else { chosen(seen, &row, oracle) };
            txn.reads.push((row, seen));
        }
    }
}

fn chosen(seen: SeenChoice, row: &Row, oracle: &Oracle) -> Option<Version> {
    let past = oracle.past(row);
    match seen {
        SeenChoice::Newest => oracle.version_at(row, oracle.last),
        SeenChoice::Older(ago) => {
            let at = past.len().checked_sub(1 + usize::from(ago))?;
            past[at].value.as_ref().map(|_| past[at].version)
        }
        SeenChoice::Absent => None,
        SeenChoice::Invented => Version::new(oracle.last, 99_999),
    }
}

/// Returns the id that transaction `number` of a world has, or will have.
#[must_use]
pub fn id_of(number: u64) -> TxnId {
    txn_id(id_time_ms(number), number)
}

/// Returns the time in the id of transaction `number`, Unix milliseconds.
fn id_time_ms(number: u64) -> u64 {
    if number % AHEAD_EVERY == AHEAD_OFFSET {
        return START_MS + ID_WINDOW_MS + 2;
    }
    START_MS + number / IDS_PER_SECOND % 60 * 1000
}
