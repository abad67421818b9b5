//! When records were committed that readers have yet to acknowledge.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tribunal_types::{Lsn, StoreId};

use crate::stores::catalog::Records;

/// Maximum number of cached record times, so that a lag does not read the log repeatedly.
const TIMES_MAX: usize = 16_384;

/// Commit times of records. A record's time never changes.
#[derive(Default)]
pub struct RecordTimes(Mutex<HashMap<(StoreId, Lsn), u64>>);

impl RecordTimes {
    /// Returns how long ago the first record after `lsn` was committed, milliseconds; 0 if there is none. If it was truncated
    /// before it was looked up, this is the age of a later one. May read the disk.
    pub(crate) fn age_after(&self, records: &Records, store: StoreId, lsn: Lsn) -> u64 {
        let known = self.0.lock().get(&(store, lsn)).copied();
        let time = known.or_else(|| {
            let time = tokio::task::block_in_place(|| records.time_after(store, lsn))?;
            let mut times = self.0.lock();
            if times.len() >= TIMES_MAX {
                times.clear();
            }
            times.insert((store, lsn), time);
            Some(time)
        });
        time.map_or(0, |time| now_ms().saturating_sub(time))
    }
}

/// Returns the time of the system's clock, milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
