//! Transactions as seen by the HTTP surface: requests become messages to the sequencer, its answers become results.
//!
//! Runs on the HTTP threads. Keys, versions and winners are looked up here rather than on the sequencer: the one thread
//! that every request waits for does only what no other thread can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tribunal_core::verdicts::item_verdict;
use tribunal_core::visibility::make_one_cut;
use tribunal_replica::KnownNow;
use tribunal_service::{
    AckMode, Begin, Begun, Decided, DryRun, IdTime, Lane, Phases, ReadAnswer, ServiceError, ServiceFuture as Reply,
    StatusQuery, TxnApi, TxnStatus,
};
use tribunal_types::{
    Conflict, Epoch, Lsn, NamespaceId, Reason, StoreId, StoreSnapshot, TxnId, TxnRequest, Verdict, VerdictAt, Version,
    limits,
};

use crate::cluster::freshness::CATCH_UP_TIMEOUT;
use crate::commit::abort_report::ReportedTxn;
use crate::commit::message::Message;
use crate::commit::refusals::{outcome_unknown, stopping};
use crate::commit::replies::{Answer, Answered, AnsweredMany, Many, ReplyHandle, ReplySender};
use crate::commit::sequencer::{JUDGING_WORK_MAX, judging_work};
use crate::commit::waiters::commit;
use crate::service::{DECISION_TIMEOUT, NodeService};

/// How long `ack: applied` waits for the stores.
const APPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Snapshots of stores, and the ends of their logs.
type Snapshots = (Vec<StoreSnapshot>, Vec<(StoreId, Lsn)>);

impl NodeService {
    /// Converts the sequencer's answer into a result.
    async fn words(&self, answer: Answer, id: TxnId, asked: Instant) -> Result<Decided, ServiceError> {
        match answer {
            Answer::Decided { epoch, item } => {
                let verdict = epoch.verdict(item).ok_or_else(|| unreadable("its epoch has no such item"))?;
                let verdict = self.with_winners(verdict);
                let timing = &epoch.timing;
                let phases = Phases {
                    queue_us: micros(timing.sealed_at.saturating_duration_since(asked)),
                    sync_us: micros(timing.durable_at - timing.sealed_at),
                    resolve_us: micros(timing.resolved_at - timing.durable_at),
                    apply_us: 0,
                };
                self.shared.metrics.phases.queue.add(u64::from(phases.queue_us), 1);
                let csn = match verdict {
                    Verdict::Committed { csn, .. } => Some(csn),
                    _ => None,
                };
                Ok(Decided { verdict, csn, replayed: false, applied: None, phases, traceparent: None })
            }
            Answer::Stored(at) => self.stored(at).await,
            Answer::BodyMismatch => Err(ServiceError::BodyMismatch),
            Answer::Expired => Err(ServiceError::TxnIdExpired(id_time(id, self.clock.now_ms()))),
            Answer::InFlight => Err(ServiceError::InFlight),
            Answer::Fenced(epoch) => Ok(fenced(epoch)),
            // An abort or a fence: the transaction posted under the id earlier is a separate matter.
            Answer::NotTaken => Err(self.not_closed()),
            Answer::Stopping => Err(stopping()),
            Answer::Unknown => Err(outcome_unknown()),
        }
    }

    /// Converts the sequencer's answer to a commit into a result. A node that accepts nothing new may have accepted
    /// this transaction before, and then must not claim otherwise.
    async fn words_of(&self, answer: Answer, txn: &ReportedTxn, asked: Instant) -> Result<Decided, ServiceError> {
        match answer {
            // A node that is about to stop cannot tell.
            Answer::NotTaken => match self.known(txn.namespace, txn.id).await {
                Ok(known) => Err(self.not_taken_now(known)),
                Err(_) => Err(outcome_unknown()),
            },
            answer => self.words(answer, txn.id, asked).await,
        }
    }

    /// Returns the error for a commit that the node does not accept now, given its knowledge of the id.
    fn not_taken_now(&self, known: KnownNow) -> ServiceError {
        match known {
            KnownNow::InFlight => ServiceError::InFlight,
            // Bodies are not compared here, so the stored verdict may belong to another body.
            KnownNow::At(_) => outcome_unknown(),
            KnownNow::Expired | KnownNow::Unknown => self.not_taken(),
        }
    }

