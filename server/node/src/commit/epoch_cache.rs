//! Recent epochs in memory, so that replies, pulls and pushes near the head never decode the log.
//!
//! The sequencer publishes an epoch here before it answers any client; an epoch is evicted once its outcome is in the
//! log and the cache exceeds its bound. All other epochs are in the log.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::RwLock;
use tribunal_core::verdicts::{CommittedByVersion, item_verdict, name_winner};
use tribunal_types::{
    Batch, Conflict, Decision, Epoch, EpochInput, EpochOutcome, Lsn, PluginSlot, StoreId, TxnIx, Verdict,
};

use crate::plugins::plugin_health::CallTimes;

/// When an epoch passed each stage, by the node's own clock; decides nothing.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Its batch was sealed.
    pub sealed_at: Instant,
    /// Its batch was durable.
    pub durable_at: Instant,
    /// It was resolved.
    pub resolved_at: Instant,
    /// Call times of its plugins, if traces are on.
    pub plugins: Vec<(PluginSlot, CallTimes)>,
}

impl Timing {
    /// Returns the timing of an epoch that has just been resolved.
    #[must_use]
    pub fn resolved_now(sealed_at: Instant, durable_at: Instant, plugins: Vec<(PluginSlot, CallTimes)>) -> Timing {
        Timing { sealed_at, durable_at, resolved_at: Instant::now(), plugins }
    }
}

/// An epoch's input and outcome.
#[derive(Debug)]
pub struct ResolvedEpoch {
    /// The input.
    pub input: EpochInput,
    /// The outcome.
    pub outcome: EpochOutcome,
    /// When it passed each stage.
    pub timing: Timing,
    /// First and last LSN by store, ascending store.
    heads: Vec<(StoreId, Lsn, Lsn)>,
    /// Built on the first conflict that needs it.
    committed: OnceLock<CommittedByVersion>,
    /// By transaction: index of its first entry in `outcome.lsns`, which are grouped by transaction.
    first_lsn: Vec<u32>,
    bytes: usize,
}

impl ResolvedEpoch {
    /// Joins input and outcome; `heads` are the outcome's LSN ranges.
    #[must_use]
    pub fn new(
        input: EpochInput,
        outcome: EpochOutcome,
        heads: Vec<(StoreId, Lsn, Lsn)>,
        timing: Timing,
    ) -> ResolvedEpoch {
        let mut first_lsn = vec![u32::MAX; outcome.decisions.len()];
        for (i, at) in outcome.lsns.iter().enumerate().rev() {
            first_lsn[at.txn.0 as usize] = i as u32;
        }
        let input_bytes: usize = input.batches.iter().map(|batch| batch.memory_bytes()).sum();
        // Count the index by version before it is built: any cached epoch may need one.
        let indices = first_lsn.capacity() * size_of::<u32>()
            + heads.capacity() * size_of::<(StoreId, Lsn, Lsn)>()
            + CommittedByVersion::memory_bytes(&outcome);
        let bytes = input_bytes + outcome.memory_bytes() + indices + size_of::<ResolvedEpoch>();
        ResolvedEpoch { input, outcome, timing, heads, committed: OnceLock::new(), first_lsn, bytes }
    }

    /// Returns the verdict that this epoch gave to an item (see `VerdictAt`), in constant time for a commit.
    #[must_use]
    pub fn verdict(&self, item: u32) -> Option<Verdict> {
        let Some(&Decision::Committed { version }) = self.outcome.decisions.get(item as usize) else {
            return item_verdict(&self.input, &self.outcome, item);
        };
        let (batch, t) = self.input.locate(TxnIx(item));
        let first = self.first_lsn[item as usize] as usize;
        let lsns = self.outcome.lsns.get(first..).unwrap_or_default();
        let lsns = lsns.iter().take_while(|at| at.txn.0 == item).map(|at| (at.store, at.lsn)).collect();
        Some(Verdict::Committed { epoch: self.outcome.epoch, csn: batch.txns[t].csn, version, lsns })
    }

    /// Completes a conflict whose row or range was last written in this epoch.
    pub fn name_winner(&self, conflict: &mut Conflict) {
        let committed = self.committed.get_or_init(|| CommittedByVersion::new(&self.outcome));
        name_winner(&self.input, committed, conflict);
    }

