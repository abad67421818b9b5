//! What the HTTP surface needs from the node about plugins: questions and answers, in the domain's words.

use tribunal_types::{ControlIndex, Epoch, Isolation, PluginSlot};

use crate::ServiceFuture;

/// SHA-256 of a component: the identity of a version.
pub type PluginDigest = [u8; 32];
/// An Ed25519 signature.
pub type PluginSignature = [u8; 64];

/// Reads a signature in hexadecimal.
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

/// Reads a digest in hexadecimal.
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

/// Everything that a request can ask about plugins.
pub trait PluginApi: Send + Sync {
    /// Checks a component and keeps it, durably, unless it is there already.
    ///
    /// # Errors
    /// [`crate::ServiceError::ClientMistake`] with the reason if it is refused; nothing of it stays behind.
    fn upload(&self, upload: Upload) -> ServiceFuture<'_, Uploaded>;

    /// Returns all plugins and slots.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`].
    fn overview(&self) -> ServiceFuture<'_, Overview>;

    /// Fills a slot from an epoch on. Answered when the control log's entry is durable and known to the node.
    ///
    /// # Errors
    /// [`crate::ServiceError::NotFound`], [`crate::ServiceError::ClientMistake`].
    fn activate(&self, wish: Activate) -> ServiceFuture<'_, Activation>;

    /// Takes the last activation of a slot back, or one that waits for its epoch.
    ///
    /// # Errors
    /// As for [`PluginApi::activate`]; also if there is nothing to go back to.
    fn roll_back(&self, name: String, slot: Option<PluginSlot>, who: String) -> ServiceFuture<'_, Activation>;

    /// Deletes one version of a plugin, or all of them. Returns what was deleted.
    ///
    /// # Errors
    /// [`crate::ServiceError::NotFound`]; [`crate::ServiceError::ClientMistake`] if it is built in, or a
    /// slot holds it or will. Nothing is deleted then.
    fn delete(&self, name: String, digest: Option<PluginDigest>) -> ServiceFuture<'_, Vec<PluginDigest>>;
}

/// A component as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Name of the plugin.
    pub name: String,
    /// The component.
    pub bytes: Vec<u8>,
    /// The world that it is said to be of.
    pub world: Option<String>,
    /// Configuration to check it with.
    pub config: String,
    /// Ed25519 signature of its name and digest.
    pub signature: Option<PluginSignature>,
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Its world.
    pub world: String,
    /// The version.
    pub version: Version,
    /// Checks that it passed, and the number of their inputs.
    pub checks: Vec<(String, u32)>,
    /// It was not there before.
    pub created: bool,
}

/// A version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Identity.
    pub digest: PluginDigest,
    /// What it calls itself.
    pub version: String,
    /// What it says of itself.
    pub about: String,
    /// Size.
    pub bytes: u64,
    /// Unix milliseconds; `None` for a built-in one.
    pub uploaded_ms: Option<u64>,
    /// Who signed it, and the signature in hexadecimal.
    pub signed: Option<(String, String)>,
    /// What the conformance kit found; `None` for a built-in one.
    pub measured: Option<Measured>,
}

/// What the conformance kit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Fuel of a call that does next to nothing.
    pub fuel_per_call: u64,
    /// Fuel of each further item.
    pub fuel_per_item: u64,
    /// Fuel that the limits grant for each.
    pub budget_per_item: u64,
    /// Digest of the answers to the golden vectors.
    pub behaviour: PluginDigest,
    /// A validator's levels.
    pub levels: Vec<Isolation>,
    /// A validator's other levels, and what it accepts there.
    pub misses: Vec<(Isolation, String)>,
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// Its world.
    pub world: String,
    /// It came with the program.
    pub builtin: bool,
    /// Versions, newest first.
    pub versions: Vec<Version>,
}

/// Who filled a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilledBy {
    /// The node's configuration.
    #[default]
    Configuration,
    /// Somebody's request.
    Request,
    /// Somebody's request to go back.
    Rollback,
    /// The service itself, because what filled the slot failed too often in a row.
    Faults,
}

impl FilledBy {
    /// Returns the word of the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FilledBy::Configuration => "configuration",
            FilledBy::Request => "activate",
            FilledBy::Rollback => "rollback",
            FilledBy::Faults => "faults",
        }
    }
}

/// An entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Its position.
    pub control: ControlIndex,
    /// The slot.
    pub slot: PluginSlot,
    /// The plugin.
    pub name: String,
    /// The version.
    pub digest: PluginDigest,
    /// Its configuration, JSON text; may be empty.
    pub config: String,
    /// SHA-256 of that text.
    pub config_digest: PluginDigest,
    /// What kind of change wrote it.
    pub by: FilledBy,
    /// Who requested it; `None` for the node itself.
    pub who: Option<String>,
    /// When it was requested, Unix milliseconds.
    pub at_ms: Option<u64>,
    /// First epoch that it decided.
    pub since: Option<Epoch>,
    /// Last epoch that it decided.
    pub until: Option<Epoch>,
    /// Earliest epoch.
    pub from: Epoch,
}

/// A wish for an activation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activate {
    /// The plugin.
    pub name: String,
    /// Where.
    pub slot: Option<PluginSlot>,
    /// Which version.
    pub digest: Option<PluginDigest>,
    /// From when on.
    pub from: Option<Epoch>,
    /// With which configuration; empty for none.
    pub config: String,
    /// Who requests it.
    pub who: String,
}

/// How the plugin in a slot does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Calls.
    pub calls: u64,
    /// Items in them.
    pub items: u64,
    /// Fuel that they took.
    pub fuel: u64,
    /// Time that they took, nanoseconds.
    pub nanos: u64,
    /// Epochs that its stand-in decided.
    pub fallbacks: u64,
    /// Faults by kind.
    pub faults: Vec<(&'static str, u64)>,
    /// What the last one said.
    pub last_fault: Option<String>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What is in force.
    pub active: Activation,
    /// Since when.
    pub since: Option<Epoch>,
    /// What will be.
    pub pending: Option<Activation>,
    /// Newest first.
    pub history: Vec<Activation>,
    /// How it does.
    pub health: Health,
}

/// All plugins and slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// By name.
    pub plugins: Vec<Plugin>,
    /// By slot.
    pub slots: Vec<Slot>,
}
