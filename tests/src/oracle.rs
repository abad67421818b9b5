//! The naive oracle: a second implementation of the rules of resolution, as direct as possible, with complete histories
//! in ordered maps and comparisons of every pair of transactions. It shares no code with the core.
//!
//! It must decide exactly which transactions commit. If an abort has several true reasons, the core may name any of
//! them, as long as it is of the first stage that fails.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::native::NativeRule;
use tribunal_types::{
    Epoch, Existence, Generation, Isolation, Reason, Stage, StoreId, StoreSpec, TxnId, TxnIx, Verdict, VerdictAt,
    Version,
};

use crate::cluster::EpochPlan;
use crate::scenario::{Action, Row, Scan, TxnSpec, Value};

/// The decision on a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The transaction commits.
    Commit,
    /// It aborts at this stage, for one of these reasons.
    Abort(Stage, BTreeSet<Reason>),
    /// Its id has a verdict.
    Replayed(VerdictAt),
    /// Its id has a verdict for another body.
    BodyMismatch,
    /// Its id is too old or too far ahead.
    Expired,
}

/// One write in a row's history; a deletion has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its version.
    pub version: Version,
    /// The resulting value.
    pub value: Option<Value>,
    /// Interval in which the resolver may assume an integer to be: at its value, or anywhere within 16 digits of the
    /// result of adds.
    pub within: (i128, i128),
}

/// Returns the interval in which the resolver may assume a value to be that was just written.
fn within(value: Option<&Value>) -> (i128, i128) {
    match value {
        Some(Value::Int(n)) if n.to_string().len() > 16 => (i128::from(*n), i128::from(*n)),
        _ => (-9_999_999_999_999_999, 9_999_999_999_999_999),
    }
}

/// Returns whether adds with these deltas can overflow 64 bits in some order.
fn leaves_64_bits((least, most): (i128, i128), deltas: impl Iterator<Item = i64>) -> bool {
    let (mut up, mut down) = (0, 0);
    for delta in deltas {
        *if delta < 0 { &mut down } else { &mut up } += i128::from(delta);
    }
    most + up > i128::from(i64::MAX) || least + down < i128::from(i64::MIN)
}

/// The complete history.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    stores: BTreeMap<StoreId, StoreSpec>,
    rows: BTreeMap<Row, Vec<Change>>,
    ids: BTreeMap<TxnId, (VerdictAt, Option<u64>)>,
    id_window_ms: u64,
    /// Number of ids that are remembered.
    ids_max: u64,
    /// Ids before this time may have been forgotten, Unix milliseconds.
    id_floor_ms: u64,
    /// The floor that the resolver last reported.
    pub floor: Epoch,
    /// The last epoch applied.
    pub last: Epoch,
    /// The generation whose rules decide.
    pub generation: Generation,
}

/// The existence of a row, as far as the resolver may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    /// Present; whether it is an integer, if known.
    Present(Option<bool>),
    Unknown,
}

/// The rows that a transaction accesses, by class of access.
struct Access<'a> {
    txn: &'a TxnSpec,
    changes_existence: Vec<&'a Row>,
    /// Rows that it creates by an add, unless another transaction has created them.
    creates_or_adds: Vec<&'a Row>,
}

impl Oracle {
    /// Creates an oracle with an empty database.
    #[must_use]
    pub fn new(stores: &[StoreSpec], id_window_ms: u64, ids_max: u64) -> Oracle {
        let stores = stores.iter().map(|spec| (spec.id, spec.clone())).collect();
        Oracle { stores, id_window_ms, ids_max, ..Oracle::default() }
    }

    /// Declares a store, or changes its declaration.
    pub fn declare(&mut self, spec: &StoreSpec) {
        if self.stores.get(&spec.id) != Some(spec) {
            self.stores.insert(spec.id, spec.clone());
        }
    }

    /// Returns a row's history, oldest first.
    #[must_use]
    pub fn past(&self, row: &Row) -> &[Change] {
        self.rows.get(row).map_or(&[], Vec::as_slice)
    }

