//! Settings, and fixed limits.
//!
//! raft-rs has unsafe defaults (no quorum check, no pre-vote, unlimited sizes): all of them are overridden here.

use raft::{Config, ReadOnlyOption};
use tribunal_types::NodeId;
use tribunal_types::limits::{BODY_BYTES_MAX, NODES_MAX};

/// Maximum bytes of a proposal: a batch of at most 1 MiB, or a single transaction.
pub const PAYLOAD_BYTES_MAX: usize = BODY_BYTES_MAX + MESSAGE_ENTRY_BYTES_MAX;
/// Maximum bytes of entries in one message; a larger entry is sent alone.
pub const MESSAGE_ENTRY_BYTES_MAX: usize = 1024 * 1024;
/// Maximum bytes of an encoded message.
pub const MESSAGE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;
/// Append messages that a leader sends to one peer before it waits for an acknowledgement.
pub const APPENDS_IN_FLIGHT_MAX: usize = 32;
/// Maximum bytes of uncommitted proposals of one group; further ones are refused.
pub const UNCOMMITTED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one group that may wait for the disk before further appends are dropped. A full window of large entries stays
/// below it; one of tiny entries may not, and its end is sent again. Without the bound, raft-rs sends one more message for
/// each heartbeat response, whether or not anything has become durable.
pub const UNPERSISTED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes charged for a waiting entry or acknowledgement in addition to its content: its places in memory and in the
/// queue of the log.
pub const UNPERSISTED_ITEM_BYTES: usize = 512;
/// Maximum bytes of committed entries that one group hands out before the other groups get their turn.
pub const COMMITTED_BYTES_PER_ROUND_MAX: usize = 4 * 1024 * 1024;
/// Maximum bytes of entries that a group keeps in memory although they are in the log, committed and handed out.
pub const RECENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of reads of one group waiting for their index.
pub const READS_PENDING_MAX: usize = 1024;
/// Maximum number of members of one group, learners included.
pub const MEMBERS_MAX: usize = NODES_MAX;
/// Highest node number: 10 bits, as in a CSN.
pub const NODE_MAX: u16 = 1023;
/// Highest term, index and commit index that a peer may send. No real value comes near it, and nothing overflows below
/// it.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Maximum lead of a message's term over this node's: further than any elections get, even with the jumps of `tribunal
/// cluster recover`. Otherwise a peer could raise the term to the maximum, after which no election is possible.
pub const TERMS_AHEAD_MAX: u64 = 1 << 40;

const _: () = {
    assert!(MESSAGE_ENTRY_BYTES_MAX <= PAYLOAD_BYTES_MAX);
    assert!(PAYLOAD_BYTES_MAX < MESSAGE_BYTES_MAX);
    assert!(MESSAGE_ENTRY_BYTES_MAX <= UNCOMMITTED_BYTES_MAX);
    assert!(APPENDS_IN_FLIGHT_MAX >= 4);
    assert!(APPENDS_IN_FLIGHT_MAX * MESSAGE_ENTRY_BYTES_MAX + PAYLOAD_BYTES_MAX <= UNPERSISTED_BYTES_MAX);
};

/// Settings of the groups of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Ticks without a leader after which an election may begin: the actual number is drawn between this one and half
    /// as much again. A leader that does not reach a majority for this long steps down.
    pub election_ticks: u16,
    /// Ticks between the heartbeats of a leader.
    pub heartbeat_ticks: u16,
    /// Seed of everything drawn, and the name of this run of the node: it must differ from every earlier run's, or an
    /// answer to a read of an earlier run could be taken for one of this run.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { election_ticks: 10, heartbeat_ticks: 2, seed: 0 }
    }
}

impl Settings {
    /// Returns the first number of ticks that no election timeout reaches.
    pub(crate) fn election_ticks_end(&self) -> usize {
        let ticks = usize::from(self.election_ticks);
        ticks + ticks.div_ceil(2).max(1)
    }

    pub(crate) fn config(&self, node: NodeId, applied: u64) -> Config {
        Config {
            id: u64::from(node.0),
            election_tick: usize::from(self.election_ticks),
            heartbeat_tick: usize::from(self.heartbeat_ticks),
            applied,
            max_size_per_msg: MESSAGE_ENTRY_BYTES_MAX as u64,
            max_inflight_msgs: APPENDS_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            min_election_tick: usize::from(self.election_ticks),
            max_election_tick: self.election_ticks_end(),
            read_only_option: ReadOnlyOption::Safe,
            // Every member counts (`durability.rs`).
            skip_bcast_commit: true,
            // Merged messages would exceed the limit of one.
            batch_append: false,
            priority: 0,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX as u64,
            max_committed_size_per_ready: COMMITTED_BYTES_PER_ROUND_MAX as u64,
        }
    }
}
