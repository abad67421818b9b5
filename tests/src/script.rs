//! Epoch scripts: a small text format in which each rule is tested by a story that needs it.
//!
//! ```text
//! stores kv sql:declared         stores, the first one is meant where rows name none (default: kv)
//! nodes 2 / shards 3 / apart / floor_age 1000 / id_window 60000         settings, before the first epoch; also
//!                                window_bytes, status_bytes
//! generation 1                   a setting, too; a script that has none is played in all generations
//! rule priority                  rule and validator from the next epoch on; also: rule faulty, validator short
//! epoch at +10 idle 3            a new epoch, 10 ms after the last, which seals three empty ones before it;
//!                                without items it is empty, too
//! T1 ser ins x=1                 => ok kv#1
//! T2@2 rr @1 read x@T1 upd x=2   => write_conflict merge: write x by T1
//! fence T9                       => fenced
//! switch 2                       what follows is decided in another generation
//! restart                        what follows is decided in a state restored from an image
//! order T1                       the serial order of the epoch above
//! dry-run T3 si @4 scan a..z     => read_only 4
//! ```
//!
//! Levels: `rc rr si ser`. Operations: `read x@T1` (version that T1 wrote), `read x@-` (seen absent), `read x@1.0`,
//! `scan a..c`, `ins x=1`, `upd x=1`, `put x=1`, `del x`, `add x+1`. Options: `id=T1`, `body=7`, `age=-5` (the id's
//! time, ms), `prio=200`, `origin=3`, `start=2`, `csn=9`, `ns=1`,
//! `first=-50` (the first attempt, relative to epoch time, ms). `@4` is the snapshot of every store the transaction
//! names, `@kv:4,sql:3` one by one. Every line that has an answer must say which; a bare `ok` leaves positions open.

use std::collections::BTreeMap;

use tribunal_core::id_table::Known;
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{
    ConflictRule, NO_WITNESS, Policies, PolicyFault, Ranks, TxnColumns, Validation, Validator, ValidatorColumns, group,
};
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_types::{
    BodyHash, Csn, EarlyAbort, Epoch, Existence, FenceItem, Generation, Isolation, NamespaceId, Reason, StoreId,
    StoreSpec, TxnId, Version,
};

use crate::cluster::{Cluster, EpochPlan, tracked};
use crate::render::{self, Names};
use crate::scenario::{Action, Keying, Row, Scan, TxnSpec, Value, txn_id};

/// Time of the first epoch, Unix milliseconds.
const START_MS: u64 = 1_800_000_000_000;

/// Plays a script and compares every answer.
///
/// # Panics
/// If an answer differs (the message is the script with the actual answers), or the script cannot be parsed.
#[track_caller]
pub fn check(script: &str) {
    if let Err(differs) = run(script) {
        panic!("{differs}");
    }
}

/// Plays a script and compares every answer.
///
/// # Errors
/// The script with the actual answers, wrong lines marked.
///
/// # Panics
/// If the script cannot be parsed.
pub fn run(script: &str) -> Result<(), String> {
    (Generation::OLDEST.0..=Generation::NEWEST.0).try_for_each(|generation| run_in(Generation(generation), script))
}

/// Plays a script in a generation, unless the script sets another one.
fn run_in(generation: Generation, script: &str) -> Result<(), String> {
    let mut player = Player::default();
    player.settings.generation = generation;
    for line in script.lines() {
        player.line(line);
    }
    player.flush();
    let generation = player.settings.generation;
    let mut text = format!("the script in generation {generation}, with what happened:\n");
    let mut good = true;
    for line in &player.lines {
        match &line.actual {
            None => text += &format!("    {}\n", line.said),
            Some(actual) if answers(actual, &line.expected) => text += &format!("    {:<60} => {actual}\n", line.said),
            Some(actual) => {
                good = false;
                text += &format!(">>> {:<60} => {actual}\n    {:<60} (expected {})\n", line.said, "", line.expected);
            }
        }
    }
    if good { Ok(()) } else { Err(text) }
}

