//! The policies in force: the deciding rule and validators, as Wasm modules or natively.
//!
//! The control log determines what is in force (the core folds it into [`Slots`]), so that a replay uses the policies
//! that decided the epoch. The configuration only names what to activate where nothing else was requested.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribunal_core::control::slots::Slots;
use tribunal_core::native::NativeRule;
use tribunal_core::policy::{Policies, PolicyFault, Validation, Validator, ValidatorColumns, group};
use tribunal_replica::PolicyRunner;
use tribunal_types::limits::PLUGIN_FAULTS_MAX;
use tribunal_types::{
    Epoch, EpochOutcome, FilledBy, Generation, Isolation, PluginActivation, PluginChoice, PluginSlot,
};

use crate::cluster::generations::{cannot_decide, own_generations};
use crate::config::{Config, PolicyHost};
use crate::plugins::plugin_health::{CallTimes, SlotHealth};
use crate::plugins::plugin_loader::{Loaded, LoadedRule, PluginLoader, Ready, named};

/// The code of a rule and of four validators.
pub struct PolicySet {
    loader: Arc<PluginLoader>,
    configured: Vec<PluginChoice>,
    rule: Option<(PluginChoice, LoadedRule)>,
    levels: Levels,
    /// Loaded, and waiting for its epoch.
    waiting: BTreeMap<PluginSlot, Ready>,
    /// Choices that a member of a cluster cannot load, because their component is missing.
    lacks: Vec<Lack>,
    /// State of the uploaded components at the last attempt.
    tried_at: u64,
    health: BTreeMap<PluginSlot, Arc<SlotHealth>>,
    /// Consecutive faults of each slot's current plugin, and its calls before the epoch being decided.
    streaks: BTreeMap<PluginSlot, Streak>,
    /// Number of consecutive faults after which a slot is rolled back; 0 for never.
    faults_max: u32,
    /// Whether everything in force is loaded at once. During a replay most of it is never called.
    live: bool,
    /// Whether the times of calls are recorded.
    timed: bool,
    /// The node is a member of a cluster: the other nodes may decide with plugins that it cannot load.
    is_member: bool,
    /// Why this release can no longer decide.
    outdated: Option<String>,
}

/// A choice that decides, now or later, and cannot be loaded.
struct Lack {
    choice: PluginChoice,
    /// It waits for its epoch.
    waits: bool,
    error: String,
}

/// Consecutive faults of a slot's plugin.
#[derive(Default)]
struct Streak {
    faults: u32,
    calls: u64,
}

/// One validator per level.
#[derive(Default)]
struct Levels([Option<(PluginChoice, Box<dyn Validator + Send>)>; 4]);

impl Validator for Levels {
    fn needs(&self, level: Isolation) -> u8 {
        // Levels that never occurred may have no validator yet.
        self.0[level as usize].as_ref().map_or(group::ALL, |(_, validator)| validator.needs(level))
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        match &self.0[level as usize] {
            Some((_, validator)) => validator.validate(level, columns),
            None => unreachable!("every level's validator is loaded before an epoch is resolved"),
        }
    }
}

/// The slots that decide transactions.
pub(crate) fn policy_slots() -> impl Iterator<Item = PluginSlot> {
    std::iter::once(PluginSlot::Rule).chain(Isolation::ALL.map(PluginSlot::Validator))
}

impl PolicySet {
    /// Reads the configured policies; nothing is in force yet.
    ///
    /// # Errors
    /// If there is no such rule.
    pub fn new(config: &Config, loader: Arc<PluginLoader>) -> Result<PolicySet, String> {
        Ok(PolicySet {
            configured: loader.configured(config)?,
            loader,
            rule: None,
            levels: Levels::default(),
            waiting: BTreeMap::new(),
            lacks: Vec::new(),
            tried_at: 0,
            health: BTreeMap::new(),
            streaks: BTreeMap::new(),
            faults_max: PLUGIN_FAULTS_MAX,
            live: false,
            timed: false,
            is_member: false,
            outdated: None,
        })
    }