    /// Returns the version of a row in the state of epoch `at`; `None` if it was absent.
    #[must_use]
    pub fn version_at(&self, row: &Row, at: Epoch) -> Option<Version> {
        let change = self.past(row).iter().rev().find(|change| change.version.epoch() <= at)?;
        change.value.as_ref().map(|_| change.version)
    }

    /// Returns the rows that exist, with their values.
    #[must_use]
    pub fn state(&self) -> BTreeMap<Row, Value> {
        let newest = |(row, past): (&Row, &Vec<Change>)| Some((row.clone(), past.last()?.value.clone()?));
        self.rows.iter().filter_map(newest).collect()
    }

    /// Returns the location of an id's verdict, and the body that it was for.
    #[must_use]
    pub fn filed(&self, id: TxnId) -> Option<(VerdictAt, Option<u64>)> {
        self.ids.get(&id).copied()
    }

    fn is_declared(&self, store: StoreId) -> bool {
        self.stores[&store].existence == Existence::Declared
    }

    /// Returns whether a read could have been made in the state of epoch `at`.
    fn is_current(&self, row: &Row, seen: Option<Version>, at: Epoch) -> bool {
        if self.is_declared(row.store) {
            let known = self.past(row).iter().rev().find(|c| c.version.epoch() <= at && c.version.epoch() > self.floor);
            return match known {
                Some(change) => change.value.as_ref().map(|_| change.version) == seen,
                None => seen.is_none_or(|version| version.epoch() <= self.floor),
            };
        }
        self.version_at(row, at) == seen
    }

    fn changed_since(&self, row: &Row, snapshot: Epoch) -> bool {
        self.past(row).iter().any(|change| change.version.epoch() > snapshot)
    }

    fn presence(&self, row: &Row, txn: &TxnSpec) -> Presence {
        let declared = self.is_declared(row.store);
        let newest = self.past(row).last().filter(|change| !declared || change.version.epoch() > self.floor);
        match newest {
            Some(Change { value: Some(value), .. }) => Presence::Present(Some(matches!(value, Value::Int(_)))),
            Some(_) => Presence::Absent,
            None if !declared => Presence::Absent,
            None => match txn.seen(row) {
                Some(Some(_)) => Presence::Present(None),
                Some(None) => Presence::Absent,
                None => Presence::Unknown,
            },
        }
    }

    /// Applies the rules of every level: snapshot bounds, then existence.
    fn join(&self, txn: &TxnSpec, epoch: Epoch) -> BTreeSet<Reason> {
        let mut reasons = BTreeSet::new();
        let mut rows = txn.reads.iter().map(|(row, _)| row).chain(txn.writes.iter().map(|(row, _)| row));
        let needs_history = self.generation < Generation::THIRD
            || txn.level == Isolation::Snapshot
            || !txn.scans.is_empty()
            || rows.any(|row| self.is_declared(row.store));
        for &(_, at) in &txn.snapshots {
            if at < self.floor && needs_history {
                reasons.insert(Reason::SnapshotTooOld);
            }
            if at >= epoch {
                reasons.insert(Reason::SnapshotFromTheFuture);
            }
        }
        let after_its_snapshot = |(row, seen): &(Row, Option<Version>)| {
            let at = txn.snapshot_of(row.store).filter(|_| self.stores[&row.store].multi_version);
            matches!((seen, at), (Some(seen), Some(at)) if seen.epoch() > at)
        };
        let checks_reads = self.generation >= Generation::SECOND;
        let differ =
            self.cut(txn).is_some_and(|cut| cut.is_none()) || checks_reads && txn.reads.iter().any(after_its_snapshot);
        if txn.level == Isolation::Snapshot && differ {
            reasons.insert(Reason::SnapshotsDiffer);
        }
        if !reasons.is_empty() {
            return reasons;
        }
        for (row, action) in &txn.writes {
            let presence = self.presence(row, txn);
            let adds_to = match (action, presence) {
                (Action::AddOr(..), Presence::Absent) => Some(within(None)),
                (Action::AddOr(..) | Action::Add(_), Presence::Present(_)) => {
                    self.past(row).last().map(|change| change.within)
                }
                _ => None,
            };
            if adds_to.is_some_and(|within| leaves_64_bits(within, action.delta().into_iter())) {
                reasons.insert(Reason::AddOverflow);
            }
            let creates = matches!(action, Action::AddOr(..));
            if action.delta().is_some() && self.is_declared(row.store) && (presence != Presence::Absent || creates) {
                reasons.insert(Reason::NotANumber);
            }
            match (action, presence) {
                (Action::Insert(_), Presence::Present(_)) => reasons.insert(Reason::RowExists),
                (Action::Update(_) | Action::Delete | Action::Add(_), Presence::Absent) => {
                    reasons.insert(Reason::RowMissing)
                }
                (Action::Add(_) | Action::AddOr(..), Presence::Present(Some(false))) => {
                    reasons.insert(Reason::NotANumber)
                }
                _ => false,
            };
        }
        reasons
    }