/// Returns whether an answer is the expected one; a bare `ok` leaves positions open.
fn answers(actual: &str, expected: &str) -> bool {
    actual == expected || expected == "ok" && actual.starts_with("ok ")
}

struct Line {
    said: String,
    expected: String,
    actual: Option<String>,
}

#[derive(Default)]
struct Settings {
    nodes: u16,
    keying: Keying,
    config: ResolverConfig,
    stores: Vec<StoreSpec>,
    generation: Generation,
}

/// The epoch in progress.
#[derive(Default)]
struct Draft {
    plan: EpochPlan,
    txns: Vec<(String, TxnSpec)>,
    txn_lines: Vec<usize>,
    early_abort_lines: Vec<usize>,
    fence_lines: Vec<usize>,
}

#[derive(Default)]
struct Player {
    settings: Settings,
    cluster: Option<Cluster>,
    names: Names,
    rule: RuleUnderTest,
    validator: ValidatorUnderTest,
    clock_ms: u64,
    txns_seen: u64,
    draft: Option<Draft>,
    ids: BTreeMap<String, TxnId>,
    lines: Vec<Line>,
}

impl Player {
    fn line(&mut self, line: &str) {
        let (said, expected) = line.split_once("=>").unwrap_or((line, ""));
        let words: Vec<&str> = said.split_whitespace().collect();
        let Some(&first) = words.first() else { return };
        if self.cluster.is_none() && self.setting(&words) {
            return;
        }
        self.start();
        self.lines.push(Line { said: said.trim().to_owned(), expected: expected.trim().to_owned(), actual: None });
        let here = self.lines.len() - 1;
        match first {
            "epoch" => self.epoch(&words[1..]),
            "rule" => {
                self.flush();
                self.rule = RuleUnderTest::of(&words[1..]);
            }
            "validator" => {
                self.flush();
                self.validator = ValidatorUnderTest::of(words[1]);
            }
            "restart" => self.restart(),
            "switch" => {
                self.flush();
                let cluster = self.cluster.as_mut().expect("started");
                cluster.resolver.switch_generation(Generation(words[1].parse().expect("a generation")));
            }
            "fence" | "give" | "import" => self.item(&words, here),
            "dry-run" | "early" | "known" | "order" | "floor" | "imported" | "fallbacks" | "log" => {
                self.flush();
                let actual = self.question(&words);
                let line = &mut self.lines[here];
                if line.expected.is_empty() {
                    // `order T1 T2` is short for `order => T1 T2`.
                    line.expected = words[1..].join(" ");
                    line.said = first.to_owned();
                }
                line.actual = Some(actual);
            }
            _ => {
                let txn = self.txn(&words);
                let draft = self.draft.as_mut().expect("transactions follow `epoch`");
                draft.txns.push(txn);
                draft.txn_lines.push(here);
            }
        }
    }

    fn setting(&mut self, words: &[&str]) -> bool {
        let number = || words[1].parse().expect("a number");
        match words[0] {
            "stores" => {
                for (i, word) in words[1..].iter().enumerate() {
                    let (name, kind) = word.split_once(':').unwrap_or((word, ""));
                    let spec = tracked(i as u32 + 1, name);
                    let existence = if kind.contains("declared") { Existence::Declared } else { Existence::Tracked };
                    self.settings.stores.push(StoreSpec { existence, multi_version: kind.contains("mv"), ..spec });
                }
            }
            "nodes" => self.settings.nodes = number() as u16,
            "generation" => self.settings.generation = Generation(number() as u32),
            "shards" => self.settings.config.shards = number() as u16,
            "floor_age" => self.settings.config.floor_age_ms = number(),
            "window_bytes" => self.settings.config.window_bytes_max = number() as usize,
            "status_bytes" => self.settings.config.status_bytes_max = number() as usize,
            "id_window" => self.settings.config.id_window_ms = number(),
            "apart" => self.settings.keying = Keying::Apart,
            _ => return false,
        }
        true
    }

