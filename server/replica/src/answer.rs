//! What those who wait are told.

use tribunal_core::control::Applied;
use tribunal_types::{ControlIndex, VerdictAt};

/// What became of an item. `E` is what the caller keeps of the epoch that decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<E = ()> {
    /// Decided in this epoch, as item `item`.
    Decided {
        /// The epoch.
        epoch: E,
        /// The item (see [`VerdictAt`]).
        item: u32,
    },
    /// The id was known with the same body: its verdict is stored there.
    Stored(VerdictAt),
    /// The id was known with another body.
    BodyMismatch,
    /// The id is outside the window.
    Expired,
    /// A transaction with this id waits for its epoch right now.
    InFlight,
    /// The id can never commit: this very request fenced it, or an earlier one did.
    Fenced,
    /// The epoch's batch cannot be made durable, or the node stops. The outcome is unknown until it runs again.
    Unknown,
    /// Its batch is void: nothing of it exists, and the same request may be sent again.
    NotTaken,
    /// The node takes nothing new: it is stopping.
    Stopping,
}

impl<E> Answer<E> {
    /// Names the epoch by something else.
    pub fn in_epoch<F>(self, epoch: impl FnOnce(E) -> F) -> Answer<F> {
        match self {
            Answer::Decided { epoch: decided, item } => Answer::Decided { epoch: epoch(decided), item },
            Answer::Stored(at) => Answer::Stored(at),
            Answer::BodyMismatch => Answer::BodyMismatch,
            Answer::Expired => Answer::Expired,
            Answer::InFlight => Answer::InFlight,
            Answer::Fenced => Answer::Fenced,
            Answer::Unknown => Answer::Unknown,
            Answer::NotTaken => Answer::NotTaken,
            Answer::Stopping => Answer::Stopping,
        }
    }
}

/// What became of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// So many of its rows were new.
    Rows(u64),
    /// Its batch is void: nothing was imported.
    NotTaken,
    /// The node takes nothing new: it is stopping.
    Stopping,
    /// Its batch cannot be made durable.
    Unknown,
}

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownNow {
    /// Nothing; it may still arrive.
    Unknown,
    /// It waits for its epoch.
    InFlight,
    /// Its verdict is stored there.
    At(VerdictAt),
    /// Nothing, and it can no longer be executed.
    Expired,
}

/// The reply to a proposed change of configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlReply {
    /// Position of its entry.
    pub index: ControlIndex,
    /// What the entry did.
    pub applied: Applied,
}