    /// Applies the rules of the transaction's own level to the state before the epoch.
    fn validate(&self, txn: &TxnSpec, epoch: Epoch) -> BTreeSet<Reason> {
        let mut reasons = BTreeSet::new();
        let stale = txn.reads.iter().any(|(row, seen)| !self.is_current(row, *seen, epoch.prev()));
        let range_changed = txn.scans.iter().any(|scan| {
            let snapshot = txn.snapshot_of(scan.store).unwrap_or(epoch.prev());
            // Its engine scans its snapshot, in which no later write can appear.
            let at_snapshot = txn.level == Isolation::Snapshot && self.stores[&scan.store].multi_version;
            !at_snapshot && self.rows.keys().any(|row| scan.holds(row) && self.changed_since(row, snapshot))
        });
        match txn.level {
            Isolation::ReadCommitted => {}
            Isolation::RepeatableRead => {
                if stale {
                    reasons.insert(Reason::ReadConflict);
                }
            }
            Isolation::Serializable => {
                if stale {
                    reasons.insert(Reason::ReadConflict);
                }
                if range_changed {
                    reasons.insert(Reason::RangeConflict);
                }
            }
            Isolation::Snapshot => {
                let states = self.states_that_fit(txn, epoch);
                if states.is_empty() {
                    reasons.insert(Reason::ReadConflict);
                }
                let foreign = txn.writes.iter().any(|(row, action)| self.is_foreign(txn, row, action, epoch));
                if foreign || !states.is_empty() && states.iter().all(|&at| self.reappeared_since(txn, at)) {
                    reasons.insert(Reason::WriteConflict);
                }
                if range_changed {
                    reasons.insert(Reason::RangeConflict);
                }
            }
        }
        reasons
    }

    /// Returns whether a read-only transaction has seen a state that its level permits: that of epoch `at` or, at the
    /// snapshot level, an earlier one.
    #[must_use]
    pub fn holds(&self, txn: &TxnSpec, at: Epoch) -> bool {
        let newest = txn.snapshots.iter().map(|&(_, at)| at).max().unwrap_or(at);
        let cut = self.cut(txn);
        let all_are_at = |state: Epoch| {
            let keeps = |row: &Row| cut.is_some() && self.stores[&row.store].multi_version;
            let mut reads = txn.reads.iter();
            reads.all(|(row, seen)| {
                txn.level == Isolation::Snapshot && keeps(row) || self.version_at(row, state) == *seen
            })
        };
        let is_unchanged = |scan: &Scan| {
            let since = txn.snapshot_of(scan.store).unwrap_or(at);
            let between = |change: &Change| change.version.epoch() > since && change.version.epoch() <= at;
            txn.level == Isolation::Snapshot && self.stores[&scan.store].multi_version
                || !self.rows.iter().any(|(row, past)| scan.holds(row) && past.iter().any(between))
        };
        match txn.level {
            Isolation::ReadCommitted => true,
            Isolation::RepeatableRead => all_are_at(at),
            Isolation::Serializable => all_are_at(at) && txn.scans.iter().all(is_unchanged),
            Isolation::Snapshot => {
                let last = if cut.is_some() { newest } else { at };
                (newest.0..=last.0).map(Epoch).any(all_are_at) && txn.scans.iter().all(is_unchanged)
            }
        }
    }

