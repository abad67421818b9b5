//! State of each store's push since it was started, and when a store that holds the log back is detached.

use alloc::collections::BTreeMap;
use core::time::Duration;

use tribunal_core::visibility::Delivery;
use tribunal_types::{Epoch, Lsn, NodeId, StoreId, StoreSpec};

/// How long an embedded store may take to open, or to flush after it exceeded its quota, before it counts as broken.
const EMBEDDED_TIMEOUT: Duration = Duration::from_secs(60);
/// How long another member's report of its copy of an embedded store counts. While the copy is whole, the next report
/// comes within a second.
const COPY_TOLD_LEASE: Duration = Duration::from_secs(5);
/// How long another node's report of a storage counts. If no report follows within this time, the storage may have lost
/// data without this node knowing.
const TOLD_LEASE: Duration = Duration::from_millis(1_500);

/// One store's push.
#[derive(Debug)]
struct StoreWatch {
    /// How far an embedded store that is being opened had applied the log, and since when; `None` if it is not being
    /// opened.
    opening: (Option<Lsn>, Duration),
    /// The last epoch that was complete when the push was started.
    from: Epoch,
    /// Whether the log was empty when the push was started, so that none of it can be in doubt.
    empty: bool,
    /// Whether the storage has reported its watermark.
    watermark: bool,
    /// When another node last reported the storage's position; `None` if this node pushes to it.
    told: Option<Duration>,
    /// Whether the push of an embedded store stopped: it needs an operator.
    stopped: bool,
    /// Whether an embedded store was found damaged since it was opened.
    damaged: bool,
    /// The applied epoch of an embedded store that exceeds its quota, and since when it has not advanced.
    over_quota: Option<(Epoch, Duration)>,
    /// Whether its detachment is in flight.
    detaching: bool,
    /// On-disk positions of the other members' copies of an embedded store, and the times of their reports.
    copies: BTreeMap<NodeId, (Lsn, Duration)>,
    /// Until this node's copy is opened again, or reports undamaged, the log waits for the other members' copies
    /// instead, which have everything up to this epoch.
    left_out: Option<Epoch>,
}

/// The pushes of all declared stores.
#[derive(Debug, Default)]
pub(crate) struct StoreWatches {
    stores: BTreeMap<StoreId, StoreWatch>,
}

/// The truncation that follows a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartTruncation {
    /// It waits until the position of every store is known.
    Waits,
    /// The next tick truncates the log.
    Due,
    /// The log was truncated.
    Done,
}

/// The consequence of an embedded store's flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFlush {
    /// The log was not waiting for the store.
    Nothing,
    /// The store still lacks epochs below the last image.
    Flush,
    /// The log need not wait for the store any longer.
    Truncate,
}

impl AfterFlush {
    /// Returns the consequence for a store that had applied `before` and now `now`, with the last image at `image_at`.
    #[must_use]
    pub(crate) fn of(before: Epoch, now: Epoch, image_at: Epoch) -> AfterFlush {
        match (before < image_at, now < image_at) {
            (false, _) => AfterFlush::Nothing,
            (true, true) => AfterFlush::Flush,
            (true, false) => AfterFlush::Truncate,
        }
    }
}

impl StoreWatches {
    /// Starts to watch a store whose push starts now, after epoch `from` and with the store's log at `head`.
    pub(crate) fn start(&mut self, store: StoreId, head: Lsn, from: Epoch, now: Duration) {
        let watch = StoreWatch {
            opening: (Some(Lsn(0)), now),
            from,
            empty: head == Lsn(0),
            watermark: false,
            told: None,
            stopped: false,
            damaged: false,
            over_quota: None,
            detaching: false,
            copies: BTreeMap::new(),
            left_out: None,
        };
        self.stores.insert(store, watch);
    }

