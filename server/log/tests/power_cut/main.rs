//! The power is cut after every operation of a history on the simulated disk: every write, every sync, every change of
//! a name. The log opens without a salvage; it contains everything that a returned sync promised, unchanged; anything
//! else it contains is a prefix of the later appends; and it can be written again.
//!
//! `TRIBUNAL_POWER_CUT_SEEDS` sets the number of histories; 2 by default.

mod faults;
#[path = "../fixture/mod.rs"]
mod fixture;
mod group_model;
mod session;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tribunal_log::sim::{Omission, Operation, SimFiles, Survival};
use tribunal_types::ControlChange;

use fixture::Random;
use session::{End, Model, Session, next_control_step, next_step};

/// Runs after each cut in which some of the unsynced writes survive.
const DRAWS: u64 = 2;
/// After this number of broken promises, a history needs no more crashes.
const BROKEN_MAX: usize = 20;

fn seeds() -> u64 {
    std::env::var("TRIBUNAL_POWER_CUT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// How the disk crashes.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// The power is cut.
    Power(Survival),
    /// The process is killed and reopens the log, syncs, and then the power is cut: the promises after the restart
    /// include everything recovered.
    Kill,
}

/// Lets the disk crash and checks what survived.
fn crash(disk: &SimFiles, model: Model, crash: Crash, random: &mut Random) -> Result<(), String> {
    let model = Arc::new(Mutex::new(model));
    match crash {
        Crash::Power(survival) => {
            disk.power_on(survival);
            // Occasionally crash a second time, while the log is being repaired or continued.
            if random.below(2) == 0 {
                disk.cut_power_after(random.below(16));
                interrupted(disk, &model, random)?;
                disk.power_on(survival);
            }
        }
        Crash::Kill => {
            let mut session = open(disk, &model)?;
            session.sync().map_err(|end| format!("after a kill: {end:?}"))?;
            disk.cut_power();
            drop(session);
            disk.power_on(Survival::None);
        }
    }
    // The log continues, and its new promises survive another cut.
    let mut session = open(disk, &model)?;
    let mut append = || {
        session.append_control(ControlChange::Lost)?;
        session.append(1, 2, 40)?;
        session.decide()?;
        group_model::next_step(&mut session, random)?;
        session.sync()?;
        session.append(1, 1, 9)?;
        session.decide()
    };
    append().map_err(|end| format!("what is left cannot be continued: {end:?}"))?;
    disk.cut_power();
    drop(session);
    disk.power_on(Survival::None);
    open(disk, &model).map(drop).map_err(|broken| format!("after it was continued: {broken}"))
}

fn open(disk: &SimFiles, model: &Arc<Mutex<Model>>) -> Result<Session, String> {
    Session::open(disk, model).map_err(|end| match end {
        End::Broken(reason) => reason,
        End::Disk(error) => format!("the log does not open: {error}"),
    })
}

/// Opens the log and continues it until the power is cut.
fn interrupted(disk: &SimFiles, model: &Arc<Mutex<Model>>, random: &mut Random) -> Result<(), String> {
    match Session::open(disk, model) {
        Ok(mut session) => while next_step(&mut session, random).is_ok() {},
        Err(End::Disk(_)) => {}
        Err(End::Broken(reason)) => return Err(reason),
    }
    Ok(())
}

/// Crashes of a copy of the disk after each operation of a history.
#[derive(Clone, Default)]
struct Crashes {
    seed: u64,
    /// The state that the log owes.
    model: Arc<Mutex<Model>>,
    broken: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicU64>,
    operations: Arc<Mutex<BTreeMap<Operation, u64>>>,
    /// A planted bug, which the restarted program also has, and the promise that it breaks.
    bug: Option<(Omission, &'static str)>,
}

impl Crashes {
    fn of(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    fn watch(&self, disk: &SimFiles) {
        let (crashes, watched) = (self.clone(), disk.clone());
        disk.observe(move |operation, path| crashes.after(operation, path, &watched));
    }

    /// Fails if a promise is broken; returns the number of operations by kind.
    fn finish(&self) -> BTreeMap<Operation, u64> {
        let broken = self.broken.lock();
        assert!(broken.is_empty(), "{} promises are broken:\n{}", broken.len(), broken.join("\n"));
        let operations = self.operations.lock().clone();
        println!("history {}: {operations:?}, {} crashes", self.seed, self.count.load(Ordering::Relaxed));
        operations
    }

    fn is_enough(&self) -> bool {
        let broken = self.broken.lock();
        match self.bug {
            None => broken.len() > BROKEN_MAX,
            Some((_, expected)) => broken.iter().any(|reason| reason.contains(expected)),
        }
    }

    fn after(&self, operation: Operation, path: &Path, disk: &SimFiles) {
        let number = disk.operations();
        *self.operations.lock().entry(operation).or_default() += 1;
        if self.is_enough() {
            return;
        }
        let survivals = [Survival::None, Survival::All].into_iter().chain((0..DRAWS).map(|_| Survival::Some));
        let kinds = survivals.map(Crash::Power).chain([Crash::Kill]);
        for (draw, kind) in (0..).zip(kinds) {
            let seed = self.seed << 32 | number << 4 | draw;
            let copy = disk.copy(seed);
            if let Some((bug, _)) = self.bug {
                copy.omit(bug);
            }
            let result = crash(&copy, self.model.lock().clone(), kind, &mut Random(seed));
            self.count.fetch_add(1, Ordering::Relaxed);
            if let Err(reason) = result {
                let place = format!(
                    "history {}, {kind:?} after operation {number} ({operation:?} {})",
                    self.seed,
                    path.display()
                );
                self.broken.lock().push(format!("{place}: {reason}"));
            }
        }
    }
}

type Step = fn(&mut Session, &mut Random) -> Result<(), End>;

/// A kind of history.
#[derive(Clone, Copy)]
struct History {
    step: Step,
    steps: u32,
    /// The program restarts after this number of steps.
    restart: u32,
}

/// Entries, outcomes, images, truncation, and some control entries.
const ENTRIES: History = History { step: next_step, steps: 300, restart: 90 };
/// Control entries, many of which soon become dead.
const CONTROL: History = History { step: next_control_step, steps: 70, restart: 40 };
/// Records of groups and nothing else: replaced and compacted entries, ending groups, truncation.
const GROUPS: History = History { step: group_model::next_step_of_groups, steps: 400, restart: 110 };

impl History {
    /// Plays it on a new disk.
    fn play(self, seed: u64, disk: &SimFiles, model: &Arc<Mutex<Model>>) -> Result<(), String> {
        let mut random = Random(seed);
        let mut session = open(disk, model)?;
        for step in 1..=self.steps {
            (self.step)(&mut session, &mut random).map_err(|end| format!("history {seed}: {end:?}"))?;
            if step % self.restart == 0 {
                drop(session);
                session = open(disk, model)?;
            }
        }
        Ok(())
    }

    /// Plays it with a crash after every operation; returns the number of operations by kind.
    fn crash_everywhere(self, seed: u64) -> BTreeMap<Operation, u64> {
        let (disk, crashes) = (SimFiles::new(seed), Crashes::of(seed));
        crashes.watch(&disk);
        self.play(seed, &disk, &crashes.model).unwrap_or_else(|broken| panic!("history {seed}: {broken}"));
        crashes.finish()
    }
}

fn assert_all_kinds(operations: &BTreeMap<Operation, u64>) {
    use Operation::{Allocate, Create, Remove, Rename, Sync, SyncDir, Write};
    for kind in [Allocate, Create, Remove, Rename, Sync, SyncDir, Write] {
        assert!(operations.get(&kind).is_some_and(|count| *count > 0), "{kind:?} never happened: {operations:?}");
    }
}

fn merged(mut all: BTreeMap<Operation, u64>, one: BTreeMap<Operation, u64>) -> BTreeMap<Operation, u64> {
    one.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
    all
}

#[test]
fn a_power_cut_after_any_operation_loses_nothing_that_was_promised() {
    let operations = (0..seeds()).map(|seed| ENTRIES.crash_everywhere(seed)).fold(BTreeMap::new(), merged);
    assert_all_kinds(&operations);
}

#[test]
fn a_power_cut_while_the_control_log_is_written_again_loses_nothing_that_was_promised() {
    let operations = (0..seeds()).map(|seed| CONTROL.crash_everywhere(seed)).fold(BTreeMap::new(), merged);
    // Two for every file that is created or replaced once, and four more for each compaction.
    assert!(operations[&Operation::Rename] > 10, "nothing was compacted: {operations:?}");
}

#[test]
fn a_power_cut_of_a_log_that_has_groups_only_loses_nothing_that_was_promised() {
    for seed in 0..seeds() {
        let (disk, crashes) = (SimFiles::new(seed), Crashes::of(seed));
        crashes.watch(&disk);
        GROUPS.play(seed, &disk, &crashes.model).unwrap_or_else(|broken| panic!("history {seed}: {broken}"));
        assert_all_kinds(&crashes.finish());
        let forgotten = crashes.model.lock().forgotten();
        assert!(forgotten > 1, "{forgotten} groups have ended");
        let segments = disk.as_files().list(&Path::new(session::DIR).join("segments")).unwrap();
        let first = segments.iter().find(|path| path.ends_with("log-0000000000000000"));
        assert_eq!(first, None, "nothing was truncated");
    }
}

#[test]
fn a_power_cut_while_a_log_is_created_leaves_one_that_opens() {
    for seed in 0..40 {
        let (disk, crashes) = (SimFiles::new(seed), Crashes::of(seed));
        crashes.watch(&disk);
        let mut session = open(&disk, &crashes.model).unwrap();
        session.append(1, 1, 100).and_then(|()| session.sync()).unwrap();
        crashes.finish();
    }
}

#[test]
fn a_power_cut_while_many_segments_are_removed_leaves_a_log_that_opens() {
    for seed in 0..6 {
        let (disk, crashes) = (SimFiles::new(seed), Crashes::of(seed));
        let mut session = open(&disk, &crashes.model).unwrap();
        let mut fill = |batches| {
            for _ in 0..batches {
                session.append(40, 1, 16_000)?;
                session.sync()?;
                session.decide()?;
            }
            session.write_image()
        };
        fill(40).and_then(|()| fill(1)).unwrap();
        crashes.watch(&disk);
        session.truncate().unwrap();
        let operations = crashes.finish();
        assert!(operations[&Operation::Remove] >= 3, "{operations:?}");
    }
}

#[test]
fn a_power_cut_within_a_record_that_spans_segments_leaves_a_log_that_opens() {
    for seed in 0..24 {
        let (disk, crashes) = (SimFiles::new(seed), Crashes::of(seed));
        let mut session = open(&disk, &crashes.model).unwrap();
        for _ in 0..1 + seed % 4 {
            session.append(1, 1, 16_000).unwrap();
        }
        session.sync().unwrap();
        crashes.watch(&disk);
        session.append(1, 1, 180_000).unwrap();
        crashes.finish();
    }
}

/// The calls are those of a log that has the bug; some crash exposes it.
#[test]
fn every_planted_bug_is_noticed() {
    let bugs = [
        (Omission::SyncData("/segments/"), ENTRIES, "were promised"),
        (Omission::SyncData("/control"), ENTRIES, "promised"),
        (Omission::DataAfterMark, ENTRIES, "was acknowledged"),
        (Omission::SyncAll("/segments/fresh"), ENTRIES, "is cut"),
        // For both copies: one of them is enough.
        (Omission::SyncAll("/control."), CONTROL, "both copies of its control log"),
        (Omission::SyncAll("/identity.new"), ENTRIES, "identity"),
        (Omission::SyncAll("/truncated.new"), ENTRIES, "truncated"),
        (Omission::SyncAll("/image-"), ENTRIES, "image"),
        (Omission::SyncDir("segments"), ENTRIES, "acknowledged"),
        (Omission::SyncData("/segments/"), GROUPS, "the groups are not as they were"),
        (Omission::SyncAll("/truncated.new"), GROUPS, "truncated"),
        (Omission::SyncDir("segments"), GROUPS, "acknowledged"),
        (Omission::SyncDir("images"), ENTRIES, "image"),
        (Omission::SyncDir("log"), ENTRIES, "another log"),
        (Omission::SyncDir("tribunal"), ENTRIES, "another log"),
        (Omission::SyncDir("data"), ENTRIES, "another log"),
    ];
    for (bug, history, expected) in bugs {
        let (disk, mut crashes) = (SimFiles::new(1), Crashes::of(1));
        crashes.bug = Some((bug, expected));
        disk.omit(bug);
        crashes.watch(&disk);
        let played = history.play(1, &disk, &crashes.model);
        assert!(crashes.is_enough(), "{bug:?} was not noticed: {played:?}, {:?}", crashes.broken.lock());
    }
}
