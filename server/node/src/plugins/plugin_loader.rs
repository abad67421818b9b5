//! Loads runnable code for a choice in the control log: built-in components, uploaded ones and native policies.
//!
//! A component is found by its digest only; one that is missing or damaged is never replaced by another. Compilation
//! takes from milliseconds to seconds, so a request loads first and writes to the control log afterwards; the sequencer
//! only takes over loaded code.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{ConflictRule, Validator};
use tribunal_types::{EMBEDDED_ADAPTOR, Isolation, PluginChoice, PluginSlot, StoreId, StoreSpec};
use tribunal_wasm::{BUILTINS, Builtin, Module, WasmAdaptor, WasmRule, WasmValidator, World};

use crate::config::{Config, PolicyHost};
use crate::planted;
use crate::plugins::compiled_files::CompiledFiles;
use crate::plugins::digest::{ArtefactDigest, hex};
use crate::plugins::engine::{Language, LogAdaptor, engine};
use crate::plugins::plugin_health::{CountedNative, CountedRule, CountedValidator, HealthBoard, SlotHealth};
use crate::plugins::plugin_store::PluginStore;
use crate::plugins::signatures::Signers;

/// [`PluginChoice::host`] of native policies.
const NATIVE: &str = "native";

/// A rule that can decide, and its fallback for failures.
pub struct LoadedRule {
    /// The rule.
    pub rule: Box<dyn ConflictRule + Send>,
    /// Its fallback: the native one of the same name, or first-writer-wins for an uploaded rule.
    pub fallback: NativeRule,
}

/// The code of a choice.
pub enum Loaded {
    /// For the slot `rule`.
    Rule(LoadedRule),
    /// For a slot `validator:<level>`.
    Validator(Box<dyn Validator + Send>),
    /// For a slot `adaptor:<name>`.
    Adaptor(Module),
    /// For an empty slot `adaptor:<name>`.
    Nothing,
}

/// A choice, its code and its counters.
pub struct Ready {
    /// The choice.
    pub choice: PluginChoice,
    /// The code.
    pub loaded: Loaded,
    /// The counters.
    pub health: Arc<SlotHealth>,
}

/// Sources of code, and loaded code.
pub struct PluginLoader {
    host: PolicyHost,
    /// Uploaded components.
    pub store: PluginStore,
    /// Their compiled code.
    pub compiled: CompiledFiles,
    /// Accepted signers of components.
    pub signers: Signers,
    /// Counters of the plugins in force.
    pub board: HealthBoard,
    /// Loaded by a request whose entry is in flight to the control log.
    prepared: Mutex<Option<Ready>>,
    adaptors: RwLock<BTreeMap<String, Result<Module, String>>>,
    /// Built-in adaptors that were compiled: each store configures its own instance.
    built_in: Mutex<BTreeMap<&'static str, Module>>,
}

