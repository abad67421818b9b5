//! Plays a random world on the core, checks everything that the oracle knows about it, and then replays it with all the
//! variations that must not matter.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tribunal_core::executor::Inline;
use tribunal_core::id_table::Known;
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{Policies, PolicyFault, Validation, Validator, ValidatorColumns, group};
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_types::{
    BodyHash, Decision, EarlyAbort, Epoch, EpochOutcome, FenceItem, FenceResult, Generation, Isolation, NamespaceId,
    Reason, StateImage, StoreId, StoreSpec, TxnIx, Verdict, WriteKind,
};

use crate::cluster::{Backwards, Cluster, EpochPlan, Played};
use crate::generate::{EpochChoice, START_MS, World, id_of};
use crate::oracle::{Fate, Oracle, Queue, agrees};
use crate::scenario::{Keying, Row, TxnSpec, Value};

/// Result of a check; the error is a description of the violation.
pub type Checked = Result<(), String>;

/// Numbers of events in a world: proof that the worlds reach every rule.
pub type Tally = BTreeMap<String, u64>;

/// A world that was played once: its plans are fixed now.
struct Story<'a> {
    world: &'a World,
    specs: Vec<StoreSpec>,
    plans: Vec<(EpochPlan, NativeRule)>,
    cluster: Cluster,
    oracle: Oracle,
    tally: Tally,
}

/// Plays a world and checks it.
///
/// # Errors
/// The first violation.
pub fn check(world: &World) -> Result<Tally, String> {
    let mut story = tell(world)?;
    logs_give_the_state(&story)?;
    map_knows_the_state(&mut story)?;
    shards_do_not_matter(&story)?;
    grouping_does_not_matter(&story)?;
    duplicates_do_not_matter(&story)?;
    idle_epochs_do_not_matter(&story)?;
    replay_and_restore_agree(&story)?;
    Ok(story.tally)
}

/// Bytes that the id table charges for an id.
const ID_BYTES: u64 = 72;

fn config(world: &World, shards: u16) -> ResolverConfig {
    let status_bytes_max = (world.ids_max * ID_BYTES) as usize;
    ResolverConfig { shards, floor_age_ms: world.floor_age_ms, status_bytes_max, ..ResolverConfig::default() }
}

fn policies(rule: &NativeRule) -> Policies<'_> {
    Policies { rule, validator: &NativeValidator, rule_fallback: *rule }
}

/// Judges natively, and records the evidence about reads.
#[derive(Default)]
struct Observer {
    /// Whether the validators of all levels are to be told when reads were current. From the third generation on, this
    /// requires history of transactions that need none otherwise.
    dates_all: bool,
    /// First and last epoch in which all reads were current, by stamp.
    current: Mutex<BTreeMap<u64, (u64, u64)>>,
}

impl Validator for Observer {
    fn needs(&self, level: Isolation) -> u8 {
        NativeValidator.needs(level) | group::TXNS | if self.dates_all { group::SNAPSHOTS } else { 0 }
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        if self.needs(level) & group::SNAPSHOTS == 0 {
            return NativeValidator.validate(level, columns);
        }
        let intervals = columns.current_from.iter().copied().zip(columns.current_until.iter().copied());
        self.current.lock().expect("no panic").extend(columns.txns.csn.iter().copied().zip(intervals));
        NativeValidator.validate(level, columns)
    }
}

/// Starts a cluster with the stores of a world, in its generation.
fn cluster_of(world: &World, nodes: u16, shards: u16, keying: Keying) -> Cluster {
    let mut cluster = Cluster::new(nodes, keying, config(world, shards), &world.specs());
    cluster.resolver.switch_generation(world.generation());
    cluster
}

