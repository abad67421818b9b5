//! The policies in force: which rule and validators decide, as Wasm modules or as their native twins.
//!
//! What is in force is said by the control log, so that a replay uses what the epoch was decided with. The
//! configuration only says what should be activated next.

use std::collections::BTreeMap;

use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{ConflictRule, Policies, Validator};
use tribunal_types::{Isolation, PluginChoice, PluginSlot};

use crate::config::{Config, PolicyHost};
use crate::plugins::engine;

/// A rule and four validators, and what the control log says of them.
pub struct PolicySet {
    rule: Box<dyn ConflictRule + Send>,
    validator: Box<dyn Validator + Send>,
    fallback: NativeRule,
    /// What runs here.
    running: Vec<PluginChoice>,
    /// What the control log says.
    effective: BTreeMap<PluginSlot, PluginChoice>,
}

/// Policies as they run, and the SHA-256 of their modules: the rule's, then the levels'.
struct Modules {
    rule: Box<dyn ConflictRule + Send>,
    validator: Box<dyn Validator + Send>,
    digests: [[u8; 32]; 5],
    host: String,
}

fn load_wasm(rule: &str, rule_config: &str) -> Result<Modules, String> {
    let engine = engine()?;
    let rule = tribunal_wasm::builtin::rule(engine, rule, rule_config)
        .ok_or_else(|| format!("there is no rule `{rule}`"))?
        .map_err(|error| error.to_string())?;
    let validators = tribunal_wasm::builtin::validators(engine).map_err(|error| error.to_string())?;
    let [rc, rr, si, ser] = Isolation::ALL.map(|level| validators.of(level).module().digest());
    Ok(Modules {
        digests: [rule.module().digest(), rc, rr, si, ser],
        host: engine.fingerprint().to_string(),
        rule: Box::new(rule),
        validator: Box::new(validators),
    })
}

impl PolicySet {
    /// Builds what the configuration names.
    ///
    /// # Errors
    /// If a module cannot be loaded.
    pub fn builtin(config: &Config) -> Result<PolicySet, String> {
        let fallback = NativeRule::by_name(&config.rule.name, config.rule.turns).map_err(|fault| fault.0)?;
        let rule_config = serde_json::json!({ "turns": config.rule.turns }).to_string();
        let rule_config = if config.rule.name == "fair-rotation" { rule_config } else { String::new() };
        let modules = match config.plugins {
            PolicyHost::Native => Modules {
                rule: Box::new(fallback),
                validator: Box::new(NativeValidator),
                digests: [[0; 32]; 5],
                host: "native".into(),
            },
            PolicyHost::Wasm => load_wasm(&config.rule.name, &rule_config)?,
        };
        // The host is part of the choice: another engine may spend other fuel, so it counts from an epoch on, too.
        let choice = |slot, name: &str, digest, plugin_config: &str| {
            let config = serde_json::json!({ "host": modules.host, "init": plugin_config }).to_string();
            PluginChoice { slot, name: name.to_owned(), digest, config }
        };
        let [rule_digest, level_digests @ ..] = modules.digests;
        let mut running = vec![choice(PluginSlot::Rule, &config.rule.name, rule_digest, &rule_config)];
        for (level, digest) in Isolation::ALL.into_iter().zip(level_digests) {
            running.push(choice(PluginSlot::Validator(level), level.name(), digest, ""));
        }
        let Modules { rule, validator, .. } = modules;
        Ok(PolicySet { rule, validator, fallback, running, effective: BTreeMap::new() })
    }

    /// Notes what the control log says from this point on.
    pub fn activate(&mut self, choice: &PluginChoice) {
        self.effective.insert(choice.slot.clone(), choice.clone());
    }

    /// Checks that an epoch without a recorded outcome may be resolved by what runs here.
    ///
    /// # Errors
    /// If another rule, module or engine was in force; says what to do.
    pub fn check_effective(&self) -> Result<(), String> {
        match self.running.iter().find(|running| self.effective.get(&running.slot) != Some(running)) {
            None => Ok(()),
            Some(running) => Err(format!(
                "the last epochs were sealed under another {} than `{}` of this version and configuration, and their \
                 outcomes were not recorded before the crash. Start the node once with the version and configuration \
                 that wrote them, stop it, then change",
                match running.slot {
                    PluginSlot::Rule => "conflict rule".to_owned(),
                    PluginSlot::Validator(level) => format!("{} validator", level.name()),
                    PluginSlot::Adaptor(ref name) => format!("adaptor {name}"),
                },
                running.name
            )),
        }
    }

    /// Returns what runs here and the control log does not say yet.
    #[must_use]
    pub fn missing_activations(&self) -> Vec<PluginChoice> {
        let missing = self.running.iter().filter(|running| self.effective.get(&running.slot) != Some(running));
        missing.cloned().collect()
    }

    /// Returns the policies for one epoch.
    #[must_use]
    pub fn policies(&self) -> Policies<'_> {
        Policies { rule: &*self.rule, validator: &*self.validator, rule_fallback: self.fallback }
    }
}
