//! What a plugin may use up. Every limit that a verdict can hang on is part of the engine's fingerprint, since reaching one
//! is a fault that must happen on all replicas alike; the fuel of adaptors and the number of instances are a node's own
//! business.

use crate::world::World;

/// Fuel of a LogAdaptor's calls. No verdict hangs on it and no epoch waits for it, only the push of its store; so it is
/// generous enough for a language that is interpreted, and bounds for how long an adaptor can keep a thread busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptorFuel {
    /// Of every call.
    pub per_call: u64,
    /// More for each record, or each value of a storage's answer.
    pub per_record: u64,
    /// More for each row.
    pub per_row: u64,
    /// More for each byte of keys and values, or of an answer.
    pub per_byte: u64,
    /// The most that one call gets. A batch that needs more is tried again one record at a time.
    pub max: u64,
}

/// What an adaptor's call is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptorLoad {
    /// Records, or values of an answer.
    pub records: usize,
    /// Rows of the records.
    pub rows: usize,
    /// Bytes of keys and values, or of an answer.
    pub bytes: usize,
}

impl AdaptorFuel {
    /// Returns the fuel for a call.
    #[must_use]
    pub fn of(&self, load: AdaptorLoad) -> u64 {
        let AdaptorLoad { records, rows, bytes } = load;
        [(self.per_record, records), (self.per_row, rows), (self.per_byte, bytes)]
            .into_iter()
            .fold(self.per_call, |fuel, (each, count)| fuel.saturating_add(each.saturating_mul(count as u64)))
            .min(self.max)
    }
}

/// Limits of plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginLimits {
    /// Fuel of every call.
    pub fuel_per_call: u64,
    /// More fuel for each transaction of a batch.
    pub fuel_per_txn: u64,
    /// More fuel for each operation of a batch.
    pub fuel_per_op: u64,
    /// Fuel of adaptors.
    pub adaptor_fuel: AdaptorFuel,
    /// Linear memory of a rule or validator, bytes; a multiple of 64 KiB. Larger batches are cut to fit.
    pub memory_bytes_max: usize,
    /// Linear memory of an adaptor, bytes; a multiple of 64 KiB. A record cannot be cut, so this must hold the largest
    /// batch that the push reads, its columns and its requests.
    pub adaptor_memory_bytes_max: usize,
    /// Stack of wasm frames, bytes. The thread's own stack must be far larger.
    pub stack_bytes_max: usize,
    /// Size of an uploaded component, bytes.
    pub component_bytes_max: usize,
    /// Core modules within one component.
    pub core_modules_max: u32,
    /// Bytes of columns that one call takes; larger batches are cut.
    pub columns_bytes_max: usize,
    /// Bytes that the host copies out of an instance in one call.
    pub answer_bytes_max: usize,
    /// Bytes of a fault's text; the rest is cut off.
    pub fault_bytes_max: usize,
    /// Instances alive at once; further calls wait. Not part of the fingerprint.
    pub instances_max: u32,
}

impl Default for PluginLimits {
    fn default() -> Self {
        PluginLimits {
            fuel_per_call: 2_000_000,
            fuel_per_txn: 20_000,
            fuel_per_op: 200,
            adaptor_fuel: AdaptorFuel {
                per_call: 10_000_000,
                per_record: 100_000,
                per_row: 1_000_000,
                per_byte: 128,
                max: 8_000_000_000,
            },
            memory_bytes_max: 16 << 20,
            adaptor_memory_bytes_max: 256 << 20,
            stack_bytes_max: 256 << 10,
            component_bytes_max: 32 << 20,
            core_modules_max: 8,
            columns_bytes_max: 4 << 20,
            answer_bytes_max: 256 << 20,
            fault_bytes_max: 1024,
            instances_max: 32,
        }
    }
}

impl PluginLimits {
    /// Returns the fuel for a batch of `txns` transactions with `ops` operations.
    #[must_use]
    pub fn fuel(&self, txns: usize, ops: usize) -> u64 {
        self.fuel_per_call + self.fuel_per_txn * txns as u64 + self.fuel_per_op * ops as u64
    }

    /// Returns the fuel of a call of this world that comes with no batch: describing itself, taking its configuration.
    #[must_use]
    pub fn fuel_of_start(&self, world: World) -> u64 {
        match world {
            World::ConflictRule | World::IsolationValidator => self.fuel_per_call,
            World::LogAdaptor => self.adaptor_fuel.of(AdaptorLoad::default()),
        }
    }

    /// Returns the memory that an instance of this world may have, bytes.
    #[must_use]
    pub fn memory_of(&self, world: World) -> usize {
        match world {
            World::ConflictRule | World::IsolationValidator => self.memory_bytes_max,
            World::LogAdaptor => self.adaptor_memory_bytes_max,
        }
    }

    /// Returns the limits that belong to the fingerprint, in a fixed order.
    pub(crate) fn fingerprinted(&self) -> [u64; 11] {
        let PluginLimits {
            fuel_per_call,
            fuel_per_txn,
            fuel_per_op,
            // Adaptors decide no verdict.
            adaptor_fuel: _,
            memory_bytes_max,
            adaptor_memory_bytes_max,
            stack_bytes_max,
            component_bytes_max,
            core_modules_max,
            columns_bytes_max,
            answer_bytes_max,
            fault_bytes_max,
            instances_max: _,
        } = *self;
        [
            fuel_per_call,
            fuel_per_txn,
            fuel_per_op,
            memory_bytes_max as u64,
            adaptor_memory_bytes_max as u64,
            stack_bytes_max as u64,
            component_bytes_max as u64,
            u64::from(core_modules_max),
            columns_bytes_max as u64,
            answer_bytes_max as u64,
            fault_bytes_max as u64,
        ]
    }
}
