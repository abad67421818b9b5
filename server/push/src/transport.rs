//! The seam to storages: something that carries one command and brings back the answer.
//!
//! A transport never repeats a command by itself and never reconnects in silence: after an error the pusher calls
//! [`Transport::connect`] and reads the watermark back, since nobody knows whether the command took effect.

use tribunal_types::{Command, StorageReply};

use crate::Pending;

/// A connection to one storage, made when asked for.
pub trait Transport: Send + Sync + 'static {
    /// Drops the old connection, if any, makes a new one and reports what the storage's acknowledgements mean.
    ///
    /// # Errors
    /// See [`TransportError`].
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>>;

    /// Sends a command over the connection and waits for the answer, a bounded time.
    ///
    /// # Errors
    /// See [`TransportError`]. The command may or may not have taken effect.
    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>>;
}

/// Why no answer came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There is no connection, or it broke.
    #[error("{0}")]
    Broken(String),
    /// The storage took too long.
    #[error("no answer within {ms} ms")]
    Timeout {
        /// The bound, milliseconds.
        ms: u64,
    },
    /// The address is not allowed; see [`EgressPolicy`](crate::EgressPolicy).
    #[error("{0}")]
    Refused(String),
    /// The command is not of this transport's kind: the store's adaptor does not fit its endpoint.
    #[error("{0}")]
    WrongCommand(&'static str),
}

/// What a storage's acknowledgement is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageDurability {
    /// Not known: the storage does not tell.
    #[default]
    Unknown,
    /// Synced before every acknowledgement.
    Always,
    /// Synced every second: a crash may take the last second back, which is then pushed again.
    EverySecond,
    /// Never synced by itself, or kept in memory only.
    None,
}

impl StorageDurability {
    /// Returns the word shown in a store's status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StorageDurability::Unknown => "unknown",
            StorageDurability::Always => "always",
            StorageDurability::EverySecond => "everysec",
            StorageDurability::None => "none",
        }
    }
}
