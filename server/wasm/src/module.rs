//! A plugin that passed the static checks: compiled, configured, and identified by the SHA-256 of its bytes.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use crate::call::{Call, HostState, printable};
use crate::compiled::{CodeOrigin, CodeStore};
use crate::engine::PluginEngine;
use crate::export::{Describe, Export, Init, Signature};
use crate::fault::{Fault, FaultKind};
use crate::gate::{self, Refusal};
use crate::world::{LIFECYCLE, World};

/// A plugin's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name.
    pub name: String,
    /// Version number.
    pub version: String,
    /// Description in one sentence.
    pub about: String,
}

/// Why a plugin cannot be loaded. Nothing of the plugin is retained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A static check rejected it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It does not compile.
    #[error("the component does not compile: {0}")]
    Compile(String),
    /// `describe` or `needs` failed.
    #[error("the plugin does not start: {0}")]
    Start(String),
    /// `init` rejected the configuration, or failed.
    #[error("the plugin rejects its configuration: {0}")]
    Config(String),
}

/// A compiled and configured plugin. Cheap to clone; owns no instance.
#[derive(Clone)]
pub struct Module {
    pub(crate) engine: Arc<PluginEngine>,
    world: World,
    digest: [u8; 32],
    description: Description,
    config: Arc<str>,
    plugin: InstancePre<HostState>,
    init: Export<Init>,
    component: Component,
    origin: CodeOrigin,
}

impl Module {
    /// Checks, compiles, starts and configures a component, which takes milliseconds to seconds.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(engine: &Arc<PluginEngine>, world: World, bytes: &[u8], config: &str) -> Result<Module, LoadError> {
        Module::load_with(engine, world, bytes, Some(config), None)
    }

    /// Loads a component with its code from a store; if the store does not have the code, compiles the component and
    /// stores it. Without a configuration, one must be given [later](Module::with_config).
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_kept(
        engine: &Arc<PluginEngine>,
        world: World,
        bytes: &[u8],
        config: Option<&str>,
        store: &dyn CodeStore,
    ) -> Result<Module, LoadError> {
        Module::load_with(engine, world, bytes, config, Some(store))
    }

    pub(crate) fn load_with(
        engine: &Arc<PluginEngine>,
        world: World,
        bytes: &[u8],
        config: Option<&str>,
        store: Option<&dyn CodeStore>,
    ) -> Result<Module, LoadError> {
        gate::check(bytes, world, &engine.limits)?;
        let digest = Sha256::digest(bytes).into();
        let compile_error = |e: wasmtime::Error| LoadError::Compile(format!("{e:#}"));
        let (component, origin) = engine.obtain(digest, bytes, store).map_err(compile_error)?;
        let plugin = Linker::new(&engine.wasmtime).instantiate_pre(&component).map_err(compile_error)?;
        let indices = (index::<Describe>(&component, LIFECYCLE)?, index::<Init>(&component, LIFECYCLE)?);
        let (description, init) =
            describe_by(engine, world, &plugin, indices).map_err(|fault| LoadError::Start(fault.text))?;
        let module = Module {
            engine: Arc::clone(engine),
            world,
            digest,
            description,
            config: config.unwrap_or_default().into(),
            plugin,
            init,
            component,
            origin,
        };
        if config.is_some() {
            module.check_config()?;
        }
        Ok(module)
    }

    /// Returns the same code with another configuration.
    ///
    /// # Errors
    /// [`LoadError::Config`]
    pub fn with_config(&self, config: &str) -> Result<Module, LoadError> {
        let module = Module { config: config.into(), ..self.clone() };
        module.check_config()?;
        Ok(module)
    }

    /// Returns the world that the module was loaded for.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }

    /// Returns the SHA-256 of the component's bytes: its identity.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns the origin of the code.
    #[must_use]
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }

    /// Returns the plugin's description of itself.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the configuration in force.
    #[must_use]
    pub fn config(&self) -> &str {
        &self.config
    }

    /// Returns a function of the world's own interface.
    pub(crate) fn function<S: Signature>(&self) -> Result<Export<S>, LoadError> {
        self.function_of(self.world.interface())
    }

    /// Returns a function of an optional interface; `None` if the plugin does not export the interface.
    pub(crate) fn optional_function<S: Signature>(&self, interface: &str) -> Result<Option<Export<S>>, LoadError> {
        let exported = self.component.get_export_index(None, interface).is_some();
        exported.then(|| self.function_of(interface)).transpose()
    }

    fn function_of<S: Signature>(&self, interface: &str) -> Result<Export<S>, LoadError> {
        let index = index::<S>(&self.component, interface)?;
        self.start_bare().and_then(|mut call| call.export(index)).map_err(|fault| LoadError::Start(fault.text))
    }

    /// Creates a configured instance with `fuel` for its whole lifetime.
    pub(crate) fn start(&self, fuel: u64) -> Result<Call, Fault> {
        let mut call = Call::start(&self.engine, self.world, &self.plugin, fuel)?;
        let (answer,) = call.call(&self.init, (&*self.config,))?;
        answer.map_err(|text| returned(text, &self.engine))?;
        Ok(call)
    }

    /// Creates an instance that is not configured, for functions that may be called before `init`.
    pub(crate) fn start_bare(&self) -> Result<Call, Fault> {
        Call::start(&self.engine, self.world, &self.plugin, self.engine.limits.fuel_of_start(self.world))
    }

    fn check_config(&self) -> Result<(), LoadError> {
        self.start(self.engine.limits.fuel_of_start(self.world))
            .map(drop)
            .map_err(|fault| LoadError::Config(fault.text))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("world", &self.world)
            .field("description", &self.description)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Returns the fault for an error that the plugin returned.
pub(crate) fn returned(text: String, engine: &PluginEngine) -> Fault {
    let text = printable(&format!("it returned a fault: {text}"), engine.limits.fault_bytes_max);
    Fault::new(FaultKind::Returned, text)
}

fn index<S: Signature>(component: &Component, interface: &str) -> Result<ComponentExportIndex, LoadError> {
    let name = S::NAME;
    component
        .get_export_index(None, interface)
        .and_then(|instance| component.get_export_index(Some(&instance), name))
        .ok_or_else(|| LoadError::Compile(format!("{interface} has no function {name}")))
}

fn describe_by(
    engine: &Arc<PluginEngine>,
    world: World,
    plugin: &InstancePre<HostState>,
    (describe, init): (ComponentExportIndex, ComponentExportIndex),
) -> Result<(Description, Export<Init>), Fault> {
    let mut call = Call::start(engine, world, plugin, engine.limits.fuel_of_start(world))?;
    let (describe, init) = (call.export::<Describe>(describe)?, call.export(init)?);
    let (said,) = call.call(&describe, ())?;
    let cut = |text: String| printable(&text, engine.limits.fault_bytes_max);
    Ok((Description { name: cut(said.name), version: cut(said.version), about: cut(said.about) }, init))
}
