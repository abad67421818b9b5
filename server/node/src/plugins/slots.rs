//! Which plugin fills which slot, in which epoch: a pure function of the control log and of the epochs that carried it.
//!
//! An entry holds from the first epoch that carries it and that its `from` allows; until then it is pending, and the next
//! entry of the slot replaces it. Former entries are stacked, so that a rollback finds the one before. No clock, no I/O,
//! no code: the owner of the modules reads what is in force and loads it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tribunal_service::plugins::{Activation, FilledBy};
use tribunal_types::{ControlIndex, Epoch, PluginChoice, PluginSlot};

/// Entries that a slot can roll back through.
const DEPTH_MAX: usize = 32;
/// Entries of the control log that are shown for a slot.
const HISTORY_MAX: usize = 32;
/// Marks the index of a pending entry, in a state image.
const WAITS: u64 = 1 << 63;
/// Marks the index of an entry of the history, with the epochs that it decided, in a state image.
const HISTORY: u64 = 1 << 62;

/// What the control log keeps as a plugin's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Fingerprint of the engine that runs it, or `native`: another engine may spend other fuel, so it counts from an
    /// epoch on, too.
    pub host: String,
    /// What `init` gets.
    pub init: String,
    /// What kind of change wrote it.
    #[serde(default, skip_serializing_if = "is_configuration")]
    pub by: Word,
    /// Who requested it; empty for the node itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// What a node that goes back by itself saw fail: the entry is void if another one holds by then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaces: u64,
    /// When it was requested, Unix milliseconds by the clock of the node that took the request; 0 if unknown. Nothing is
    /// decided by it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_ms: u64,
}

/// [`FilledBy`] as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The node's configuration.
    #[default]
    Configuration,
    /// A request.
    Activate,
    /// A request to go back.
    Rollback,
    /// The node itself, because what filled the slot failed too often in a row.
    Faults,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Word {
    /// Tells whether the change returns to what filled the slot before.
    pub fn goes_back(self) -> bool {
        matches!(self, Word::Rollback | Word::Faults)
    }
}

fn is_configuration(word: &Word) -> bool {
    *word == Word::Configuration
}

impl Settings {
    /// Reads a choice's settings. Text of another form counts as a configuration of no engine.
    #[must_use]
    pub fn of(choice: &PluginChoice) -> Settings {
        serde_json::from_str(&choice.config).unwrap_or_else(|_| Settings {
            host: String::new(),
            init: choice.config.clone(),
            ..Settings::default()
        })
    }

    /// Writes the settings.
    #[must_use]
    pub fn text(&self) -> String {
        // A structure of strings: it always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// An entry of the control log that holds, or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub index: ControlIndex,
    /// What it says.
    pub choice: PluginChoice,
    /// Earliest epoch.
    pub from: Epoch,
    /// First epoch that it decided; `None` if nobody remembers.
    pub since: Option<Epoch>,
    /// Whether the configuration, and not a request, put it there: then another configuration may replace it.
    pub configured: bool,
}

impl Entry {
    fn is_same_plugin(&self, other: &PluginChoice) -> bool {
        let (own, theirs) = (Settings::of(&self.choice), Settings::of(other));
        self.choice.name == other.name && self.choice.digest == other.digest && own.init == theirs.init
    }

    /// Shows the entry.
    #[must_use]
    pub fn shown(&self) -> Activation {
        shown(self.index, &self.choice, self.from)
    }
}

fn shown(control: ControlIndex, choice: &PluginChoice, from: Epoch) -> Activation {
    let Settings { init, by, who, at_ms, .. } = Settings::of(choice);
    Activation {
        control,
        slot: choice.slot.clone(),
        name: choice.name.clone(),
        digest: choice.digest,
        config_digest: Sha256::digest(init.as_bytes()).into(),
        config: init,
        who: (!who.is_empty()).then_some(who),
        at_ms: (at_ms > 0).then_some(at_ms),
        since: None,
        until: None,
        by: match by {
            Word::Configuration => FilledBy::Configuration,
            Word::Activate => FilledBy::Request,
            Word::Rollback => FilledBy::Rollback,
            Word::Faults => FilledBy::Faults,
        },
        from,
    }
}

/// How a slot uses a plugin's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUse {
    /// It decides now.
    Active,
    /// It waits for its epoch.
    Pending,
}

