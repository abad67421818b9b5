//! Plugins: uploads, versions, activations, and the state of slots.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A WebAssembly component.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct PluginComponent(pub Vec<u8>);

/// A check of the conformance kit that a plugin has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginCheck {
    /// Name of the check.
    #[schema(example = "shuffled batches")]
    pub name: String,
    /// Number of inputs.
    #[schema(example = 150)]
    pub cases: u32,
}

/// An isolation level that a validator does not enforce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginMiss {
    /// The level.
    #[schema(example = "serializable")]
    pub level: String,
    /// The first anomaly of the level that the validator accepts.
    #[schema(example = "phantom (PMP, G2): a scanned range has changed")]
    pub anomaly: String,
}

/// A version of a plugin: a component, identified by its digest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginVersion {
    /// SHA-256 of the component, hexadecimal.
    #[schema(
        example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        min_length = 64,
        max_length = 64
    )]
    pub digest: String,
    /// Version number according to the plugin.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Description according to the plugin.
    #[schema(example = "the transaction with the most writes wins")]
    pub about: String,
    /// Size in bytes.
    #[schema(example = "10240")]
    pub bytes: String,
    /// When it was uploaded, Unix milliseconds; absent for built-in plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1767225600000")]
    pub uploaded_ms: Option<String>,
    /// Name of the signer in the node's configuration; absent if the node requires no signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "release")]
    pub signer: Option<String>,
    /// The signature, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 128, max_length = 128)]
    pub signature: Option<String>,
    /// Fuel of a call with the smallest input; absent for built-in plugins, which are not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "5200")]
    pub fuel_per_call: Option<String>,
    /// Fuel of each further transaction or record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "310")]
    pub fuel_per_item: Option<String>,
    /// Fuel that the limits allow per transaction or record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "20000")]
    pub budget_per_item: Option<String>,
    /// SHA-256 of the results on the golden vectors: equal for versions that behave alike on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub behaviour: Option<String>,
    /// Isolation levels that a validator enforces: it rejects all of their anomalies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["read-committed", "repeatable-read"]))]
    pub levels: Vec<String>,
    /// Isolation levels that a validator does not enforce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<PluginMiss>,
}

/// A plugin and its versions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginInfo {
    /// Name of the plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// World that it implements: `conflict-rule`, `isolation-validator` or `log-adaptor`.
    #[schema(example = "conflict-rule")]
    pub world: String,
    /// Whether it is built into the server.
    #[schema(example = false)]
    pub builtin: bool,
    /// Versions, newest first.
    pub versions: Vec<PluginVersion>,
    /// Slots in which it is active or pending.
    pub slots: Vec<PluginSlot>,
}

/// The result of an upload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginUpload {
    /// Name of the plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// World that it implements.
    #[schema(example = "conflict-rule")]
    pub world: String,
    /// The version.
    pub version: PluginVersion,
    /// The checks that it passed.
    pub checks: Vec<PluginCheck>,
}

/// The version to activate, the slot, and the epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PluginActivate {
    /// `rule`, `validator:<level>` or `adaptor:<name>`. Required for a validator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rule")]
    pub slot: Option<String>,
    /// SHA-256 of the version; the newest version if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub digest: Option<String>,
    /// First epoch that the plugin decides; the next one if absent or already past. A node without traffic seals empty
    /// epochs to reach it, if it is at most 100,000 epochs away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9000")]
    pub at_epoch: Option<String>,
    /// Configuration of the rule or validator. An adaptor gets its configuration from the declaration of its store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object, example = json!({"turns": 7}))]
    pub config: Option<Box<RawValue>>,
}

/// The versions that were deleted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginDeleted {
    /// Name of the plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// SHA-256 of each deleted version, hexadecimal.
    #[schema(example = json!(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]))]
    pub digests: Vec<String>,
}

/// The slot to roll back.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PluginRollback {
    /// The slot; may be absent if the plugin is active or pending in only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rule")]
    pub slot: Option<String>,
}

/// The slot to take a plugin out of.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PluginDeactivate {
    /// The slot; may be absent if the plugin is active in only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rule")]
    pub slot: Option<String>,
    /// First epoch that the rule or validator no longer decides; the next one if absent or already past. Not for an
    /// adaptor, which is deactivated at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9000")]
    pub at_epoch: Option<String>,
}

