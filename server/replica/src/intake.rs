//! Client requests: added to the open batch, or answered at once.

use alloc::vec::Vec;

use tribunal_core::executor::ShardExecutor;
use tribunal_core::id_table::Known;
use tribunal_types::{EarlyAbort, FenceItem, ImportedVersion, NamespaceId, Reason, TxnId};

use crate::answer::{Answer, KnownNow};
use crate::backlog::Deferred;
use crate::effect::Effect;
use crate::event::{Commit, Waiters};
use crate::items::PendingTxn;
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;

/// How many commits ahead a commit's rows are loaded, and their locations: the fastest of 1 to 8 (`cargo bench -p
/// tribunal-core --bench resolve -- --admit 2`).
const ROWS_AHEAD: usize = 2;
const TAGS_AHEAD: usize = 2 * ROWS_AHEAD;
/// Commits that are taken from the backlog at once: enough for the prefetch, and few to put back.
const RUN: usize = 64;
/// Memory for more commits than this is freed.
const SPARE_COMMITS_MAX: usize = 4096;
/// A larger transaction is freed as soon as it is copied into the batch.
const SPENT_BYTES_MAX: usize = 64 * 1024;

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Processes a list of commits.
    pub(crate) fn commits(&mut self, mut commits: Vec<Commit<W::Item>>) {
        if self.backlog.is_empty() {
            let rest = self.offer_all(commits);
            return rest.into_iter().for_each(|commit| self.backlog.add(Deferred::Commit(commit)));
        }
        // The open batch is full, and nothing overtakes what waits.
        for Commit { txn, waiter } in commits.drain(..) {
            let known = self.resolver.known(txn.namespace, txn.id);
            match self.answer_to_known(&txn, known) {
                Some(answer) => self.answer(waiter, answer, Some(txn)),
                None => self.backlog.add(Deferred::Commit(Commit { txn, waiter })),
            }
        }
        self.keep_spare(commits);
    }

    /// Adds transactions to the open batch; returns those for which there is no room.
    fn offer_all(&mut self, mut commits: Vec<Commit<W::Item>>) -> Vec<Commit<W::Item>> {
        let mut left = commits.drain(..);
        // Prefetch: otherwise each lookup would wait for its row.
        let first = left.as_slice();
        first.iter().take(TAGS_AHEAD).for_each(|commit| self.resolver.prefetch_tags(&commit.txn));
        first.iter().take(ROWS_AHEAD).for_each(|commit| self.resolver.prefetch_rows(&commit.txn));
        while let Some(commit) = left.next() {
            if let Some(later) = left.as_slice().get(TAGS_AHEAD - 1) {
                self.resolver.prefetch_tags(&later.txn);
            }
            if let Some(soon) = left.as_slice().get(ROWS_AHEAD - 1) {
                self.resolver.prefetch_rows(&soon.txn);
            }
            if let Some(commit) = self.offer(commit) {
                return core::iter::once(commit).chain(left).collect();
            }
        }
        drop(left);
        self.keep_spare(commits);
        Vec::new()
    }

    fn keep_spare(&mut self, commits: Vec<Commit<W::Item>>) {
        if commits.capacity() <= SPARE_COMMITS_MAX {
            self.spare_commits = commits;
        }
    }

    /// Moves items that wait into the open batch, until it is full.
    pub(crate) fn take_backlog(&mut self) {
        while let Some(item) = self.backlog.take() {
            let rest = match item {
                Deferred::Commit(first) => {
                    let run = self.run_from(first);
                    self.offer_all(run).into_iter().map(Deferred::Commit).collect()
                }
                Deferred::Abort(namespace, id, waiter) => {
                    Vec::from_iter(self.offer_abort(namespace, id, waiter, false))
                }
                Deferred::Fence(namespace, id, waiter) => {
                    Vec::from_iter(self.offer_fence(namespace, id, waiter, false))
                }
            };
            if !rest.is_empty() {
                return rest.into_iter().rev().for_each(|item| self.backlog.put_back(item));
            }
        }
    }

    /// Takes more commits that wait, so that their rows can be prefetched. No more than the open batch has room for: what
    /// is put back would confuse the turns.
    fn run_from(&mut self, first: Commit<W::Item>) -> Vec<Commit<W::Item>> {
        let mut room = self.batcher.room().saturating_sub(first.txn.memory_bytes());
        let mut run = core::mem::take(&mut self.spare_commits);
        run.push(first);
        while run.len() < RUN
            && let Some(Deferred::Commit(next)) = self.backlog.peek()
            && let Some(left) = room.checked_sub(next.txn.memory_bytes())
            && let Some(Deferred::Commit(next)) = self.backlog.take()
        {
            room = left;
            run.push(next);
        }
        run
    }

    /// Adds a transaction to the open batch; returns it if the batch is full.
    fn offer(&mut self, commit: Commit<W::Item>) -> Option<Commit<W::Item>> {
        let Commit { txn, waiter } = commit;
        let key = (txn.namespace, txn.id);
        let body = txn.body_hash;
        let known = self.resolver.known(txn.namespace, txn.id);
        if let Some(answer) = self.answer_to_known(&txn, known) {
            self.answer(waiter, answer, Some(txn));
            return None;
        }
        // An epoch judges ids outside the window: the window moves with its time.
        if matches!(known, Known::Unknown)
            && let Some((reason, conflicts)) = self.resolver.find_early_abort(&txn)
        {
            let abort =
                EarlyAbort { id: txn.id, body_hash: Some(txn.body_hash), namespace: txn.namespace, reason, conflicts };
            if self.batcher.add_early_abort(abort).is_err() {
                return Some(Commit { txn, waiter });
            }
            self.open.aborts.push(PendingTxn { waiter, spent: Some(txn) });
        } else {
            if self.batcher.offer(&txn, self.now.unix_us).is_err() {
                return Some(Commit { txn, waiter });
            }
            let spent = (txn.memory_bytes() <= SPENT_BYTES_MAX).then_some(txn);
            self.open.txns.push(PendingTxn { waiter, spent });
        }
        self.in_flight.insert(key, Some(body));
        self.opened();
        None
    }

    pub(crate) fn abort(&mut self, namespace: NamespaceId, id: TxnId, waiter: W::Item) {
        let left = self.offer_abort(namespace, id, waiter, !self.backlog.is_empty());
        left.into_iter().for_each(|item| self.backlog.add(item));
    }

    /// Answers an abort whose id is known, or adds it to the open batch; returns it if the batch is full, or if it `waits`
    /// after other items.
    fn offer_abort(
        &mut self,
        namespace: NamespaceId,
        id: TxnId,
        waiter: W::Item,
        waits: bool,
    ) -> Option<Deferred<W::Item>> {
        let known = match self.known(namespace, id) {
            KnownNow::InFlight => Some(Answer::InFlight),
            KnownNow::At(at) => Some(Answer::Stored(at)),
            KnownNow::Expired => Some(Answer::Expired),
            KnownNow::Unknown => None,
        };
        if let Some(known) = known {
            self.answer(waiter, known, None);
            return None;
        }
        let abort = EarlyAbort { id, body_hash: None, namespace, reason: Reason::ClientAbort, conflicts: Vec::new() };
        if waits || self.batcher.add_early_abort(abort).is_err() {
            return Some(Deferred::Abort(namespace, id, waiter));
        }
        self.in_flight.insert((namespace, id), None);
        self.open.aborts.push(PendingTxn { waiter, spent: None });
        self.opened();
        None
    }

    pub(crate) fn fence(&mut self, namespace: NamespaceId, id: TxnId, waiter: W::Item) {
        let left = self.offer_fence(namespace, id, waiter, !self.backlog.is_empty());
        left.into_iter().for_each(|item| self.backlog.add(item));
    }

    /// Answers a fence whose id is decided, or adds it to the open batch; returns it if the batch is full, or if it `waits`
    /// after other items.
    fn offer_fence(
        &mut self,
        namespace: NamespaceId,
        id: TxnId,
        waiter: W::Item,
        waits: bool,
    ) -> Option<Deferred<W::Item>> {
        let known = match self.known(namespace, id) {
            KnownNow::At(at) => Some(Answer::Stored(at)),
            KnownNow::Expired => Some(Answer::Expired),
            // A fence of an id in flight is decided after it, in the same epoch or a later one.
            KnownNow::InFlight | KnownNow::Unknown => None,
        };
        if let Some(known) = known {
            self.answer(waiter, known, None);
            return None;
        }
        if waits || self.batcher.fence(FenceItem { id, namespace }).is_err() {
            return Some(Deferred::Fence(namespace, id, waiter));
        }
        self.open.fences.push(waiter);
        self.opened();
        None
    }

    pub(crate) fn watch(&mut self, namespace: NamespaceId, id: TxnId, watch: W::Watch) {
        let known = self.known(namespace, id);
        let turned_away = match known {
            KnownNow::At(_) | KnownNow::Expired => Some(watch),
            KnownNow::InFlight | KnownNow::Unknown => self.watchers.add(namespace, id, watch),
        };
        self.effects.extend(turned_away.map(|watch| Effect::Known(watch, known)));
    }

    pub(crate) fn import(&mut self, versions: Vec<ImportedVersion>, waiter: W::Import) {
        self.imports.push_back((versions, waiter));
        self.opened();
    }

    /// Adds the next import to the open batch, unless the batch is full or already has one.
    pub(crate) fn take_import(&mut self) {
        if self.open.import.is_none()
            && let Some((versions, waiter)) = self.imports.pop_front()
        {
            match self.batcher.import(&versions) {
                Ok(()) => self.open.import = Some(waiter),
                Err(_) => self.imports.push_front((versions, waiter)),
            }
        }
    }

    pub(crate) fn opened(&mut self) {
        self.opened_at.get_or_insert(self.now.monotonic);
    }
}
