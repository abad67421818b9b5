//! Reports of a push on their way to the sequencer.

use parking_lot::Mutex;
use tribunal_replica::PushReport;

/// Reports of one push that the sequencer has not taken yet: only the newest counts, so the sequencer's queue contains
/// at most one message per push.
#[derive(Debug, Default)]
pub struct PushReports(Mutex<PushReport>);

impl PushReports {
    /// Adds a report; returns whether the sequencer must be notified because no earlier notification is pending.
    pub(crate) fn add(&self, add: impl FnOnce(&mut PushReport)) -> bool {
        let mut newest = self.0.lock();
        let first = *newest == PushReport::default();
        add(&mut newest);
        first
    }

    /// Takes the report.
    #[must_use]
    pub fn take(&self) -> PushReport {
        std::mem::take(&mut self.0.lock())
    }
}
