//! Which plugin fills which slot in which epoch: a pure function of the control log and the epochs that carried it.
//!
//! An entry is in force from the first epoch that carries it and is allowed by its `from`; until then it is pending,
//! and the slot's next entry replaces it. Former entries are stacked, so that a rollback finds the previous one. No
//! clock, no I/O, no code: the owner of the modules reads the active entry and loads it. A copy shares all unchanged
//! parts.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::{ControlIndex, Epoch, FilledBy, PastEntry, PluginActivation, PluginSlot, SlotEntry, SlotImage};

/// Maximum number of entries that a slot can roll back through.
const DEPTH_MAX: usize = 32;
/// Maximum number of control log entries shown for a slot.
const HISTORY_MAX: usize = 32;
/// How a slot uses a plugin's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUse {
    /// It decides now.
    Active,
    /// It is pending until its epoch.
    Pending,
}

/// The effect of an entry on its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEffect {
    /// It decides from the next epoch on.
    Holds,
    /// It is pending until its epoch.
    Pending,
    /// None: it rolls back an entry that is no longer active.
    Void,
}

/// One slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// Entries in force so far, oldest first; the last one is active.
    stack: Vec<SlotEntry>,
    waiting: Option<SlotEntry>,
    history: VecDeque<PastEntry>,
}

/// Returns an entry that decides nothing yet.
fn entry_of(index: ControlIndex, activation: PluginActivation) -> SlotEntry {
    let configured = activation.by == FilledBy::Configuration;
    SlotEntry { index, activation, since: None, configured }
}

fn is_same_plugin(one: &SlotEntry, other: &SlotEntry) -> bool {
    let (one, other) = (&one.activation.choice, &other.activation.choice);
    one.name == other.name && one.digest == other.digest && one.config == other.config
}

impl SlotState {
    /// Returns the active entry.
    #[must_use]
    pub fn active(&self) -> Option<&SlotEntry> {
        self.stack.last()
    }

    /// Returns the pending entry.
    #[must_use]
    pub fn waiting(&self) -> Option<&SlotEntry> {
        self.waiting.as_ref()
    }

    /// Returns the previously active entry.
    #[must_use]
    pub fn before(&self) -> Option<&SlotEntry> {
        self.earlier().next()
    }

    /// Returns the entries that successive rollbacks return to.
    pub fn earlier(&self) -> impl Iterator<Item = &SlotEntry> {
        self.stack.iter().rev().skip(1)
    }

    /// Returns the newest entries for this slot, newest first.
    pub fn history(&self) -> impl Iterator<Item = &PastEntry> {
        self.history.iter().rev()
    }

    /// Returns whether an activation rolls back an entry that is no longer active.
    fn is_void(&self, activation: &PluginActivation) -> bool {
        activation.by == FilledBy::Faults && self.active().is_none_or(|active| active.index != activation.replaces)
    }