    /// Returns the snapshot of the stores that keep versions themselves: `None` if the transaction names no such store,
    /// `Some(None)` if their snapshots are not all the newest one.
    fn cut(&self, txn: &TxnSpec) -> Option<Option<Epoch>> {
        let newest = txn.snapshots.iter().map(|&(_, at)| at).max()?;
        let own = || txn.snapshots.iter().filter(|(store, _)| self.stores[store].multi_version);
        own().next()?;
        Some(own().all(|&(_, at)| at == newest).then_some(newest))
    }

    /// Rule (i): returns the states from the newest snapshot on in which every read is current.
    fn states_that_fit(&self, txn: &TxnSpec, epoch: Epoch) -> Vec<Epoch> {
        let newest = txn.snapshots.iter().map(|&(_, at)| at).max().unwrap_or(epoch.prev());
        let cut = self.cut(txn);
        let last = if cut.is_some() { newest } else { epoch.prev() };
        let fits = |row: &Row, seen: Option<Version>, at: Epoch| {
            cut.is_some() && self.stores[&row.store].multi_version || self.is_current(row, seen, at)
        };
        let states = (newest.0..=last.0).map(Epoch);
        states.filter(|&at| txn.reads.iter().all(|(row, seen)| fits(row, *seen, at))).collect()
    }

    /// Returns the states from the newest snapshot on, before epoch `epoch`, in which every row read is as it was seen.
    /// `None` if a store of the transaction keeps versions and is read at its snapshot.
    #[must_use]
    pub fn moments(&self, txn: &TxnSpec, epoch: Epoch) -> Option<Vec<Epoch>> {
        if txn.level == Isolation::Snapshot && self.cut(txn).is_some() {
            return None;
        }
        let newest = txn.snapshots.iter().map(|&(_, at)| at).max().unwrap_or(epoch.prev());
        let fits = |at: &Epoch| txn.reads.iter().all(|(row, seen)| self.is_current(row, *seen, *at));
        Some((newest.0..epoch.0).map(Epoch).filter(fits).collect())
    }

    /// Rule (ii) for rows read as absent: returns whether other transactions wrote a row after the state `at` that this
    /// one writes.
    fn reappeared_since(&self, txn: &TxnSpec, at: Epoch) -> bool {
        txn.writes.iter().any(|(row, _)| txn.seen(row) == Some(None) && self.changed_since(row, at))
    }

    /// Rule (ii): returns whether another transaction committed a write of the row first.
    fn is_foreign(&self, txn: &TxnSpec, row: &Row, action: &Action, epoch: Epoch) -> bool {
        match (txn.seen(row), action) {
            (Some(seen), _) => !self.is_current(row, seen, epoch.prev()),
            (None, Action::Add(_) | Action::AddOr(..)) => false,
            (None, _) => txn.snapshot_of(row.store).is_some_and(|at| self.changed_since(row, at)),
        }
    }

    /// Judges one transaction alone on the state before epoch `epoch`; `None` accepts it.
    #[must_use]
    pub fn reject(&self, txn: &TxnSpec, epoch: Epoch) -> Option<(Stage, BTreeSet<Reason>)> {
        let mut join = self.join(txn, epoch);
        let sums = self.generation >= Generation::SECOND && join.remove(&Reason::AddOverflow);
        if !join.is_empty() {
            return Some((Stage::Join, join));
        }
        let validate = self.validate(txn, epoch);
        if !validate.is_empty() {
            return Some((Stage::Validate, validate));
        }
        sums.then(|| (Stage::Join, BTreeSet::from([Reason::AddOverflow])))
    }

