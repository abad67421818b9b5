//! Messages to the sequencer, and its final report.

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
use crate::stores::push_reports::PushReports;

/// Requests and notifications for the sequencer, besides the commits in its queue.
pub enum Message {
    /// Transactions to decide, in this order.
    Commit(Vec<Commit>),
    /// The commit queue has reached the length that wakes the sequencer.
    CommitsQueued,
    /// Read-only transactions to judge.
    Judge(Vec<TxnRequest>, oneshot::Sender<Vec<Verdict>>),
    /// A dry run of a writing transaction: returns the verdict, or the answer for its known id.
    DryRun(Box<TxnRequest>, oneshot::Sender<Result<Verdict, Answer>>),
    /// A client gives up a transaction.
    Abort(NamespaceId, TxnId, ReplyHandle),
    /// Make sure that an id that never arrived never commits.
    Fence(NamespaceId, TxnId, ReplyHandle),
    /// Query the current knowledge of each of these ids.
    Status(Vec<(NamespaceId, TxnId)>, oneshot::Sender<Vec<KnownNow>>),
    /// Wait until an id has a verdict.
    Watch(NamespaceId, TxnId, oneshot::Sender<KnownNow>),
    /// Query the last epoch that includes everything acknowledged on any node before now; `None` if no majority
    /// replies.
    Fresh(oneshot::Sender<Option<Epoch>>),
    /// Versions of existing rows; answered once they are imported.
    Import(Vec<ImportedVersion>, ImportWaiter),
    /// A change of configuration; answered once its entry is durable and applied.
    Control(ControlChange, oneshot::Sender<ControlReply>),
    /// A batch is durable.
    Durable(Arc<Batch>),
    /// A control entry is durable.
    ControlDurable(ControlIndex, ControlEntry),
    /// The member's writes before its sync of this number are durable.
    Persisted(u64),
    /// A frame from another node.
    Peer(Received, Box<Frame>),
    /// Frames sent to another node may be lost.
    Unreachable(NodeId),
    /// Another node reports that this one was removed.
    Removed(NodeId),
    /// The log failed: durability is in doubt.
    LogFailed(String),
    /// The push that this control entry started has reports.
    PushReported(StoreId, ControlIndex, Arc<PushReports>),
    /// Without this store, the log could be truncated below this epoch and its quota met.
    OverQuota(StoreId, Epoch),
    /// The log was not truncated, because a store needs a part of it that is not known yet.
    TruncationPutOff,
    /// The rows of this embedded store are broken on this member, and its log no longer has the missing records: end,
    /// so that another member's state can be copied.
    CopyState {
        /// The store's name.
        store: String,
    },
    /// Take a state image that is newer than the last one: another node has copied that one and needs a newer one, or the
    /// log cannot be truncated without it.
    TakeImage,
    /// The logs of these Raft groups may be compacted up to these entries.
    Compact(Vec<(GroupId, u64)>),
    /// Finish the epochs in flight and end.
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
    /// The node lacks state that only another member has.
    Lags(Lag),
}
