//! Which plugin fills which slot, in which epoch: a pure function of the control log and of the epochs that carried it.
//!
//! An entry holds from the first epoch that carries it and that its `from` allows; until then it is pending, and the next
//! entry of the slot replaces it. Former entries are stacked, so that a rollback finds the one before. No clock, no I/O,
//! no code: the owner of the modules reads what is in force and loads it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use tribunal_types::{ControlIndex, Epoch, FilledBy, PluginChoice, PluginSlot};

/// Entries that a slot can roll back through.
const DEPTH_MAX: usize = 32;
/// Entries of the control log that are shown for a slot.
const HISTORY_MAX: usize = 32;
/// Marks the index of a pending entry, in a state image.
const WAITS: u64 = 1 << 63;
/// Marks the index of an entry of the history, with the epochs that it decided, in a state image.
const HISTORY: u64 = 1 << 62;

/// What a choice's configuration says of the entry itself. The text is the shell's: it is read there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// What kind of change it is.
    pub by: FilledBy,
    /// What the plugin's `init` gets.
    pub init: String,
    /// Of an entry that goes back after faults: the one that failed. It is void if another one holds by then.
    pub replaces: ControlIndex,
}

/// An entry of the control log that holds, or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub index: ControlIndex,
    /// What it says.
    pub choice: PluginChoice,
    /// Why it says it.
    pub intent: Intent,
    /// Earliest epoch.
    pub from: Epoch,
    /// First epoch that it decided; `None` if nobody remembers.
    pub since: Option<Epoch>,
    /// Whether the configuration, and not a request, put it there: then another configuration may replace it.
    pub configured: bool,
}

impl Entry {
    /// Makes an entry that decides nothing yet.
    #[must_use]
    pub fn new(index: ControlIndex, choice: PluginChoice, intent: Intent, from: Epoch) -> Entry {
        let configured = intent.by == FilledBy::Configuration;
        Entry { index, choice, intent, from, since: None, configured }
    }

    fn is_same_plugin(&self, other: &Entry) -> bool {
        let (own, theirs) = (&self.choice, &other.choice);
        own.name == theirs.name && own.digest == theirs.digest && self.intent.init == other.intent.init
    }
}

