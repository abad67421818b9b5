//! The answers for waiters.

use tribunal_core::control::Applied;
use tribunal_types::{ControlIndex, Epoch, VerdictAt};

/// The outcome of an item. `E` is the caller's handle on the epoch that decided it.
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
    /// A transaction with this id is waiting for its epoch.
    InFlight,
    /// The id can never commit: this request or an earlier one fenced it, in this epoch.
    Fenced(Epoch),
    /// The epoch's batch cannot be made durable, or the node stops. The outcome is unknown until the node runs again.
    Unknown,
    /// Its batch is void: none of its items exist, and the same request may be sent again.
    NotTaken,
    /// The node is stopping and takes nothing new.
    Stopping,
}

impl<E> Answer<E> {
    /// Replaces the handle on the epoch.
    pub fn in_epoch<F>(self, epoch: impl FnOnce(E) -> F) -> Answer<F> {
        match self {
            Answer::Decided { epoch: decided, item } => Answer::Decided { epoch: epoch(decided), item },
            Answer::Stored(at) => Answer::Stored(at),
            Answer::BodyMismatch => Answer::BodyMismatch,
            Answer::Expired => Answer::Expired,
            Answer::InFlight => Answer::InFlight,
            Answer::Fenced(epoch) => Answer::Fenced(epoch),
            Answer::Unknown => Answer::Unknown,
            Answer::NotTaken => Answer::NotTaken,
            Answer::Stopping => Answer::Stopping,
        }
    }
}

/// The outcome of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// This many of its rows were new.
    Rows(u64),
    /// Its batch is void: nothing was imported.
    NotTaken,
    /// The node is stopping and takes nothing new.
    Stopping,
    /// Its batch cannot be made durable.
    Unknown,
}

/// The status of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownNow {
    /// Unknown; it may still arrive.
    Unknown,
    /// It is waiting for its epoch.
    InFlight,
    /// Its verdict is stored there.
    At(VerdictAt),
    /// Unknown, and it can no longer be executed.
    Expired,
}

/// The reply to a proposed change of configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlReply {
    /// Position of its entry.
    pub index: ControlIndex,
    /// The effect of the entry.
    pub applied: Applied,
}
