//! Which messages a group accepts: everything that a replica may send at this moment, and nothing that makes raft-rs
//! panic.
//!
//! While too much of a group waits for the disk, it drops what a leader appends, as if it were lost: its memory is
//! bounded by [`UNPERSISTED_BYTES_MAX`] and one message. Once the disk has caught up, the next append shows the leader
//! which entries are missing. Heartbeats, votes and images are not affected, nor are a leader's own proposals, which
//! have their own limit.
//!
//! Requests are accepted from nodes that are not members as far as this node knows: it may not know of their change
//! yet. The connection checks that they belong to the cluster.

use raft::StateRole;
use raft::eraftpb::{Message, MessageType};
use tribunal_codec::EntryId;
use tribunal_types::NodeId;

use crate::group::Group;
use crate::refused::Refused;
use crate::settings::{READS_PENDING_MAX, TERMS_AHEAD_MAX, UNPERSISTED_BYTES_MAX};
use crate::storage::GroupLog;

/// How to handle a message.
pub(crate) enum Admitted {
    /// Step it.
    Step,
    /// Fetch a state image: the message announces compacted entries.
    Image(EntryId),
}

impl<L: GroupLog> Group<L> {
    /// Returns how to handle a message.
    pub(crate) fn admit(&self, message: &Message) -> Result<Admitted, Refused> {
        let raft = &self.node.raft;
        let from = NodeId(message.from as u16);
        let last = raft.raft_log.last_index();
        if message.term > raft.term.saturating_add(TERMS_AHEAD_MAX) {
            return Err(Refused::TermTooFar { term: message.term, own: raft.term });
        }
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.term >= raft.term && message.commit > last => {
                let is_known = message.term == raft.term && raft.leader_id != 0;
                return Err(if is_known && raft.leader_id != message.from {
                    Refused::NotLeader(from)
                } else {
                    Refused::PastLog { index: message.commit, last }
                });
            }
            // One without entries as well: its acknowledgement would wait, too.
            MessageType::MsgAppend if self.bytes_pending() >= UNPERSISTED_BYTES_MAX => {
                return Err(Refused::WritesPending);
            }
            MessageType::MsgAppendResponse => {
                self.check_member(from)?;
                // A leader sends entries before they are durable locally: if it is killed then, it has promised
                // nothing.
                if raft.state != StateRole::Leader {
                    return Err(Refused::NotLeader(NodeId(raft.id as u16)));
                }
                if message.term == raft.term && message.index > last {
                    return Err(Refused::PastLeader { from, index: message.index, last });
                }
            }
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
                self.check_member(from)?;
                // No request was sent yet: raft-rs relies on that.
                if self.has_log_pending() {
                    return Err(Refused::WritesPending);
                }
            }
            MessageType::MsgHeartbeatResponse => self.check_member(from)?,
            MessageType::MsgTimeoutNow => {
                if message.term != raft.term || raft.leader_id != message.from {
                    return Err(Refused::NotLeader(from));
                }
                self.check_may_campaign()?;
            }
            MessageType::MsgReadIndex => {
                self.check_member(from)?;
                self.check_answers_reads()?;
            }
            MessageType::MsgReadIndexResp if message.term != raft.term || raft.leader_id != message.from => {
                return Err(Refused::NotLeader(from));
            }
            MessageType::MsgSnapshot => return self.admit_snapshot(message),
            _ => {}
        }
        Ok(Admitted::Step)
    }

    /// Steps a snapshot that is not ahead, so that the leader gets an answer and continues.
    fn admit_snapshot(&self, message: &Message) -> Result<Admitted, Refused> {
        let raft = &self.node.raft;
        if message.term < raft.term {
            return Err(Refused::Late);
        }
        let metadata = message.get_snapshot().get_metadata();
        let id = EntryId { term: metadata.term, index: metadata.index };
        let committed = raft.raft_log.committed;
        if id.index < committed || raft.raft_log.match_term(id.index, id.term) {
            return Ok(Admitted::Step);
        }
        // raft-rs would replace the committed entry at that index with it.
        if id.index == committed { Err(Refused::Late) } else { Ok(Admitted::Image(id)) }
    }

    fn check_member(&self, from: NodeId) -> Result<(), Refused> {
        let known = self.node.raft.prs().get(u64::from(from.0)).is_some();
        if known { Ok(()) } else { Err(Refused::NotAMember(from)) }
    }

    /// Checks that the group leads and knows the commit index.
    pub(crate) fn check_answers_reads(&self) -> Result<(), Refused> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return Err(Refused::NotLeader(self.me));
        }
        if !raft.commit_to_current_term() {
            return Err(Refused::NoLeader);
        }
        if raft.pending_read_count() >= READS_PENDING_MAX { Err(Refused::TooManyReads) } else { Ok(()) }
    }

    /// Checks that an election may begin here. raft-rs panics if a voter that decides alone has not persisted its log,
    /// or if a state image is not durable.
    pub(crate) fn check_may_campaign(&self) -> Result<(), Refused> {
        let raft = &self.node.raft;
        let image_pending = raft.raft_log.applied < raft.store().compacted().index;
        let alone = self.members.decides_alone(self.me) && self.has_log_pending();
        if image_pending || alone { Err(Refused::WritesPending) } else { Ok(()) }
    }
}