impl PluginLoader {
    /// Opens the plugins in the data directory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(config: &Config, signers: Signers) -> Result<PluginLoader, String> {
        Ok(PluginLoader {
            host: config.plugins,
            store: PluginStore::open(&config.data)?,
            compiled: CompiledFiles::in_data(&config.data, config.uploads.keep_compiled),
            signers,
            board: HealthBoard::default(),
            prepared: Mutex::default(),
            adaptors: RwLock::default(),
            built_in: Mutex::default(),
        })
    }

    /// Returns how policies run here.
    #[must_use]
    pub fn host(&self) -> PolicyHost {
        self.host
    }

    /// Returns the host name for choices that run here.
    ///
    /// # Errors
    /// If the engine does not start.
    pub fn host_name(&self) -> Result<String, String> {
        match self.host {
            PolicyHost::Native => Ok(NATIVE.to_owned()),
            PolicyHost::Wasm => Ok(planted::engine(engine()?.name())),
        }
    }

    /// Returns the rule and validators that the configuration names.
    ///
    /// # Errors
    /// If there is no such rule.
    pub fn configured(&self, config: &Config) -> Result<Vec<PluginChoice>, String> {
        NativeRule::by_name(&config.rule.name, config.rule.turns).map_err(|fault| fault.0)?;
        let turns = serde_json::json!({ "turns": config.rule.turns }).to_string();
        let init = if config.rule.name == "fair-rotation" { turns } else { String::new() };
        let host = self.host_name()?;
        let choice = |slot, world, name: &str, init: String| PluginChoice {
            slot,
            name: name.to_owned(),
            digest: match self.host {
                PolicyHost::Native => [0; 32],
                PolicyHost::Wasm => builtin_digest(world, name).unwrap_or_default(),
            },
            host: host.clone(),
            config: init,
            announced: false,
        };
        let mut choices = vec![choice(PluginSlot::Rule, World::ConflictRule, &config.rule.name, init)];
        for level in Isolation::ALL {
            let slot = PluginSlot::Validator(level);
            choices.push(choice(slot, World::IsolationValidator, level.name(), String::new()));
        }
        Ok(choices)
    }

    /// Finds a component by its digest.
    ///
    /// # Errors
    /// If it is not here.
    pub fn component(&self, world: World, digest: &ArtefactDigest) -> Result<Vec<u8>, String> {
        match builtin_by_digest(world, digest) {
            Some(builtin) => Ok(builtin.bytes.to_vec()),
            None => self.store.read(digest),
        }
    }

    /// Loads exactly the code of a choice.
    ///
    /// # Errors
    /// If it was activated for another engine, is missing, or refuses its configuration.
    pub fn load(&self, choice: &PluginChoice) -> Result<Ready, String> {
        let health = Arc::new(SlotHealth::of(&choice.name));
        let loaded = match &choice.slot {
            PluginSlot::Adaptor(_) if choice.is_none() => Loaded::Nothing,
            PluginSlot::Adaptor(_) => Loaded::Adaptor(self.module(World::LogAdaptor, choice)?),
            PluginSlot::Rule if self.is_native(World::ConflictRule, choice) => {
                let native = native_of(&choice.name, &choice.config)?;
                let rule = Box::new(CountedNative { native, health: Arc::clone(&health) });
                Loaded::Rule(LoadedRule { rule, fallback: native })
            }
            PluginSlot::Validator(_) if self.is_native(World::IsolationValidator, choice) => {
                Loaded::Validator(Box::new(CountedNative { native: NativeValidator, health: Arc::clone(&health) }))
            }
            slot => self.load_policy(choice, slot, &health)?,
        };
        Ok(Ready { choice: choice.clone(), loaded, health })
    }

    fn load_policy(
        &self,
        choice: &PluginChoice,
        slot: &PluginSlot,
        health: &Arc<SlotHealth>,
    ) -> Result<Loaded, String> {
        let said = |error: tribunal_wasm::LoadError| error.to_string();
        let health = Arc::clone(health);
        let world = if *slot == PluginSlot::Rule { World::ConflictRule } else { World::IsolationValidator };
        let is_builtin = self.builtin_of(world, choice).is_some();
        if !is_builtin {
            self.check_engine(choice)?;
        }
        let module = self.module(world, choice)?;
        if *slot == PluginSlot::Rule {
            let rule = WasmRule::new(module).map_err(said)?;
            let counterpart = is_builtin.then(|| native_of(&choice.name, &choice.config)).transpose()?;
            // An uploaded rule has no native counterpart. Its fallback must be the same on every replica.
            let fallback = counterpart.unwrap_or(NativeRule::FirstWriterWins);
            let rule = Box::new(CountedRule { rule, counterpart, health });
            return Ok(Loaded::Rule(LoadedRule { rule, fallback }));
        }
        let validator = WasmValidator::new(module).map_err(said)?;
        Ok(Loaded::Validator(Box::new(CountedValidator { validator, is_builtin, health })))
    }

    /// Returns whether a policy runs natively here: those activated so, and built-in ones on a node that runs native
    /// policies.
    fn is_native(&self, world: World, choice: &PluginChoice) -> bool {
        choice.host == NATIVE || self.host == PolicyHost::Native && self.builtin_of(world, choice).is_some()
    }

    /// Checks that an uploaded plugin returns the same results here as where it was activated.
    fn check_engine(&self, choice: &PluginChoice) -> Result<(), String> {
        let own = self.host_name()?;
        if choice.host == own {
            return Ok(());
        }
        Err(format!(
            "it was activated for the plugin engine {}, and the engine of this release is {own}: their results could differ. Start \
             the release that has the former; to change releases, first activate built-in plugins in place of it, and \
             activate it again once all nodes have the new release",
            choice.host
        ))
    }

    /// Returns the built-in component of a choice. Another build of it, from another release, has another digest and
    /// the same results, as does its native counterpart; so does this one.
    #[must_use]
    pub fn builtin_of(&self, world: World, choice: &PluginChoice) -> Option<&'static Builtin> {
        let is_upload = || choice.announced || self.store.find(&choice.digest).is_some();
        builtin_by_digest(world, &choice.digest)
            .or_else(|| Builtin::find(world, &choice.name).filter(|_| world != World::LogAdaptor && !is_upload()))
    }

    fn module(&self, world: World, choice: &PluginChoice) -> Result<Module, String> {
        let (engine, init) = (engine()?, choice.config.as_str());
        let module = match self.builtin_of(world, choice) {
            // Takes a few milliseconds to compile.
            Some(builtin) => builtin.load(engine, init),
            None => {
                let bytes = self.store.read(&choice.digest)?;
                // An adaptor is configured by each store that declares it.
                let init = Some(init).filter(|_| world != World::LogAdaptor);
                let module = Module::load_kept(engine, world, &bytes, init, &self.compiled);
                module.inspect(|module| self.compiled.count(module.origin()))
            }
        };
        module.map_err(|error| error.to_string())
    }

    /// Compiles a component, which stores its code, and discards the module.
    ///
    /// # Errors
    /// If it is missing, or refuses its configuration.
    pub fn compile(&self, world: World, digest: &ArtefactDigest, config: &str) -> Result<(), String> {
        let choice = PluginChoice { digest: *digest, config: config.to_owned(), ..PluginChoice::default() };
        self.module(world, &choice).map(drop)
    }

    /// Returns an adaptor's language under a configuration.
    ///
    /// # Errors
    /// As for [`PluginLoader::load`].
    pub fn language(&self, choice: &PluginChoice, config: &str) -> Result<Language, String> {
        let configured = self.module(World::LogAdaptor, choice)?.with_config(config);
        let adaptor =
            configured.and_then(|module| WasmAdaptor::new(module, "kit")).map_err(|error| error.to_string())?;
        LogAdaptor::new(adaptor, Arc::default()).language()
    }

    /// Returns the stores for which an adaptor accepts other kinds of writes than they were declared with. A store whose
    /// configuration it refuses is among them.
    ///
    /// # Errors
    /// As for [`PluginLoader::load`].
    pub fn outdated<'a>(
        &self,
        choice: &PluginChoice,
        stores: impl Iterator<Item = &'a StoreSpec>,
    ) -> Result<Vec<StoreId>, String> {
        let module = self.module(World::LogAdaptor, choice)?;
        let takes = |spec: &StoreSpec| {
            let configured = module.with_config(&spec.adaptor_config).ok()?;
            Some(WasmAdaptor::new(configured, &spec.name).ok()?.takes())
        };
        Ok(stores.filter(|spec| takes(spec) != Some(spec.takes)).map(|spec| spec.id).collect())
    }

    /// Returns whether the code of an active adaptor could not be loaded.
    #[must_use]
    pub fn lacks_adaptor(&self, name: &str) -> bool {
        self.adaptors.read().get(name).is_some_and(Result::is_err)
    }

    /// Loads the code of an adaptor in force.
    ///
    /// # Errors
    /// As for [`PluginLoader::load`].
    pub fn load_adaptor(&self, name: &str, choice: &PluginChoice) -> Result<(), String> {
        let module = self.module(World::LogAdaptor, choice)?;
        self.set_adaptor(name, Ok(module));
        Ok(())
    }

    /// Stores code for an entry that is about to be written.
    pub fn prepare(&self, ready: Ready) {
        *self.prepared.lock() = Some(ready);
    }

    /// Takes the code prepared for a choice, or loads it.
    ///
    /// # Errors
    /// As for [`PluginLoader::load`].
    pub fn take(&self, choice: &PluginChoice) -> Result<Ready, String> {
        let prepared = self.prepared.lock().take_if(|ready| ready.choice == *choice);
        prepared.map_or_else(|| self.load(choice), Ok)
    }

    /// Puts an adaptor in force, or the reason why it cannot be.
    pub fn set_adaptor(&self, name: &str, module: Result<Module, String>) {
        self.adaptors.write().insert(name.to_owned(), module);
    }

    /// Drops the code of an adaptor whose slot is now empty.
    pub fn remove_adaptor(&self, name: &str) {
        self.adaptors.write().remove(name);
        self.board.hide(&PluginSlot::Adaptor(name.to_owned()));
    }

    /// Creates the LogAdaptor `name` for a store.
    ///
    /// # Errors
    /// If there is none of this name, or it refuses the configuration.
    pub fn adaptor(&self, name: &str, store: &str, config: &str) -> Result<LogAdaptor, String> {
        let slot = PluginSlot::Adaptor(name.to_owned());
        let uploaded = self.adaptors.read().get(name).cloned();
        let module = match uploaded {
            Some(module) => module?.with_config(config).map_err(|error| error.to_string())?,
            None => self.builtin_module(name)?.with_config(config).map_err(|error| error.to_string())?,
        };
        let adaptor = WasmAdaptor::new(module, store).map_err(|error| error.to_string())?;
        Ok(LogAdaptor::new(adaptor.kept(), self.board.of(&slot)))
    }

    /// Returns the code of a built-in adaptor, which is compiled once.
    fn builtin_module(&self, name: &str) -> Result<Module, String> {
        let builtin = self.builtin_adaptor(name)?;
        let mut compiled = self.built_in.lock();
        if let Some(module) = compiled.get(builtin.name) {
            return Ok(module.clone());
        }
        let module = builtin.load_unconfigured(engine()?).map_err(|error| error.to_string())?;
        compiled.insert(builtin.name, module.clone());
        Ok(module)
    }

    fn builtin_adaptor(&self, name: &str) -> Result<&'static Builtin, String> {
        Builtin::find(World::LogAdaptor, name).ok_or_else(|| {
            let built_in = BUILTINS.iter().filter(|b| b.world == World::LogAdaptor).map(|b| b.name.to_owned());
            let active = self.adaptors.read();
            let embedded = std::iter::once(EMBEDDED_ADAPTOR.to_owned());
            let names: Vec<_> = embedded.chain(built_in).chain(active.keys().cloned()).collect();
            format!(
                "there is no active adaptor `{name}`; active are {}. Upload and activate it first",
                names.join(", ")
            )
        })
    }
}