    fn start(&mut self) {
        if self.cluster.is_some() {
            return;
        }
        let settings = &mut self.settings;
        if settings.stores.is_empty() {
            settings.stores.push(tracked(1, "kv"));
        }
        self.names.stores = settings.stores.iter().map(|spec| (spec.id, spec.name.clone())).collect();
        let mut cluster = Cluster::new(settings.nodes.max(1), settings.keying, settings.config, &settings.stores);
        cluster.resolver.switch_generation(settings.generation);
        self.cluster = Some(cluster);
        self.clock_ms = START_MS;
    }

    /// Continues with the state restored from an image.
    fn restart(&mut self) {
        self.flush();
        let resolver = &mut self.cluster.as_mut().expect("started").resolver;
        *resolver = Resolver::restore(self.settings.config, resolver.image()).expect("its own image");
    }

    fn epoch(&mut self, words: &[&str]) {
        self.flush();
        let mut draft = Draft::default();
        for option in words.chunks(2) {
            match option {
                ["at", by] => {
                    self.clock_ms = self.clock_ms.checked_add_signed(by.parse().expect("ms")).expect("a time")
                }
                ["idle", epochs] => draft.plan.idle_before = epochs.parse().expect("a number"),
                other => panic!("epoch option {other:?}"),
            }
        }
        draft.plan.clock_ms = self.clock_ms;
        self.draft = Some(draft);
    }

    /// Plays the drafted epoch and records its answers.
    fn flush(&mut self) {
        let Some(mut draft) = self.draft.take() else { return };
        draft.plan.txns = draft.txns.iter().map(|(_, txn)| txn.clone()).collect();
        let policies =
            Policies { rule: &self.rule, validator: &self.validator, rule_fallback: NativeRule::FirstWriterWins };
        let cluster = self.cluster.as_mut().expect("started");
        let Some(played) = cluster.play(&draft.plan, &policies) else { return };
        self.names.learn(&draft.txns, played);
        let answers = draft.txn_lines.iter().enumerate().map(|(i, &line)| (line, self.names.decision(played, i)));
        let early_aborts =
            draft.early_abort_lines.iter().zip(&played.outcome.early_aborts).map(|(&line, &at)| (line, render::at(at)));
        let fences = draft.fence_lines.iter().zip(&played.outcome.fences).map(|(&l, &f)| (l, render::fence(f)));
        for (line, actual) in answers.chain(early_aborts).chain(fences).collect::<Vec<_>>() {
            self.lines[line].actual = Some(actual);
        }
    }

    fn item(&mut self, words: &[&str], line: usize) {
        let id = self.id(words[1]);
        let namespace = NamespaceId(0);
        let row = self.row(words[1]);
        if words[0] != "import" {
            self.ids.entry(words[1].to_owned()).or_insert(id);
        }
        let draft = self.draft.as_mut().expect("items follow `epoch`");
        match words[0] {
            "fence" => {
                draft.plan.fences.push(FenceItem { id, namespace });
                draft.fence_lines.push(line);
            }
            "give" => {
                let body_hash = words.get(2).map(|body| BodyHash(body.parse().expect("a body")));
                let reason = if body_hash.is_some() { Reason::ReadConflict } else { Reason::ClientAbort };
                draft.plan.early_aborts.push(EarlyAbort { id, body_hash, namespace, reason, conflicts: Vec::new() });
                draft.early_abort_lines.push(line);
            }
            _ => {
                let version = numeric(words[2]).expect("a version");
                let integer = words.get(3) == Some(&"int");
                draft.plan.imports.push((row, version, integer));
            }
        }
    }

