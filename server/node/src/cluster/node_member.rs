//! The member of a cluster as a node runs it.

use tribunal_member::Member;

use crate::cluster::group_logs::GroupLogs;
use crate::commit::shards::Workers;
use crate::commit::waiters::Channels;
use crate::plugins::policies::PolicySet;

/// A member of a cluster as this process runs it.
pub type NodeMember = Member<Channels, PolicySet, Workers, GroupLogs>;