    /// Decides an epoch. `index` numbers the plan's transactions. Returns a fate for each, and the serial order of the
    /// transactions that had to be placed (which other ones come between front and back, and where, does not matter).
    /// Then returns the location of each early abort's verdict; one whose id is outside the window has its own verdict,
    /// which is not remembered.
    #[must_use]
    pub fn decide(
        &mut self,
        epoch: Epoch,
        epoch_time_ms: u64,
        plan: &EpochPlan,
        index: &[TxnIx],
        rule: NativeRule,
    ) -> (Vec<Fate>, Queue, Vec<VerdictAt>) {
        let (mut fates, early_aborts) = self.identify(epoch, epoch_time_ms, plan, index);
        for (fate, txn) in fates.iter_mut().zip(&plan.txns) {
            if *fate == Fate::Commit
                && let Some((stage, reasons)) = self.reject(txn, epoch)
            {
                *fate = Fate::Abort(stage, reasons);
            }
        }
        let mut order: Vec<usize> = (0..fates.len()).filter(|&t| fates[t] == Fate::Commit).collect();
        order.sort_by_key(|&t| (rank(rule, &plan.txns[t], epoch), plan.txns[t].csn));
        let mut queue = Queue::default();
        let mut committed: Vec<Access> = Vec::new();
        for t in order {
            let access = self.access(&plan.txns[t]);
            let placed = place(&access, &committed, self.generation);
            let placed = placed.and_then(|place| {
                if !self.overflows(&access, &committed) {
                    return Ok(place);
                }
                // Only a transaction that has read rows which other ones of the epoch change is not placed at the back.
                let is_stale = self.generation >= Generation::SECOND && place != Place::Back;
                let reason = if is_stale { Reason::OrderConflict } else { Reason::AddOverflow };
                Err(BTreeSet::from([reason]))
            });
            match placed {
                Ok(Place::Back) => queue.back.push(t),
                Ok(Place::Front) => queue.front.insert(0, t),
                Ok(Place::Between) => queue.between.push(t),
                Err(reasons) => {
                    fates[t] = Fate::Abort(Stage::Merge, reasons);
                    continue;
                }
            }
            committed.push(access);
        }
        (fates, queue, early_aborts)
    }

    /// Step 0: known ids, copies within the epoch, ids outside the window. Files every id that gets a verdict.
    fn identify(
        &mut self,
        epoch: Epoch,
        epoch_time_ms: u64,
        plan: &EpochPlan,
        index: &[TxnIx],
    ) -> (Vec<Fate>, Vec<VerdictAt>) {
        let (window_ms, floor_ms) = (self.id_window_ms, self.id_floor_ms);
        let is_outside = |id: TxnId| id.unix_ms() < floor_ms || id.unix_ms().abs_diff(epoch_time_ms) > window_ms;
        let mut fates = vec![Fate::Commit; plan.txns.len()];
        let mut by_stamp: Vec<usize> = (0..plan.txns.len()).collect();
        by_stamp.sort_by_key(|&t| plan.txns[t].csn);
        for t in by_stamp {
            let txn = &plan.txns[t];
            fates[t] = match self.ids.get(&txn.id) {
                Some(&(at, body)) if body.is_none_or(|body| body == txn.body) => Fate::Replayed(at),
                Some(_) => Fate::BodyMismatch,
                None if is_outside(txn.id) => Fate::Expired,
                None => {
                    self.ids.insert(txn.id, (VerdictAt { epoch, item: index[t].0 }, Some(txn.body)));
                    Fate::Commit
                }
            };
        }
        let mut item = plan.txns.len() as u32;
        let mut early_aborts = Vec::new();
        for abort in &plan.early_aborts {
            let own = VerdictAt { epoch, item };
            if !is_outside(abort.id) {
                self.ids.entry(abort.id).or_insert((own, abort.body_hash.map(|hash| hash.0)));
            }
            early_aborts.push(self.ids.get(&abort.id).map_or(own, |(at, _)| *at));
            item += 1;
        }
        for fence in &plan.fences {
            if !is_outside(fence.id) {
                self.ids.entry(fence.id).or_insert((VerdictAt { epoch, item }, None));
            }
            item += 1;
        }
        self.forget_ids();
        (fates, early_aborts)
    }

