//! Changes of configuration. They take effect at epoch boundaries only, through the control log.

use alloc::string::String;

use crate::ids::Cen;
use crate::store::StoreSpec;
use crate::txn::Isolation;

/// Position in the control log, from 1. 0 is "none applied".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlIndex(pub u64);

/// A place that a plugin can fill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginSlot {
    /// The conflict rule.
    Rule,
    /// The isolation validator of one level.
    Validator(Isolation),
    /// The LogAdaptor of this name.
    Adaptor(String),
}

/// Which module fills a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginChoice {
    /// The slot.
    pub slot: PluginSlot,
    /// Name of the module.
    pub name: String,
    /// SHA-256 of the module's bytes.
    pub digest: [u8; 32],
    /// Configuration handed to `init`, JSON text.
    pub config: String,
}

/// One entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlChange {
    /// Creates a store, or changes one of the same id.
    DeclareStore(StoreSpec),
    /// Fills a slot from the first epoch at or after `from` that carries this entry.
    ActivatePlugin {
        /// What.
        choice: PluginChoice,
        /// Earliest epoch.
        from: Cen,
    },
}