    /// Notes that an embedded store was opened, and perhaps rebuilt: nothing is known until it reports, and it is about
    /// to read the missing records from the log.
    pub(crate) fn opened(&mut self, store: StoreId) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.watermark = false;
            watch.stopped = false;
            watch.damaged = false;
            watch.over_quota = None;
            watch.left_out = None;
        }
    }

    /// Notes that an embedded store was found damaged.
    pub(crate) fn damaged(&mut self, store: StoreId) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.damaged = true;
        }
    }

    /// Notes that a store's storage has reported its watermark.
    pub(crate) fn reported(&mut self, store: StoreId) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.watermark = true;
            watch.told = None;
            watch.stopped = false;
            // A damaged copy reports what it applies, not what it has.
            if !watch.damaged {
                watch.left_out = None;
            }
        }
    }

    /// Notes that the node that pushes to a store has reported its storage's position.
    pub(crate) fn told(&mut self, store: StoreId, now: Duration) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.watermark = true;
            watch.told = Some(now);
        }
    }

    /// Returns the time until which another node's report of a store counts; `None` if the position is known here, or
    /// not at all.
    #[must_use]
    pub(crate) fn known_until(&self, store: StoreId) -> Option<Duration> {
        self.stores.get(&store).and_then(|watch| watch.told).map(|at| at + TOLD_LEASE)
    }

    /// Returns whether a storage has reported its watermark to this node and has everything it acknowledged.
    #[must_use]
    pub(crate) fn is_whole(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|watch| watch.watermark && watch.told.is_none() && !watch.damaged)
    }

    /// Notes that the push of an embedded store stopped: until it reports again, nothing is known.
    pub(crate) fn stopped(&mut self, store: StoreId) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.stopped = true;
            watch.watermark = false;
            watch.empty = false;
        }
    }

    /// Returns whether a store's applied position is known: its storage has reported its watermark, or had nothing to
    /// report.
    #[must_use]
    pub(crate) fn is_known(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|watch| watch.watermark || watch.empty)
    }

    /// Returns whether a storage without any known applied record exceeds a quota that retains the epochs from `bound`
    /// on, and may be detached. A storage that has not reported its watermark yet may have had everything when its push
    /// was started.
    #[must_use]
    pub(crate) fn exceeds(&self, store: StoreId, bound: Epoch) -> bool {
        self.stores.get(&store).is_some_and(|watch| !watch.detaching && (watch.watermark || watch.from < bound))
    }

    /// Returns whether an embedded store that exceeds its quota may be detached: it has opened, has stopped, or has
    /// made no progress for too long. `opens_at` is the last record that its rows reflect while it is being opened: it
    /// first applies the log after its last flush, which may be as much as the quota.
    pub(crate) fn has_opened_or_failed(&mut self, store: StoreId, opens_at: Option<Lsn>, now: Duration) -> bool {
        let Some(watch) = self.stores.get_mut(&store) else { return false };
        if watch.detaching {
            return false;
        }
        if opens_at != watch.opening.0 {
            watch.opening = (opens_at, now);
        }
        let has_ended = opens_at.is_none() && (watch.watermark || watch.stopped);
        has_ended || now.saturating_sub(watch.opening.1) >= EMBEDDED_TIMEOUT
    }

    /// Notes that an embedded store that has applied the log up to `applied` exceeds its quota and was requested to
    /// flush. Returns whether it has made no progress for too long since the request.
    pub(crate) fn fails_to_flush(&mut self, store: StoreId, applied: Epoch, now: Duration) -> bool {
        let Some(watch) = self.stores.get_mut(&store) else { return false };
        match watch.over_quota {
            Some((before, since)) if before == applied => now.saturating_sub(since) >= EMBEDDED_TIMEOUT,
            _ => {
                watch.over_quota = Some((applied, now));
                false
            }
        }
    }

    /// Notes another member's report that its copy of an embedded store has everything up to `acked` on disk.
    pub(crate) fn copy_told(&mut self, store: StoreId, node: NodeId, acked: Lsn, now: Duration) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.copies.insert(node, (acked, now));
        }
    }

    /// Returns the position of the best copy of an embedded store among the other members' recent reports; `is_present`
    /// returns whether a node is a member.
    #[must_use]
    pub(crate) fn best_copy(&self, store: StoreId, now: Duration, is_present: impl Fn(NodeId) -> bool) -> Option<Lsn> {
        let copies = self.stores.get(&store).into_iter().flat_map(|watch| &watch.copies);
        let counts = |node: NodeId, at| now.saturating_sub(at) < COPY_TOLD_LEASE && is_present(node);
        copies.filter(|(node, (_, at))| counts(**node, *at)).map(|(_, (acked, _))| *acked).max()
    }

    /// Makes the log wait for the other members' copies, which have everything up to `applied`, instead of this node's
    /// broken one. Returns whether it did not do so before.
    pub(crate) fn leave_out(&mut self, store: StoreId, applied: Epoch) -> bool {
        let Some(watch) = self.stores.get_mut(&store) else { return false };
        watch.left_out.replace(watch.left_out.map_or(applied, |before| before.max(applied))).is_none()
    }

    /// Returns the epoch up to which the other members' copies have everything, if the log waits for them instead of
    /// this node's.
    #[must_use]
    pub(crate) fn left_out(&self, store: StoreId) -> Option<Epoch> {
        self.stores.get(&store).and_then(|watch| watch.left_out)
    }

    /// Notes that a store's detachment was proposed.
    pub(crate) fn detaching(&mut self, store: StoreId) {
        if let Some(watch) = self.stores.get_mut(&store) {
            watch.detaching = true;
        }
    }
}

