//! The interface to storages: sends one command and returns the reply.
//!
//! A transport never retries a command and never reconnects on its own: after an error it is unknown whether the
//! command took effect, so the pusher calls [`Transport::connect`] and reads the watermark.

use std::time::Duration;

use tribunal_types::{Command, StorageReply};

use crate::Pending;

/// A connection to one storage, established on demand.
pub trait Transport: Send + Sync + 'static {
    /// Drops the current connection, if any, and establishes a new one. Returns when the storage makes acknowledged records
    /// durable.
    ///
    /// # Errors
    /// See [`TransportError`].
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>>;

    /// Sends a command and waits for the reply, within a timeout.
    ///
    /// # Errors
    /// See [`TransportError`]. The command may or may not have taken effect.
    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>>;

    /// Returns the delay that the storage has requested in its last reply, once.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Returns whether the connection should be replaced ([`Transport::connect`]) before the next batch, because of the
    /// amount of data that it has received.
    fn is_worn(&self) -> bool {
        false
    }
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There is no connection, or it broke.
    #[error("{0}")]
    Broken(String),
    /// The storage took too long.
    #[error("no reply within {ms} ms")]
    Timeout {
        /// The timeout, milliseconds.
        ms: u64,
    },
    /// The address is not allowed; see [`EgressPolicy`](crate::EgressPolicy).
    #[error("{0}")]
    Refused(String),
    /// The transport does not support this kind of command: the store's adaptor does not match its endpoint.
    #[error("{0}")]
    WrongCommand(&'static str),
}

/// When a storage makes acknowledged records durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageDurability {
    /// Unknown: the storage does not expose it.
    #[default]
    Unknown,
    /// Before every acknowledgement.
    Always,
    /// Every second: a crash may lose the last second, which is then pushed again.
    EverySecond,
    /// Never, or at the discretion of the operating system.
    None,
}

impl StorageDurability {
    /// Returns the name that a store's status shows.
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