/// One slot.
#[derive(Clone, Debug, Default)]
pub struct SlotState {
    /// What held, oldest first; the last one holds.
    stack: Vec<Entry>,
    waiting: Option<Entry>,
    history: VecDeque<Activation>,
}

impl SlotState {
    /// Returns what holds.
    #[must_use]
    pub fn active(&self) -> Option<&Entry> {
        self.stack.last()
    }

    /// Returns what will hold.
    #[must_use]
    pub fn waiting(&self) -> Option<&Entry> {
        self.waiting.as_ref()
    }

    /// Returns what held before.
    #[must_use]
    pub fn before(&self) -> Option<&Entry> {
        self.stack.len().checked_sub(2).and_then(|at| self.stack.get(at))
    }

    /// Returns the newest entries for this slot, newest first.
    pub fn history(&self) -> impl Iterator<Item = &Activation> {
        self.history.iter().rev()
    }

    /// Tells whether the choice goes back from something that holds no more.
    fn is_void(&self, choice: &PluginChoice) -> bool {
        let settings = Settings::of(choice);
        settings.by == Word::Faults && self.active().is_none_or(|active| active.index.0 != settings.replaces)
    }

    /// Notes that another entry decides from epoch `since` on.
    fn note_held(&mut self, index: ControlIndex, since: Epoch) {
        for entry in &mut self.history {
            if entry.control == index {
                entry.since = Some(since);
            } else if entry.since == Some(since) {
                // Replaced before its first epoch.
                entry.since = None;
            } else if entry.since.is_some() && entry.until.is_none() {
                entry.until = Some(since.prev());
            }
        }
    }

    fn note(&mut self, entry: &Entry) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(entry.shown());
    }

    /// Lets an entry hold from epoch `since` on.
    fn hold(&mut self, mut entry: Entry, since: Epoch) {
        self.note_held(entry.index, since);
        let depth = self.stack.len();
        if Settings::of(&entry.choice).by.goes_back() {
            while self.stack.last().is_some_and(|top| !top.is_same_plugin(&entry.choice)) {
                self.stack.pop();
            }
        }
        let is_back = self.stack.len() < depth;
        match self.stack.last_mut() {
            // The same under another engine, requested by another caller, or back again.
            Some(top) if top.is_same_plugin(&entry.choice) => {
                if !Settings::of(&entry.choice).by.goes_back() {
                    top.configured = entry.configured;
                }
                (top.index, top.choice, top.from) = (entry.index, entry.choice, entry.from);
                if is_back || top.since.is_none() {
                    top.since = Some(since);
                }
            }
            _ => {
                entry.since = Some(since);
                if self.stack.len() == DEPTH_MAX {
                    self.stack.remove(0);
                }
                self.stack.push(entry);
            }
        }
    }
}

/// All slots.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    by_slot: BTreeMap<PluginSlot, SlotState>,
}

impl Slots {
    /// Takes an entry of the control log, which the epoch `next` is the first to carry. Returns whether it holds at once.
    pub fn apply(&mut self, index: ControlIndex, choice: &PluginChoice, from: Epoch, next: Epoch) -> bool {
        let state = self.by_slot.entry(choice.slot.clone()).or_default();
        if state.is_void(choice) {
            return false;
        }
        let configured = Settings::of(choice).by == Word::Configuration;
        let entry = Entry { index, choice: choice.clone(), from, since: None, configured };
        state.note(&entry);
        state.waiting = None;
        if from <= next {
            state.hold(entry, next);
            return true;
        }
        state.waiting = Some(entry);
        false
    }

