//! Limits how many reads of rows and log pages from the disk run at once. Each holds its rows in memory before its
//! response counts towards a quota: the permit is held until the caller has them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads at once. More would only wait for the same disk.
const LONG_READS_MAX: usize = 16;

/// The permits of reads that may take long. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LongReads(Arc<Semaphore>);

impl LongReads {
    /// Waits for a permit.
    pub async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // Nothing closes the semaphore.
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

impl Default for LongReads {
    fn default() -> Self {
        LongReads(Arc::new(Semaphore::new(LONG_READS_MAX)))
    }
}
