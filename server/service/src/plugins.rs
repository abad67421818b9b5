//! Plugins: upload, activation, rollback, deletion, and the state of slots.

use tribunal_types::{ControlIndex, Epoch, Isolation, PluginSlot, StoreId};

use crate::ServiceFuture;

/// SHA-256 of a component: the identity of a version.
pub type PluginDigest = [u8; 32];
/// An Ed25519 signature.
pub type PluginSignature = [u8; 64];

/// Parses a signature in hexadecimal.
#[must_use]
pub fn signature(text: &str) -> Option<PluginSignature> {
    let (halves, rest) = text.as_bytes().as_chunks::<64>();
    let ([first, second], []) = (halves, rest) else { return None };
    let halves = [first, second].map(|half| str::from_utf8(half).ok().and_then(digest));
    let [Some(first), Some(second)] = halves else { return None };
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&first);
    signature[32..].copy_from_slice(&second);
    Some(signature)
}

/// Parses a digest in hexadecimal.
#[must_use]
pub fn digest(text: &str) -> Option<PluginDigest> {
    let mut digest = [0; 32];
    let bytes = text.as_bytes();
    if bytes.len() != 64 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| (digit as char).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(digest)
}

/// Operations on plugins and slots.
pub trait PluginApi: Send + Sync {
    /// Checks a component and stores it, durably, unless it is already stored.
    ///
    /// # Errors
    /// [`crate::ServiceError::ClientMistake`] with the reason if it is rejected; nothing is stored then.
    fn upload(&self, upload: Upload) -> ServiceFuture<'_, Uploaded>;

    /// Returns all plugins and slots.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`].
    fn overview(&self) -> ServiceFuture<'_, Overview>;

    /// Activates a plugin in a slot from an epoch on. Returns once the entry in the control log is durable and the node
    /// has applied it.
    ///
    /// # Errors
    /// [`crate::ServiceError::NotFound`], [`crate::ServiceError::ClientMistake`].
    fn activate(&self, request: Activate) -> ServiceFuture<'_, Activation>;

    /// Reverts the last activation of a slot, or cancels one that is still pending.
    ///
    /// # Errors
    /// As for [`PluginApi::activate`]; also if there is no earlier activation.
    fn roll_back(&self, name: String, slot: Option<PluginSlot>, who: String) -> ServiceFuture<'_, Activation>;

    /// Returns a slot to its built-in plugin, or empties an adaptor's slot.
    ///
    /// # Errors
    /// As for [`PluginApi::activate`]; also if the plugin is not active in the slot, or if a store uses the adaptor.
    fn deactivate(&self, request: Deactivate) -> ServiceFuture<'_, Activation>;

    /// Deletes one version of a plugin, or all of them. Returns what was deleted.
    ///
    /// # Errors
    /// [`crate::ServiceError::NotFound`]; [`crate::ServiceError::ClientMistake`] if it is built in, or is active or
    /// pending in a slot. Nothing is deleted then.
    fn delete(&self, name: String, digest: Option<PluginDigest>) -> ServiceFuture<'_, Vec<PluginDigest>>;
}

/// A component to upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Name of the plugin.
    pub name: String,
    /// The component.
    pub bytes: Vec<u8>,
    /// The world that the component claims to implement.
    pub world: Option<String>,
    /// Configuration to check the component with.
    pub config: String,
    /// Ed25519 signature of the name and digest.
    pub signature: Option<PluginSignature>,
}

/// Result of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// World of the plugin.
    pub world: String,
    /// The version.
    pub version: Version,
    /// Checks that the component passed, with the number of their inputs.
    pub checks: Vec<(String, u32)>,
    /// Whether the version is new.
    pub created: bool,
}

/// A version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// SHA-256 of the component, its identity.
    pub digest: PluginDigest,
    /// Version number according to the component.
    pub version: String,
    /// Description according to the component.
    pub about: String,
    /// Size in bytes.
    pub bytes: u64,
    /// When it was uploaded, Unix milliseconds; `None` for a built-in one.
    pub uploaded_ms: Option<u64>,
    /// Name of the signer, and the signature in hexadecimal.
    pub signed: Option<(String, String)>,
    /// Results of the conformance kit; `None` for a built-in one.
    pub measured: Option<Measured>,
}