    fn question(&mut self, words: &[&str]) -> String {
        let last = |this: &Self| this.cluster.as_ref().and_then(|c| c.journal.last()).expect("an epoch").clone();
        match words[0] {
            "order" => {
                let played = last(self);
                let ids = played.outcome.order.iter().map(|&ix| {
                    let (batch, t) = played.input.locate(ix);
                    self.names.txns[&batch.txns[t].id].clone()
                });
                ids.collect::<Vec<_>>().join(" ")
            }
            "floor" => last(self).outcome.floor.to_string(),
            "imported" => last(self).outcome.imported.iter().sum::<u64>().to_string(),
            "fallbacks" => {
                let slots = last(self).outcome.fallbacks;
                let name = |level: Option<Isolation>| level.map_or("rule", Isolation::name).to_owned();
                slots.iter().map(|slot| name(slot.level)).collect::<Vec<_>>().join(" ")
            }
            "log" => self.log(words[1]),
            "known" => {
                let id = self.id(words[1]);
                match self.cluster.as_ref().expect("started").resolver.known(NamespaceId(0), id) {
                    Known::Unknown => "unknown".to_owned(),
                    Known::At(at, _) => render::at(at),
                    Known::OutsideWindow => "outside".to_owned(),
                }
            }
            _ => self.opinion(words),
        }
    }

    /// Handles `dry-run` and `early`: a transaction that is not submitted.
    fn opinion(&mut self, words: &[&str]) -> String {
        let (_, txn) = self.txn(&words[1..]);
        let request = txn.request(&self.settings.keying);
        let cluster = self.cluster.as_mut().expect("started");
        let complete = cluster.complete();
        let resolver = &mut cluster.resolver;
        if words[0] == "early" {
            return match resolver.find_early_abort(&request) {
                None => "open".to_owned(),
                Some((reason, conflicts)) => self.names.abort(&reason.to_string(), &conflicts),
            };
        }
        let rule_fallback = NativeRule::FirstWriterWins;
        let policies = Policies { rule: &self.rule, validator: &self.validator, rule_fallback };
        self.names.verdict(&resolver.dry_run(complete, &request, &policies))
    }

    /// Returns the whole log of a store: `1:x=5 2:y=6,z`.
    fn log(&self, store: &str) -> String {
        let log = self.cluster.as_ref().expect("started").log_of(self.store(store));
        let text = |span: tribunal_types::Span| String::from_utf8_lossy(span.of(&log.bytes)).into_owned();
        let rows = |i| {
            let writes = log.writes[log.writes_of(i)].iter();
            writes.map(|w| format!("{} {}={}", w.kind.name(), text(w.key), text(w.value))).collect::<Vec<_>>().join(",")
        };
        let records = log.records.iter().enumerate().map(|(i, head)| format!("#{} {}", head.lsn, rows(i)));
        records.collect::<Vec<_>>().join("; ")
    }

    fn id(&self, name: &str) -> TxnId {
        let fresh = || txn_id(self.clock_ms, 1 << 40 | name.bytes().fold(0, |sum, b| sum * 251 + u64::from(b)));
        self.ids.get(name).copied().unwrap_or_else(fresh)
    }

    fn store(&self, name: &str) -> StoreId {
        *self.names.stores.iter().find(|(_, known)| *known == name).expect("a declared store").0
    }

    fn row(&self, text: &str) -> Row {
        match text.split_once('/') {
            Some((store, key)) => Row { store: self.store(store), key: key.to_owned() },
            None => Row::new(1, text),
        }
    }

    fn seen(&self, row: &Row, text: &str) -> Option<Version> {
        if text == "-" {
            return None;
        }
        let written = self.names.versions.iter().find(|((of, _), name)| of == row && *name == text).map(|(k, _)| k.1);
        Some(numeric(text).or(written).expect("the name of a committed writer, or epoch.position"))
    }

    fn txn(&mut self, words: &[&str]) -> (String, TxnSpec) {
        let (name, node) = words[0].split_once('@').unwrap_or((words[0], "1"));
        let level = match words[1] {
            "rc" => Isolation::ReadCommitted,
            "rr" => Isolation::RepeatableRead,
            "si" => Isolation::Snapshot,
            "ser" => Isolation::Serializable,
            other => panic!("no level {other}"),
        };
        self.txns_seen += 1;
        let mut txn = TxnSpec::new(self.txns_seen, self.clock_ms, level);
        txn.node = node.parse().expect("a node");
        txn.id = self.id(name);
        let mut at = None;
        let mut words = words[2..].iter();
        while let Some(word) = words.next() {
            if let Some(snapshot) = word.strip_prefix('@') {
                at = Some(snapshot);
            } else if let Some((option, value)) = word.split_once('=') {
                self.option(&mut txn, option, value);
            } else {
                self.operation(&mut txn, word, words.next().expect("a row"));
            }
        }
        self.snapshots(&mut txn, at);
        self.ids.entry(name.to_owned()).or_insert(txn.id);
        self.names.txns.entry(txn.id).or_insert(name.to_owned());
        (name.to_owned(), txn)
    }

