//! Draws the transactions of clients: rows whose keys are prefixes of each other, ranges, snapshots of several ages, at
//! all levels, within the rules that the API enforces.
//!
//! A client reads the state of its snapshot, as from an engine that keeps versions; some engines are wrong.

use tribunal_types::{Epoch, Existence, Isolation, StoreId, StoreSpec, Version};

use crate::generate::START_MS;
use crate::oracle::Oracle;
use crate::scenario::{Action, Row, Scan, TxnSpec, Value};
use crate::sim::random::Random;

/// The store that the cluster begins with. No other store gets its number: those are indices of the control log.
pub(super) const FIRST_STORE: StoreId = StoreId(1_000_000);

/// The parts of keys: many keys are prefixes of others.
const STEMS: [&str; 5] = ["a", "a0", "b", "b/", "\u{fffd}"];
const ENDS: [&str; 8] = ["", "0", "00", "0\0", "1", "z", "\u{7f}", "a key that is longer than what others have in all"];
/// Ages of snapshots, epochs.
const AGES: [u64; 8] = [0, 0, 0, 0, 1, 3, 20, 200];
/// Transactions with ranges, and those that omit snapshots where that is allowed, per mille.
const SCANS_PER_MILLE: u64 = 200;
const NO_SNAPSHOTS_PER_MILLE: u64 = 350;
/// Transactions with snapshots ahead of everything, and reads that are wrong, per mille.
const AHEAD_PER_MILLE: u64 = 10;
const WRONG_PER_MILLE: u64 = 80;
/// Long values, per mille: enough to fill some segments of the logs.
const LONG_PER_MILLE: u64 = 150;
const LONG_BYTES: usize = 8_000;

/// A client's view of a store's declaration.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The store.
    pub id: StoreId,
    /// Whether a row exists is decided by the engine.
    pub is_declared: bool,
    /// The engine reads snapshots.
    pub multi_version: bool,
}

impl Kind {
    /// Returns the relevant parts of a declaration.
    #[must_use]
    pub fn of(spec: &StoreSpec) -> Kind {
        let is_declared = spec.existence == Existence::Declared;
        Kind { id: spec.id, is_declared, multi_version: spec.multi_version }
    }
}

/// The state that a client draws from.
pub struct View<'a> {
    /// Everything ever written.
    pub oracle: &'a Oracle,
    /// The stores known to the client's node.
    pub stores: Vec<Kind>,
    /// The last epoch that the client's node knows to be complete.
    pub complete: Epoch,
}

impl View<'_> {
    /// Draws a transaction. Without `writes`, it only reads.
    pub fn draw(&self, number: u64, time_us: u64, writes: bool, random: &mut Random) -> TxnSpec {
        let mut txn = TxnSpec::new(number, START_MS + time_us / 1000, random.one_of(&Isolation::ALL));
        txn.priority = random.between(0, 2) as u8;
        for _ in 0..if writes { random.between(1, 4) } else { 0 } {
            let row = self.row(random);
            if !txn.writes.iter().any(|(written, _)| *written == row) {
                txn.writes.push((row, action(random)));
            }
        }
        let scans = random.chance(SCANS_PER_MILLE) || !writes && random.chance(500);
        for _ in 0..if scans { random.between(1, 2) } else { 0 } {
            txn.scans.push(self.scan(random));
        }
        let rows = self.read_rows(&txn, random);
        self.snapshots(&mut txn, &rows, random);
        for row in rows {
            let seen = self.seen(&txn, &row, random);
            txn.reads.push((row, seen));
        }
        txn
    }

    fn row(&self, random: &mut Random) -> Row {
        Row { store: random.one_of(&self.stores).id, key: key(random) }
    }

    fn scan(&self, random: &mut Random) -> Scan {
        let store = random.one_of(&self.stores).id;
        let (mut start, mut end) = (key(random), key(random));
        if random.chance(200) {
            end = String::new();
        } else if end < start {
            std::mem::swap(&mut start, &mut end);
        } else if end == start {
            end.push('\0');
        }
        Scan { store, start, end }
    }

    fn kind(&self, store: StoreId) -> Kind {
        let known = self.stores.iter().find(|kind| kind.id == store);
        known.copied().unwrap_or(Kind { id: store, is_declared: false, multi_version: false })
    }

    /// Draws the rows to read: some of those written, and others. An engine that decides existence must state it,
    /// except for puts.
    fn read_rows(&self, txn: &TxnSpec, random: &mut Random) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for (row, action) in &txn.writes {
            let is_needed = self.kind(row.store).is_declared && !matches!(action, Action::Put(_));
            if is_needed || random.chance(550) {
                rows.push(row.clone());
            }
        }
        let others = if txn.writes.is_empty() { random.between(1, 4) } else { random.between(0, 3) / 2 };
        for _ in 0..others {
            let row = self.row(random);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// Draws the snapshots of its stores, or none where that is allowed.
    fn snapshots(&self, txn: &mut TxnSpec, rows: &[Row], random: &mut Random) {
        let mut stores: Vec<StoreId> = rows.iter().map(|row| row.store).collect();
        stores.extend(txn.writes.iter().map(|(row, _)| row.store).chain(txn.scans.iter().map(|scan| scan.store)));
        stores.sort_unstable();
        stores.dedup();
        let may_omit = txn.scans.is_empty()
            && (txn.level != Isolation::Snapshot || rows.is_empty())
            && stores.iter().all(|store| !self.kind(*store).is_declared);
        if may_omit && random.chance(NO_SNAPSHOTS_PER_MILLE) {
            return;
        }
        let keeps_versions = stores.iter().any(|store| self.kind(*store).multi_version);
        let is_one_cut = keeps_versions && random.chance(900);
        let ahead = if random.chance(AHEAD_PER_MILLE) { 1_000 } else { 0 };
        let cut = random.one_of(&AGES);
        let mut at = |_: &StoreId| {
            let age = if is_one_cut { cut } else { random.one_of(&AGES) };
            Epoch(self.complete.0.saturating_sub(age) + ahead)
        };
        txn.snapshots = stores.iter().map(|store| (*store, at(store))).collect();
    }

    /// Returns the version of a row that the transaction has read.
    fn seen(&self, txn: &TxnSpec, row: &Row, random: &mut Random) -> Option<Version> {
        let honest = self.oracle.version_at(row, txn.snapshot_of(row.store).unwrap_or(self.complete));
        if self.kind(row.store).is_declared || !random.chance(WRONG_PER_MILLE) {
            return honest;
        }
        let past = self.oracle.past(row);
        match random.between(0, 2) {
            0 => None,
            1 => past.iter().rev().nth(1).filter(|change| change.value.is_some()).map(|change| change.version),
            _ => self.oracle.version_at(row, self.complete),
        }
    }
}

fn key(random: &mut Random) -> String {
    format!("{}{}", random.one_of(&STEMS), random.one_of(&ENDS))
}

fn action(random: &mut Random) -> Action {
    let value = match random.chance(LONG_PER_MILLE) {
        true => Value::Text((0..LONG_BYTES / 16).map(|_| format!("{:016x}", random.number())).collect()),
        false => Value::Int(random.between(0, 99) as i64),
    };
    match random.between(0, 11) {
        0 => Action::Delete,
        1 | 2 => Action::Insert(value),
        3 => Action::Update(value),
        4 => Action::Add(random.between(1, 9) as i64),
        5 | 6 => Action::AddOr(1, 5),
        _ => Action::Put(value),
    }
}