    /// Lets everything hold whose epoch `next` is. Returns the slots that changed.
    pub fn advance(&mut self, next: Epoch) -> Vec<PluginSlot> {
        let mut changed = Vec::new();
        for (slot, state) in &mut self.by_slot {
            if let Some(entry) = state.waiting.take_if(|entry| entry.from <= next) {
                // Epochs that were passed over since then were sealed empty, and it would have decided them.
                let since = entry.from;
                state.hold(entry, since);
                changed.push(slot.clone());
            }
        }
        changed
    }

    /// Tells whether an entry with this choice would change nothing: it goes back from something that holds no more.
    #[must_use]
    pub fn is_void(&self, choice: &PluginChoice) -> bool {
        self.by_slot.get(&choice.slot).is_some_and(|state| state.is_void(choice))
    }

    /// Removes code that no slot holds from what rollbacks return to.
    pub fn forget(&mut self, digest: &[u8; 32]) {
        for state in self.by_slot.values_mut() {
            let held = state.stack.len().saturating_sub(1);
            let mut at = 0;
            state.stack.retain(|entry| {
                at += 1;
                at > held || entry.choice.digest != *digest
            });
        }
    }

    /// Returns the epoch of the next pending entry.
    #[must_use]
    pub fn next_activation(&self) -> Option<Epoch> {
        self.by_slot.values().filter_map(|state| Some(state.waiting.as_ref()?.from)).min()
    }