/// Returns where a store's records are delivered.
#[must_use]
pub fn delivery(spec: &StoreSpec) -> Delivery {
    if spec.adaptor.is_some() { Delivery::Pushed } else { Delivery::LogOnly }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: StoreId = StoreId(1);

    fn watches(head: Lsn) -> StoreWatches {
        let mut watches = StoreWatches::default();
        watches.start(S, head, Epoch(5), Duration::ZERO);
        watches
    }

    #[test]
    fn an_embedded_store_that_exceeds_its_quota_fails_to_flush_once_it_is_no_further_after_the_timeout() {
        let mut watches = watches(Lsn(0));
        let mut fails = |epoch, seconds| watches.fails_to_flush(S, Epoch(epoch), Duration::from_secs(seconds));
        assert!(!fails(3, 100) && !fails(3, 159), "it has a minute");
        assert!(!fails(4, 160), "it has flushed since");
        assert!(!fails(4, 219) && fails(4, 220));
        watches.start(S, Lsn(9), Epoch(5), Duration::from_secs(220));
        let now = Duration::from_secs(300);
        assert!(!watches.fails_to_flush(S, Epoch(4), now), "it was attached again");
        assert!(!watches.fails_to_flush(StoreId(2), Epoch(4), now), "it is not declared");
    }

    #[test]
    fn a_stopped_embedded_store_may_be_detached_at_once_and_one_that_does_not_open_after_the_timeout() {
        let mut watches = watches(Lsn(7));
        let (soon, late) = (Duration::from_secs(59), EMBEDDED_TIMEOUT);
        let opened = |watches: &mut StoreWatches, now| watches.has_opened_or_failed(S, None, now);
        let opening = |watches: &mut StoreWatches, now| watches.has_opened_or_failed(S, Some(Lsn(0)), now);
        assert!(!watches.is_known(S) && !opening(&mut watches, soon), "it was only just opened");
        assert!(opening(&mut watches, late));
        watches.stopped(S);
        assert!(!watches.is_known(S) && opened(&mut watches, soon), "it needs an operator");
        watches.reported(S);
        assert!(watches.is_known(S) && opened(&mut watches, soon));
        watches.detaching(S);
        assert!(!opened(&mut watches, late));
    }

    #[test]
    fn an_embedded_store_that_applies_a_long_log_while_it_opens_is_given_time_as_long_as_it_gets_further() {
        let mut watches = watches(Lsn(900));
        let mut fails = |opens_at: Option<u64>, seconds| {
            watches.has_opened_or_failed(S, opens_at.map(Lsn), Duration::from_secs(seconds))
        };
        assert!(!fails(Some(100), 50) && !fails(Some(300), 109) && !fails(Some(300), 168), "it gets further");
        assert!(fails(Some(300), 169), "it has got no further for a minute");
        assert!(!fails(Some(301), 170), "the disk is slow");
        watches.stopped(S);
        let mut fails = |opens_at: Option<u64>, seconds| {
            watches.has_opened_or_failed(S, opens_at.map(Lsn), Duration::from_secs(seconds))
        };
        assert!(fails(None, 300), "it has stopped");
        assert!(!fails(Some(0), 400) && !fails(Some(50), 459) && !fails(Some(90), 518), "it is opened again");
        assert!(fails(None, 519), "it has stopped again");
    }

    #[test]
    fn a_copy_that_was_left_out_counts_again_once_it_reports() {
        let mut watches = watches(Lsn(7));
        watches.stopped(S);
        assert!(watches.leave_out(S, Epoch(4)) && !watches.leave_out(S, Epoch(3)), "it is told once");
        watches.stopped(S);
        assert_eq!(watches.left_out(S), Some(Epoch(4)), "what another copy has had on its disk, it has");
        watches.reported(S);
        assert_eq!(watches.left_out(S), None);
        watches.leave_out(S, Epoch(6));
        watches.start(S, Lsn(9), Epoch(5), Duration::ZERO);
        assert_eq!(watches.left_out(S), None, "it was declared again");
    }

    #[test]
    fn another_copy_counts_while_its_node_tells_of_it_and_is_a_member() {
        let mut watches = watches(Lsn(7));
        let at = Duration::from_secs;
        watches.copy_told(S, NodeId(2), Lsn(40), at(100));
        watches.copy_told(S, NodeId(3), Lsn(50), at(103));
        let best = |watches: &StoreWatches, now| watches.best_copy(S, now, |_| true);
        assert_eq!(best(&watches, at(104)), Some(Lsn(50)));
        assert_eq!(watches.best_copy(S, at(104), |node| node == NodeId(2)), Some(Lsn(40)));
        assert_eq!(best(&watches, at(107)), Some(Lsn(50)), "node 2 tells nothing: its copy is broken");
        assert_eq!(best(&watches, at(108)), None);
        watches.copy_told(S, NodeId(3), Lsn(20), at(108));
        assert_eq!(best(&watches, at(108)), Some(Lsn(20)), "it began with an older copy");
        watches.start(S, Lsn(9), Epoch(5), at(108));
        assert_eq!(best(&watches, at(108)), None, "it is another store now");
    }

    #[test]
    fn a_storage_that_has_not_reported_exceeds_its_quota_by_what_was_decided_since_its_push_was_started() {
        let mut watches = watches(Lsn(7));
        assert!(!watches.exceeds(S, Epoch(4)) && !watches.exceeds(S, Epoch(5)), "it may have had all of it");
        assert!(watches.exceeds(S, Epoch(6)));
        watches.reported(S);
        assert!(watches.exceeds(S, Epoch(4)), "it has told what it had");
        watches.detaching(S);
        assert!(!watches.exceeds(S, Epoch(9)) && !watches.exceeds(StoreId(2), Epoch(9)));
    }

    #[test]
    fn what_another_node_tells_counts_for_a_while_and_what_the_storage_reports_here_until_it_is_replaced() {
        let mut watches = watches(Lsn(7));
        assert_eq!((watches.is_known(S), watches.known_until(S)), (false, None));
        watches.told(S, Duration::from_secs(5));
        assert_eq!((watches.is_known(S), watches.is_whole(S)), (true, false));
        assert_eq!(watches.known_until(S), Some(Duration::from_secs(5) + TOLD_LEASE));
        watches.reported(S);
        assert_eq!((watches.is_whole(S), watches.known_until(S)), (true, None));
        watches.start(S, Lsn(9), Epoch(5), Duration::from_secs(6));
        assert!(!watches.is_known(S) && !watches.is_whole(S), "another node pushes");
    }

    #[test]
    fn a_flush_truncates_the_log_if_it_takes_the_store_past_the_image() {
        let after = |before, now| AfterFlush::of(Epoch(before), Epoch(now), Epoch(5));
        assert_eq!(after(3, 4), AfterFlush::Flush);
        assert_eq!((after(3, 5), after(4, 9)), (AfterFlush::Truncate, AfterFlush::Truncate));
        assert_eq!((after(5, 6), after(9, 9)), (AfterFlush::Nothing, AfterFlush::Nothing));
    }
}