    /// Returns this node's knowledge of an id.
    pub(crate) async fn known(&self, namespace: NamespaceId, id: TxnId) -> Result<KnownNow, ServiceError> {
        self.known_all(vec![(namespace, id)]).await?.pop().ok_or_else(stopping)
    }

    /// Returns this node's knowledge of each id.
    async fn known_all(&self, ids: Vec<(NamespaceId, TxnId)>) -> Result<Vec<KnownNow>, ServiceError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, known) = oneshot::channel();
        self.send(Message::Status(ids, reply))?;
        known.await.map_err(|_| stopping())
    }

    /// Records how long commits took, excluding the rendering of the answer.
    fn answered(&self, ack: AckMode, asked: Instant, count: u64) {
        let phases = &self.shared.metrics.phases;
        let times = if ack == AckMode::Applied { &phases.applied } else { &phases.durable };
        times.add(u64::from(micros(asked.elapsed())), count);
    }

    /// Looks up a stored verdict, in memory or in the log.
    async fn stored(&self, at: VerdictAt) -> Result<Decided, ServiceError> {
        let verdict = match self.shared.cache.epoch(at.epoch) {
            Some(epoch) => epoch.verdict(at.item),
            None => {
                let log = self.records.log.clone();
                let read = tokio::task::spawn_blocking(move || log.epoch(at.epoch)).await;
                let epoch = read.map_err(unreadable)?.map_err(unreadable)?;
                epoch.and_then(|epoch| item_verdict(&epoch.0, &epoch.1, at.item))
            }
        };
        let verdict = verdict.map(|verdict| self.with_winners(verdict));
        // Not "not found": it was decided, and must not be retried under another id.
        let verdict = verdict.ok_or_else(|| ServiceError::ClientMistake {
            code: "verdict_truncated",
            pointer: String::new(),
            detail: format!(
                "this transaction was decided in epoch {}, whose log has been truncated; read its rows to find out how",
                at.epoch
            ),
        })?;
        let csn = match verdict {
            Verdict::Committed { csn, .. } => Some(csn),
            _ => None,
        };
        Ok(Decided { verdict, csn, replayed: true, applied: None, phases: Phases::default(), traceparent: None })
    }

    /// Names the winners of earlier epochs that are still in memory. A validator that rejects for its own reason may
    /// have blamed an operation without a conflict, or none.
    fn with_winners(&self, mut verdict: Verdict) -> Verdict {
        let Verdict::Aborted { reason, conflicts, .. } = &mut verdict else { return verdict };
        let is_defeat = |conflict: &Conflict| !matches!(reason, Reason::Plugin(_)) || conflict.shows_change();
        for conflict in conflicts.iter_mut().filter(|conflict| conflict.by_txn.is_none() && is_defeat(conflict)) {
            let written_in = conflict.current_version.map(Version::epoch).or(conflict.changed_in);
            if let Some(epoch) = written_in.and_then(|epoch| self.shared.cache.epoch(epoch)) {
                epoch.name_winner(conflict);
            }
        }
        verdict
    }

    /// Under `ack: applied`, waits until every store that a commit wrote has applied it.
    async fn until_applied(&self, mut decided: Decided, ack: AckMode, deadline: Instant) -> Decided {
        let (AckMode::Applied, Verdict::Committed { epoch, lsns, .. }) = (ack, &decided.verdict) else {
            return decided;
        };
        let start = Instant::now();
        let stores: Vec<StoreId> = lsns.iter().map(|(store, _)| *store).collect();
        let applied = self.until_visible(&stores, *epoch, deadline).await.is_ok();
        decided.applied = Some(applied);
        decided.phases.apply_us = micros(start.elapsed());
        self.shared.metrics.phases.apply.add(u64::from(decided.phases.apply_us), 1);
        decided
    }

    async fn ask(&self, make: impl FnOnce(ReplyHandle) -> Message) -> Result<Answer, ServiceError> {
        let (sender, answer) = ReplySender::on(None);
        self.send(make(ReplyHandle::Single(sender)))?;
        match tokio::time::timeout(DECISION_TIMEOUT, answer).await {
            Ok(Ok(answered)) => Ok(answered.answer),
            _ => Err(outcome_unknown()),
        }
    }

    async fn judge(&self, txn: TxnRequest) -> Result<Verdict, ServiceError> {
        let verdicts = self.judge_all(vec![txn], || Ok(())).await?;
        verdicts.into_iter().next().ok_or_else(stopping)
    }

    /// Decides read-only transactions. A node that is cut off from the others decides nothing: its state may be stale.
    async fn decide_reads(&self, txns: Vec<TxnRequest>) -> Result<Vec<Verdict>, ServiceError> {
        let takes_commits = || match &self.joined {
            Some(_) if !self.shared.view.takes_commits() => Err(self.not_taken()),
            _ => Ok(()),
        };
        self.judge_all(txns, takes_commits).await
    }

    /// Judges one transaction, or several read-only ones of one tenant. Does not wait for an epoch. The sequencer does other work in
    /// between, so two of them may be judged on different states.
    async fn judge_all(
        &self,
        txns: Vec<TxnRequest>,
        may_judge: impl Fn() -> Result<(), ServiceError>,
    ) -> Result<Vec<Verdict>, ServiceError> {
        may_judge()?;
        self.until_seen(&txns).await?;
        let mut verdicts = Vec::with_capacity(txns.len());
        let mut txns = txns.into_iter().peekable();
        while let Some(first) = txns.next() {
            let namespace = first.namespace;
            let mut work = judging_work(&first);
            let mut slice = vec![first];
            while let Some(next) = txns.next_if(|next| work + judging_work(next) <= JUDGING_WORK_MAX) {
                work += judging_work(&next);
                slice.push(next);
            }
            may_judge()?;
            self.admit(namespace, slice.iter().map(TxnRequest::memory_bytes).sum())?;
            let (reply, answer) = oneshot::channel();
            self.send(Message::Judge(slice, reply))?;
            let judged = answer.await.map_err(|_| self.not_judged())?;
            verdicts.extend(judged.into_iter().map(|verdict| self.with_winners(verdict)));
        }
        Ok(verdicts)
    }

    async fn dry_run(&self, txn: TxnRequest) -> Result<DryRun, ServiceError> {
        // A read-only transaction leaves no trace of its id, and finds none.
        if txn.is_read_only() {
            return self.judge(txn).await.map(DryRun::Judged);
        }
        self.check_quotas(&txn).await?;
        self.until_seen(std::slice::from_ref(&txn)).await?;
        self.admit(txn.namespace, txn.memory_bytes())?;
        let (id, asked) = (txn.id, Instant::now());
        let (reply, answer) = oneshot::channel();
        self.send(Message::DryRun(Box::new(txn), reply))?;
        match answer.await.map_err(|_| self.not_judged())? {
            Ok(verdict) => Ok(DryRun::Judged(self.with_winners(verdict))),
            Err(known) => self.words(known, id, asked).await.map(DryRun::Known),
        }
    }

    async fn decide(&self, txn: TxnRequest, ack: AckMode, lane: Option<Lane>) -> Result<Decided, ServiceError> {
        let reported = ReportedTxn::of(&txn);
        if txn.is_read_only() {
            let verdicts = self.decide_reads(vec![txn]).await?;
            let decided = verdicts.into_iter().next().map(judged).ok_or_else(stopping)?;
            self.report(reported, &decided);
            return Ok(decided);
        }
        let asked = Instant::now();
        self.check_quotas(&txn).await?;
        self.admit_writes(txn.namespace, txn.memory_bytes())?;
        let (sender, answer) = ReplySender::on(lane);
        self.queue.add(commit(Box::new(began(txn)), ReplyHandle::Single(sender))).map_err(|_| stopping())?;
        // The spent transaction is dropped on the thread that allocated it.
        let Ok(Ok(Answered { answer, .. })) = tokio::time::timeout(DECISION_TIMEOUT, answer).await else {
            return Err(outcome_unknown());
        };
        let decided = self.words_of(answer, &reported, asked).await?;
        self.report(reported, &decided);
        let decided = self.until_applied(decided, ack, Instant::now() + APPLY_TIMEOUT).await;
        self.answered(ack, asked, 1);
        Ok(decided)
    }

    /// Decides unrelated transactions: none waits for an answer that only another one needs.
    async fn decide_many(
        &self,
        txns: Vec<TxnRequest>,
        ack: AckMode,
    ) -> Result<Vec<Result<Decided, ServiceError>>, ServiceError> {
        let reported: Vec<ReportedTxn> = txns.iter().map(ReportedTxn::of).collect();
        let (reads, writes): (Vec<_>, Vec<_>) = txns.into_iter().enumerate().partition(|(_, t)| t.is_read_only());
        let (ahead, seen): (Vec<_>, Vec<_>) = reads.into_iter().partition(|(_, txn)| self.may_have_seen_more(txn));
        let (written, seen, ahead) = tokio::join!(
            self.decide_writes(writes, &reported, ack),
            self.decide_reads_at(seen),
            self.decide_reads_at(ahead)
        );
        let mut results: Vec<Option<Result<Decided, ServiceError>>> = reported.iter().map(|_| None).collect();
        for (place, result) in written?.into_iter().chain(seen).chain(ahead) {
            results[place] = Some(result);
        }
        let results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or_else(|| Err(outcome_unknown()))).collect();
        for (txn, result) in reported.into_iter().zip(&results) {
            result.iter().for_each(|decided| self.report(txn, decided));
        }
        Ok(results)
    }

    /// Decides the transactions of a batch that only read, each with its place in the batch.
    async fn decide_reads_at(&self, reads: Vec<(usize, TxnRequest)>) -> Vec<(usize, Result<Decided, ServiceError>)> {
        let (places, txns): (Vec<usize>, Vec<TxnRequest>) = reads.into_iter().unzip();
        match self.decide_reads(txns).await {
            Ok(verdicts) => places.into_iter().zip(verdicts.into_iter().map(|verdict| Ok(judged(verdict)))).collect(),
            Err(error) => places.into_iter().map(|place| (place, Err(error.clone()))).collect(),
        }
    }

    /// Decides the transactions of a batch that write, each with its place in the batch, as are all of `reported`.
    async fn decide_writes(
        &self,
        writes: Vec<(usize, TxnRequest)>,
        reported: &[ReportedTxn],
        ack: AckMode,
    ) -> Result<Vec<(usize, Result<Decided, ServiceError>)>, ServiceError> {
        let asked = Instant::now();
        let (admitted, refused) = self.check_quotas_of_all(writes).await;
        let mut results: Vec<_> = refused.into_iter().map(|(place, error)| (place, Err(error))).collect();
        // All transactions of one batch belong to one tenant.
        let Some(namespace) = admitted.first().map(|(_, txn)| txn.namespace) else { return Ok(results) };
        self.admit_writes(namespace, admitted.iter().map(|(_, txn)| txn.memory_bytes()).sum())?;
        let places: Vec<usize> = admitted.iter().map(|(place, _)| *place).collect();
        let places_count = places.len() as u64;
        let (reply, answers) = oneshot::channel();
        let many = Many::new(places.len(), reply);
        let part = |(slot, (_, txn))| commit(Box::new(began(txn)), ReplyHandle::Part(Arc::clone(&many), slot));
        self.send(Message::Commit(admitted.into_iter().enumerate().map(part).collect()))?;
        let answers = match tokio::time::timeout(DECISION_TIMEOUT, answers).await {
            Ok(Ok(AnsweredMany { answers, spent })) => {
                drop(spent);
                answers
            }
            _ => return Err(outcome_unknown()),
        };
        // One timeout for all stores together: timeouts of several dead stores must not add up.
        let deadline = Instant::now() + APPLY_TIMEOUT;
        // One query for all transactions that were not taken: each query waits for the sequencer.
        let not_taken = places.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Answer::NotTaken));
        let ids = not_taken.map(|(place, _)| (reported[*place].namespace, reported[*place].id)).collect();
        // If the node is about to stop, these remain unknown; the others are decided all the same.
        let mut known = self.known_all(ids).await.unwrap_or_default().into_iter();
        for (place, answer) in places.into_iter().zip(answers) {
            let decided = match answer {
                Answer::NotTaken => Err(known.next().map_or_else(outcome_unknown, |known| self.not_taken_now(known))),
                answer => self.words(answer, reported[place].id, asked).await,
            };
            let result = match decided {
                Ok(decided) => Ok(self.until_applied(decided, ack, deadline).await),
                Err(error) => Err(error),
            };
            results.push((place, result));
        }
        self.answered(ack, asked, places_count);
        Ok(results)
    }

    async fn status_of(&self, query: StatusQuery) -> Result<TxnStatus, ServiceError> {
        let deadline = Instant::now() + Duration::from_millis(query.wait_ms.min(limits::WAIT_MS_MAX));
        let mut known = self.known(query.namespace, query.id).await?;
        if known == KnownNow::Unknown && !query.fence && self.joined.is_some() {
            // Another node may have acknowledged it. The answer `unknown` would let its client execute it again.
            let learned = self.acknowledged(Instant::now() + CATCH_UP_TIMEOUT).await;
            learned.map_err(|reason| ServiceError::Unavailable {
                detail: format!("this node cannot tell whether another node has decided the transaction: {reason}"),
            })?;
            known = self.known(query.namespace, query.id).await?;
        }
        // A fence of an id that never arrived need not wait for it.
        let undecided = known == KnownNow::InFlight || known == KnownNow::Unknown && !query.fence;
        if undecided && query.wait_ms > 0 {
            let (reply, decided) = oneshot::channel();
            self.send(Message::Watch(query.namespace, query.id, reply))?;
            // On timeout or shutdown, the earlier answer holds.
            if let Ok(Ok(decided)) = timeout_at(deadline.into(), decided).await {
                known = decided;
            }
        }
        match known {
            KnownNow::At(at) => match self.stored(at).await {
                // The query changed nothing; it can be retried.
                Err(ServiceError::OutcomeUnknown { detail }) => Err(ServiceError::Unavailable { detail }),
                stored => stored.map(TxnStatus::Decided),
            },
            KnownNow::Expired => Ok(TxnStatus::UnknownExpired),
            // The result of a fence must be certain, so it is queued after the transaction in flight.
            KnownNow::Unknown | KnownNow::InFlight if query.fence => match self.fence(query).await? {
                // The id is not old, or it would have been known as expired: its time is so far ahead that it was never
                // executed, and no fence would last.
                TxnStatus::UnknownExpired => Err(ServiceError::TxnIdExpired(IdTime::Ahead)),
                fenced => Ok(fenced),
            },
            KnownNow::Unknown => Ok(TxnStatus::Unknown),
            KnownNow::InFlight => Ok(TxnStatus::InFlight),
        }
    }

    /// Returns a snapshot of each store that is not older than `floor`, and where the store's log ends. Every commit up to
    /// the snapshot is there or before.
    fn snapshots_of(&self, stores: &[StoreId], floor: Epoch) -> Result<Snapshots, ServiceError> {
        let (mut snapshots, mut lsns) = (Vec::with_capacity(stores.len()), Vec::with_capacity(stores.len()));
        for &store in stores {
            let progress = self.reported(store)?;
            if progress.applied < floor || progress.detached {
                return Err(self.lagging(store, 1000));
            }
            snapshots.push(StoreSnapshot { store, at: progress.applied });
            lsns.push((store, progress.head));
        }
        Ok((snapshots, lsns))
    }

    async fn fence(&self, query: StatusQuery) -> Result<TxnStatus, ServiceError> {
        match self.ask(|handle| Message::Fence(query.namespace, query.id, handle)).await? {
            Answer::Expired => Ok(TxnStatus::UnknownExpired),
            answer => {
                let decided = self.words(answer, query.id, Instant::now()).await?;
                self.report(ReportedTxn::given_up(query.namespace, query.id), &decided);
                Ok(TxnStatus::Decided(decided))
            }
        }
    }

    async fn begin_now(&self, begin: Begin) -> Result<Begun, ServiceError> {
        if self.joined.is_some() && self.shared.view.refuses_transactions() {
            // It would issue ids that no node executes (wrong clock), or that this node cannot execute (missing
            // code).
            return Err(self.not_taken());
        }
        let until = self.until_fresh(&begin.stores, begin.freshness).await?;
        let floor = self.shared.progress.floor();
        let mut read = ReadAnswer::default();
        if !begin.read.is_empty() {
            read = self.rows.read_by(&begin.read, until).await?;
        }
        let catalog = self.stores.catalog();
        let keeps_versions = |store: StoreId| catalog.by_id(store).is_some_and(|spec| spec.multi_version);
        let one_cut = begin.stores.iter().any(|store| keeps_versions(*store));
        if one_cut {
            // All stores get one snapshot, and reads must not be newer: without `wait_ms`, the other stores must
            // have applied it already.
            let mut visible = self.until_visible(&begin.stores, read.applied, Instant::now()).await;
            // The rows that wait for the other stores count towards no quota yet.
            if visible.is_err()
                && let Some(_held) = self.rows.long_reads.hold(begin.namespace, read.bytes())
            {
                visible = self.until_visible(&begin.stores, read.applied, until).await;
            }
            visible.map_err(|store| self.lagging(store, self.retry_after()))?;
        }
        // After the rows: the ends of the logs must not be older than what was read.
        let (mut snapshots, lsns) = self.snapshots_of(&begin.stores, floor)?;
        for store in begin.read.stores() {
            // The read was of exactly this epoch, however far the store is by now.
            snapshots.iter_mut().filter(|snapshot| snapshot.store == store).for_each(|s| s.at = read.applied);
        }
        // A storage may return with less than it had.
        if one_cut && let Some(late) = snapshots.iter().find(|snapshot| snapshot.at < read.applied) {
            return Err(self.lagging(late.store, self.retry_after()));
        }
        make_one_cut(&mut snapshots, keeps_versions);
        let epoch = self.shared.progress.last().next();
        Ok(Begun { read, snapshots, lsns, epoch, time_ms: self.clock.now_ms() })
    }
}