    /// Returns the code of a choice; records and returns `None` if a member of a cluster lacks it.
    ///
    /// # Panics
    /// If code that existed when its entry was written is missing: no other code may decide in its place.
    fn obtain(&mut self, choice: &PluginChoice, waits: bool) -> Option<Ready> {
        match self.loader.take(choice) {
            Ok(ready) => Some(ready),
            Err(error) if choice.announced || self.is_member => {
                self.lack(choice, waits, error);
                None
            }
            Err(error) => panic!("{} cannot be loaded any more: {error}", named(choice)),
        }
    }

    /// Records that a choice, whose component other nodes have, cannot be loaded. For an adaptor, only the stores that
    /// use it are affected, and their state shows it.
    fn lack(&mut self, choice: &PluginChoice, waits: bool, error: String) {
        if let PluginSlot::Adaptor(name) = &choice.slot {
            return self.loader.set_adaptor(name, Err(missing_plugin(choice, &error)));
        }
        tracing::warn!(error, "{}: nothing is decided without it", named(choice));
        self.tried_at = self.loader.store.changes();
        self.lacks.push(Lack { choice: choice.clone(), waits, error });
    }

    /// Retries loading the missing code.
    fn load_lacking(&mut self) {
        let changes = self.loader.store.changes();
        if self.tried_at == changes {
            return;
        }
        self.tried_at = changes;
        for lack in std::mem::take(&mut self.lacks) {
            match self.loader.load(&lack.choice) {
                Ok(ready) if lack.waits => drop(self.waiting.insert(lack.choice.slot, ready)),
                Ok(ready) => self.run(ready),
                Err(error) => self.lacks.push(Lack { error, ..lack }),
            }
        }
        if self.lacks.is_empty() {
            tracing::info!("all plugins are here that decide epochs");
        }
    }

    /// Describes the missing code that decides epochs, now or later; `None` if nothing is missing.
    #[must_use]
    pub fn lacking(&self) -> Option<String> {
        if self.outdated.is_some() {
            return self.outdated.clone();
        }
        let lacks = self.lacks.iter().map(|Lack { choice, error, .. }| format!("{} ({error})", named(choice)));
        let lacks = lacks.collect::<Vec<_>>().join(", ");
        (!lacks.is_empty())
            .then(|| format!("this node decides nothing, because it lacks {lacks}; what other nodes have, it fetches"))
    }

    fn runs(&self, choice: &PluginChoice) -> bool {
        let is = |known: &PluginChoice| known == choice;
        match &choice.slot {
            PluginSlot::Rule => self.rule.as_ref().is_some_and(|(known, _)| is(known)),
            PluginSlot::Validator(level) => self.levels.0[*level as usize].as_ref().is_some_and(|(known, _)| is(known)),
            PluginSlot::Adaptor(_) => false,
        }
    }

    fn run(&mut self, Ready { choice, loaded, health }: Ready) {
        let slot = choice.slot.clone();
        if let (Loaded::Nothing, PluginSlot::Adaptor(name)) = (&loaded, &slot) {
            self.health.remove(&slot);
            return self.loader.remove_adaptor(name);
        }
        self.loader.board.show(slot.clone(), Arc::clone(&health));
        self.streaks.remove(&slot);
        self.health.insert(slot.clone(), health);
        match (loaded, slot) {
            (Loaded::Rule(rule), _) => self.rule = Some((choice, rule)),
            (Loaded::Validator(validator), PluginSlot::Validator(level)) => {
                self.levels.0[level as usize] = Some((choice, validator));
            }
            (Loaded::Adaptor(module), PluginSlot::Adaptor(name)) => self.loader.set_adaptor(&name, Ok(module)),
            (Loaded::Validator(_) | Loaded::Adaptor(_) | Loaded::Nothing, slot) => {
                unreachable!("loader are loaded for slot {slot}")
            }
        }
    }

