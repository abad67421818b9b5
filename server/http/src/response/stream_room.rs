//! Memory of streamed bodies. A chunk counts towards the tenant's quota from before it is written until the connection
//! has sent it, and a stream has at most one chunk at a time: a client that does not read costs one chunk, for which
//! there was room.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tribunal_service::ServiceError;

use crate::app::App;
use crate::quota::{Reserved, Room};
use crate::request::caller::tenant;

/// How long a stream waits for room before it ends.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a chunk may wait for its client, like other unread responses. It is not larger than a piece; in
/// HTTP/2 it may be in the protocol's buffer, where nothing else notices that it is not read.
const TURN_TIMEOUT: Duration = Duration::from_secs(75);

/// The room of one stream.
pub(crate) struct StreamRoom {
    room: Room,
    turn: Arc<Semaphore>,
}

/// The turn to write a chunk: the previous one has been sent.
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// A chunk's room, held as long as its bytes.
struct Chunk {
    bytes: Vec<u8>,
    _reserved: Option<Reserved>,
    _turn: Turn,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl StreamRoom {
    /// Returns the room of the stream that answers this request.
    pub(crate) fn of(app: &App, parts: &Parts) -> Self {
        let room = parts.extensions.get::<Room>().cloned().unwrap_or_else(|| app.tenants.room(tenant(parts)));
        StreamRoom { room, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Waits until the connection has sent the previous chunk.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if its client does not read it: the stream must be reset, because its end could not be
    /// sent either.
    pub(crate) async fn turn(&self) -> io::Result<Turn> {
        let permit = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(&self.turn).acquire_owned()).await;
        let permit = permit.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))?;
        permit.map(|permit| Turn { _permit: permit }).map_err(io::Error::other)
    }

    /// Reserves `bytes` if there is room for them now.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.room.reserve(bytes)
    }

    /// Reserves `bytes`, and waits a while until there is room for them.
    pub(crate) async fn wait_for(&self, bytes: usize) -> Option<Reserved> {
        self.room.reserve_within(bytes, ROOM_TIMEOUT).await
    }
}

/// Returns the bytes of a chunk, which hold their room until the last part of them is sent or dropped.
/// `None` is for a few bytes that must be sent even if there is no room.
pub(crate) fn chunk(mut bytes: Vec<u8>, mut reserved: Option<Reserved>, turn: Turn) -> Bytes {
    bytes.shrink_to_fit();
    if let Some(reserved) = &mut reserved {
        reserved.resize(bytes.len());
    }
    Bytes::from_owner(Chunk { bytes, _reserved: reserved, _turn: turn })
}

/// Returns the error with which a stream ends if there is no room for its next chunk.
pub(crate) fn no_room(app: &App) -> ServiceError {
    ServiceError::QuotaExceeded { retry_after_ms: app.service.txns.retry_after_ms() }
}
