//! Resource limits of plugins. Every limit that can affect a verdict is part of the engine's fingerprint, because exceeding
//! it is a fault that must happen on all replicas alike. The fuel of adaptors and the number of instances are settings of
//! each node.

use crate::world::World;

/// Fuel of a LogAdaptor's calls. It affects no verdict, and only the push of its store waits for such a call. So it is
/// generous enough for interpreted languages, and still bounds how long an adaptor can occupy a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptorFuel {
    /// Fuel per call.
    pub per_call: u64,
    /// Additional fuel per record, or per value of a storage's reply.
    pub per_record: u64,
    /// Additional fuel per row.
    pub per_row: u64,
    /// Additional fuel per byte of keys and values, or of a reply.
    pub per_byte: u64,
    /// Maximum fuel of one call. A batch that needs more is retried one record at a time.
    pub max: u64,
}

/// Size of the input of an adaptor's call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptorLoad {
    /// Number of records, or of values in a reply.
    pub records: usize,
    /// Number of rows in the records.
    pub rows: usize,
    /// Bytes of keys and values, or of a reply.
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
    /// Fuel per call.
    pub fuel_per_call: u64,
    /// Additional fuel per transaction of a batch.
    pub fuel_per_txn: u64,
    /// Additional fuel per operation of a batch.
    pub fuel_per_op: u64,
    /// Fuel of adaptors.
    pub adaptor_fuel: AdaptorFuel,
    /// Linear memory of a rule or validator, bytes; a multiple of 64 KiB. Larger batches are split to fit.
    pub memory_bytes_max: usize,
    /// Linear memory of an adaptor, bytes; a multiple of 64 KiB. A record cannot be split, so this must hold the largest
    /// batch that the push reads, with its columns and requests.
    pub adaptor_memory_bytes_max: usize,
    /// Stack of Wasm frames, bytes. The thread's own stack must be far larger.
    pub stack_bytes_max: usize,
    /// Size of an uploaded component, bytes.
    pub component_bytes_max: usize,
    /// Number of core modules in one component.
    pub core_modules_max: u32,
    /// Size of the columns that one call gets, bytes; larger batches are split.
    pub columns_bytes_max: usize,
    /// Size of the result that the host copies out of an instance in one call, bytes.
    pub answer_bytes_max: usize,
    /// Size of a fault's text, bytes; longer texts are truncated.
    pub fault_bytes_max: usize,
    /// Number of live instances; further calls wait. Not part of the fingerprint.
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

    /// Returns the fuel of a call without a batch, such as `describe` or `init`, for this world.
    #[must_use]
    pub fn fuel_of_start(&self, world: World) -> u64 {
        match world {
            World::ConflictRule | World::IsolationValidator => self.fuel_per_call,
            World::LogAdaptor => self.adaptor_fuel.of(AdaptorLoad::default()),
        }
    }

    /// Returns the maximum memory of an instance of this world, bytes.
    #[must_use]
    pub fn memory_of(&self, world: World) -> usize {
        match world {
            World::ConflictRule | World::IsolationValidator => self.memory_bytes_max,
            World::LogAdaptor => self.adaptor_memory_bytes_max,
        }
    }

    /// Returns the limits that are part of the fingerprint, in a fixed order.
    pub(crate) fn fingerprinted(&self) -> [u64; 11] {
        let PluginLimits {
            fuel_per_call,
            fuel_per_txn,
            fuel_per_op,
            // Adaptors do not affect verdicts.
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