/// Plays the world epoch by epoch, next to the oracle.
fn tell(world: &World) -> Result<Story<'_>, String> {
    let specs = world.specs();
    let mut oracle = Oracle::new(&specs, ResolverConfig::default().id_window_ms, world.ids_max);
    oracle.generation = world.generation();
    let cluster = cluster_of(world, world.nodes, 1, Keying::Hashed);
    let mut story = Story { world, specs, plans: Vec::new(), cluster, oracle, tally: Tally::new() };
    let mut earlier: Vec<TxnSpec> = Vec::new();
    let mut clock_ms = START_MS;
    if let Some(seed) = world.seed() {
        earlier.push(seed.clone());
        let plan = EpochPlan { clock_ms, txns: vec![seed], ..EpochPlan::default() };
        story.epoch(plan, NativeRule::FirstWriterWins)?;
    }
    for choice in &world.epochs {
        clock_ms += choice.after_ms;
        let plan = story.plan(choice, clock_ms, &mut earlier);
        story.epoch(plan, choice.rule).map_err(|wrong| {
            let (plan, rule) = story.plans.last().expect("it was just played");
            let decisions = story.cluster.journal.last().map(|played| &played.outcome);
            format!("{wrong}\nepoch {} under {rule:?}: {plan:#?}\n{decisions:#?}", story.plans.len())
        })?;
    }
    Ok(story)
}

