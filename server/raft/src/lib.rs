//! The Raft groups of which a node is a replica: one for each node of the cluster, and the control group.
//!
//! The only crate that knows raft-rs. Sans I/O: inputs in by [`RaftGroups::step`], [`RaftGroups::propose`] and
//! [`RaftGroups::propose_members`], [`Output`]s out by [`RaftGroups::poll`]. No clock, thread, file or socket; the same
//! inputs have the same outputs, byte for byte, election timeouts included.
//!
//! # What the caller does
//!
//! After one or several inputs it polls until nothing is returned, and carries the outputs out in their order.
//!
//! * **Start.** [`RaftGroups::add_group`] for each group, with the state that the log has and the point that the
//!   durable state image includes. Entries after that point are handed out again. The first members of a group must be
//!   the same on all nodes. The home node of a group then stands for election ([`Input::Campaign`]); everybody else
//!   waits.
//! * **Writes.** [`Output::Append`] and [`Output::SetState`] are written to the log, all groups in one sequence.
//!   [`Output::Sync`] ends what one sync makes durable, for all groups together; when it is, and with it everything
//!   before it, [`Input::Persisted`] with its number. Syncs may be in flight while further inputs are stepped, and one
//!   [`Input::Persisted`] may stand for several. A failed write or sync is the end of the node: never `Persisted`. A
//!   state that no sync follows may be lost; it is durable with the next one.
//! * **Messages.** [`Output::Send`] may be sent at once, whatever was written: what must not be is not returned before.
//!   It may be lost, repeated and reordered. Heartbeats have a connection of their own. A received message is stepped
//!   with the node that its connection authenticated. Frames above [`MESSAGE_BYTES_MAX`] are refused before they are
//!   read. When a connection breaks, [`Input::Unreachable`].
//! * **Durability.** [`Output::Durable`] is sent to its node like a message, and stepped there as [`Input::Durable`].
//! * **Entries.** [`Output::Appended`] is not committed and may be replaced: it is only a hint that a peer is sealing.
//!   [`Output::Committed`], [`Output::TermBegun`] and [`Output::MembersChanged`] are final, each once and in the order
//!   of the log. The id of the last of them, with the members of the last `MembersChanged`, is the group's
//!   [`GroupPoint`]: a state image must include it.
//! * **Proposals.** Only the leader takes them. One that was accepted may still be replaced: it is lost for certain
//!   when `TermBegun` of a later term, or `Committed` of a later index, comes before it. A node that took over a group
//!   proposes nothing in it before `TermBegun` with `leading`.
//! * **Takeover.** A group whose entries others wait for: [`Input::TakeOver`] on one of its voters. It ignores that the
//!   leader still sends heartbeats, so it is not to be used lightly, and best by one node at a time. When the home node
//!   is well again, the leader returns the leadership with [`Input::TransferLeader`].
//! * **Reads.** [`Input::ReadIndex`], then wait until the group's point reaches the index. It may never be answered, or the
//!   entries up to the index may be lost with their leader: repeat it after a while, and when the leader or term changes.
//! * **Holding back.** A state machine that has enough to do is given no more of a group ([`RaftGroups::hold_back`]): what is committed
//!   waits in the log, and is handed out from there.
//! * **Peers.** A node that cannot reach a leader may ask a third one for what that one has handed out
//!   ([`RaftGroups::handed_out_after`]): it is committed, so it is final. The own log gets it from the leader, later.
//! * **Compaction.** When a state image is durable, [`Input::Compact`] with its point of each group. The log may
//!   truncate what the next [`Output::SetState`] calls compacted.
//! * **Images.** On [`Output::NeedsImage`] the caller gets an image from any live peer, makes it durable, and steps
//!   [`Input::Install`] for *every* group with its point in the image: they share one state machine. What follows the
//!   point is handed out, again if it was before; what the image includes is not. Until then the group receives no
//!   entries.
//! * **Members.** One change at a time, and never one that removes the leader: it transfers the leadership first. A
//!   removed node keeps the group until the caller removes it; that a node belongs to the cluster is for the caller to
//!   check.

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

pub use durability::DurableUpTo;
pub use entry_content::EntryKind;
pub use groups::RaftGroups;
pub use input::{GroupPoint, Input, StoredGroup};
pub use members::Members;
pub use message::RaftMessage;
pub use output::Output;
pub use refused::{BadGroup, Refused};
pub use settings::{MESSAGE_BYTES_MAX, MESSAGE_ENTRY_BYTES_MAX, NODE_MAX, PAYLOAD_BYTES_MAX, Settings};
pub use sole_member::{SoleMember, sole_member};
pub use storage::GroupLog;
