//! Copies another member's state: its newest state image and the rows of its embedded stores. Used by a member that
//! lacks entries that the other members no longer have, and by one whose rows are broken and can no longer be refilled
//! from its own log, once an operator has it try again.
//!
//! The member's promises to its groups (votes, acknowledged entries) stay in its log. The image replaces the entries
//! that it includes, and the rows are at least as recent as its epochs; the log continues after them.

use std::collections::BTreeMap;

use tribunal_log::EntryId;
use tribunal_types::{GroupId, NodeId};

pub mod incoming;
pub mod listing;
pub mod offers;
pub mod pulling;

/// State that a member lacks, and requirements on a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The missing state.
    pub lacks: Lacks,
    /// Entries compacted in this node's log, by group: the image has to include those as well. An image of a later
    /// epoch does not necessarily, because images differ in how much of the control log they include.
    pub compacted: BTreeMap<GroupId, u64>,
    /// Addresses of the other nodes.
    pub others: BTreeMap<NodeId, String>,
}

/// State that a member lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// Entries that the others no longer have.
    Entries {
        /// The group.
        group: GroupId,
        /// The node that leads it.
        leader: NodeId,
        /// The last entry that the leader no longer has: an image has to include it.
        at_least: EntryId,
    },
    /// Rows of an embedded store that are broken, and whose records its own log no longer has.
    Rows {
        /// The store's name.
        store: String,
    },
}