impl TxnApi for NodeService {
    fn begin(&self, begin: Begin) -> Reply<'_, Begun> {
        Box::pin(async move {
            let asked = Instant::now();
            let begun = self.begin_now(begin).await?;
            self.shared.metrics.phases.begin.add(u64::from(micros(asked.elapsed())), 1);
            Ok(begun)
        })
    }

    fn commit(&self, txn: TxnRequest, ack: AckMode, lane: Option<Lane>) -> Reply<'_, Decided> {
        match &self.tracing {
            None => Box::pin(self.decide(txn, ack, lane)),
            Some(tracing) => Box::pin(tracing.commit(txn, move |txn| self.decide(txn, ack, lane))),
        }
    }

    fn commit_many(&self, txns: Vec<TxnRequest>, ack: AckMode) -> Reply<'_, Vec<Result<Decided, ServiceError>>> {
        match &self.tracing {
            None => Box::pin(self.decide_many(txns, ack)),
            Some(tracing) => Box::pin(tracing.commit_many(txns, move |txns| self.decide_many(txns, ack))),
        }
    }

    fn abort(&self, namespace: NamespaceId, id: TxnId) -> Reply<'_, Decided> {
        Box::pin(async move {
            let asked = Instant::now();
            let answer = self.ask(|handle| Message::Abort(namespace, id, handle)).await?;
            let decided = self.words(answer, id, asked).await?;
            self.report(ReportedTxn::given_up(namespace, id), &decided);
            Ok(decided)
        })
    }

    fn validate(&self, txn: TxnRequest) -> Reply<'_, DryRun> {
        Box::pin(self.dry_run(txn))
    }

    fn status(&self, query: StatusQuery) -> Reply<'_, TxnStatus> {
        Box::pin(self.status_of(query))
    }

    fn retry_after_ms(&self) -> u64 {
        self.retry_after()
    }
}

