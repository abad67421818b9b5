//! Catches a member up with commits acknowledged on other nodes before it answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tribunal_service::{Freshness, ServiceError, Session};
use tribunal_types::{Epoch, NodeStage, StoreId, TxnRequest, limits};

use crate::cluster::obstacle::{not_begun, not_let_in, obstacle, starting};
use crate::cluster::view::{Joined, not_connected, view_of};
use crate::commit::message::Message;
use crate::commit::refusals::stopping;
use crate::service::NodeService;

/// A session token further ahead than this of the node's last epoch may be fabricated: the other nodes are queried.
const SESSION_LEAD_MAX: u64 = 64;
/// How long a node may take to catch up.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum time between two rounds of queries to the other nodes. A request with an unknown key triggers one.
const ROUNDS_INTERVAL: Duration = Duration::from_millis(20);

impl NodeService {
    /// Waits until everything that a request must include is visible in all `stores`. Returns its deadline.
    pub(crate) async fn until_fresh(&self, stores: &[StoreId], freshness: Freshness) -> Result<Instant, ServiceError> {
        let wait_ms = freshness.wait_ms.min(limits::WAIT_MS_MAX);
        let until = Instant::now() + Duration::from_millis(wait_ms);
        let mut session = freshness.session;
        if freshness.fresh {
            let unknown = |reason| ServiceError::Unavailable {
                detail: format!(
                    "this node cannot tell{} what was acknowledged elsewhere: {reason}. Or omit `consistency: fresh`",
                    if Instant::now() < until { String::new() } else { format!(" within {wait_ms} ms (`wait_ms`)") }
                ),
            };
            let acknowledged = self.acknowledged(until).await.map_err(unknown)?;
            if let Some(Session(epoch)) = session.filter(|session| session.0 > acknowledged) {
                return Err(session_unknown(epoch, acknowledged));
            }
            session = Some(Session(acknowledged));
        } else if let Some(session) = session {
            self.check_session(session, until).await?;
        }
        if self.joined.is_some() && !self.catch_up.has_caught_up() {
            let unknown = |reason| ServiceError::Unavailable {
                detail: format!(
                    "this node has just started, and cannot tell yet what it acknowledged before: {reason}"
                ),
            };
            self.acknowledged(until).await.map_err(unknown)?;
        }
        if let Some(Session(epoch)) = session {
            let visible = self.until_visible(stores, epoch, until).await;
            visible.map_err(|store| self.lagging(store, self.retry_after()))?;
        }
        Ok(until)
    }

    /// Refuses a session that no node can have issued: it is ahead of every decided epoch.
    async fn check_session(&self, Session(epoch): Session, until: Instant) -> Result<(), ServiceError> {
        // Without other nodes, no node is ahead of this one: the token is from a log that was replaced, for example by
        // a backup.
        let lead = if self.joined.is_some() { SESSION_LEAD_MAX } else { 0 };
        if epoch.0 <= self.shared.progress.last().0.saturating_add(lead) {
            return Ok(());
        }
        match self.acknowledged(until).await {
            Ok(last) if epoch > last => Err(session_unknown(epoch, last)),
            // This node lags, or cannot tell.
            _ => Ok(()),
        }
    }

    /// Waits until this node has decided all epochs that these transactions may have seen on other nodes. If judged
    /// earlier, rows that they have read would look as if they had changed.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`] if the other nodes do not report their progress.
    pub(crate) async fn until_seen(&self, txns: &[TxnRequest]) -> Result<(), ServiceError> {
        if !txns.iter().any(|txn| self.may_have_seen_more(txn)) {
            return Ok(());
        }
        // A position after everything acknowledged is fabricated; no transaction need wait for it.
        let acknowledged = self.acknowledged(Instant::now() + CATCH_UP_TIMEOUT).await;
        acknowledged.map(drop).map_err(|reason| ServiceError::Unavailable {
            detail: format!(
                "the transaction may have seen commits of other nodes that this node has not decided yet, and it cannot tell: {reason}"
            ),
        })
    }

    /// Returns whether the transaction may have seen epochs on another node that this node has not decided yet.
    pub(crate) fn may_have_seen_more(&self, txn: &TxnRequest) -> bool {
        // No node is ahead of a single node.
        self.joined.is_some()
            && (!self.catch_up.has_caught_up() || txn.seen().is_none_or(|seen| seen > self.shared.progress.last()))
    }