impl Story<'_> {
    /// Converts an epoch's choices to a definite plan.
    fn plan(&self, choice: &EpochChoice, clock_ms: u64, earlier: &mut Vec<TxnSpec>) -> EpochPlan {
        let first = earlier.len();
        let txn = |(i, txn)| self.world.txn(txn, (first + i) as u64, &self.oracle, earlier);
        let txns: Vec<TxnSpec> = choice.txns.iter().enumerate().map(txn).collect();
        earlier.extend(txns.iter().cloned());
        let fence = |&number: &u8| FenceItem { id: id_of(u64::from(number)), namespace: NamespaceId(0) };
        let fences = choice.fences.iter().map(fence).collect();
        let early_abort = |&number: &u8| EarlyAbort {
            id: id_of(u64::from(number)),
            body_hash: None,
            namespace: NamespaceId(0),
            reason: Reason::ClientAbort,
            conflicts: Vec::new(),
        };
        let early_aborts = choice.early_aborts.iter().map(early_abort).collect();
        let imports = choice.imports.iter().filter_map(|import| self.world.import(*import, &self.oracle)).collect();
        EpochPlan { clock_ms, idle_before: choice.idle_before, txns, early_aborts, fences, imports }
    }

    fn epoch(&mut self, plan: EpochPlan, rule: NativeRule) -> Checked {
        self.plans.push((plan.clone(), rule));
        let last = self.cluster.resolver.last();
        let doomed = self.opinions(&plan, &rule)?;
        let dates_all = self.oracle.generation < Generation::THIRD;
        let observer = Observer { dates_all, ..Observer::default() };
        let policies = Policies { rule: &rule, validator: &observer, rule_fallback: rule };
        let played = self.cluster.play(&plan, &policies).expect("there are transactions").clone();
        let epoch = Epoch(last.0 + 1 + plan.idle_before);
        self.evidence(epoch, &plan, &observer)?;
        if played.outcome.epoch != epoch || self.cluster.resolver.last() != epoch {
            return Err(format!("resolved epoch {} instead of {epoch}", played.outcome.epoch));
        }
        let (fates, queue, early_aborts) =
            self.oracle.decide(epoch, played.outcome.epoch_time_ms, &plan, &played.index, rule);
        compare(&played.outcome, &played.index, &fates)?;
        self.ids(epoch, &plan)?;
        if played.outcome.early_aborts != early_aborts {
            return Err(format!("early aborts are at {:?}, not {early_aborts:?}", played.outcome.early_aborts));
        }
        for (t, doomed) in doomed.iter().enumerate() {
            if *doomed && fates[t] == Fate::Commit {
                return Err(format!("transaction {t} was called an early abort, and commits"));
            }
        }
        self.order(&plan, &played, &fates, &queue)?;
        let imported = self.oracle.import(epoch, &plan.imports);
        let taken = played.outcome.imported.iter().sum::<u64>();
        if taken != imported {
            return Err(format!("{taken} rows are imported, not {imported}, of {:?}", plan.imports));
        }
        self.count_imports(&plan, imported);
        self.count(&played, &doomed, &queue);
        self.count_unfiled(&plan);
        if played.outcome.floor < self.oracle.floor {
            return Err("the floor sinks".to_owned());
        }
        self.oracle.floor = played.outcome.floor;
        Ok(())
    }

    /// Checks the evidence about reads: at every level, the earliest states in which all of them hold.
    fn evidence(&self, epoch: Epoch, plan: &EpochPlan, observer: &Observer) -> Checked {
        let current = observer.current.lock().expect("no panic");
        for (t, txn) in plan.txns.iter().enumerate() {
            let Some(&(from, until)) = current.get(&txn.csn.0) else { continue };
            let Some(moments) = self.oracle.moments(txn, epoch) else { continue };
            let newest = txn.snapshots.iter().map(|&(_, at)| at).max().unwrap_or(epoch.prev());
            let told: Vec<Epoch> = (newest.0.max(from)..epoch.0.min(until.saturating_add(1))).map(Epoch).collect();
            // At the snapshot level, a row that is read as absent and written may have no deletion after the moment.
            let writes_absence = txn.writes.iter().any(|(row, _)| txn.seen(row) == Some(None));
            let holds = if txn.level == Isolation::Snapshot && writes_absence {
                told.iter().all(|epoch| moments.contains(epoch))
            } else {
                // A row that is written and deleted within one epoch interrupts its absence.
                moments.starts_with(&told)
            };
            if told.is_empty() != moments.is_empty() || !holds {
                return Err(format!(
                    "the reads of transaction {t} hold in {moments:?}, validators see {from}..={until}"
                ));
            }
        }
        Ok(())
    }

    /// Checks where the resolver files every id of the epoch.
    fn ids(&self, epoch: Epoch, plan: &EpochPlan) -> Checked {
        let ids = plan.txns.iter().map(|txn| txn.id).chain(plan.early_aborts.iter().map(|abort| abort.id));
        for id in ids.chain(plan.fences.iter().map(|fence| fence.id)) {
            let known = self.cluster.resolver.known(NamespaceId(0), id);
            let filed = self.oracle.filed(id).map(|(at, body)| Known::At(at, body.map(BodyHash)));
            // The id was outside the window, or was forgotten.
            let expected = filed.unwrap_or(Known::OutsideWindow);
            if known != expected {
                return Err(format!("{id} is filed as {known:?} in epoch {epoch}, not {expected:?}"));
            }
        }
        Ok(())
    }

    fn count_imports(&mut self, plan: &EpochPlan, taken: u64) {
        *self.tally.entry("imported".to_owned()).or_default() += taken;
        *self.tally.entry("not imported".to_owned()).or_default() += plan.imports.len() as u64 - taken;
    }

    /// Counts early aborts that are filed nowhere.
    fn count_unfiled(&mut self, plan: &EpochPlan) {
        let unfiled = plan.early_aborts.iter().filter(|abort| self.oracle.filed(abort.id).is_none()).count();
        *self.tally.entry("early abort outside the window".to_owned()).or_default() += unfiled as u64;
    }

    fn count(&mut self, played: &Played, doomed: &[bool], queue: &Queue) {
        let mut count = |what: String, times: usize| *self.tally.entry(what).or_default() += times as u64;
        for decision in &played.outcome.decisions {
            let what = match *decision {
                Decision::Committed { .. } => "committed".to_owned(),
                Decision::Replayed { .. } => "replayed".to_owned(),
                Decision::BodyMismatch => "body mismatch".to_owned(),
                Decision::Expired => "expired".to_owned(),
                Decision::Aborted { reason, first, .. } => {
                    let stage = played.outcome.witnesses[first as usize].stage.name();
                    format!("{stage} {reason}")
                }
            };
            count(what, 1);
        }
        count("early abort".to_owned(), doomed.iter().filter(|doomed| **doomed).count());
        count("placed at the front".to_owned(), queue.front.len());
        count("placed between".to_owned(), queue.between.len());
        let fenced = |result: &&FenceResult| matches!(result, FenceResult::Fenced);
        count("fenced".to_owned(), played.outcome.fences.iter().filter(fenced).count());
        count("the floor rose".to_owned(), usize::from(played.outcome.floor > self.oracle.floor));
    }

    /// Queries the resolver about every transaction before it is submitted: the result of a dry run, and whether it is
    /// an early abort.
    fn opinions(&mut self, plan: &EpochPlan, rule: &NativeRule) -> Result<Vec<bool>, String> {
        let resolver = &mut self.cluster.resolver;
        // As if the empty epochs of the plan had been sealed separately.
        let complete = Epoch(resolver.last().0 + plan.idle_before);
        let mut doomed = Vec::new();
        for (t, txn) in plan.txns.iter().enumerate() {
            let request = txn.request(&Keying::Hashed);
            let verdict = resolver.dry_run(complete, &request, &policies(rule));
            let expected = self.oracle.reject(txn, complete.next());
            if !agrees(&verdict, expected.as_ref()) {
                return Err(format!("a dry run of transaction {t} says {verdict:?}, the oracle {expected:?}"));
            }
            doomed.push(resolver.find_early_abort(&request).is_some());
        }
        self.readers_do_not_meet(complete, plan, rule).map(|()| doomed)
    }

    /// Checks that read-only transactions get the same verdicts together as alone.
    fn readers_do_not_meet(&mut self, complete: Epoch, plan: &EpochPlan, rule: &NativeRule) -> Checked {
        let resolver = &mut self.cluster.resolver;
        let mut readers: Vec<_> = plan.txns.iter().map(|txn| txn.request(&Keying::Hashed)).collect();
        readers.iter_mut().for_each(|reader| reader.writes.clear());
        let together = resolver.dry_runs(complete, &readers, &policies(rule));
        for (t, (reader, together)) in readers.iter().zip(together).enumerate() {
            let alone = resolver.dry_run(complete, reader, &policies(rule));
            if together != alone {
                return Err(format!("the reads of transaction {t} alone give {alone:?}, among others {together:?}"));
            }
        }
        Ok(())
    }

    /// Checks the serial order and the positions in the logs.
    fn order(&mut self, plan: &EpochPlan, played: &Played, fates: &[Fate], queue: &Queue) -> Checked {
        let order = execute_in_order(&mut self.oracle, plan, &played.outcome, &played.index, fates, queue)?;
        lsns_are_dense(&self.cluster, played.outcome.epoch, plan, &order)
    }
}