/// Results of the conformance kit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Fuel of a call with the smallest input.
    pub fuel_per_call: u64,
    /// Fuel of each further item.
    pub fuel_per_item: u64,
    /// Fuel that the limits allow per item.
    pub budget_per_item: u64,
    /// Digest of the results on the golden vectors.
    pub behaviour: PluginDigest,
    /// Isolation levels that a validator enforces.
    pub levels: Vec<Isolation>,
    /// The other levels, each with an anomaly that the validator accepts.
    pub misses: Vec<(Isolation, String)>,
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Name of the plugin.
    pub name: String,
    /// World of the plugin.
    pub world: String,
    /// Whether it is built into the server.
    pub builtin: bool,
    /// Versions, newest first.
    pub versions: Vec<Version>,
}

/// An activation of a plugin: an entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Index of the entry.
    pub control: ControlIndex,
    /// The slot.
    pub slot: PluginSlot,
    /// The plugin.
    pub name: String,
    /// The version.
    pub digest: PluginDigest,
    /// Configuration as JSON text; may be empty.
    pub config: String,
    /// SHA-256 of the configuration.
    pub config_digest: PluginDigest,
    /// What caused the activation, by its name in the API.
    pub by: &'static str,
    /// Who requested it; `None` if it was the node itself.
    pub who: Option<String>,
    /// When it was requested, Unix milliseconds.
    pub at_ms: Option<u64>,
    /// First epoch that the plugin decided.
    pub since: Option<Epoch>,
    /// Last epoch that the plugin decided.
    pub until: Option<Epoch>,
    /// Earliest epoch that the activation may take effect in.
    pub from: Epoch,
    /// The slot is empty with it: its adaptor was deactivated.
    pub empties: bool,
    /// The pending activation that it has replaced; only in the result of a request.
    pub replaces: Option<Replaced>,
    /// Stores for which the adaptor accepts other kinds of writes than they were declared with, or whose configuration it
    /// refuses; only in the result of a request.
    pub declare_again: Vec<StoreId>,
}

/// An activation that was replaced before it took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Index of its entry.
    pub control: ControlIndex,
    /// The plugin.
    pub name: String,
    /// The version.
    pub digest: PluginDigest,
    /// Earliest epoch that it would have taken effect in.
    pub from: Epoch,
}

/// A request to activate a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activate {
    /// Name of the plugin.
    pub name: String,
    /// The slot; required for a validator.
    pub slot: Option<PluginSlot>,
    /// The version; the newest one if absent.
    pub digest: Option<PluginDigest>,
    /// First epoch that the plugin decides; the next possible one if absent.
    pub from: Option<Epoch>,
    /// Configuration; empty for none.
    pub config: String,
    /// Who requests the activation.
    pub who: String,
}

/// A request to deactivate a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deactivate {
    /// Name of the plugin.
    pub name: String,
    /// The slot; required if the plugin is active in several.
    pub slot: Option<PluginSlot>,
    /// First epoch that the plugin does not decide; the next possible one if absent.
    pub from: Option<Epoch>,
    /// Who requests it.
    pub who: String,
}

/// Counters of the plugin in a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Calls.
    pub calls: u64,
    /// Items in all calls.
    pub items: u64,
    /// Fuel used by all calls.
    pub fuel: u64,
    /// Duration of all calls, nanoseconds.
    pub nanos: u64,
    /// Epochs that the native fallback decided.
    pub fallbacks: u64,
    /// Faults by kind.
    pub faults: Vec<(&'static str, u64)>,
    /// Text of the last fault.
    pub last_fault: Option<String>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The activation in force.
    pub active: Activation,
    /// First epoch that it decided.
    pub since: Option<Epoch>,
    /// An activation that has not taken effect yet.
    pub pending: Option<Activation>,
    /// Earlier activations, newest first.
    pub history: Vec<Activation>,
    /// Counters of the active plugin.
    pub health: Health,
}

/// All plugins and slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// All plugins, sorted by name.
    pub plugins: Vec<Plugin>,
    /// All slots.
    pub slots: Vec<Slot>,
}
