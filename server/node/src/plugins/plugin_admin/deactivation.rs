//! Deactivation: resets a slot to its content without any uploaded plugin. It is an activation like any other, so all
//! nodes change at the same epoch, whatever release they run.
//!
//! A rule or validator is replaced by the slot's last built-in plugin, like a rollback past all uploads. An adaptor is
//! removed without replacement; this is refused while a store uses it.

use tribunal_core::control::slots::SlotState;
use tribunal_service::ServiceError;
use tribunal_service::plugins::{Activation, Deactivate};
use tribunal_types::{ControlIndex, FilledBy, PluginActivation, PluginChoice, PluginSlot, SlotEntry};
use tribunal_wasm::{BUILTINS, World};

use super::{Parts, mistake, unavailable, unix_ms};
use crate::plugins::plugin_loader::builtin_digest;

/// Maximum number of stores that a refusal names.
const STORES_SHOWN_MAX: usize = 5;
/// The rule for a slot without a built-in one in its history.
const RULE: &str = "first-writer-wins";

impl Parts {
    pub(super) fn deactivate(&self, request: Deactivate) -> Result<Activation, ServiceError> {
        let Deactivate { name, slot, from, who } = request;
        let (slot, state) = self.filled_by(&name, slot)?;
        let choice = match &slot {
            PluginSlot::Adaptor(_) if from.is_some() => {
                let detail = "an adaptor decides no epoch, so it is deactivated at once; leave `at_epoch` out";
                return Err(mistake("at_epoch_unsupported", "/at_epoch", detail));
            }
            PluginSlot::Adaptor(adaptor) => {
                self.check_unused(adaptor)?;
                PluginChoice::none(adaptor)
            }
            PluginSlot::Rule => self.built_in(&slot, &state, World::ConflictRule, RULE)?,
            PluginSlot::Validator(level) => self.built_in(&slot, &state, World::IsolationValidator, level.name())?,
        };
        // The returning plugin decides as after a rollback: the configuration applies again if it did before. The entry
        // names the one that it ends, so that it is shown as what it is, and a rollback restores that one. An empty slot
        // gets a separate entry.
        let ended = state.active().map_or(ControlIndex(0), |active| active.index);
        let (by, replaces) =
            if choice.is_none() { (FilledBy::Request, ControlIndex(0)) } else { (FilledBy::Rollback, ended) };
        let (from, at_ms) = (from.unwrap_or_default(), unix_ms());
        self.write(PluginActivation { choice, from, by, replaces, who, at_ms })
    }

    /// Returns the entry that a deactivation of a rule or validator has ended, while the slot has nothing newer.
    pub(super) fn deactivated(state: &SlotState) -> Option<&SlotEntry> {
        let deactivation = &state.active().filter(|active| active.activation.is_deactivation())?.activation;
        let ended = state.history().find(|past| past.entry.index == deactivation.replaces);
        ended.map(|past| &past.entry)
    }

    /// Returns that entry if it is of the plugin `name`, whose code still exists.
    pub(super) fn deactivated_as<'a>(&self, name: &str, state: &'a SlotState) -> Option<&'a SlotEntry> {
        Self::deactivated(state).filter(|entry| {
            let choice = &entry.activation.choice;
            choice.name == name && self.loader.store.find(&choice.digest).is_some()
        })
    }

    /// Returns the slot in which an uploaded plugin is active.
    fn filled_by(&self, name: &str, slot: Option<PluginSlot>) -> Result<(PluginSlot, SlotState), ServiceError> {
        let slots = self.slots.read();
        let of_name = |state: &SlotState| {
            state
                .active()
                .is_some_and(|active| active.activation.choice.name == name && !active.activation.choice.is_none())
        };
        let filled: Vec<_> = slots
            .iter()
            .filter(|(known, state)| of_name(state) && slot.as_ref().is_none_or(|slot| slot == *known))
            .collect();
        match filled[..] {
            [(slot, state)] if self.is_built_in(slot, state) => {
                let detail = format!("\"{name}\" is built in: activate another plugin in slot {slot} in place of it");
                Err(mistake("plugin_built_in", "", detail))
            }
            [(slot, state)] => Ok((slot.clone(), state.clone())),
            [] => {
                let Some(builtin) = BUILTINS.iter().find(|builtin| builtin.name == name) else {
                    let detail = format!(
                        "\"{name}\" is not active there, so there is nothing to deactivate; `rollback` cancels an \
                         activation that is pending"
                    );
                    return Err(mistake("not_active", "/slot", detail));
                };
                let instead = match builtin.world {
                    World::LogAdaptor => "to use another plugin, declare the stores with that adaptor",
                    _ => "where it is active, activate another plugin",
                };
                let detail = format!("\"{name}\" is built in, so it cannot be deactivated; {instead}");
                Err(mistake("plugin_built_in", "", detail))
            }
            _ => {
                let names = filled.iter().map(|(slot, _)| slot.to_string()).collect::<Vec<_>>().join(", ");
                Err(mistake("slot_required", "/slot", format!("it fills {names}; name one of them")))
            }
        }
    }

    pub(super) fn is_built_in(&self, slot: &PluginSlot, state: &SlotState) -> bool {
        let world = match slot {
            PluginSlot::Rule => World::ConflictRule,
            PluginSlot::Validator(_) => World::IsolationValidator,
            PluginSlot::Adaptor(_) => World::LogAdaptor,
        };
        let active = state.active().map(|active| &active.activation.choice);
        active.is_some_and(|choice| self.loader.builtin_of(world, choice).is_some())
    }

    /// Returns the slot's last built-in plugin, otherwise the one of this name.
    fn built_in(
        &self,
        slot: &PluginSlot,
        state: &SlotState,
        world: World,
        name: &str,
    ) -> Result<PluginChoice, ServiceError> {
        let mut earlier = state.earlier().map(|entry| &entry.activation.choice);
        let last = earlier.find(|choice| self.loader.builtin_of(world, choice).is_some()).cloned();
        let default = || PluginChoice {
            slot: slot.clone(),
            name: name.to_owned(),
            digest: builtin_digest(world, name).unwrap_or_default(),
            ..PluginChoice::default()
        };
        let host = self.loader.host_name().map_err(unavailable)?;
        Ok(PluginChoice { host, ..last.unwrap_or_else(default) })
    }

    /// Checks that no store uses an adaptor: its push would stop.
    pub(super) fn check_unused(&self, adaptor: &str) -> Result<(), ServiceError> {
        let stores = self.stores.all();
        let used = stores.iter().filter(|store| store.spec.adaptor.as_deref() == Some(adaptor));
        let names: Vec<_> = used.map(|store| format!("\"{}\"", store.spec.name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let more = names.len().saturating_sub(STORES_SHOWN_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let shown = names[..names.len().min(STORES_SHOWN_MAX)].join(", ");
        let detail = format!(
            "adaptor \"{adaptor}\" is used by {} {shown}{more}; declare them with another adaptor first",
            if names.len() == 1 { "store" } else { "stores" }
        );
        Err(mistake("plugin_in_use", "", detail))
    }
}