/// Checks the serial order: its members, that its ends are the queue's, and that it can be executed, and executes it.
/// Returns the transactions in that order.
///
/// # Errors
/// The violation.
pub fn execute_in_order(
    oracle: &mut Oracle,
    plan: &EpochPlan,
    outcome: &EpochOutcome,
    index: &[TxnIx],
    fates: &[Fate],
    queue: &Queue,
) -> Result<Vec<usize>, String> {
    let spec_of = |ix: TxnIx| index.iter().position(|&planned| planned == ix).ok_or("an unknown index");
    let order: Vec<usize> = outcome.order.iter().map(|&ix| spec_of(ix)).collect::<Result<_, _>>()?;
    let mut members = order.clone();
    members.sort_unstable();
    let committed: Vec<usize> = (0..fates.len()).filter(|&t| fates[t] == Fate::Commit).collect();
    if members != committed {
        return Err(format!("the order holds {members:?}, committed are {committed:?}"));
    }
    // Whatever was placed between others may have moved those.
    let ends = if queue.between.is_empty() { queue } else { &Queue::default() };
    if order[..ends.front.len()] != ends.front {
        return Err(format!("the order {order:?} does not start with {:?}", ends.front));
    }
    let place = |t: &usize| order.iter().position(|placed| placed == t).unwrap_or(usize::MAX);
    for (i, one) in ends.back.iter().enumerate() {
        for two in &ends.back[i + 1..] {
            let shares = plan.txns[*one]
                .writes
                .iter()
                .any(|(row, _)| plan.txns[*two].writes.iter().any(|(other, _)| row == other));
            if shares && place(one) > place(two) {
                return Err(format!("{two} is before {one} in {order:?}"));
            }
        }
    }
    let version = |t: usize| match outcome.decisions[index[t].0 as usize] {
        Decision::Committed { version } => Ok((&plan.txns[t], version)),
        other => Err(format!("{t} is in the order as {other:?}")),
    };
    let serial: Vec<_> = order.iter().map(|&t| version(t)).collect::<Result<_, String>>()?;
    oracle.execute(outcome.epoch, &serial)?;
    Ok(order)
}