    /// Forgets the oldest second of ids repeatedly until few enough are left.
    fn forget_ids(&mut self) {
        while self.ids.len() as u64 > self.ids_max {
            let second = |id: &TxnId| id.unix_ms() / 1000;
            let oldest = self.ids.keys().map(second).min().unwrap_or_default();
            self.ids.retain(|id, _| second(id) > oldest);
            self.id_floor_ms = (oldest + 1) * 1000;
        }
    }

    fn access<'a>(&self, txn: &'a TxnSpec) -> Access<'a> {
        let changes = |(row, action): &'a (Row, Action)| match action {
            Action::Insert(_) | Action::Delete => Some(row),
            Action::Put(_) if !matches!(self.presence(row, txn), Presence::Present(_)) => Some(row),
            Action::AddOr(..) if self.presence(row, txn) == Presence::Absent && txn.seen(row).is_some() => Some(row),
            _ => None,
        };
        let creates = |(row, action): &'a (Row, Action)| {
            let blind = matches!(action, Action::AddOr(..)) && txn.seen(row).is_none();
            (blind && self.presence(row, txn) == Presence::Absent).then_some(row)
        };
        Access {
            txn,
            changes_existence: txn.writes.iter().filter_map(changes).collect(),
            creates_or_adds: txn.writes.iter().filter_map(creates).collect(),
        }
    }

    /// Imports versions of rows, after the transactions of epoch `epoch`. Returns the number of accepted versions:
    /// those of rows that the resolver does not know, and that cannot have been deleted.
    pub fn import(&mut self, epoch: Epoch, imports: &[(Row, Version, bool)]) -> u64 {
        let mut taken = 0;
        for (row, version, integer) in imports {
            let forgotten = |change: &Change| change.value.is_none() && change.version.epoch() <= self.floor;
            let is_known = self.past(row).last().is_some_and(|newest| !forgotten(newest));
            let of_store = self.rows.iter().filter(|(other, _)| other.store == row.store).flat_map(|(_, past)| past);
            // A row deleted in this epoch is not forgotten.
            let earlier = of_store.filter(|change| change.value.is_none() && change.version.epoch() < epoch);
            let deleted = earlier.map(|change| change.version.epoch()).max();
            let forgotten = deleted.map(|deleted| deleted.min(self.floor)).filter(|at| *at > Epoch(0));
            let may_be_deleted = forgotten.is_some_and(|forgotten| version.epoch() <= forgotten);
            if is_known || self.is_declared(row.store) || may_be_deleted || version.epoch() >= epoch {
                continue;
            }
            let value = if *integer { Value::Int(0) } else { Value::Text("imported".to_owned()) };
            let change = Change { version: *version, within: within(Some(&value)), value: Some(value) };
            self.rows.entry(row.clone()).or_default().push(change);
            taken += 1;
        }
        taken
    }

    /// Returns whether the transaction's adds, together with those committed before it, could overflow 64 bits.
    fn overflows(&self, access: &Access, committed: &[Access]) -> bool {
        let delta = |txn: &TxnSpec, row: &Row| {
            txn.writes.iter().find_map(|(written, action)| action.delta().filter(|_| written == row))
        };
        access.txn.writes.iter().filter(|(_, action)| action.delta().is_some()).any(|(row, _)| {
            let all = committed.iter().chain([access]).filter_map(|other| delta(other.txn, row));
            leaves_64_bits(self.past(row).last().map_or(within(None), |change| change.within), all)
        })
    }

    /// Executes the committed transactions one by one in the given order, and checks each ordered one against its
    /// reads, each against the existence it relied on, and that no unseen write is overwritten.
    ///
    /// # Errors
    /// The violation, as text.
    pub fn execute(&mut self, epoch: Epoch, order: &[(&TxnSpec, Version)]) -> Result<(), String> {
        for &(txn, version) in order {
            let wrong = |what: &str, row: &Row| Err(format!("{} {what} {}/{}", txn.id, row.store, row.key));
            let newest = |row: &Row| self.past(row).last().filter(|c| c.value.is_some()).map(|c| c.version);
            for (row, seen) in &txn.reads {
                let in_place = newest(row) == *seen;
                let writes_it = txn.writes.iter().any(|(written, _)| written == row);
                if is_ordered(txn) && !in_place {
                    return wrong("read another version at its place in the order:", row);
                }
                if txn.level == Isolation::Snapshot && writes_it && !in_place {
                    return wrong("overwrites what it has not seen:", row);
                }
            }
            if txn.level == Isolation::Serializable {
                for scan in &txn.scans {
                    let snapshot = txn.snapshot_of(scan.store).unwrap_or(epoch.prev());
                    let changed = |row: &&Row| scan.holds(row) && newest(row) != self.version_at(row, snapshot);
                    if let Some(row) = self.rows.keys().find(changed) {
                        return wrong("scanned a range that differs at its place:", row);
                    }
                }
            }
            for (row, action) in &txn.writes {
                let before = self.past(row).last().and_then(|change| change.value.clone());
                let after = match (action, before) {
                    (Action::Insert(_), Some(_)) => return wrong("inserts a row that is there:", row),
                    (Action::Update(_) | Action::Delete | Action::Add(_), None) => {
                        return wrong("changes a row that is not there:", row);
                    }
                    (Action::Insert(value) | Action::Update(value) | Action::Put(value), _) => Some(value.clone()),
                    (Action::Delete, Some(_)) => None,
                    (Action::Add(delta) | Action::AddOr(delta, _), Some(Value::Int(n))) => {
                        match n.checked_add(*delta) {
                            Some(sum) => Some(Value::Int(sum)),
                            None => return wrong("adds beyond 64 bits:", row),
                        }
                    }
                    (Action::AddOr(delta, or), None) => match or.checked_add(*delta) {
                        Some(sum) => Some(Value::Int(sum)),
                        None => return wrong("starts beyond 64 bits:", row),
                    },
                    (Action::Add(_) | Action::AddOr(..), Some(Value::Text(_))) => return wrong("adds to a text:", row),
                };
                let past = self.rows.entry(row.clone()).or_default();
                if version.epoch() != epoch || past.last().is_some_and(|change| change.version >= version) {
                    return Err(format!("version {version:?} of {}/{} does not rise", row.store, row.key));
                }
                let moved = |by: i64| {
                    let (least, most) = past.last().map_or(within(None), |change| change.within);
                    (least + i128::from(by), most + i128::from(by))
                };
                let within = action.delta().map_or_else(|| within(after.as_ref()), moved);
                past.push(Change { version, value: after, within });
            }
        }
        self.last = epoch;
        Ok(())
    }
}