    fn option(&self, txn: &mut TxnSpec, option: &str, value: &str) {
        let number = || value.parse::<u64>().expect("a number");
        match option {
            "id" => txn.id = self.id(value),
            "body" => txn.body = number(),
            "age" => {
                let ms = self.clock_ms.checked_add_signed(value.parse().expect("ms")).expect("a time");
                txn.id = txn_id(ms, self.txns_seen);
            }
            "prio" => txn.priority = number() as u8,
            "origin" => txn.origin = number(),
            "start" => txn.start = Some(Epoch(number())),
            "csn" => txn.csn = Csn(number()),
            "first" => {
                let ms = value.parse().ok().and_then(|offset| self.clock_ms.checked_add_signed(offset));
                txn.first_attempt_ms = Some(ms.expect("an offset in ms"));
            }
            "ns" => txn.namespace = NamespaceId(number() as u32),
            other => panic!("no option {other}"),
        }
    }

    fn operation(&self, txn: &mut TxnSpec, what: &str, on: &str) {
        let value = |text: &str| text.parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Int);
        let set = || {
            let (row, text) = on.split_once('=').expect("row=value");
            (self.row(row), value(text))
        };
        match what {
            "read" => {
                let (row, version) = on.rsplit_once('@').expect("row@version");
                let row = self.row(row);
                let seen = self.seen(&row, version);
                txn.reads.push((row, seen));
            }
            "scan" => {
                let (start, end) = on.split_once("..").expect("start..end");
                let Row { store, key } = self.row(start);
                txn.scans.push(Scan { store, start: key, end: end.to_owned() });
            }
            "ins" => txn.writes.push((set().0, Action::Insert(set().1))),
            "upd" => txn.writes.push((set().0, Action::Update(set().1))),
            "put" => txn.writes.push((set().0, Action::Put(set().1))),
            "del" => txn.writes.push((self.row(on), Action::Delete)),
            "add" => {
                let split = on.find(['+', '-']).expect("row+delta");
                let (row, delta) = (self.row(&on[..split]), &on[split..]);
                let number = |text: &str| text.parse().expect("a number");
                let action = match delta.split_once('|') {
                    Some((delta, or)) => Action::AddOr(number(delta), number(or)),
                    None => Action::Add(number(delta)),
                };
                txn.writes.push((row, action));
            }
            other => panic!("no operation {other}"),
        }
    }

    fn snapshots(&self, txn: &mut TxnSpec, at: Option<&str>) {
        let Some(at) = at else { return };
        let epoch = |text: &str| Epoch(text.parse().expect("an epoch"));
        if at.contains(':') {
            let named = at.split(',').map(|one| one.split_once(':').expect("store:epoch"));
            txn.snapshots = named.map(|(store, at)| (self.store(store), epoch(at))).collect();
        } else {
            let rows = txn.reads.iter().map(|(row, _)| row.store);
            let rows = rows.chain(txn.writes.iter().map(|(row, _)| row.store));
            let mut stores: Vec<StoreId> = rows.chain(txn.scans.iter().map(|scan| scan.store)).collect();
            stores.sort_unstable();
            stores.dedup();
            txn.snapshots = stores.into_iter().map(|store| (store, epoch(at))).collect();
        }
        txn.snapshots.sort_unstable();
    }
}

/// Parses `epoch.position`.
fn numeric(text: &str) -> Option<Version> {
    let (epoch, position) = text.split_once('.')?;
    Version::new(Epoch(epoch.parse().ok()?), position.parse().ok()?)
}

