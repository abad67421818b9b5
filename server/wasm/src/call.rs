//! One instance of a plugin: its limits, its calls, and the classification of failures.
//!
//! Invariants: an instance whose results replicas must agree on serves one batch only, and no instance is used after a
//! failure. A failure that could differ on another machine never leaves this module: it stops the process.

use std::sync::Arc;

use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{OutOfMemory, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap};

use crate::engine::{PluginEngine, TABLE_ELEMENTS_MAX};
use crate::export::{Export, Signature};
use crate::fault::{Fault, FaultKind};
use crate::host_failure;
use crate::instance_permits::InstancePermit;
use crate::limits::PluginLimits;
use crate::world::World;

/// The host's state of an instance.
pub(crate) struct HostState {
    memory_bytes_max: usize,
    /// Size of the instance's memory, bytes.
    memory_bytes: usize,
    /// Whether the last requested growth was within every limit, so that a failure would be the host's.
    growth_permitted: bool,
    /// Whether a limit refused something, which is the plugin's fault.
    refused: bool,
    /// Memory size that the last growth requested, if the limit refused it.
    memory_refused: Option<usize>,
    host_failure: Option<String>,
}

impl HostState {
    fn new(memory_bytes_max: usize) -> Self {
        HostState {
            memory_bytes_max,
            memory_bytes: 0,
            growth_permitted: false,
            refused: false,
            memory_refused: None,
            host_failure: None,
        }
    }
}

impl ResourceLimiter for HostState {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool, wasmtime::Error> {
        self.growth_permitted = desired <= self.memory_bytes_max && maximum.is_none_or(|max| desired <= max);
        self.refused |= !self.growth_permitted;
        self.memory_refused = (!self.growth_permitted).then_some(desired);
        if self.growth_permitted {
            self.memory_bytes = desired;
        }
        Ok(self.growth_permitted)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> Result<(), wasmtime::Error> {
        if !self.growth_permitted {
            return Ok(());
        }
        let text = format!("memory within the limit cannot be allocated: {error:#}");
        self.host_failure = Some(text.clone());
        Err(wasmtime::Error::msg(text))
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, wasmtime::Error> {
        let permitted = desired <= TABLE_ELEMENTS_MAX;
        self.refused |= !permitted;
        Ok(permitted)
    }
}

/// An instance.
pub(crate) struct Call {
    engine: Arc<PluginEngine>,
    store: Store<HostState>,
    instance: Instance,
    fuel: u64,
    // Declared last, so that the permit is returned after the store has been dropped.
    _permit: InstancePermit,
}

impl Call {
    /// Creates an instance with the memory limit of its world, and `fuel` for all of its calls.
    pub(crate) fn start(
        engine: &Arc<PluginEngine>,
        world: World,
        plugin: &InstancePre<HostState>,
        fuel: u64,
    ) -> Result<Self, Fault> {
        let permit = engine.permits.acquire(world);
        let mut store = Store::new(&engine.wasmtime, HostState::new(engine.limits.memory_of(world)));
        store.limiter(|state| state);
        store.set_hostcall_fuel(engine.limits.answer_bytes_max);
        if let Err(e) = store.set_fuel(fuel) {
            unreachable!("fuel is on in the configuration: {e:#}");
        }
        match plugin.instantiate(&mut store) {
            Ok(instance) => Ok(Call { engine: Arc::clone(engine), store, instance, fuel, _permit: permit }),
            // A trap of the start function or a refusal by a limit is the plugin's fault. Anything else is a failure of the
            // pool or the system.
            Err(e) if store.data().refused || e.downcast_ref::<Trap>().is_some() => {
                Err(failure(&e, &store, &engine.limits))
            }
            Err(e) => host_failure::stop(&format!("it cannot be instantiated: {e:#}")),
        }
    }

    /// Returns a function by its index, after comparing its types with those of the signature.
    pub(crate) fn export<S: Signature>(&mut self, index: ComponentExportIndex) -> Result<Export<S>, Fault> {
        let found = self.instance.get_typed_func::<S::Params<'static>, S::Answer>(&mut self.store, index);
        found
            .map(|_| Export::compared(index))
            .map_err(|e| Fault::new(FaultKind::Convention, format!("{} is of another type: {e}", S::NAME)))
    }