/// Compares the core's decisions with the oracle's.
///
/// # Errors
/// The first decision that differs.
pub fn compare(outcome: &EpochOutcome, index: &[TxnIx], fates: &[Fate]) -> Checked {
    for (t, fate) in fates.iter().enumerate() {
        let decision = &outcome.decisions[index[t].0 as usize];
        let same = match (decision, fate) {
            (Decision::Committed { .. }, Fate::Commit)
            | (Decision::BodyMismatch, Fate::BodyMismatch)
            | (Decision::Expired, Fate::Expired) => true,
            (Decision::Replayed { original }, Fate::Replayed(at)) => original == at,
            (Decision::Aborted { reason, first, count }, Fate::Abort(stage, reasons)) => {
                let witnesses = &outcome.witnesses[*first as usize..(*first + *count) as usize];
                let located = !witnesses.is_empty() && witnesses.iter().all(|witness| witness.stage == *stage);
                reasons.contains(reason) && located
            }
            _ => false,
        };
        if !same {
            return Err(format!("transaction {t}: the core says {decision:?}, the oracle {fate:?}"));
        }
    }
    Ok(())
}

/// Checks that every store's positions follow the serial order from the next free one, one for each store that a
/// transaction writes.
fn lsns_are_dense(cluster: &Cluster, epoch: Epoch, plan: &EpochPlan, order: &[usize]) -> Checked {
    let mut heads: BTreeMap<StoreId, u64> = BTreeMap::new();
    for played in &cluster.journal {
        for at in &played.outcome.lsns {
            let head = heads.entry(at.store).or_default();
            *head += 1;
            if at.lsn.0 != *head {
                return Err(format!("position {} of store {} follows {}", at.lsn, at.store, *head - 1));
            }
        }
    }
    let played = cluster.journal.last().ok_or("nothing was played")?;
    let mut expected = Vec::new();
    for &t in order {
        let mut stores: Vec<StoreId> = plan.txns[t].writes.iter().map(|(row, _)| row.store).collect();
        stores.sort_unstable();
        stores.dedup();
        expected.extend(stores.into_iter().map(|store| (played.index[t], store)));
    }
    let got: Vec<_> = played.outcome.lsns.iter().map(|at| (at.txn, at.store)).collect();
    let heads_agree = heads.iter().all(|(&store, &head)| cluster.resolver.head_lsn(store).0 == head);
    if got == expected && heads_agree {
        Ok(())
    } else {
        Err(format!("positions of epoch {epoch}: {got:?}, not {expected:?}"))
    }
}

/// Checks that reading every store's log from the start yields the oracle's rows.
fn logs_give_the_state(story: &Story) -> Checked {
    if story.tally.get("imported").is_some_and(|rows| *rows > 0) {
        return Ok(()); // no log has the values of imported rows
    }
    let mut state: BTreeMap<Row, Value> = BTreeMap::new();
    for spec in &story.specs {
        let log = story.cluster.log_of(spec.id);
        if log.records.iter().enumerate().any(|(i, head)| head.lsn.0 != i as u64 + 1) {
            return Err(format!("the log of store {} has a gap", spec.id));
        }
        for write in &log.writes {
            let key = String::from_utf8_lossy(write.key.of(&log.bytes)).into_owned();
            let row = Row { store: spec.id, key };
            let value = write.value.of(&log.bytes);
            match write.kind {
                WriteKind::Delete => {
                    state.remove(&row);
                }
                WriteKind::Add => {
                    let (Some(Value::Int(n)), Value::Int(delta)) = (state.get(&row), Value::of_json(value)) else {
                        return Err(format!("the log adds to {row:?}, which is no number"));
                    };
                    let Some(sum) = n.checked_add(delta) else {
                        return Err(format!("the log adds beyond 64 bits to {row:?}"));
                    };
                    state.insert(row, Value::Int(sum));
                }
                WriteKind::Insert | WriteKind::Update | WriteKind::Put => {
                    state.insert(row, Value::of_json(value));
                }
            }
        }
    }
    if state == story.oracle.state() {
        Ok(())
    } else {
        Err(format!("logs give {state:?}, not {:?}", story.oracle.state()))
    }
}