    /// Returns those of the epoch's batches that have no other owner, to reuse their memory.
    pub fn into_batches(self) -> impl Iterator<Item = Batch> {
        self.input.batches.into_iter().filter_map(Arc::into_inner)
    }

    fn span_of(&self, store: StoreId) -> Option<(Lsn, Lsn)> {
        let at = self.heads.binary_search_by_key(&store, |head| head.0).ok()?;
        Some((self.heads[at].1, self.heads[at].2))
    }
}

#[derive(Default)]
struct Window {
    epochs: VecDeque<Arc<ResolvedEpoch>>,
    bytes: usize,
    logged: Epoch,
}

/// The cache.
pub struct EpochCache {
    window: RwLock<Window>,
    bytes_max: usize,
}

impl EpochCache {
    /// Creates a cache of about `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize) -> EpochCache {
        EpochCache { window: RwLock::default(), bytes_max }
    }

    /// Adds the newest epoch; returns the evicted ones.
    #[must_use]
    pub fn publish(&self, epoch: Arc<ResolvedEpoch>) -> Vec<Arc<ResolvedEpoch>> {
        let mut window = self.window.write();
        window.bytes += epoch.bytes;
        window.epochs.push_back(epoch);
        self.evict(&mut window)
    }

    /// Records that outcomes up to `epoch` are in the log and may be evicted.
    pub fn logged(&self, epoch: Epoch) {
        self.window.write().logged = epoch;
    }

    fn evict(&self, window: &mut Window) -> Vec<Arc<ResolvedEpoch>> {
        let mut evicted = Vec::new();
        while window.bytes > self.bytes_max {
            match window.epochs.pop_front_if(|oldest| oldest.outcome.epoch <= window.logged) {
                Some(oldest) => {
                    window.bytes -= oldest.bytes;
                    evicted.push(oldest);
                }
                None => break,
            }
        }
        evicted
    }

    /// Returns epoch `epoch`, if cached.
    #[must_use]
    pub fn epoch(&self, epoch: Epoch) -> Option<Arc<ResolvedEpoch>> {
        let window = self.window.read();
        let at = window.epochs.binary_search_by_key(&epoch, |epoch| epoch.outcome.epoch).ok()?;
        window.epochs.get(at).cloned()
    }

    /// Returns the epoch with the record that follows `after` in `store`, if cached.
    #[must_use]
    pub fn following(&self, store: StoreId, after: Lsn) -> Option<Arc<ResolvedEpoch>> {
        let window = self.window.read();
        // Readers follow the head, so search backwards from it, to the first epoch before their position.
        let mut found = None;
        for epoch in window.epochs.iter().rev() {
            match epoch.span_of(store) {
                Some((_, last)) if last <= after => break,
                Some((first, _)) => {
                    found = Some((first, epoch));
                    if first <= after.next() {
                        break;
                    }
                }
                None => {}
            }
        }
        found.filter(|(first, _)| *first <= after.next()).map(|(_, epoch)| Arc::clone(epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::{
        CreatedRow, EarlyAbort, FenceResult, NamespaceId, OpKind, Reason, Stage, StoreLsn, TxnId, VerdictAt, Version,
        Witness,
    };

    fn epoch(epoch: u64, lsns: &[(u32, u64)]) -> Arc<ResolvedEpoch> {
        let lsns = lsns.iter().map(|&(store, lsn)| StoreLsn { txn: TxnIx(0), store: StoreId(store), lsn: Lsn(lsn) });
        let outcome = EpochOutcome {
            epoch: Epoch(epoch),
            lsns: lsns.collect(),
            decisions: vec![Decision::Expired],
            ..EpochOutcome::default()
        };
        resolved(Vec::new(), outcome)
    }

    fn resolved(batches: Vec<Arc<Batch>>, outcome: EpochOutcome) -> Arc<ResolvedEpoch> {
        let input = EpochInput { epoch: outcome.epoch, epoch_time_ms: 0, batches };
        let now = Instant::now();
        let timing = Timing { sealed_at: now, durable_at: now, resolved_at: now, plugins: Vec::new() };
        let heads = outcome.heads();
        Arc::new(ResolvedEpoch::new(input, outcome, heads, timing))
    }

    /// Aborts with many conflicts are the largest items that a batch may contain.
    #[test]
    fn early_aborts_count_with_their_conflicts() {
        let conflict = Conflict {
            store: StoreId(1),
            key: vec![0; 1_000],
            end: Some(vec![0; 1_000]),
            op: OpKind::Range,
            read_version: None,
            row: None,
            current_version: None,
            by_txn: None,
            changed_in: None,
            stage: Stage::Admission,
        };
        let abort = EarlyAbort {
            id: TxnId([1; 16]),
            body_hash: None,
            namespace: NamespaceId(0),
            reason: Reason::ReadConflict,
            conflicts: vec![conflict; 100],
        };
        let cache = EpochCache::new(1 << 20);
        cache.logged(Epoch(20));
        for n in 1..=20 {
            let batch = Batch { early_aborts: vec![abort.clone()], ..Batch::default() };
            let outcome = EpochOutcome { epoch: Epoch(n), ..EpochOutcome::default() };
            let _ = cache.publish(resolved(vec![Arc::new(batch)], outcome));
        }
        let kept = (1..=20).filter(|n| cache.epoch(Epoch(*n)).is_some()).count();
        assert!((1..=5).contains(&kept), "{kept} epochs of 200 KB are within 1 MiB");
    }

    #[test]
    fn every_list_of_an_outcome_counts() {
        const N: usize = 1_000;
        let at = VerdictAt { epoch: Epoch(1), item: 0 };
        let version = Version::new(Epoch(1), 1).expect("a version");
        let witness = Witness { op: OpKind::Read, index: 0, current: None, winner: None, stage: Stage::Merge };
        let outcomes = [
            EpochOutcome { witnesses: vec![witness; N], ..EpochOutcome::default() },
            EpochOutcome { created: vec![CreatedRow { txn: TxnIx(0), write: 0 }; N], ..EpochOutcome::default() },
            EpochOutcome { early_aborts: vec![at; N], ..EpochOutcome::default() },
            EpochOutcome { fences: vec![FenceResult::Fenced; N], ..EpochOutcome::default() },
            EpochOutcome { decisions: vec![Decision::Committed { version }; N], ..EpochOutcome::default() },
            EpochOutcome { order: vec![TxnIx(0); N], ..EpochOutcome::default() },
        ];
        for outcome in outcomes {
            let text = format!("{outcome:?}");
            let bytes = resolved(Vec::new(), outcome).bytes;
            assert!(bytes >= N * size_of::<CreatedRow>(), "{bytes} bytes for {}", text.split_at(200).0);
        }
    }

    #[test]
    fn finds_the_epoch_after_a_position() {
        let cache = EpochCache::new(1 << 20);
        let _ = cache.publish(epoch(5, &[(1, 10), (1, 11)]));
        let _ = cache.publish(epoch(6, &[(2, 1)]));
        let _ = cache.publish(epoch(7, &[(1, 12), (1, 13)]));
        let at = |store, after| cache.following(StoreId(store), Lsn(after)).map(|e| e.outcome.epoch.0);
        assert_eq!(at(1, 9), Some(5));
        assert_eq!(at(1, 10), Some(5));
        assert_eq!(at(1, 11), Some(7));
        assert_eq!(at(1, 13), None, "nothing after the head");
        assert_eq!(at(1, 8), None, "record 9 is in the log only");
        assert_eq!(at(2, 0), Some(6));
        assert_eq!(cache.epoch(Epoch(6)).map(|e| e.outcome.epoch), Some(Epoch(6)));
    }

    #[test]
    fn keeps_what_the_log_does_not_hold_yet() {
        let cache = EpochCache::new(0);
        let _ = cache.publish(epoch(1, &[(1, 1)]));
        let _ = cache.publish(epoch(2, &[(1, 2)]));
        assert!(cache.epoch(Epoch(1)).is_some());
        cache.logged(Epoch(1));
        let _ = cache.publish(epoch(3, &[(1, 3)]));
        assert!(cache.epoch(Epoch(1)).is_none());
        assert!(cache.epoch(Epoch(2)).is_some());
    }
}
