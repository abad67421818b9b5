//! The built-in plugins, embedded as components. They pass the same checks as any other plugin.

use std::sync::Arc;

use tribunal_types::Isolation;

use crate::engine::PluginEngine;
use crate::module::{LoadError, Module};
use crate::policy::{WasmRule, WasmValidator, WasmValidators};
use crate::world::World;

/// An embedded plugin.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// World of the plugin.
    pub world: World,
    /// Name of the plugin; a validator has the name of its level.
    pub name: &'static str,
    /// Its function, in one sentence.
    pub about: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// All built-in plugins.
pub static BUILTINS: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/builtins.rs"));

impl Builtin {
    /// Returns the built-in plugin of this world and name.
    #[must_use]
    pub fn find(world: World, name: &str) -> Option<&'static Builtin> {
        BUILTINS.iter().find(|builtin| builtin.world == world && builtin.name == name)
    }

    /// Compiles the plugin.
    ///
    /// # Errors
    /// If the plugin rejects the configuration.
    pub fn load(&self, engine: &Arc<PluginEngine>, config: &str) -> Result<Module, LoadError> {
        Module::load(engine, self.world, self.bytes, config)
    }

    /// Compiles the plugin, to be configured [later](Module::with_config).
    ///
    /// # Errors
    /// If the engine cannot compile it.
    pub fn load_unconfigured(&self, engine: &Arc<PluginEngine>) -> Result<Module, LoadError> {
        Module::load_with(engine, self.world, self.bytes, None, None)
    }
}

/// Loads the built-in rule of this name; `None` if there is none.
///
/// # Errors
/// If the rule rejects the configuration.
pub fn rule(engine: &Arc<PluginEngine>, name: &str, config: &str) -> Option<Result<WasmRule, LoadError>> {
    Builtin::find(World::ConflictRule, name).map(|found| found.load(engine, config).and_then(WasmRule::new))
}

/// Loads the built-in validators of all levels.
///
/// # Errors
/// If the engine cannot compile them.
///
/// # Panics
/// Never: every level has a built-in validator.
pub fn validators(engine: &Arc<PluginEngine>) -> Result<WasmValidators, LoadError> {
    let load = |level: Isolation| {
        let found = Builtin::find(World::IsolationValidator, level.name());
        found.expect("every level has an embedded validator").load(engine, "").and_then(WasmValidator::new)
    };
    let [rc, rr, si, ser] = Isolation::ALL.map(load);
    Ok(WasmValidators::new([rc?, rr?, si?, ser?]))
}