/// Returns the native counterpart of a built-in rule, configured like the rule itself.
fn native_of(name: &str, init: &str) -> Result<NativeRule, String> {
    #[derive(Default, serde::Deserialize)]
    struct Turns {
        #[serde(default)]
        turns: u32,
    }
    let turns: Turns = if init.is_empty() { Turns::default() } else { serde_json::from_str(init).unwrap_or_default() };
    NativeRule::by_name(name, turns.turns).map_err(|fault| fault.0)
}

fn digests() -> &'static Vec<ArtefactDigest> {
    static DIGESTS: OnceLock<Vec<ArtefactDigest>> = OnceLock::new();
    DIGESTS.get_or_init(|| BUILTINS.iter().map(|builtin| Sha256::digest(builtin.bytes).into()).collect())
}

/// Returns the digest of a built-in component.
#[must_use]
pub fn builtin_digest(world: World, name: &str) -> Option<ArtefactDigest> {
    let at = BUILTINS.iter().position(|builtin| builtin.world == world && builtin.name == name)?;
    digests().get(at).copied()
}

/// Finds a built-in component by its digest.
#[must_use]
pub fn builtin_by_digest(world: World, digest: &ArtefactDigest) -> Option<&'static Builtin> {
    let at = digests().iter().position(|known| known == digest)?;
    BUILTINS.get(at).filter(|builtin| builtin.world == world)
}

/// Describes a choice for operators.
#[must_use]
pub fn named(choice: &PluginChoice) -> String {
    format!("`{}` ({}) in slot {}", choice.name, &hex(&choice.digest)[..12], choice.slot)
}
