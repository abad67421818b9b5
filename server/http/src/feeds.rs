//! What readers of logs ask of the node: the half of [`Service`](crate::Service) that is not about transactions.

use tribunal_types::{Lsn, StoreId};

use crate::service::{Answer, StoredRow};

/// Everything that a reader of logs can ask of a node.
pub trait Feeds {
    /// Returns the state from which a reader can start over that fell behind what the log keeps.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`](crate::service::ServiceError::NotFound);
    /// [`ServiceError::StateGone`](crate::service::ServiceError::StateGone) if only the log had it;
    /// [`ServiceError::Overloaded`](crate::service::ServiceError::Overloaded) if too many are under way.
    fn state(&self, store: StoreId) -> Answer<'_, StoreState>;
}

/// A store's state at a position of its log.
pub enum StoreState {
    /// Its rows at `lsn`, exactly.
    Rows {
        /// Position whose state this is.
        lsn: Lsn,
        /// The rows.
        rows: Box<dyn StateRows>,
    },
    /// Its own storage has it.
    Storage {
        /// The storage is here at least.
        lsn: Lsn,
    },
    /// The log is whole: it begins with the first record.
    Log,
}

/// Rows of a state image, in key order, a page at a time.
pub trait StateRows: Send {
    /// Returns the next rows, none behind the last one.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::service::ServiceError::Unavailable) if the image cannot be finished.
    fn next(&mut self) -> Answer<'_, Vec<StoredRow>>;
}
