//! Messages to the sequencer, and what it reports when it ends.

use std::sync::Arc;

use tokio::sync::oneshot;
use tribunal_member::Frame;
use tribunal_peer::Received;
use tribunal_replica::{ControlReply, KnownNow};
use tribunal_types::{
    Batch, ControlChange, ControlEntry, ControlIndex, Epoch, GroupId, ImportedVersion, NamespaceId, NodeId, StoreId,
    TxnId, TxnRequest, Verdict,
};

use crate::cluster::state_copy::Lag;
use crate::commit::replies::{Answer, ReplyHandle};
use crate::commit::waiters::{Commit, ImportWaiter};
use crate::stores::catalog::PushReports;

/// Requests and notes for the sequencer, beside the commits in its queue.
pub enum Message {
    /// Transactions to decide, in this order.
    Commit(Vec<Commit>),
    /// As many commits are in the queue as the sequencer is to be woken for.
    CommitsQueued,
    /// Transactions that only read.
    Judge(Vec<TxnRequest>, oneshot::Sender<Vec<Verdict>>),
    /// A dry run of a transaction that writes: the verdict, or the answer that its known id gets.
    DryRun(Box<TxnRequest>, oneshot::Sender<Result<Verdict, Answer>>),
    /// A client gives up.
    Abort(NamespaceId, TxnId, ReplyHandle),
    /// Make sure that an id that never arrived never commits.
    Fence(NamespaceId, TxnId, ReplyHandle),
    /// What is known of each of these ids now.
    Status(Vec<(NamespaceId, TxnId)>, oneshot::Sender<Vec<KnownNow>>),
    /// What is known of an id, as soon as that is a verdict.
    Watch(NamespaceId, TxnId, oneshot::Sender<KnownNow>),
    /// The last epoch that includes everything that was acknowledged on any node before now; `None` if no majority tells.
    Fresh(oneshot::Sender<Option<Epoch>>),
    /// Versions of existing rows; answered once they are imported.
    Import(Vec<ImportedVersion>, ImportWaiter),
    /// A change of configuration; answered once its entry is durable and applied.
    Control(ControlChange, oneshot::Sender<ControlReply>),
    /// A batch is durable.
    Durable(Arc<Batch>),
    /// A control entry is durable.
    ControlDurable(ControlIndex, ControlEntry),
    /// What the member wrote before its sync of this number is durable.
    Persisted(u64),
    /// Another node sent this.
    Peer(Received, Box<Frame>),
    /// What was sent to another node may be lost.
    Unreachable(NodeId),
    /// Another node says that this one was removed.
    Removed(NodeId),
    /// The log failed: durability is in doubt.
    LogFailed(String),
    /// The push that this control entry started has reports.
    PushReported(StoreId, ControlIndex, Arc<PushReports>),
    /// Without this store, the log could be truncated below this epoch and its quota be kept.
    OverQuota(StoreId, Epoch),
    /// The rows of this embedded store are broken on this member, and its log no longer has what they lack: end, so that the state of
    /// another member can be copied.
    CopyState {
        /// Its name.
        store: String,
    },
    /// The logs of these Raft groups may be compacted up to these entries.
    Compact(Vec<(GroupId, u64)>),
    /// Finish what is under way and end.
    Stop,
}

/// How the sequencer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was requested.
    Stopped,
    /// Durability is in doubt, for this reason.
    LogFailed(String),
    /// The node must not take part in its cluster, for this reason.
    Refused(String),
    /// The node lacks what only the state of another member has.
    Lags(Lag),
}
