//! Plugins: uploads, versions, the slots that they fill, and how they do there.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A component of WebAssembly.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct PluginComponent(pub Vec<u8>);

/// One check of the conformance kit that a plugin passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginCheck {
    /// What was checked.
    #[schema(example = "shuffled batches")]
    pub name: String,
    /// On how many inputs.
    #[schema(example = 150)]
    pub cases: u32,
}

/// A level whose anomalies a validator does not all reject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginMiss {
    /// The level.
    #[schema(example = "serializable")]
    pub level: String,
    /// The first anomaly that the validator accepts.
    #[schema(example = "phantom (PMP, G2): a scanned range has changed")]
    pub anomaly: String,
}

/// One version of a plugin: a component, identified by its bytes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginVersion {
    /// SHA-256 of the component's bytes, hexadecimal.
    #[schema(
        example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        min_length = 64,
        max_length = 64
    )]
    pub digest: String,
    /// The version that the plugin gives itself.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// What it says of itself.
    #[schema(example = "the transaction with the most writes wins")]
    pub about: String,
    /// Size, bytes.
    #[schema(example = "10240")]
    pub bytes: String,
    /// When it was uploaded, Unix milliseconds; absent for built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub uploaded_ms: Option<String>,
    /// Whose signature it was taken for, as the node's configuration calls them; absent if it asked for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "release")]
    pub signer: Option<String>,
    /// That signature, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 128, max_length = 128)]
    pub signature: Option<String>,
    /// Fuel of a call that does next to nothing; absent for built-in ones, which are not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fuel_per_call: Option<String>,
    /// Fuel of each further transaction or record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fuel_per_item: Option<String>,
    /// Fuel that the limits grant for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub budget_per_item: Option<String>,
    /// SHA-256 over its answers to the golden vectors: equal for versions that behave alike on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub behaviour: Option<String>,
    /// A validator's levels, whose anomalies it all rejects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<String>,
    /// A validator's other levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<PluginMiss>,
}

/// A plugin with its versions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginInfo {
    /// Its name.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// `conflict-rule`, `isolation-validator` or `log-adaptor`.
    #[schema(example = "conflict-rule")]
    pub world: String,
    /// It came with the program.
    pub builtin: bool,
    /// Versions, newest first.
    pub versions: Vec<PluginVersion>,
    /// Slots that it fills.
    pub slots: Vec<PluginSlot>,
}

/// An upload that was taken in.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginUpload {
    /// The plugin's name.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// Its world.
    #[schema(example = "conflict-rule")]
    pub world: String,
    /// The version.
    pub version: PluginVersion,
    /// What was checked.
    pub checks: Vec<PluginCheck>,
}

/// Which version to activate, where, and from when on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PluginActivate {
    /// `rule`, `validator:<level>` or `adaptor:<name>`; may be left out where the plugin's world leaves one choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rule")]
    pub slot: Option<String>,
    /// SHA-256 of the version; the newest one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub digest: Option<String>,
    /// First epoch; the next one if left out. An epoch that has passed counts as the next one. A node without traffic
    /// seals empty epochs up to it if it is at most 100,000 epochs away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9000")]
    pub at_epoch: Option<String>,
    /// Configuration of the rule or validator. An adaptor has its store's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub config: Option<Box<RawValue>>,
}

/// What was deleted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginDeleted {
    /// The plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// SHA-256 of each version that was deleted, hexadecimal.
    #[schema(example = json!(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]))]
    pub digests: Vec<String>,
}

/// Which slot to roll back.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PluginRollback {
    /// The slot; may be left out if the plugin fills one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rule")]
    pub slot: Option<String>,
}

/// An entry of the control log that fills a slot.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginActivation {
    /// Position in the control log.
    #[schema(example = "7")]
    pub control: String,
    /// The slot.
    #[schema(example = "rule")]
    pub slot: String,
    /// The plugin.
    #[schema(example = "most-writes-wins")]
    pub name: String,
    /// SHA-256 of its component; zeros for a native fallback.
    #[schema(example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub digest: String,
    /// SHA-256 of its configuration's text.
    #[schema(example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub config_digest: String,
    /// Its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub config: Option<Box<RawValue>>,
    /// `configuration`, `activate`, `rollback`, or `faults` if the slot went back by itself because its plugin failed too
    /// often in a row.
    #[schema(example = "activate")]
    pub by: String,
    /// Who requested it, as the key or client is called; absent for the node's own configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "ops")]
    pub who: Option<String>,
    /// When it was requested, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1767225600000")]
    pub at_ms: Option<String>,
    /// First epoch that it decided; absent if it has decided none, or that lies before the newest state image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9000")]
    pub since_epoch: Option<String>,
    /// Last epoch that it decided; absent while it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9999")]
    pub until_epoch: Option<String>,
    /// First epoch at which it may hold; it does from the first one at or after it that carries the entry.
    #[schema(example = "9000")]
    pub from_epoch: String,
}

/// Faults of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginFaults {
    /// `out_of_fuel`, `stack_overflow`, `out_of_memory`, `trap`, `convention`, `returned` or `wrong_answer`.
    #[schema(example = "out_of_fuel")]
    pub kind: String,
    /// How many.
    #[schema(example = "3")]
    pub count: String,
}

/// How the plugin in a slot does, since this process runs it there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginHealth {
    /// Calls.
    #[schema(example = "1200")]
    pub calls: String,
    /// Transactions or records in them.
    #[schema(example = "34000")]
    pub items: String,
    /// Epochs that its stand-in decided, because it failed.
    #[schema(example = "0")]
    pub fallbacks: String,
    /// Its faults by kind.
    pub faults: Vec<PluginFaults>,
    /// What the last fault said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_fault: Option<String>,
    /// Fuel of an item, on the average.
    #[schema(example = "310")]
    pub fuel_per_item: String,
    /// Time of an item, nanoseconds, on the average.
    #[schema(example = "140")]
    pub ns_per_item: String,
}

/// A slot and what fills it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginSlot {
    /// `rule`, `validator:<level>` or `adaptor:<name>`.
    #[schema(example = "rule")]
    pub slot: String,
    /// What is in force.
    pub active: PluginActivation,
    /// The epoch since which it is; absent if that lies before the newest state image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub since_epoch: Option<String>,
    /// What will be, from its epoch on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pending: Option<PluginActivation>,
    /// The newest entries of the control log for this slot, newest first.
    pub history: Vec<PluginActivation>,
    /// How it does.
    pub health: PluginHealth,
}

/// All plugins and slots.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginList {
    /// Plugins by name.
    pub plugins: Vec<PluginInfo>,
    /// Slots by name.
    pub slots: Vec<PluginSlot>,
}