    /// Returns the last epoch that includes everything acknowledged on any node before now, once this node has decided
    /// it.
    ///
    /// # Errors
    /// The reason why that epoch is unknown.
    pub(crate) async fn acknowledged(&self, until: Instant) -> Result<Epoch, String> {
        let metrics = &self.shared.metrics.cluster;
        metrics.fresh_reads.inc();
        if self.joined.is_none() {
            // An epoch is published before its transactions are acknowledged.
            return Ok(self.shared.progress.last());
        }
        let (reply, answer) = oneshot::channel();
        self.send(Message::Fresh(reply)).map_err(|_| "the node is stopping".to_owned())?;
        match timeout_at(until.into(), answer).await {
            Ok(Ok(Some(epoch))) => {
                self.catch_up.since_start.store(true, Ordering::Release);
                Ok(epoch)
            }
            _ => {
                metrics.fresh_read_failures.inc();
                Err(self.obstacle())
            }
        }
    }

    /// Learns all configuration acknowledged on any node before now. Concurrent calls share the queries to the other
    /// nodes.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`] if the other nodes do not reply.
    pub(crate) async fn catch_up_with_others(&self) -> Result<(), ServiceError> {
        let asked = Instant::now();
        let mut last = self.catch_up.configuration.lock().await;
        if let Some((begun, result)) = &*last {
            if *begun >= asked {
                return result.clone();
            }
            tokio::time::sleep_until((*begun + ROUNDS_INTERVAL).into()).await;
        }
        let begun = Instant::now();
        let learned = self.acknowledged(begun + CATCH_UP_TIMEOUT).await;
        let result = learned.map(drop).map_err(|reason| ServiceError::Unavailable {
            detail: format!(
                "the request names a key, store or position that this node does not know, and it cannot tell whether another node has just \
                 created it: {reason}"
            ),
        });
        *self.catch_up.failed_at.lock() = result.is_err().then(Instant::now);
        *last = Some((begun, result.clone()));
        result
    }

    /// Returns whether no present member of the cluster has a lower number; true for a node that runs alone.
    pub(crate) fn has_lowest_number(&self) -> bool {
        let Some(Joined { membership, .. }) = &self.joined else { return true };
        let members = self.shared.view.roles().members;
        let mut present = members.nodes().filter(|known| known.stage == NodeStage::Present);
        present.next().is_none_or(|lowest| lowest.id >= membership.node)
    }

    /// Returns whether this node sets the configuration of a new cluster; true for a node that runs alone.
    pub(crate) fn seeds(&self) -> bool {
        self.joined.as_ref().is_none_or(|joined| joined.membership.seeds())
    }

    /// Returns why this node takes no commits, or cannot learn of the other nodes' commits, and the remedy.
    pub(crate) fn obstacle(&self) -> String {
        if let Some(Joined { peers, .. }) = self.joined.as_ref().filter(|_| !self.configured.load(Ordering::Relaxed))
            && self.shared.progress.last() > Epoch(0)
        {
            return starting(&not_connected(peers));
        }
        if let Some(Joined { membership, peers, .. }) =
            self.joined.as_ref().filter(|_| !self.configured.load(Ordering::Relaxed))
        {
            let missing = not_connected(peers);
            return if membership.is_founder() { not_begun(membership, &missing) } else { not_let_in(&missing) };
        }
        obstacle(&view_of(&self.shared.view, self.joined.as_ref(), self.group))
    }

    /// Returns the error for a missing reply of the sequencer: it has ended, or lacks the code that judges.
    pub(crate) fn not_judged(&self) -> ServiceError {
        if self.stopping.load(Ordering::Relaxed) { stopping() } else { self.not_taken() }
    }

    /// Returns the error for a node that currently cannot give up a transaction or fence its id.
    pub(crate) fn not_closed(&self) -> ServiceError {
        let detail = format!(
            "the id was not closed, so what was posted under it may still commit; get its status later. The reason: {}",
            self.obstacle()
        );
        ServiceError::Unavailable { detail }
    }

    /// Returns the error for a node that currently takes no transactions or changes.
    pub(crate) fn not_taken(&self) -> ServiceError {
        ServiceError::Unavailable { detail: format!("nothing was taken in: {}", self.obstacle()) }
    }
}

fn session_unknown(epoch: Epoch, last: Epoch) -> ServiceError {
    ServiceError::ClientMistake {
        code: "session_unknown",
        pointer: "/session".into(),
        detail: format!(
            "the session token is of epoch {epoch}, and the last one that was decided is {last}: no node of this log has issued it; \
             omit `session`"
        ),
    }
}