    /// Loads the policies that an epoch without a recorded outcome must be resolved with.
    ///
    /// # Errors
    /// If one is missing, or ran on another engine; includes the remedy.
    pub fn load_for_replay(&mut self, slots: &Slots) -> Result<(), String> {
        for slot in policy_slots() {
            let active = slots.slot(&slot).and_then(|state| state.active()).map(|entry| &entry.activation.choice);
            let loaded = match active {
                None => Err("the control log does not name it".to_owned()),
                Some(choice) if self.runs(choice) => continue,
                Some(choice) => self.loader.load(choice).map_err(|error| format!("{}: {error}", named(choice))),
            };
            let ready = loaded.map_err(|error| {
                format!(
                    "the last epochs were sealed under another plugin in slot {slot} than this version can run, and \
                     their outcomes were not recorded before the crash ({error}). Start the node once with the version \
                     and the plugins that wrote them, stop it, then change"
                )
            })?;
            self.run(ready);
        }
        Ok(())
    }

    /// Loads the policies in force from now on. Returns activations missing from the control log: another configuration
    /// where nothing else was requested, another engine for requested plugins.
    ///
    /// # Errors
    /// If a requested plugin is missing.
    pub fn go_live(&mut self, slots: &Slots) -> Result<Vec<PluginActivation>, String> {
        let host = self.loader.host_name()?;
        let native = self.loader.host() == PolicyHost::Native;
        let mut missing: Vec<PluginActivation> = Vec::new();
        for configured in self.configured.clone() {
            let state = slots.slot(&configured.slot);
            let active = state.and_then(|state| state.active());
            let want = match active {
                Some(entry) if !entry.configured && !native => on_host(&entry.activation, &host),
                _ => PluginActivation { choice: configured, ..PluginActivation::default() },
            };
            if let Some(ready) = self.load_or_lack(&want.choice, false)? {
                self.run(ready);
            }
            let waiting = state.and_then(|state| state.waiting()).filter(|_| !native);
            if active.is_none_or(|entry| entry.activation.choice != want.choice) {
                missing.push(PluginActivation { from: Epoch(0), ..want });
            }
            if let Some(entry) = waiting {
                let want = on_host(&entry.activation, &host);
                let ready = self.load_or_lack(&want.choice, true)?;
                let slot = &want.choice.slot;
                if want == entry.activation && missing.last().is_none_or(|last| last.choice.slot != *slot) {
                    ready.into_iter().for_each(|ready| drop(self.waiting.insert(slot.clone(), ready)));
                } else {
                    // The entry before it, or its own engine, has voided it: propose it again.
                    missing.push(want);
                }
            }
        }
        self.load_adaptors(slots)?;
        self.live = true;
        Ok(missing)
    }

    /// Loads the policies that the control log of a cluster names; where it names none yet, the configured ones, which
    /// are returned: a cluster's plugins do not depend on the configuration of one of its nodes.
    /// # Errors
    /// If there is no such policy.
    pub fn go_live_as_member(&mut self, slots: &Slots) -> Result<Vec<PluginActivation>, String> {
        (self.is_member, self.live) = (true, true);
        let mut unnamed = Vec::new();
        for configured in self.configured.clone() {
            let state = slots.slot(&configured.slot);
            match state.and_then(|state| state.active()) {
                Some(entry) => {
                    self.load_or_lack(&entry.activation.choice, false)?.into_iter().for_each(|it| self.run(it))
                }
                None => {
                    self.load_or_lack(&configured, false)?.into_iter().for_each(|it| self.run(it));
                    unnamed.push(PluginActivation { choice: configured, ..PluginActivation::default() });
                }
            }
            if let Some(entry) = state.and_then(|state| state.waiting()) {
                let ready = self.load_or_lack(&entry.activation.choice, true)?;
                ready.into_iter().for_each(|ready| drop(self.waiting.insert(ready.choice.slot.clone(), ready)));
            }
        }
        self.load_adaptors(slots)?;
        Ok(unnamed)
    }

