//! The Raft groups with a replica on this node: one group for each node of the cluster, and the control group.
//!
//! The only crate that uses raft-rs. Sans I/O: inputs in by [`RaftGroups::step`], [`RaftGroups::propose`] and
//! [`RaftGroups::propose_members`], [`Output`]s out by [`RaftGroups::poll`]. No clock, thread, file or socket; the same
//! inputs have the same outputs, byte for byte, election timeouts included.
//!
//! # The caller's duties
//!
//! After one or more inputs, the caller polls until nothing is returned, and carries out the outputs in order.
//!
//! * **Start.** [`RaftGroups::add_group`] for each group, with its state in the log and the point that the durable
//!   state image includes. Entries after that point are handed out again. The first members of a group must be the same
//!   on all nodes. The home node of a group then campaigns ([`Input::Campaign`]); all other nodes wait.
//! * **Writes.** [`Output::Append`] and [`Output::SetState`] are written to the log, all groups in one sequence.
//!   [`Output::Sync`] ends the writes of one sync, for all groups together; once it and everything before it is
//!   durable, step [`Input::Persisted`] with its number. Syncs may be in flight while further inputs are stepped, and
//!   one [`Input::Persisted`] may cover several. After a failed write or sync the node must end: never step
//!   `Persisted`. A state without a following sync may be lost; it becomes durable with the next sync.
//! * **Messages.** [`Output::Send`] may be sent at once, whatever was written: a message that must wait is not returned
//!   earlier. Messages may be lost, repeated and reordered. Heartbeats have their own connection. A received message is
//!   stepped with the node that its connection authenticated. Frames larger than [`MESSAGE_BYTES_MAX`] are rejected
//!   before they are read. When a connection breaks, step [`Input::Unreachable`].
//! * **Durability.** [`Output::Durable`] is sent to its node like a message, and stepped there as [`Input::Durable`].
//! * **Entries.** [`Output::Appended`] is not committed and may be replaced: it is only a hint that a peer is sealing.
//!   [`Output::Committed`], [`Output::TermBegun`] and [`Output::MembersChanged`] are final, each returned once and in
//!   log order. The id of the last of them, with the members of the last `MembersChanged`, is the group's
//!   [`GroupPoint`]: a state image must include it.
//! * **Proposals.** Only the leader accepts them. An accepted proposal may still be replaced: it is definitely lost
//!   when `TermBegun` of a later term, or `Committed` of a later index, precedes it. A node that took over a group
//!   proposes nothing in it before `TermBegun` with `leading`.
//! * **Takeover.** If other groups wait for a group's entries: [`Input::TakeOver`] on one of its voters. It ignores the
//!   leader's heartbeats, so use it sparingly, and preferably on one node at a time. When the home node has recovered,
//!   the leader returns the leadership with [`Input::TransferLeader`].
//! * **Reads.** [`Input::ReadIndex`], then wait until the group's point reaches the index. It may never be answered, or
//!   the entries up to the index may be lost with their leader: retry after a while, and when the leader or term
//!   changes.
//! * **Back-pressure.** A busy state machine is given no more entries of a group ([`RaftGroups::hold_back`]): committed
//!   entries wait in the log, and are handed out from there.
//! * **Peers.** A node that cannot reach a leader may request the entries handed out on a third node
//!   ([`RaftGroups::handed_out_after`]): they are committed, so they are final. The own log gets them from the leader
//!   later.
//! * **Compaction.** When a state image is durable, [`Input::Compact`] with its point of each group. The log may
//!   truncate the entries that the next [`Output::SetState`] reports as compacted.
//! * **Images.** On [`Output::NeedsImage`] the caller fetches an image from any live peer, makes it durable, and steps
//!   [`Input::Install`] for *every* group with its point in the image: they share one state machine. Entries after the
//!   point are handed out, again if they were before; entries included in the image are not. Until then the group
//!   receives no entries.
//! * **Members.** One change at a time, and never one that removes the leader: it transfers the leadership first. A
//!   removed node keeps the group until the caller removes it; the caller must check that a node belongs to the
//!   cluster.

mod admission;
mod durability;
mod election_timeout;
mod entry_content;
mod group;
mod group_ready;
mod groups;
mod input;
mod members;
mod message;
mod outbox;
mod output;
mod pending_reads;
mod recent_entries;
mod refused;
mod settings;
mod sole_member;
mod storage;
#[cfg(test)]
mod tests;

pub use entry_content::EntryKind;
pub use groups::RaftGroups;
pub use input::{GroupPoint, Input, StoredGroup};
pub use members::Members;
pub use message::RaftMessage;
pub use output::{DurableUpTo, Output};
pub use refused::{BadGroup, Refused};
pub use settings::{MESSAGE_BYTES_MAX, MESSAGE_ENTRY_BYTES_MAX, NODE_MAX, PAYLOAD_BYTES_MAX, Settings};
pub use sole_member::{SoleMember, sole_member};
pub use storage::GroupLog;