    /// Notes that another entry decides from epoch `since` on.
    fn note_held(&mut self, index: ControlIndex, since: Epoch) {
        for PastEntry { entry, until } in &mut self.history {
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

    fn note(&mut self, entry: &SlotEntry) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(PastEntry { entry: entry.clone(), until: None });
    }

    /// Puts an entry in force from epoch `since` on.
    fn hold(&mut self, mut entry: SlotEntry, since: Epoch) {
        self.note_held(entry.index, since);
        let depth = self.stack.len();
        let goes_back = entry.activation.by.goes_back();
        if goes_back {
            while self.stack.last().is_some_and(|top| !is_same_plugin(top, &entry)) {
                self.stack.pop();
            }
        }
        let is_back = self.stack.len() < depth;
        match self.stack.last_mut() {
            // The same plugin under another engine, requested by another caller, or back again.
            Some(top) if is_same_plugin(top, &entry) => {
                if !goes_back {
                    top.configured = entry.configured;
                }
                (top.index, top.activation) = (entry.index, entry.activation);
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    by_slot: BTreeMap<PluginSlot, Arc<SlotState>>,
}

impl Slots {
    /// Applies an entry of the control log; epoch `next` is the first to carry it.
    pub fn apply(&mut self, index: ControlIndex, activation: &PluginActivation, next: Epoch) -> SlotEffect {
        let slot = &activation.choice.slot;
        if self.by_slot.get(slot).map_or(activation.by == FilledBy::Faults, |state| state.is_void(activation)) {
            return SlotEffect::Void;
        }
        let state = Arc::make_mut(self.by_slot.entry(slot.clone()).or_default());
        let entry = entry_of(index, activation.clone());
        state.note(&entry);
        state.waiting = None;
        if activation.from <= next {
            state.hold(entry, next);
            return SlotEffect::Holds;
        }
        state.waiting = Some(entry);
        SlotEffect::Pending
    }

    /// Puts every pending entry for epoch `next` in force. Returns the slots that changed.
    pub fn advance(&mut self, next: Epoch) -> Vec<PluginSlot> {
        let mut changed = Vec::new();
        for (slot, state) in &mut self.by_slot {
            if state.waiting.as_ref().is_none_or(|entry| entry.activation.from > next) {
                continue;
            }
            let state = Arc::make_mut(state);
            if let Some(entry) = state.waiting.take() {
                // The epochs skipped since then were sealed empty, and it would have decided them.
                let since = entry.activation.from;
                state.hold(entry, since);
                changed.push(slot.clone());
            }
        }
        changed
    }

    /// Removes code that is not active in a slot from its rollback targets.
    pub fn forget(&mut self, digest: &[u8; 32]) {
        for state in self.by_slot.values_mut() {
            let held = state.stack.len().saturating_sub(1);
            let is_digest = |entry: &SlotEntry| entry.activation.choice.digest == *digest;
            if !state.stack.iter().take(held).any(is_digest) {
                continue;
            }
            let mut at = 0;
            Arc::make_mut(state).stack.retain(|entry| {
                at += 1;
                at > held || !is_digest(entry)
            });
        }
    }

    /// Marks the components with these digests as announced to the members of a cluster.
    pub(super) fn mark_announced(&mut self, is_announced: impl Fn(&[u8; 32]) -> bool) {
        for state in self.by_slot.values_mut() {
            let SlotState { stack, waiting, history } = Arc::make_mut(state);
            let past = history.iter_mut().map(|past| &mut past.entry);
            for entry in stack.iter_mut().chain(waiting).chain(past) {
                let choice = &mut entry.activation.choice;
                choice.announced |= is_announced(&choice.digest);
            }
        }
    }

    /// Returns the epoch of the next pending entry.
    #[must_use]
    pub fn next_activation(&self) -> Option<Epoch> {
        self.by_slot.values().filter_map(|state| Some(state.waiting.as_ref()?.activation.from)).min()
    }

    /// Returns the slots in which this code is active or pending.
    #[must_use]
    pub fn users_of(&self, digest: &[u8; 32]) -> Vec<(PluginSlot, SlotUse)> {
        let of = |entry: Option<&SlotEntry>| entry.is_some_and(|entry| entry.activation.choice.digest == *digest);
        let used = |(slot, state): (&PluginSlot, &Arc<SlotState>)| {
            let found = match state {
                _ if of(state.active()) => SlotUse::Active,
                _ if of(state.waiting()) => SlotUse::Pending,
                _ => return None,
            };
            Some((slot.clone(), found))
        };
        self.by_slot.iter().filter_map(used).collect()
    }

    /// Returns a slot.
    #[must_use]
    pub fn slot(&self, slot: &PluginSlot) -> Option<&SlotState> {
        self.by_slot.get(slot).map(|state| &**state)
    }

    /// Returns all slots.
    pub fn iter(&self) -> impl Iterator<Item = (&PluginSlot, &SlotState)> {
        self.by_slot.iter().map(|(slot, state)| (slot, &**state))
    }

    /// Returns all slots, for a state image.
    #[must_use]
    pub fn image(&self) -> Vec<SlotImage> {
        let image = |(slot, state): (&PluginSlot, &SlotState)| SlotImage {
            slot: slot.clone(),
            stack: state.stack.clone(),
            pending: state.waiting.clone(),
            history: state.history.iter().cloned().collect(),
        };
        self.iter().map(image).collect()
    }

    /// Restores the slots from an image.
    #[must_use]
    pub fn restore(image: Vec<SlotImage>) -> Slots {
        let state = |image: SlotImage| {
            let SlotImage { slot, stack, pending, history } = image;
            (slot, Arc::new(SlotState { stack, waiting: pending, history: history.into() }))
        };
        Slots { by_slot: image.into_iter().map(state).collect() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::format;
    use alloc::string::String;

    use tribunal_types::PluginChoice;

    use super::*;

    fn activation(name: &str, by: FilledBy, from: u64) -> PluginActivation {
        let choice = PluginChoice { name: name.into(), digest: [name.len() as u8; 32], ..PluginChoice::default() };
        PluginActivation { choice, by, from: Epoch(from), ..PluginActivation::default() }
    }

    /// Applies `NAME@from` (activate), `-NAME` (rollback to), `.NAME` (configuration) in epochs 1, 2, 3, and so on;
    /// returns the active entry of each epoch, and the slots.
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
                slots.apply(ControlIndex(at as u64 + 1), &activation(name, by, from), next);
            }
            slots.advance(next);
            held.push(active(&slots).to_owned());
        }
        (held.join(" "), slots)
    }

    fn active(slots: &Slots) -> &str {
        let active = slots.slot(&PluginSlot::Rule).and_then(SlotState::active);
        active.map_or("none", |entry| &entry.activation.choice.name)
    }

    #[track_caller]
    fn check(script: &str, expected: &str) {
        assert_eq!(played(script).0, expected, "{script}");
    }

    #[test]
    fn a_void_activation_changes_nothing() {
        let mut slots = Slots::default();
        let slot = PluginSlot::Adaptor("a".to_owned());
        let choice = PluginChoice { slot, ..PluginChoice::default() };
        let activation = PluginActivation { choice, by: FilledBy::Faults, ..PluginActivation::default() };
        assert_eq!(slots.apply(ControlIndex(1), &activation, Epoch(1)), SlotEffect::Void);
        assert_eq!(slots, Slots::default());
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
        let after_faults =
            |replaces| PluginActivation { replaces: ControlIndex(replaces), ..activation("f", FilledBy::Faults, 0) };
        let (_, mut slots) = played(".f aa bbb");
        assert_eq!(
            slots.apply(ControlIndex(9), &after_faults(2), Epoch(9)),
            SlotEffect::Void,
            "`aa` failed, `bbb` holds"
        );
        assert_eq!(active(&slots), "bbb");
        assert_eq!(slots.apply(ControlIndex(10), &after_faults(3), Epoch(10)), SlotEffect::Holds);
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert_eq!(active(&slots), "f");
        assert_eq!(state.history().next().unwrap().entry.activation.by, FilledBy::Faults);
    }

    #[test]
    fn rollbacks_go_back_one_by_one() {
        let (held, slots) = played(".f aa bbb -aa -f");
        assert_eq!(held, "f aa bbb aa f");
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert!(state.before().is_none(), "nothing is left to go back to");
        assert!(state.active().unwrap().configured, "the configuration is in charge again");
        assert_eq!(state.history().count(), 5);
        assert_eq!(state.history().next().unwrap().entry.activation.by, FilledBy::Rollback);
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
            .map(|PastEntry { entry, until }| {
                let epoch = |epoch: Option<Epoch>| epoch.map_or("-".to_owned(), |epoch| format!("{epoch}"));
                format!("{} {}..{}", entry.activation.choice.name, epoch(entry.since), epoch(*until))
            })
            .collect();
        assert_eq!(told, ["aa 6..-", "bbb 5..5", "aa 4..4", "f 1..3"]);
    }

    #[test]
    fn an_entry_that_is_replaced_before_its_first_epoch_decided_none() {
        let (_, mut slots) = played(".f _ aa");
        slots.apply(ControlIndex(8), &activation("bbb", FilledBy::Request, 0), Epoch(4));
        slots.apply(ControlIndex(9), &activation("aa", FilledBy::Rollback, 0), Epoch(4));
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        let told: Vec<_> = state
            .history()
            .map(|past| (past.entry.activation.choice.name.as_str(), past.entry.since, past.until))
            .collect();
        let [two, three, four] = [2, 3, 4].map(|epoch| Some(Epoch(epoch)));
        assert_eq!(told, [("aa", four, None), ("bbb", None, None), ("aa", three, three), ("f", Some(Epoch(1)), two)]);
        assert_eq!(state.active().unwrap().since, four, "since it is back");
    }

    #[test]
    fn an_adaptor_gives_way_to_nothing_and_a_rollback_restores_it() {
        let slot = PluginSlot::Adaptor("a".to_owned());
        let choice = PluginChoice { slot: slot.clone(), digest: [7; 32], ..PluginChoice::none("a") };
        let by = |choice: &PluginChoice, by| PluginActivation { choice: choice.clone(), by, ..Default::default() };
        let mut slots = Slots::default();
        slots.apply(ControlIndex(1), &by(&choice, FilledBy::Request), Epoch(1));
        slots.apply(ControlIndex(2), &by(&PluginChoice::none("a"), FilledBy::Request), Epoch(3));
        let active = |slots: &Slots| slots.slot(&slot).unwrap().active().unwrap().activation.choice.clone();
        assert!(active(&slots).is_none() && slots.users_of(&choice.digest).is_empty(), "its version can be deleted");
        let mut forgotten = slots.clone();
        slots.apply(ControlIndex(3), &by(&choice, FilledBy::Rollback), Epoch(5));
        assert_eq!((active(&slots), slots.slot(&slot).unwrap().before()), (choice.clone(), None));
        forgotten.forget(&choice.digest);
        assert_eq!(forgotten.slot(&slot).unwrap().before(), None, "nothing returns once it is deleted");
        assert!(active(&forgotten).is_none());
        assert_eq!(Slots::restore(forgotten.image()), forgotten);
    }

    #[test]
    fn a_rollback_can_wait_and_pass_several() {
        let (_, mut slots) = played(".f aa bbb");
        let back = activation("f", FilledBy::Rollback, 9);
        assert_eq!(slots.apply(ControlIndex(4), &back, Epoch(4)), SlotEffect::Pending);
        assert_eq!(active(&slots), "bbb");
        let earlier: Vec<_> = slots.slot(&PluginSlot::Rule).unwrap().earlier().collect();
        assert_eq!(earlier.iter().map(|entry| entry.index).collect::<Vec<_>>(), [ControlIndex(2), ControlIndex(1)]);
        slots.advance(Epoch(9));
        let state = slots.slot(&PluginSlot::Rule).unwrap();
        assert_eq!((active(&slots), state.before()), ("f", None));
        assert!(state.active().unwrap().configured, "the configuration is in charge again");
    }

    #[test]
    fn a_rollback_skips_deleted_versions() {
        let (_, mut slots) = played(".f aa bbb");
        slots.forget(&activation("aa", FilledBy::Request, 0).choice.digest);
        assert_eq!(slots.slot(&PluginSlot::Rule).unwrap().before().unwrap().activation.choice.name, "f");
        slots.forget(&activation("bbb", FilledBy::Request, 0).choice.digest);
        assert_eq!(active(&slots), "bbb", "it still decides");
    }

    #[test]
    fn an_image_restores_active_and_pending_entries_and_the_history() {
        for script in [".f aa bbb -aa ccc@99", ".f aa@3 bbb@50 _", ".f", ".f aa@9 bbb@9 -f"] {
            let (_, slots) = played(script);
            assert_eq!(Slots::restore(slots.image()), slots, "{script}");
        }
    }
}
