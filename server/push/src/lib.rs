//! Pushes to storages: reads a store's committed log, translates records into commands with an adaptor, sends them and
//! reports the storage's progress.
//!
//! Owns transports, backoff, the egress policy and the embedded key-value store. Independent of the log's format, of
//! Wasm and of the HTTP API: it uses [`LogSource`] and [`Adaptor`]. A slow or dead storage never delays another one:
//! each has its own task, with at most one batch in memory.

pub mod adaptor;
pub mod attach;
mod bounded_stream;
mod connect;
pub mod egress;
pub mod embedded;
mod history;
mod http_connection;
mod password;
pub mod pusher;
pub mod resp;
pub mod source;
pub mod sql;
pub mod sql_endpoint;
pub mod status;
#[cfg(test)]
extern crate self as tribunal_push;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod webhook;

use std::future::Future;
use std::pin::Pin;

pub use adaptor::{Adaptor, AdaptorFault};
pub use attach::{AttachPlace, AttachRefusal, Attachment};
pub use egress::{AllowedNet, EgressPolicy};
pub use embedded::{
    ApplyObserver, ENTRY_OVERHEAD_BYTES, EmbeddedError, EmbeddedImage, EmbeddedStore, Follower, OutOfUse, ReadAt, Row,
    ScanLimits, ScanPage, StoreFile, StoredBytes, View,
};
pub use password::Password;
pub use pusher::{PushOptions, PushParts, Pusher};
pub use resp::{RespOptions, RespTransport};
pub use source::{AckSink, EpochSource, LogPoint, LogSource, PushWatch, SourceError};
pub use sql::{SqlOptions, SqlTransport};
pub use sql_endpoint::SqlEndpoint;
pub use status::{PushActivity, PushHandle, PushStatus};
pub use transport::{StorageDurability, Transport, TransportError};
pub use tribunal_types::ReadLimit;
pub use webhook::{WatermarkStore, Webhook, WebhookParts};

/// A boxed future, so that the traits of this crate can be trait objects.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