/// Sets the start of a transaction that named snapshots: when its newest one was current. Used by `shorter-txn-wins`.
fn began(mut txn: TxnRequest) -> TxnRequest {
    txn.start = txn.start.or_else(|| txn.snapshots.iter().map(|s| s.at.next()).max());
    txn
}

/// Wraps a verdict that belongs to no epoch: nothing of it is stored.
/// Returns why an id without a known verdict is not executed, by its time and the service's.
fn id_time(id: TxnId, now_ms: u64) -> IdTime {
    match id.unix_ms() {
        ms if ms > now_ms.saturating_add(limits::ID_WINDOW_MS / 2) => IdTime::Ahead,
        ms if now_ms.saturating_sub(ms) > limits::ID_WINDOW_MS => IdTime::Past,
        _ => IdTime::Forgotten,
    }
}

fn judged(verdict: Verdict) -> Decided {
    Decided { verdict, csn: None, replayed: false, applied: None, phases: Phases::default(), traceparent: None }
}

/// Returns the error for a verdict that was made and cannot be read: not "unavailable", which would mean that there is
/// none.
fn unreadable(reason: impl std::fmt::Display) -> ServiceError {
    tracing::error!(%reason, "a verdict cannot be read");
    ServiceError::OutcomeUnknown {
        detail: "the transaction was decided, but its verdict cannot be read now; get its status by id later".into(),
    }
}

fn fenced(epoch: Epoch) -> Decided {
    judged(Verdict::Aborted { epoch, reason: Reason::Fenced, conflicts: Vec::new() })
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