/// A conflict rule, correct or faulty.
#[derive(Clone, Debug)]
pub enum RuleUnderTest {
    /// A built-in.
    Native(NativeRule),
    /// Fails.
    Faulty,
    /// Returns one rank too few.
    Short,
    /// Gives every transaction the same rank, so that stamps decide.
    Constant,
    /// Ranks work by its first attempt, oldest first.
    Oldest,
}

impl Default for RuleUnderTest {
    fn default() -> Self {
        RuleUnderTest::Native(NativeRule::FirstWriterWins)
    }
}

impl RuleUnderTest {
    fn of(words: &[&str]) -> RuleUnderTest {
        match words[0] {
            "faulty" => RuleUnderTest::Faulty,
            "short" => RuleUnderTest::Short,
            "constant" => RuleUnderTest::Constant,
            "oldest" => RuleUnderTest::Oldest,
            name => {
                let turns = words.get(1).map_or(1, |turns| turns.parse().expect("turns"));
                RuleUnderTest::Native(NativeRule::by_name(name, turns).expect("a built-in rule"))
            }
        }
    }
}

impl ConflictRule for RuleUnderTest {
    fn rank(&self, columns: &TxnColumns) -> Result<Ranks, PolicyFault> {
        match self {
            RuleUnderTest::Native(rule) => rule.rank(columns),
            RuleUnderTest::Faulty => Err(PolicyFault("planned".to_owned())),
            RuleUnderTest::Short => {
                Ok(Ranks { hi: vec![0; columns.csn.len() - 1], lo: vec![0; columns.csn.len() - 1] })
            }
            RuleUnderTest::Oldest => Ok(Ranks { hi: columns.first_attempt.clone(), lo: columns.csn.clone() }),
            RuleUnderTest::Constant => Ok(Ranks { hi: vec![7; columns.csn.len()], lo: vec![7; columns.csn.len()] }),
        }
    }
}

/// A validator, correct or faulty.
#[derive(Clone, Copy, Debug, Default)]
pub enum ValidatorUnderTest {
    /// The built-in levels.
    #[default]
    Native,
    /// Fails.
    Faulty,
    /// Returns one verdict too few.
    Short,
    /// Rejects everything with a code of its own.
    Code(u8),
    /// Blames an operation that does not exist.
    WildWitness,
    /// Rejects reads that were superseded more than this many epochs ago.
    Fresh(u64),
}

impl ValidatorUnderTest {
    fn of(word: &str) -> ValidatorUnderTest {
        match word {
            "native" => ValidatorUnderTest::Native,
            "faulty" => ValidatorUnderTest::Faulty,
            "short" => ValidatorUnderTest::Short,
            "wild" => ValidatorUnderTest::WildWitness,
            fresh if fresh.starts_with("fresh:") => {
                ValidatorUnderTest::Fresh(fresh["fresh:".len()..].parse().expect("a number of epochs"))
            }
            code => ValidatorUnderTest::Code(code.parse().expect("a code")),
        }
    }
}

impl Validator for ValidatorUnderTest {
    fn needs(&self, level: Isolation) -> u8 {
        match self {
            ValidatorUnderTest::Native => NativeValidator.needs(level),
            _ => group::ALL,
        }
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        let n = columns.txns.csn.len();
        match self {
            ValidatorUnderTest::Native => NativeValidator.validate(level, columns),
            ValidatorUnderTest::Faulty => Err(PolicyFault("planned".to_owned())),
            ValidatorUnderTest::Short => Ok(Validation { code: vec![0; n - 1], witness: vec![NO_WITNESS; n - 1] }),
            ValidatorUnderTest::Code(code) => Ok(Validation { code: vec![*code; n], witness: vec![NO_WITNESS; n] }),
            ValidatorUnderTest::Fresh(epochs) => {
                let stale = |&until: &u64| u8::from(until.saturating_add(*epochs) < columns.txns.epoch) * 9;
                let code = columns.current_until.iter().map(stale).collect();
                Ok(Validation { code, witness: vec![NO_WITNESS; n] })
            }
            ValidatorUnderTest::WildWitness => Ok(Validation { code: vec![5; n], witness: vec![77; n] }),
        }
    }
}