/// An activation of a plugin in a slot: an entry of the control log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginActivation {
    /// Index of the entry in the control log.
    #[schema(example = "7")]
    pub control: String,
    /// The slot.
    #[schema(example = "rule")]
    pub slot: String,
    /// Name of the plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// SHA-256 of its component; zeros for a native fallback, and if the slot is empty because its adaptor was deactivated.
    #[schema(example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub digest: String,
    /// SHA-256 of the text of its configuration.
    #[schema(example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub config_digest: String,
    /// Configuration of the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object, example = json!({"turns": 7}))]
    pub config: Option<Box<RawValue>>,
    /// What caused the activation: `configuration`, `activate`, `rollback`, `faults` for an automatic rollback after too many
    /// consecutive faults of the plugin, or `deactivate` if it has returned the slot to a built-in plugin, or emptied an
    /// adaptor's slot. Earlier releases recorded deactivated rules and validators as `rollback`.
    #[schema(example = "activate")]
    pub by: String,
    /// Name of the key or client that requested it; absent if it was the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "ops")]
    pub who: Option<String>,
    /// When it was requested, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1767225600000")]
    pub at_ms: Option<String>,
    /// First epoch that the plugin decided; absent if there is none yet, or if it is older than the newest state image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9000")]
    pub since_epoch: Option<String>,
    /// Last epoch that the plugin decided; absent while the plugin is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9999")]
    pub until_epoch: Option<String>,
    /// Earliest epoch at which the activation may take effect. It takes effect at the first epoch from there on that
    /// includes the entry.
    #[schema(example = "9000")]
    pub from_epoch: String,
    /// The pending activation that this one has replaced: it takes no effect. Only in the response to the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub replaces: Option<PluginReplaced>,
    /// Stores with this adaptor, of all namespaces, to be declared again: this version accepts other kinds of writes than they
    /// were declared with, or refuses their configuration. Until then, a write that it does not accept, or any write if it
    /// refuses the configuration, stops the store's push. Only in the response to the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1024)]
    pub declare_again: Vec<PluginStore>,
}

/// A store that uses an adaptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginStore {
    /// Namespace of the store.
    #[schema(example = "default")]
    pub namespace: String,
    /// Name of the store.
    #[schema(example = "orders")]
    pub store: String,
}

/// An activation that was replaced before it took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginReplaced {
    /// Index of its entry in the control log.
    #[schema(example = "6")]
    pub control: String,
    /// Name of the plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// SHA-256 of its component.
    #[schema(example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub digest: String,
    /// Earliest epoch at which it would have taken effect.
    #[schema(example = "9500")]
    pub from_epoch: String,
}

/// Faults of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginFaults {
    /// `out_of_fuel`, `stack_overflow`, `out_of_memory`, `trap`, `convention`, `returned` or `wrong_answer`.
    #[schema(example = "out_of_fuel")]
    pub kind: String,
    /// Number of faults.
    #[schema(example = "3")]
    pub count: String,
}

/// Counters of the plugin in a slot, since this process has been running it there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginHealth {
    /// Number of calls.
    #[schema(example = "1200")]
    pub calls: String,
    /// Number of transactions or records in these calls. A validator gets a transaction once for each of the node's shards
    /// that the transaction's rows are in, and each counts.
    #[schema(example = "34000")]
    pub items: String,
    /// Number of epochs that the native fallback decided because the plugin failed.
    #[schema(example = "0")]
    pub fallbacks: String,
    /// Faults by kind.
    pub faults: Vec<PluginFaults>,
    /// Text of the last fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "it ran out of fuel")]
    pub last_fault: Option<String>,
    /// Average fuel per transaction or record.
    #[schema(example = "310")]
    pub fuel_per_item: String,
    /// Average time per transaction or record, nanoseconds.
    #[schema(example = "140")]
    pub ns_per_item: String,
}

/// A slot and its activations.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginSlot {
    /// `rule`, `validator:<level>` or `adaptor:<name>`.
    #[schema(example = "rule")]
    pub slot: String,
    /// The activation in force.
    pub active: PluginActivation,
    /// First epoch that the active plugin decided; absent if it is older than the newest state image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9000")]
    pub since_epoch: Option<String>,
    /// The activation that takes effect at a later epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pending: Option<PluginActivation>,
    /// The latest activations of the slot, newest first.
    pub history: Vec<PluginActivation>,
    /// Counters of the active plugin.
    pub health: PluginHealth,
}

/// All plugins and slots.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginList {
    /// Plugins, sorted by name.
    pub plugins: Vec<PluginInfo>,
    /// Slots, sorted by name.
    pub slots: Vec<PluginSlot>,
}
