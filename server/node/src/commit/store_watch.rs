//! What the sequencer has seen of each store's push since it was started, and when a store that holds the log back is
//! detached.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tribunal_core::visibility::Delivery;
use tribunal_types::{Lsn, StoreId, StoreSpec};

/// How long a storage may take to report its watermark before what it has applied counts as nothing.
const WATERMARK_TIMEOUT: Duration = Duration::from_secs(60);

/// One store's push.
#[derive(Debug)]
struct StoreWatch {
    since: Instant,
    /// The log was empty when the push was started, so nothing of it can be in doubt.
    empty: bool,
    /// The storage has reported its watermark.
    watermark: bool,
    /// Its detachment is on its way through the log.
    detaching: bool,
}

/// The pushes of all declared stores.
#[derive(Debug, Default)]
pub struct StoreWatches(BTreeMap<StoreId, StoreWatch>);

impl StoreWatches {
    /// Starts to watch a store whose push starts now, with its log at `head`.
    pub fn start(&mut self, store: StoreId, head: Lsn) {
        let watch = StoreWatch { since: Instant::now(), empty: head == Lsn(0), watermark: false, detaching: false };
        self.0.insert(store, watch);
    }

    /// Notes that a store's storage has reported its watermark.
    pub fn reported(&mut self, store: StoreId) {
        if let Some(watch) = self.0.get_mut(&store) {
            watch.watermark = true;
        }
    }

    /// Notes that the push of a store stopped: until it reports again, nothing is known.
    pub fn stopped(&mut self, store: StoreId) {
        if let Some(watch) = self.0.get_mut(&store) {
            watch.watermark = false;
            watch.empty = false;
        }
    }

    /// Tells whether what a store has applied is known: its storage has reported its watermark, or had nothing to report.
    #[must_use]
    pub fn is_known(&self, store: StoreId) -> bool {
        self.0.get(&store).is_some_and(|watch| watch.watermark || watch.empty)
    }

    /// Returns whether a store that exceeds its quota may be detached. A storage that was only just queried for its
    /// watermark may well have applied everything.
    #[must_use]
    pub fn may_detach(&self, store: StoreId) -> bool {
        self.0
            .get(&store)
            .is_some_and(|watch| !watch.detaching && (watch.watermark || watch.since.elapsed() >= WATERMARK_TIMEOUT))
    }

    /// Notes that a store's detachment was proposed.
    pub fn detaching(&mut self, store: StoreId) {
        if let Some(watch) = self.0.get_mut(&store) {
            watch.detaching = true;
        }
    }
}

/// Returns where a store's records are delivered.
#[must_use]
pub fn delivery(spec: &StoreSpec) -> Delivery {
    if spec.adaptor.is_some() { Delivery::Pushed } else { Delivery::LogOnly }
}