    fn load_adaptors(&mut self, slots: &Slots) -> Result<(), String> {
        for (slot, state) in slots.iter() {
            let PluginSlot::Adaptor(name) = slot else { continue };
            if let Some(entry) = state.active() {
                let choice = &entry.activation.choice;
                match self.loader.load(choice) {
                    Ok(ready) => self.run(ready),
                    // Only the stores that use it are affected, and their state shows it.
                    Err(error) => self.loader.set_adaptor(name, Err(missing_plugin(choice, &error))),
                }
            }
            if let Some(entry) = state.waiting() {
                let choice = &entry.activation.choice;
                let ready = self.load_or_lack(choice, true)?;
                ready.into_iter().for_each(|ready| drop(self.waiting.insert(slot.clone(), ready)));
            }
        }
        Ok(())
    }

    /// Loads a choice, or records that a member of a cluster lacks it.
    ///
    /// # Errors
    /// If it cannot be loaded, and no other node has it.
    fn load_or_lack(&mut self, choice: &PluginChoice, waits: bool) -> Result<Option<Ready>, String> {
        match self.loader.load(choice) {
            Ok(ready) => Ok(Some(ready)),
            Err(error) if choice.announced || self.is_member => {
                self.lack(choice, waits, error);
                Ok(None)
            }
            Err(error) => Err(missing_plugin(choice, &error)),
        }
    }

    /// Sets whether [`PolicySet::call_times`] are recorded.
    pub fn time_calls(&mut self, timed: bool) {
        self.timed = timed;
    }

    /// Returns the plugins' call times in the last epoch, if they are recorded.
    pub fn call_times(&self) -> Vec<(PluginSlot, CallTimes)> {
        if !self.timed {
            return Vec::new();
        }
        let times = |(slot, health): (&PluginSlot, &Arc<SlotHealth>)| Some((slot.clone(), health.take_call_times()?));
        self.health.iter().filter_map(times).collect()
    }
}

impl PolicyRunner for PolicySet {
    fn policies(&self) -> Policies<'_> {
        let (_, rule) = self.rule.as_ref().expect("a rule is loaded before an epoch is resolved");
        let LoadedRule { rule, fallback } = rule;
        let rule_fallback: NativeRule = *fallback;
        Policies { rule: &**rule, validator: &self.levels, rule_fallback }
    }

    fn activated(&mut self, activation: &PluginActivation, holds: bool) {
        let choice = &activation.choice;
        self.waiting.remove(&choice.slot);
        if self.live && !self.runs(choice) {
            let ready = self.obtain(choice, !holds);
            ready.into_iter().for_each(|ready| drop(self.waiting.insert(choice.slot.clone(), ready)));
        }
        if holds {
            self.install(&choice.slot);
        }
    }

    fn is_complete(&mut self) -> bool {
        if !self.lacks.is_empty() {
            self.load_lacking();
        }
        self.lacks.is_empty() && self.outdated.is_none()
    }

    fn set_generation(&mut self, generation: Generation) {
        let generations = own_generations();
        self.outdated = (!generations.contain(generation)).then(|| cannot_decide(generation, generations));
        match &self.outdated {
            Some(reason) => tracing::error!("{reason}"),
            None => tracing::info!(generation = generation.0, "the node decides in this generation from now on"),
        }
    }

    fn install(&mut self, slot: &PluginSlot) {
        if let Some(ready) = self.waiting.remove(slot) {
            self.run(ready);
        }
    }

    fn set_faults_max(&mut self, faults_max: u32) {
        self.faults_max = faults_max;
    }

    fn fell_back(&self, level: Option<Isolation>) {
        let slot = level.map_or(PluginSlot::Rule, PluginSlot::Validator);
        if let Some(health) = self.health.get(&slot) {
            health.fell_back();
        }
    }

    fn epoch_begins(&mut self) {
        for (slot, streak) in &mut self.streaks {
            streak.calls = self.health.get(slot).map_or(0, |health| health.calls());
        }
    }

    fn count_faults(&mut self, outcome: &EpochOutcome) -> Vec<PluginSlot> {
        if outcome.fallbacks.is_empty() && self.streaks.is_empty() {
            return Vec::new();
        }
        let mut exhausted = Vec::new();
        for (slot, health) in &self.health {
            let of_slot = |level: Option<Isolation>| level.map_or(PluginSlot::Rule, PluginSlot::Validator) == *slot;
            let failed = outcome.fallbacks.iter().any(|fallback| of_slot(fallback.level));
            let calls = health.calls();
            let (faults, seen) = self.streaks.get(slot).map_or((0, 0), |streak| (streak.faults, streak.calls));
            if !failed {
                if calls > seen {
                    self.streaks.remove(slot);
                }
                continue;
            }
            let faults = faults + 1;
            self.streaks.insert(slot.clone(), Streak { faults, calls });
            // Report it again after every `faults_max` further faults, in case the first rollback did not happen.
            if self.faults_max > 0 && faults.is_multiple_of(self.faults_max) {
                exhausted.push(slot.clone());
            }
        }
        exhausted
    }
}