    /// Returns the slots that hold this code, or will.
    #[must_use]
    pub fn users_of(&self, digest: &[u8; 32]) -> Vec<(PluginSlot, SlotUse)> {
        let of = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.choice.digest == *digest);
        let used = |(slot, state): (&PluginSlot, &SlotState)| {
            let found = match state {
                _ if of(state.active()) => SlotUse::Active,
                _ if of(state.waiting()) => SlotUse::Pending,
                _ => return None,
            };
            Some((slot.clone(), found))
        };
        self.by_slot.iter().filter_map(used).collect()
    }

    /// Tells whether anything waits for its epoch.
    #[must_use]
    pub fn anything_waits(&self) -> bool {
        self.by_slot.values().any(|state| state.waiting.is_some())
    }

    /// Returns a slot.
    #[must_use]
    pub fn slot(&self, slot: &PluginSlot) -> Option<&SlotState> {
        self.by_slot.get(slot)
    }

    /// Returns all slots.
    pub fn iter(&self) -> impl Iterator<Item = (&PluginSlot, &SlotState)> {
        self.by_slot.iter()
    }

    /// Writes down, for a state image, what the control log alone does not tell: which entries hold.
    #[must_use]
    pub fn image(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for state in self.by_slot.values() {
            for entry in &state.stack {
                words.extend([entry.index.0, entry.since.map_or(0, |epoch| epoch.0), u64::from(entry.configured)]);
            }
            for entry in &state.history {
                let epoch = |epoch: Option<Epoch>| epoch.map_or(0, |epoch| epoch.0);
                words.extend([entry.control.0 | HISTORY, epoch(entry.since), epoch(entry.until)]);
            }
            words
                .extend(state.waiting.iter().flat_map(|entry| [entry.index.0 | WAITS, 0, u64::from(entry.configured)]));
        }
        words
    }

    /// Restores the slots from an image and the entries of the control log that it includes, in their order. Without an
    /// image's word, entries count as if each had held at once.
    #[must_use]
    pub fn restore(words: Option<&[u64]>, entries: &[(ControlIndex, PluginChoice, Epoch)], next: Epoch) -> Slots {
        let mut slots = Slots::default();
        for (index, choice, from) in entries {
            slots.apply(*index, choice, if words.is_some() { *from } else { Epoch(0) }, next);
        }
        let Some(words) = words else { return slots };
        for state in slots.by_slot.values_mut() {
            (state.stack, state.waiting) = (Vec::new(), None);
            state.history.iter_mut().for_each(|entry| (entry.since, entry.until) = (None, None));
        }
        for word in words.chunks_exact(3) {
            let found = entries.iter().find(|(index, ..)| index.0 == word[0] & !(WAITS | HISTORY));
            let Some((index, choice, from)) = found else { continue };
            let state = slots.by_slot.entry(choice.slot.clone()).or_default();
            if word[0] & HISTORY != 0 {
                let epoch = |number: u64| (number > 0).then_some(Epoch(number));
                if let Some(entry) = state.history.iter_mut().find(|entry| entry.control == *index) {
                    (entry.since, entry.until) = (epoch(word[1]), epoch(word[2]));
                }
                continue;
            }
            let since = (word[1] > 0).then_some(Epoch(word[1]));
            let entry = Entry { index: *index, choice: choice.clone(), from: *from, since, configured: word[2] == 1 };
            if word[0] & WAITS == 0 {
                state.stack.push(entry);
            } else {
                state.waiting = Some(entry);
            }
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(name: &str, by: Word) -> PluginChoice {
        let settings = Settings { host: "h".into(), by, ..Settings::default() };
        PluginChoice {
            slot: PluginSlot::Rule,
            name: name.into(),
            digest: [name.len() as u8; 32],
            config: settings.text(),
        }
    }

    /// Applies `NAME@from` (activate), `-NAME` (rollback to), `.NAME` (configuration) in epochs 1, 2, 3, and so on; returns
    /// what held in each epoch, and the slots.
    fn played(script: &str) -> (String, Slots) {
        let mut slots = Slots::default();
        let mut held = Vec::new();
        for (at, word) in script.split(' ').enumerate() {
            let next = Epoch(at as u64 + 1);
            let (word, from) = word.split_once('@').map_or((word, 0), |(word, from)| (word, from.parse().unwrap()));
            let (name, by) = match word.split_at(1) {
                ("-", name) => (name, Word::Rollback),
                (".", name) => (name, Word::Configuration),
                _ => (word, Word::Activate),
            };
            if word != "_" {
                slots.apply(ControlIndex(at as u64 + 1), &choice(name, by), Epoch(from), next);
            }
            slots.advance(next);
            let active = slots.slot(&PluginSlot::Rule).and_then(SlotState::active);
            held.push(active.map_or("none".to_owned(), |entry| entry.choice.name.clone()));
        }
        (held.join(" "), slots)
    }

    #[track_caller]
    fn check(script: &str, expected: &str) {
        assert_eq!(played(script).0, expected, "{script}");
    }

    #[test]
    fn an_entry_holds_from_its_epoch_on() {
        check(".f a _", "f a a");
        check(".f a@4 _ _ _", "f f f a a");
        check(".f a@1 _", "f a a");
    }

    #[test]
    fn the_last_word_counts() {
        check(".f a@9 b _ _ _ _ _ _ _", "f f b b b b b b b b");
        check(".f a@4 -f _ _ _", "f f f f f f");
    }

    #[test]
    fn a_rollback_after_faults_is_void_once_another_entry_holds() {
        let after_faults = |replaces| {
            let settings = Settings { host: "h".into(), by: Word::Faults, replaces, ..Settings::default() };
            PluginChoice { config: settings.text(), ..choice("f", Word::Faults) }
        };
        let (_, mut slots) = played(".f aa bbb");
        assert!(!slots.apply(ControlIndex(9), &after_faults(2), Epoch(0), Epoch(9)), "`aa` failed, `bbb` holds");
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().active().unwrap().choice.name, "bbb");
        assert!(slots.apply(ControlIndex(10), &after_faults(3), Epoch(0), Epoch(10)));
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert_eq!(state.active().unwrap().choice.name, "f");
        assert_eq!(state.history().next().unwrap().by, FilledBy::Faults);
    }

    #[test]
    fn rollbacks_go_back_one_by_one() {
        let (held, slots) = played(".f aa bbb -aa -f");
        assert_eq!(held, "f aa bbb aa f");
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert!(state.before().is_none(), "nothing is left to go back to");
        assert!(state.active().unwrap().configured, "the configuration is in charge again");
        assert_eq!(state.history().count(), 5);
        assert_eq!(state.history().next().unwrap().by, FilledBy::Rollback);
        check(".f aa bbb aa -bbb -aa -f", "f aa bbb aa bbb aa f");
    }

    #[test]
    fn a_request_for_what_the_configuration_says_pins_it() {
        let (_, slots) = played(".f f");
        assert!(!slots.slot(&PluginSlot::Rule).unwrap().active().unwrap().configured);
    }

    #[test]
    fn the_history_tells_which_epochs_an_entry_decided() {
        let (_, slots) = played(".f aa@4 _ _ bbb -aa");
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        let told: Vec<_> = state
            .history()
            .map(|entry| {
                let epoch = |epoch: Option<Epoch>| epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
                format!("{} {}..{}", entry.name, epoch(entry.since), epoch(entry.until))
            })
            .collect();
        assert_eq!(told, ["aa 6..-", "bbb 5..5", "aa 4..4", "f 1..3"]);
    }

    #[test]
    fn an_entry_that_is_replaced_before_its_first_epoch_decided_none() {
        let (_, mut slots) = played(".f _ aa");
        slots.apply(ControlIndex(8), &choice("bbb", Word::Activate), Epoch(0), Epoch(4));
        slots.apply(ControlIndex(9), &choice("aa", Word::Rollback), Epoch(0), Epoch(4));
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        let told: Vec<_> = state.history().map(|entry| (entry.name.as_str(), entry.since, entry.until)).collect();
        let [two, three, four] = [2, 3, 4].map(|epoch| Some(Epoch(epoch)));
        assert_eq!(told, [("aa", four, None), ("bbb", None, None), ("aa", three, three), ("f", Some(Epoch(1)), two)]);
        assert_eq!(state.active().unwrap().since, four, "since it is back");
    }

    #[test]
    fn a_rollback_passes_by_what_was_forgotten() {
        let (_, mut slots) = played(".f aa bbb");
        slots.forget(&choice("aa", Word::Activate).digest);
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().before().unwrap().choice.name, "f");
        slots.forget(&choice("bbb", Word::Activate).digest);
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().active().unwrap().choice.name, "bbb", "it still decides");
    }

    #[test]
    fn an_image_brings_back_what_held_and_what_waits() {
        for script in [".f aa bbb -aa ccc@99", ".f aa@3 bbb@50 _", ".f", ".f aa@9 bbb@9 -f"] {
            let (_, slots) = played(script);
            let mut entries: Vec<(ControlIndex, PluginChoice, Epoch)> = Vec::new();
            for (at, word) in script.split(' ').enumerate().filter(|(_, word)| *word != "_") {
                let (word, from) = word.split_once('@').map_or((word, 0), |(word, from)| (word, from.parse().unwrap()));
                let by = match &word[..1] {
                    "-" => Word::Rollback,
                    "." => Word::Configuration,
                    _ => Word::Activate,
                };
                entries.push((
                    ControlIndex(at as u64 + 1),
                    choice(word.trim_start_matches(['-', '.']), by),
                    Epoch(from),
                ));
            }
            let again = Slots::restore(Some(&slots.image()), &entries, Epoch(6));
            let (before, after) = (slots.slot(&PluginSlot::Rule).unwrap(), again.slot(&PluginSlot::Rule).unwrap());
            assert_eq!((&after.stack, &after.waiting), (&before.stack, &before.waiting), "{script}");
            assert_eq!(after.history, before.history, "{script}");
            let naive = Slots::restore(None, &entries, Epoch(6));
            assert!(!naive.anything_waits());
        }
    }

    #[test]
    fn settings_are_written_as_before_unless_somebody_asked() {
        let mut settings = Settings { host: "h".into(), init: "{}".into(), ..Settings::default() };
        assert_eq!(settings.text(), r#"{"host":"h","init":"{}"}"#);
        settings.by = Word::Rollback;
        let choice = PluginChoice { config: settings.text(), ..choice("a", Word::Activate) };
        assert_eq!(Settings::of(&choice), settings);
    }
}