    /// Calls an export.
    pub(crate) fn call<S: Signature>(&mut self, export: &Export<S>, params: S::Params<'_>) -> Result<S::Answer, Fault> {
        let found = self.instance.get_func(&mut self.store, export.index);
        let function = found.ok_or_else(|| Fault::new(FaultKind::Convention, format!("{} is missing", S::NAME)))?;
        // SAFETY: an `Export` is only created by `Call::export`, which has compared the types of this very function.
        // Its index belongs to one component: `get_func` returns `None` for an instance of another component. Lowering
        // a type does not depend on its lifetimes.
        let function = unsafe { TypedFunc::<S::Params<'_>, S::Answer>::new_unchecked(function) };
        function.call(&mut self.store, params).map_err(|e| failure(&e, &self.store, &self.engine.limits))
    }

    /// Sets the instance's fuel to `fuel`.
    pub(crate) fn refuel(&mut self, fuel: u64) {
        if let Err(e) = self.store.set_fuel(fuel) {
            unreachable!("fuel is on in the configuration: {e:#}");
        }
        self.fuel = fuel;
    }

    /// Returns the size of the instance's memory, bytes. It never shrinks.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.store.data().memory_bytes
    }

    /// Returns the fuel used since the last call of [`Call::refuel`].
    pub(crate) fn fuel_used(&self) -> u64 {
        self.fuel.saturating_sub(self.store.get_fuel().unwrap_or(0))
    }
}

/// Classifies an error. A host failure does not return.
fn failure(error: &wasmtime::Error, store: &Store<HostState>, limits: &PluginLimits) -> Fault {
    if let Some(text) = &store.data().host_failure {
        host_failure::stop(text);
    }
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some()
        || error.downcast_ref::<OutOfMemory>().is_some()
        || error.downcast_ref::<std::io::Error>().is_some()
    {
        host_failure::stop(&format!("{error:#}"));
    }
    let (kind, text) = match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => (FaultKind::OutOfFuel, "it ran out of fuel".to_owned()),
        Some(Trap::StackOverflow) => (FaultKind::StackOverflow, "its stack overflowed".to_owned()),
        Some(Trap::UnreachableCodeReached) => match store.data().memory_refused {
            Some(bytes) => {
                let max = store.data().memory_bytes_max;
                (
                    FaultKind::OutOfMemory,
                    format!("it ran out of memory: it requested {bytes} bytes, and {max} are allowed"),
                )
            }
            None => (FaultKind::Trap, "it trapped: unreachable code, as after a panic".to_owned()),
        },
        Some(trap) => (FaultKind::Trap, format!("it trapped: {trap}")),
        None => (FaultKind::Convention, format!("it broke the calling convention: {}", error.root_cause())),
    };
    Fault::new(kind, printable(&text, limits.fault_bytes_max))
}

/// Returns a plugin's text in printable form: one line, at most `bytes_max` bytes, with control characters (which would
/// reach terminals and logs) and characters that change the text direction escaped.
pub(crate) fn printable(text: &str, bytes_max: usize) -> String {
    let is_direction = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line = |c| matches!(c, '\u{2028}' | '\u{2029}');
    let mut printed = String::new();
    for c in text.chars() {
        let before = printed.len();
        if c.is_control() || is_direction(c) || is_line(c) {
            printed.extend(c.escape_default());
        } else {
            printed.push(c);
        }
        if printed.len() > bytes_max {
            printed.truncate(before);
            break;
        }
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_says_is_one_line_without_control_characters() {
        for (text, bytes_max, printed) in [
            ("row ä \"x\" \\ is gone", 99, "row ä \"x\" \\ is gone"),
            ("a\nb\r\t\0", 99, r"a\nb\r\t\u{0}"),
            ("\x1b[31mred\u{9b}0m", 99, r"\u{1b}[31mred\u{9b}0m"),
            ("\u{202e}txt\u{2028}", 99, r"\u{202e}txt\u{2028}"),
            ("abc\x1b", 8, "abc"),
            ("aää", 4, "aä"),
            ("", 0, ""),
        ] {
            assert_eq!(printable(text, bytes_max), printed, "{text:?}");
        }
    }
}
