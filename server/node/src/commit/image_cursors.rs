//! How far the two newest state images of a member have read the Raft groups: only entries that the older image
//! includes may be compacted, in case the newer one proves unreadable.

use std::collections::BTreeMap;

use tribunal_log::GroupCursors;
use tribunal_types::GroupId;

/// Cursors of the retained images.
#[derive(Debug, Default)]
pub struct ImageCursors {
    older: GroupCursors,
    newest: GroupCursors,
}

impl ImageCursors {
    /// Starts with the cursors of the recovered image; empty if there was none.
    #[must_use]
    pub fn new(newest: GroupCursors) -> ImageCursors {
        ImageCursors { older: GroupCursors::new(), newest }
    }

    /// Returns whether entries may be compacted that the older image includes: a member that has started with one image knows
    /// that of the older one only once it has stored another.
    #[must_use]
    pub fn is_older_known(&self) -> bool {
        self.newest.is_empty() || !self.older.is_empty()
    }

    /// Records that a newer image is durable.
    pub fn stored(&mut self, newest: GroupCursors) {
        self.older = std::mem::replace(&mut self.newest, newest);
    }

    /// Returns the entry up to which each group may be compacted, at most the one that the log can `spare`.
    #[must_use]
    pub fn compactable(&self, spare: &BTreeMap<GroupId, u64>) -> Vec<(GroupId, u64)> {
        let upto = |(group, spare): (&GroupId, &u64)| {
            let included = self.older.get(group)?.included.index;
            Some((*group, included.min(*spare))).filter(|(_, upto)| *upto > 0)
        };
        spare.iter().filter_map(upto).collect()
    }
}

#[cfg(test)]
mod tests {
    use tribunal_log::{EntryId, GroupCursor};
    use tribunal_types::NodeId;

    use super::*;

    #[test]
    fn what_the_older_image_includes_and_nobody_else_needs_may_be_compacted() {
        let group = |node| GroupId { node: NodeId(node), ..GroupId::default() };
        let cursors = |included: &[u64]| {
            let cursor = |index| GroupCursor { included: EntryId { term: 1, index }, ..GroupCursor::default() };
            (1..).zip(included).map(|(node, index)| (group(node), cursor(*index))).collect::<GroupCursors>()
        };
        let spare = BTreeMap::from([(group(1), 50), (group(2), 50), (group(3), 50)]);
        let mut images = ImageCursors::new(cursors(&[20, 0]));
        assert_eq!(images.compactable(&spare), [], "there is one image only");
        assert!(!images.is_older_known() && ImageCursors::default().is_older_known(), "a lone node has no groups");
        images.stored(cursors(&[70, 70, 70]));
        assert_eq!(images.compactable(&spare), [(group(1), 20)]);
        images.stored(cursors(&[90, 90, 90]));
        assert_eq!(images.compactable(&spare), [(group(1), 50), (group(2), 50), (group(3), 50)]);
    }
}