/// Checks that the map's newest versions are the oracle's, row by row: the right version is current, any other is not.
fn map_knows_the_state(story: &mut Story) -> Checked {
    for row in story.world.rows() {
        let newest = story.oracle.version_at(&row, story.oracle.last);
        let mut is_current = |seen| {
            let mut probe = TxnSpec::new(1 << 30, START_MS, Isolation::RepeatableRead);
            probe.snapshots = vec![(row.store, story.oracle.last)];
            probe.reads = vec![(row.clone(), seen)];
            let request = probe.request(&Keying::Hashed);
            let verdict =
                story.cluster.resolver.dry_run(story.oracle.last, &request, &policies(&NativeRule::FirstWriterWins));
            matches!(verdict, Verdict::ReadOnly { .. })
        };
        let older = story.oracle.past(&row).iter().rev().nth(1).map(|change| change.version);
        let above_floor = story.oracle.past(&row).last().is_some_and(|c| c.version.epoch() > story.oracle.floor);
        if !is_current(newest) || above_floor && older.is_some() && older != newest && is_current(older) {
            return Err(format!("the map does not know that {row:?} is at {newest:?}"));
        }
    }
    Ok(())
}

/// Plays the fixed plans on another cluster.
fn again(story: &Story, nodes: u16, shards: u16, keying: Keying, change: impl Fn(&EpochPlan) -> EpochPlan) -> Cluster {
    let mut cluster = cluster_of(story.world, nodes, shards, keying);
    for (plan, rule) in &story.plans {
        cluster.play_on(&change(plan), &policies(rule), &Backwards);
    }
    cluster
}

/// Checks that any number of shards gives the same outcomes, including digests.
fn shards_do_not_matter(story: &Story) -> Checked {
    for (shards, keying) in [(2, Keying::Hashed), (3, Keying::Hashed), (8, Keying::Apart)] {
        let other = again(story, story.world.nodes, shards, keying, EpochPlan::clone);
        for (one, two) in story.cluster.journal.iter().zip(&other.journal) {
            let mut outcome = two.outcome.clone();
            if keying != Keying::Hashed {
                // With this keying, rows have other hashes, which a digest may cover.
                outcome.digest = one.outcome.digest;
            }
            if one.outcome != outcome {
                return Err(format!("1 shard gives {:#?}, {shards} give {:#?}", one.outcome, two.outcome));
            }
        }
    }
    Ok(())
}

/// Returns a decision in a form that is independent of the numbering of transactions.
fn decided(played: &Played, t: usize) -> (Option<u64>, Option<Reason>, String) {
    match played.outcome.decisions[played.index[t].0 as usize] {
        Decision::Committed { version } => (Some(version.bits()), None, String::new()),
        Decision::Aborted { reason, .. } => (None, Some(reason), String::new()),
        Decision::Replayed { original } => (None, None, format!("replayed from {}", original.epoch)),
        other => (None, None, format!("{other:?}")),
    }
}

fn same_decisions(story: &Story, other: &Cluster, what: &str) -> Checked {
    for (one, two) in story.cluster.journal.iter().zip(&other.journal) {
        for t in 0..one.index.len() {
            if decided(one, t) != decided(two, t) {
                let decisions = (decided(one, t), decided(two, t));
                return Err(format!("{what}: epoch {} transaction {t}: {decisions:?}", one.outcome.epoch));
            }
        }
    }
    Ok(())
}

/// Checks that the same stamps through any number of nodes give the same verdicts.
fn grouping_does_not_matter(story: &Story) -> Checked {
    for nodes in 1..=3 {
        if nodes != story.world.nodes {
            let other = again(story, nodes, 2, Keying::Hashed, EpochPlan::clone);
            same_decisions(story, &other, "grouping")?;
        }
    }
    Ok(())
}