/// Returns the same activation on this engine.
fn on_host(activation: &PluginActivation, host: &str) -> PluginActivation {
    let mut moved = activation.clone();
    if moved.choice.host != host {
        host.clone_into(&mut moved.choice.host);
        // Whatever it was before, proposing it again must not roll anything back.
        moved.by = if moved.by.goes_back() { FilledBy::Request } else { moved.by };
        moved.replaces = tribunal_types::ControlIndex(0);
    }
    moved
}

fn missing_plugin(choice: &PluginChoice, error: &str) -> String {
    format!(
        "{} was activated and cannot be loaded: {error}. Put its component back, or start once with `plugins = \
         \"native\"`, which runs the built-in rule and levels of the configuration instead",
        named(choice)
    )
}

#[cfg(test)]
mod tests {
    use tribunal_types::PolicyFallback;

    use super::*;
    use crate::plugins::signatures::Signers;

    const LEVEL: Isolation = Isolation::Serializable;

    #[test]
    fn only_calls_of_epochs_end_a_series_of_faults() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Config { data: dir.path().to_owned(), plugins: PolicyHost::Native, ..Config::default() };
        let loader = Arc::new(PluginLoader::open(&config, Signers::default()).expect("a store of plugins"));
        let mut policies = PolicySet::new(&config, loader).expect("the default rule is built in");
        let (slot, health) = (PluginSlot::Validator(LEVEL), Arc::new(SlotHealth::default()));
        policies.health.insert(slot.clone(), Arc::clone(&health));
        policies.set_faults_max(3);
        let call = || health.count(1, || Ok(((), 0))).expect("it succeeds");
        let mut epoch = |is_called: bool, fails: bool| {
            // A read-only transaction, between two epochs.
            call();
            policies.epoch_begins();
            if is_called {
                call();
            }
            let fallback = PolicyFallback { level: Some(LEVEL), fault: String::new() };
            let fallbacks = if fails { vec![fallback] } else { Vec::new() };
            policies.count_faults(&EpochOutcome { fallbacks, ..EpochOutcome::default() })
        };
        assert_eq!([epoch(true, true), epoch(true, true)], [vec![], vec![]]);
        assert_eq!(epoch(true, false), vec![], "it succeeds in an epoch: from the beginning again");
        assert_eq!([epoch(true, true), epoch(false, false), epoch(true, true)], [vec![], vec![], vec![]]);
        assert_eq!(epoch(true, true), vec![slot]);
    }
}
