//! The wasmtime configuration of all plugins, chosen to give equal results on every replica.
//!
//! Invariants: nothing is inferred from the host (code is compiled for a fixed baseline of its architecture, without
//! detected CPU features), every instruction is metered with our own cost table, and every feature that is concurrent or
//! varies by platform is off.

use std::sync::Arc;

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::fingerprint::{Fingerprint, name_of};
use crate::fuel::operator_cost;
use crate::instance_permits::InstancePermits;
use crate::limits::PluginLimits;

/// Address space reserved per memory. With this size, compiled code needs no bounds checks.
const RESERVATION_BYTES: u64 = 4 << 30;
/// Size of the unmapped guard region after each memory.
const GUARD_BYTES: u64 = 32 << 20;
/// Memory of a finished instance that is zeroed in place instead of being returned to the system.
const RESIDENT_BYTES: usize = 2 << 20;
/// Maximum number of elements of a table.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 20_000;
/// Maximum size of an instance's metadata, bytes.
const INSTANCE_BYTES_MAX: usize = 1 << 20;

/// Compiles and runs plugins. Cheap to share; one per process.
pub struct PluginEngine {
    pub(crate) wasmtime: Engine,
    pub(crate) limits: PluginLimits,
    pub(crate) permits: Arc<InstancePermits>,
    fingerprint: Fingerprint,
    name: String,
}

/// The engine cannot start here.
#[derive(Debug, thiserror::Error)]
#[error("the plugin engine cannot start: {0}")]
pub struct EngineError(String);

impl PluginEngine {
    /// Creates an engine and reserves the address space of its pool.
    ///
    /// # Errors
    /// If the host's architecture is not supported or the pool cannot be reserved.
    pub fn new(limits: PluginLimits) -> Result<Arc<Self>, EngineError> {
        let wasmtime = config(&limits).and_then(|config| Engine::new(&config));
        let wasmtime = wasmtime.map_err(|e| EngineError(with_advice(format!("{e:#}"))))?;
        let fingerprint = Fingerprint::of(&wasmtime, &limits);
        let (permits, name) = (InstancePermits::new(limits.instances_max), name_of(&limits));
        Ok(Arc::new(PluginEngine { wasmtime, limits, permits, fingerprint, name }))
    }

    /// Returns the engine's name. Replicas whose engines have the same name get the same results from a plugin,
    /// including faults.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fingerprint, which is finer than the name: it identifies one build, for the code that it has
    /// compiled.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn limits(&self) -> &PluginLimits {
        &self.limits
    }
}

/// Adds advice to the error if the pool's address space cannot be reserved.
fn with_advice(mut text: String) -> String {
    if text.contains("mmap") {
        text.push_str(
            "; about 130 GiB of address space are reserved for plugins, of which little is used: remove the limit on address \
             space (`ulimit -v unlimited`), and limit the memory that is used with a container or `ulimit -d` instead",
        );
    }
    text
}

fn config(limits: &PluginLimits) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    config.target(env!("TRIBUNAL_TARGET"))?;
    config.consume_fuel(true).operator_cost(operator_cost());
    config.cranelift_nan_canonicalization(true).cranelift_opt_level(wasmtime::OptLevel::Speed);
    config.max_wasm_stack(limits.stack_bytes_max);
    config.concurrency_support(false).epoch_interruption(false);
    // Backtraces take time and contain addresses; the text of a fault must be the same on all replicas.
    config.wasm_backtrace_max_frames(None);
    features(&mut config);
    config.memory_reservation(RESERVATION_BYTES).memory_guard_size(GUARD_BYTES);
    config.memory_may_move(false).guard_before_linear_memory(true).memory_init_cow(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(limits)));
    Ok(config)
}

/// Turns off every feature that is not needed or could vary.
fn features(config: &mut Config) {
    config.wasm_component_model(true);
    config.wasm_simd(true).wasm_relaxed_simd(false).relaxed_simd_deterministic(true);
    config.wasm_memory64(false).wasm_multi_memory(false).wasm_custom_page_sizes(false);
    config.wasm_tail_call(false).wasm_wide_arithmetic(false).wasm_stack_switching(false);
    config.shared_memory(false);
}

fn pool(limits: &PluginLimits) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    let instances = limits.instances_max;
    let modules = limits.core_modules_max;
    pool.total_component_instances(instances)
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instances_per_component(modules)
        .total_core_instances(instances * modules)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .max_memories_per_component(1)
        .max_memories_per_module(1)
        .total_memories(instances)
        .max_memory_size(limits.memory_bytes_max.max(limits.adaptor_memory_bytes_max))
        .max_tables_per_component(modules)
        .total_tables(instances * modules)
        .table_elements(TABLE_ELEMENTS_MAX)
        .linear_memory_keep_resident(RESIDENT_BYTES)
        .table_keep_resident(64 << 10)
        .pagemap_scan(wasmtime::Enabled::Auto);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_equal_limits_have_equal_fingerprints() {
        let small = PluginLimits { instances_max: 2, ..PluginLimits::default() };
        let of = |limits| {
            let engine = PluginEngine::new(limits).expect("starts");
            (engine.fingerprint(), engine.name().to_owned())
        };
        let one = of(small);
        assert_eq!(
            one,
            of(PluginLimits { instances_max: 3, ..small }),
            "the number of instances is a setting of each node"
        );
        let richer = of(PluginLimits { fuel_per_txn: 20_001, ..small });
        assert!(one.0 != richer.0 && one.1 != richer.1);
    }
}