/// How the merge builds the serial order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Transactions placed before those without contention, first one first.
    pub front: Vec<usize>,
    /// Transactions placed between others. If there are any, the ends are not necessarily where they were placed.
    pub between: Vec<usize>,
    /// Transactions placed at the end of the existing ones; those without contention may be anywhere between.
    pub back: Vec<usize>,
}

#[derive(PartialEq, Eq)]
enum Place {
    Front,
    Between,
    Back,
}

/// Step 5: places one transaction against all those committed before it in rank order.
fn place(access: &Access, committed: &[Access], generation: Generation) -> Result<Place, BTreeSet<Reason>> {
    let ordered = |a: &Access| is_ordered(a.txn);
    let both = ordered(access);
    let lost = committed.iter().any(|other| writes_with(access, other) && !(both && ordered(other)));
    if lost {
        return Err(BTreeSet::from([Reason::WriteConflict]));
    }
    if !both || !committed.iter().any(|other| reads_from(access, other)) {
        return Ok(Place::Back);
    }
    if !committed.iter().any(|other| precedes(other, access)) {
        return Ok(Place::Front);
    }
    if generation >= Generation::THIRD && !closes_cycle(access, committed) {
        return Ok(Place::Between);
    }
    Err(BTreeSet::from([Reason::OrderConflict, Reason::ReadConflict, Reason::RangeConflict, Reason::WriteConflict]))
}

