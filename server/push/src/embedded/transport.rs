//! The way of a push to the embedded store: adds to each command where it comes from.

use std::sync::Arc;

use tribunal_types::{Command, Lsn, StorageReply, StoreId};

use super::raw::BUSY;
use super::{EmbeddedStore, Origin};
use crate::{LogPoint, LogSource, Pending, StorageDurability, Transport, TransportError};

/// Carries raw commands to an [`EmbeddedStore`], on threads that may block.
#[derive(Clone)]
pub struct EmbeddedTransport {
    store: Arc<EmbeddedStore>,
    id: StoreId,
    source: Arc<dyn LogSource>,
}

impl EmbeddedTransport {
    /// Makes a transport to the embedded store `id`, for records of `source`.
    #[must_use]
    pub fn new(store: Arc<EmbeddedStore>, id: StoreId, source: Arc<dyn LogSource>) -> Self {
        EmbeddedTransport { store, id, source }
    }

    fn execute(&self, command: &[u8]) -> Result<StorageReply, TransportError> {
        let broken = |text: String| TransportError::Broken(text);
        let mut origin = Origin { log: self.source.id(), ..Origin::default() };
        match EmbeddedStore::target(command) {
            Lsn(0) => {}
            to => match self.source.point(self.id, to) {
                Ok(LogPoint::Known(digest)) => origin.digest = digest,
                // An attachment moves the watermark over records that are truncated.
                Ok(LogPoint::Unknown) => {}
                Ok(LogPoint::PastHead) => return Err(broken(format!("the log has no LSN {to}"))),
                Err(error) => return Err(broken(error.to_string())),
            },
        }
        let reply = self.store.execute(command, origin);
        if reply.first() == Some(&BUSY) {
            return Err(broken(String::from_utf8_lossy(reply.get(9..).unwrap_or_default()).into_owned()));
        }
        Ok(StorageReply::Raw(reply))
    }
}

impl Transport for EmbeddedTransport {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        Box::pin(async { Ok(StorageDurability::Always) })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        let this = self.clone();
        Box::pin(async move {
            let Command::Raw(bytes) = command else {
                return Err(TransportError::WrongCommand("the embedded store takes raw commands only"));
            };
            tokio::task::spawn_blocking(move || this.execute(&bytes))
                .await
                .map_err(|e| TransportError::Broken(format!("the embedded store failed: {e}")))?
        })
    }
}