/// Checks that empty epochs that are sealed separately, before the epoch with items, give the same outcomes.
fn idle_epochs_do_not_matter(story: &Story) -> Checked {
    let mut other = cluster_of(story.world, story.world.nodes, 1, Keying::Hashed);
    for (plan, rule) in &story.plans {
        if let Some(idle_before) = plan.idle_before.checked_sub(1) {
            let idle = EpochPlan { clock_ms: plan.clock_ms, idle_before, ..EpochPlan::default() };
            if other.play(&idle, &policies(rule)).is_some() {
                return Err("an epoch without items was resolved".to_owned());
            }
        }
        other.play(&EpochPlan { idle_before: 0, ..plan.clone() }, &policies(rule));
    }
    let outcome = |played: &Played| played.outcome.clone();
    if other.journal.iter().map(outcome).eq(story.cluster.journal.iter().map(outcome)) {
        Ok(())
    } else {
        Err("empty epochs sealed by themselves change outcomes".to_owned())
    }
}

/// Checks that a second copy of every transaction, with a later stamp and through another node, changes nothing.
fn duplicates_do_not_matter(story: &Story) -> Checked {
    let doubled = |plan: &EpochPlan| {
        let mut plan = plan.clone();
        let copies: Vec<TxnSpec> = plan
            .txns
            .iter()
            .rev()
            .map(|txn| {
                let mut copy = txn.clone();
                copy.csn.0 += 1 << 39;
                copy.node += 1;
                copy
            })
            .collect();
        plan.txns.extend(copies);
        plan
    };
    let other = again(story, 3, 1, Keying::Hashed, doubled);
    same_decisions(story, &other, "duplicates")?;
    for played in &other.journal {
        let first_copy = played.index.len() / 2;
        for t in first_copy..played.index.len() {
            let decision = &played.outcome.decisions[played.index[t].0 as usize];
            if !matches!(decision, Decision::Replayed { .. } | Decision::BodyMismatch | Decision::Expired) {
                return Err(format!("a copy was executed: {decision:?}"));
            }
        }
    }
    Ok(())
}

/// Takes an image of a resolver's state, `steps` steps at a time between the following epochs.
fn image_while_it_goes_on(resolver: &mut Resolver, later: &[Played], steps: usize) -> Result<StateImage, String> {
    let at_once = resolver.image();
    resolver.begin_image();
    let mut later = later.iter();
    let image = loop {
        if let Some(state) = (0..steps).find_map(|_| resolver.step_image()) {
            break state.into_image();
        }
        if let Some(played) = later.next() {
            resolver.replay(&played.input, &played.outcome, &Inline);
        }
    };
    let sorted = |mut image: StateImage| {
        image.columns.iter_mut().for_each(|column| column.words.sort_unstable());
        image.blobs.iter_mut().for_each(|blob| blob.bytes.sort_unstable());
        image
    };
    if sorted(image.clone()) != sorted(at_once) {
        return Err(format!("the image of epoch {} changed while it was taken", image.epoch));
    }
    Ok(image)
}

/// Checks that a replica that replays recorded outcomes, and one restored from an image at any epoch, end in the same
/// state.
fn replay_and_restore_agree(story: &Story) -> Checked {
    let fresh = |shards| {
        let mut resolver = Resolver::new(config(story.world, shards));
        story.specs.iter().for_each(|spec| resolver.declare_store(spec.clone()));
        resolver.switch_generation(story.world.generation());
        resolver
    };
    let journal = &story.cluster.journal;
    let resolved = &story.cluster.resolver;
    for cut in (0..=journal.len()).step_by(journal.len() / 5 + 1) {
        let mut resolver = fresh(2);
        for played in &journal[..cut] {
            resolver.replay(&played.input, &played.outcome, &Inline);
        }
        let image = image_while_it_goes_on(&mut resolver, &journal[cut..], 40 + cut % 300)?;
        let mut restored = Resolver::restore(config(story.world, 3), image).map_err(|wrong| format!("{wrong:?}"))?;
        for (played, (_, rule)) in journal[cut..].iter().zip(&story.plans[cut..]) {
            let outcome = restored.resolve(&played.input, &policies(rule), &Inline);
            if outcome != played.outcome {
                return Err(format!("restored after {cut} epochs: {outcome:#?} instead of {:#?}", played.outcome));
            }
        }
        let end = (restored.digest(), restored.last(), restored.floor(), restored.epoch_time_ms());
        if end != (resolved.digest(), resolved.last(), resolved.floor(), resolved.epoch_time_ms()) {
            return Err(format!("restored after {cut} epochs, it ends at {end:?}"));
        }
    }
    Ok(())
}