/// Returns whether `one` must precede `two`.
fn precedes(one: &Access, two: &Access) -> bool {
    is_ordered(one.txn) && reads_from(one, two)
}

/// Returns whether some committed transaction must follow as well as precede `access`, possibly because of others between.
fn closes_cycle(access: &Access, committed: &[Access]) -> bool {
    let mut follows: Vec<bool> = committed.iter().map(|other| precedes(access, other)).collect();
    // As often as a chain can be long.
    for _ in committed {
        for (t, one) in committed.iter().enumerate() {
            if follows[t] {
                follows.iter_mut().zip(committed).for_each(|(follows, two)| *follows |= precedes(one, two));
            }
        }
    }
    follows.iter().zip(committed).any(|(follows, other)| *follows && precedes(other, access))
}

/// Returns whether the transaction has a position in the epoch's serial order.
fn is_ordered(txn: &TxnSpec) -> bool {
    matches!(txn.level, Isolation::Serializable | Isolation::RepeatableRead)
}

/// WW: returns whether both write one row, and do not both only add to it.
fn writes_with(one: &Access, two: &Access) -> bool {
    let adds = |txn: &TxnSpec, row: &Row, action: &Action| action.delta().is_some() && txn.seen(row).is_none();
    one.txn.writes.iter().any(|(row, mine)| {
        let theirs = two.txn.writes.iter().find(|(written, _)| written == row);
        theirs.is_some_and(|(_, theirs)| !(adds(one.txn, row, mine) && adds(two.txn, row, theirs)))
    })
}

/// Returns whether `reader` depends on a row, a range, an existence or an add's base value that `writer` writes or
/// changes.
fn reads_from(reader: &Access, writer: &Access) -> bool {
    let writes = &writer.txn.writes;
    let row = writes.iter().any(|(row, _)| reader.txn.seen(row).is_some());
    let ranges = reader.txn.level == Isolation::Serializable;
    let range = ranges && writes.iter().any(|(row, _)| reader.txn.scans.iter().any(|scan| scan.holds(row)));
    let existence = reader.txn.writes.iter().any(|(row, action)| {
        let changed = writer.changes_existence.contains(&row)
            || writer.creates_or_adds.contains(&row) && !reader.creates_or_adds.contains(&row);
        !matches!(action, Action::Put(_)) && changed
    });
    let base = reader.txn.writes.iter().any(|(row, action)| {
        let replaces =
            |(written, other): &(Row, Action)| written == row && matches!(other, Action::Update(_) | Action::Put(_));
        action.delta().is_some() && writes.iter().any(replaces)
    });
    row || range || existence || base
}

/// The built-in rules, implemented again: lower wins.
fn rank(rule: NativeRule, txn: &TxnSpec, epoch: Epoch) -> (u64, u64) {
    let first = match rule {
        NativeRule::FirstWriterWins => 0,
        NativeRule::ShorterTxnWins => u64::MAX - txn.start.unwrap_or(epoch).0,
        NativeRule::FairRotation { turns } => (txn.origin + epoch.0) % u64::from(turns),
        NativeRule::Priority => 255 - u64::from(txn.priority),
    };
    (first, txn.csn.0)
}

/// Returns whether a verdict agrees with the oracle's judgement of the transaction alone.
#[must_use]
pub fn agrees(verdict: &Verdict, expected: Option<&(Stage, BTreeSet<Reason>)>) -> bool {
    match (verdict, expected) {
        (Verdict::ReadOnly { .. }, None) => true,
        (Verdict::Aborted { reason, conflicts, .. }, Some((stage, reasons))) => {
            reasons.contains(reason) && conflicts.iter().all(|conflict| conflict.stage == *stage)
        }
        _ => false,
    }
}
