//! A member that lacks entries which the others no longer have copies the state of one of them: its newest state image and
//! the rows of its embedded stores. So does one whose rows are broken and can no longer be filled from its own log, once an operator
//! has it try again.
//!
//! What the member has promised to its groups (votes, entries that it has acknowledged) stays in its log. The image takes the
//! place of the entries that it includes, and the rows are those after at least the same epochs; the log continues after them.

use std::collections::BTreeMap;

use tribunal_log::EntryId;
use tribunal_types::{GroupId, NodeId};

pub mod incoming;
pub mod listing;
pub mod offers;
pub mod pulling;

/// What a member lacks, and what a copy has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// What it is.
    pub lacks: Lacks,
    /// What this node's log has no more, by group: the image has to include that as well. One of a later epoch need not, for
    /// images differ in how much of the control log they include.
    pub compacted: BTreeMap<GroupId, u64>,
    /// Where the other nodes are.
    pub others: BTreeMap<NodeId, String>,
}

/// What a member lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// Entries that the others no longer have.
    Entries {
        /// The group.
        group: GroupId,
        /// The node that leads it.
        leader: NodeId,
        /// The last entry that it has no more: an image has to include it.
        at_least: EntryId,
    },
    /// Rows of an embedded store that are broken, and that its own log no longer has.
    Rows {
        /// The store's name.
        store: String,
    },
}