/// An entry of a slot's past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The entry; `since` is the first epoch that it decided.
    pub entry: Entry,
    /// Last epoch that it decided.
    pub until: Option<Epoch>,
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
    history: VecDeque<Past>,
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
    pub fn history(&self) -> impl Iterator<Item = &Past> {
        self.history.iter().rev()
    }

    /// Tells whether an entry with this intent goes back from something that holds no more.
    fn is_void(&self, intent: &Intent) -> bool {
        intent.by == FilledBy::Faults && self.active().is_none_or(|active| active.index != intent.replaces)
    }

    /// Notes that another entry decides from epoch `since` on.
    fn note_held(&mut self, index: ControlIndex, since: Epoch) {
        for Past { entry, until } in &mut self.history {
            if entry.index == index {
                entry.since = Some(since);
            } else if entry.since == Some(since) {
                // Replaced before its first epoch.
                entry.since = None;
            } else if entry.since.is_some() && until.is_none() {
                *until = Some(since.prev());
            }
        }
    }

    fn note(&mut self, entry: &Entry) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Past { entry: entry.clone(), until: None });
    }

    /// Lets an entry hold from epoch `since` on.
    fn hold(&mut self, mut entry: Entry, since: Epoch) {
        self.note_held(entry.index, since);
        let depth = self.stack.len();
        if entry.intent.by.goes_back() {
            while self.stack.last().is_some_and(|top| !top.is_same_plugin(&entry)) {
                self.stack.pop();
            }
        }
        let is_back = self.stack.len() < depth;
        match self.stack.last_mut() {
            // The same under another engine, requested by another caller, or back again.
            Some(top) if top.is_same_plugin(&entry) => {
                if !entry.intent.by.goes_back() {
                    top.configured = entry.configured;
                }
                (top.index, top.choice, top.intent) = (entry.index, entry.choice, entry.intent);
                top.from = entry.from;
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
    pub fn apply(&mut self, entry: Entry, next: Epoch) -> bool {
        let state = self.by_slot.entry(entry.choice.slot.clone()).or_default();
        if state.is_void(&entry.intent) {
            return false;
        }
        state.note(&entry);
        state.waiting = None;
        if entry.from <= next {
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

    /// Tells whether an entry would change nothing: it goes back from something that holds no more.
    #[must_use]
    pub fn is_void(&self, slot: &PluginSlot, intent: &Intent) -> bool {
        self.by_slot.get(slot).is_some_and(|state| state.is_void(intent))
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
            for Past { entry, until } in &state.history {
                let epoch = |epoch: Option<Epoch>| epoch.map_or(0, |epoch| epoch.0);
                words.extend([entry.index.0 | HISTORY, epoch(entry.since), epoch(*until)]);
            }
            words
                .extend(state.waiting.iter().flat_map(|entry| [entry.index.0 | WAITS, 0, u64::from(entry.configured)]));
        }
        words
    }

    /// Restores the slots from an image and the entries of the control log that it includes, in their order. Without an
    /// image's word, entries count as if each had held at once.
    #[must_use]
    pub fn restore(words: Option<&[u64]>, entries: &[Entry], next: Epoch) -> Slots {
        let mut slots = Slots::default();
        for entry in entries {
            let from = if words.is_some() { entry.from } else { Epoch(0) };
            slots.apply(Entry { from, ..entry.clone() }, next);
        }
        let Some(words) = words else { return slots };
        for state in slots.by_slot.values_mut() {
            (state.stack, state.waiting) = (Vec::new(), None);
            state.history.iter_mut().for_each(|past| (past.entry.since, past.until) = (None, None));
        }
        for word in words.chunks_exact(3) {
            let found = entries.iter().find(|entry| entry.index.0 == word[0] & !(WAITS | HISTORY));
            let Some(found) = found else { continue };
            let state = slots.by_slot.entry(found.choice.slot.clone()).or_default();
            if word[0] & HISTORY != 0 {
                let epoch = |number: u64| (number > 0).then_some(Epoch(number));
                if let Some(past) = state.history.iter_mut().find(|past| past.entry.index == found.index) {
                    (past.entry.since, past.until) = (epoch(word[1]), epoch(word[2]));
                }
                continue;
            }
            let since = (word[1] > 0).then_some(Epoch(word[1]));
            let entry = Entry { since, configured: word[2] == 1, ..found.clone() };
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
    use alloc::borrow::ToOwned;
    use alloc::format;

    use super::*;

    fn entry(index: u64, name: &str, by: FilledBy, from: u64) -> Entry {
        let choice = PluginChoice {
            slot: PluginSlot::Rule,
            name: name.into(),
            digest: [name.len() as u8; 32],
            config: String::new(),
        };
        Entry::new(ControlIndex(index), choice, Intent { by, ..Intent::default() }, Epoch(from))
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
                ("-", name) => (name, FilledBy::Rollback),
                (".", name) => (name, FilledBy::Configuration),
                _ => (word, FilledBy::Request),
            };
            if word != "_" {
                slots.apply(entry(at as u64 + 1, name, by, from), next);
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
    fn the_latest_entry_counts() {
        check(".f a@9 b _ _ _ _ _ _ _", "f f b b b b b b b b");
        check(".f a@4 -f _ _ _", "f f f f f f");
    }

    #[test]
    fn a_rollback_after_faults_is_void_once_another_entry_holds() {
        let after_faults = |index, replaces| {
            let entry = entry(index, "f", FilledBy::Faults, 0);
            Entry { intent: Intent { replaces: ControlIndex(replaces), ..entry.intent }, ..entry }
        };
        let (_, mut slots) = played(".f aa bbb");
        assert!(!slots.apply(after_faults(9, 2), Epoch(9)), "`aa` failed, `bbb` holds");
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().active().unwrap().choice.name, "bbb");
        assert!(slots.apply(after_faults(10, 3), Epoch(10)));
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert_eq!(state.active().unwrap().choice.name, "f");
        assert_eq!(state.history().next().unwrap().entry.intent.by, FilledBy::Faults);
    }

    #[test]
    fn rollbacks_go_back_one_by_one() {
        let (held, slots) = played(".f aa bbb -aa -f");
        assert_eq!(held, "f aa bbb aa f");
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert!(state.before().is_none(), "nothing is left to go back to");
        assert!(state.active().unwrap().configured, "the configuration is in charge again");
        assert_eq!(state.history().count(), 5);
        assert_eq!(state.history().next().unwrap().entry.intent.by, FilledBy::Rollback);
        check(".f aa bbb aa -bbb -aa -f", "f aa bbb aa bbb aa f");
    }

    #[test]
    fn a_request_for_the_configured_plugin_pins_it() {
        let (_, slots) = played(".f f");
        assert!(!slots.slot(&PluginSlot::Rule).unwrap().active().unwrap().configured);
    }

    #[test]
    fn the_history_tells_which_epochs_an_entry_decided() {
        let (_, slots) = played(".f aa@4 _ _ bbb -aa");
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        let told: Vec<_> = state
            .history()
            .map(|Past { entry, until }| {
                let epoch = |epoch: Option<Epoch>| epoch.map_or("-".to_owned(), |epoch| format!("{epoch}"));
                format!("{} {}..{}", entry.choice.name, epoch(entry.since), epoch(*until))
            })
            .collect();
        assert_eq!(told, ["aa 6..-", "bbb 5..5", "aa 4..4", "f 1..3"]);
    }

    #[test]
    fn an_entry_that_is_replaced_before_its_first_epoch_decided_none() {
        let (_, mut slots) = played(".f _ aa");
        slots.apply(entry(8, "bbb", FilledBy::Request, 0), Epoch(4));
        slots.apply(entry(9, "aa", FilledBy::Rollback, 0), Epoch(4));
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        let told: Vec<_> =
            state.history().map(|past| (past.entry.choice.name.as_str(), past.entry.since, past.until)).collect();
        let [two, three, four] = [2, 3, 4].map(|epoch| Some(Epoch(epoch)));
        assert_eq!(told, [("aa", four, None), ("bbb", None, None), ("aa", three, three), ("f", Some(Epoch(1)), two)]);
        assert_eq!(state.active().unwrap().since, four, "since it is back");
    }

    #[test]
    fn a_rollback_skips_deleted_versions() {
        let (_, mut slots) = played(".f aa bbb");
        slots.forget(&entry(9, "aa", FilledBy::Request, 0).choice.digest);
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().before().unwrap().choice.name, "f");
        slots.forget(&entry(9, "bbb", FilledBy::Request, 0).choice.digest);
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().active().unwrap().choice.name, "bbb", "it still decides");
    }

    #[test]
    fn an_image_restores_active_and_pending_entries() {
        for script in [".f aa bbb -aa ccc@99", ".f aa@3 bbb@50 _", ".f", ".f aa@9 bbb@9 -f"] {
            let (_, slots) = played(script);
            let mut entries: Vec<Entry> = Vec::new();
            for (at, word) in script.split(' ').enumerate().filter(|(_, word)| *word != "_") {
                let (word, from) = word.split_once('@').map_or((word, 0), |(word, from)| (word, from.parse().unwrap()));
                let by = match &word[..1] {
                    "-" => FilledBy::Rollback,
                    "." => FilledBy::Configuration,
                    _ => FilledBy::Request,
                };
                entries.push(entry(at as u64 + 1, word.trim_start_matches(['-', '.']), by, from));
            }
            let again = Slots::restore(Some(&slots.image()), &entries, Epoch(6));
            let (before, after) = (slots.slot(&PluginSlot::Rule).unwrap(), again.slot(&PluginSlot::Rule).unwrap());
            assert_eq!((&after.stack, &after.waiting), (&before.stack, &before.waiting), "{script}");
            assert_eq!(after.history, before.history, "{script}");
            let naive = Slots::restore(None, &entries, Epoch(6));
            assert!(!naive.anything_waits());
        }
    }
}
