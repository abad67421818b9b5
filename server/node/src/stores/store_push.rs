//! The state of a store's push, as operators see it.

use tribunal_push::StorageDurability;
use tribunal_service::PushState;
use tribunal_types::Lsn;

/// The state of a store's push, in terms of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorePush {
    /// The push's state.
    pub state: PushState,
    /// Age of the oldest unacknowledged record, milliseconds.
    pub lag_ms: u64,
    /// Last error.
    pub last_error: Option<String>,
    /// The record that it stopped at.
    pub poison: Option<Lsn>,
    /// Durability of an acknowledgement of the storage; `None` while there is no storage.
    pub durability: Option<StorageDurability>,
}
