//! A state image: the resolver's columns, the state of the control log, the position of the fold, and the cursors of
//! the groups' logs.

use tribunal_codec::{
    GroupCursors, Malformed, decode_control_image, decode_group_cursors, encode_control_image, encode_group_cursors,
};
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::FoldPosition;
use tribunal_core::resolver::Resolver;
use tribunal_replica::CapturedImage;
use tribunal_types::{ControlImage, StateImage};

/// Byte column of a state image with the state of the control log; the resolver's own columns have lower numbers.
const CONTROL_COLUMN: u16 = 0xff00;

/// Byte column of a state image with the cursors of the Raft groups' logs.
const GROUPS_COLUMN: u16 = 0xff01;

/// Column of a state image with the position of the fold.
pub(crate) const FOLD_COLUMN: u16 = 0xff02;

/// Assembles an image; may be slow, so it runs on a separate thread. `groups` are the cursors of the Raft groups when
/// the image was begun; a node that runs alone has none.
pub fn image_of(captured: CapturedImage, groups: &GroupCursors) -> StateImage {
    let (mut image, control, fold) = captured.into_parts();
    put_shared(&mut image, fold, &control);
    put_groups(&mut image, groups);
    image
}

/// Assembles the image from which a formerly standalone node starts as the first member of a cluster: the state of its
/// resolver, the state of the control log at that point, and the position at which the fold of its group begins.
#[must_use]
pub fn first_image(
    resolver: &Resolver,
    replicated: &ReplicatedState,
    fold: &FoldPosition,
    groups: &GroupCursors,
) -> StateImage {
    let mut image = resolver.image();
    put_shared(&mut image, fold.to_words(), &replicated.image());
    put_groups(&mut image, groups);
    image
}

fn put_shared(image: &mut StateImage, fold: Vec<u64>, control: &ControlImage) {
    image.push_words(FOLD_COLUMN, fold);
    image.push_bytes(CONTROL_COLUMN, encode_control_image(control));
}

/// Adds the cursors of the Raft groups' logs to an image.
pub fn put_groups(image: &mut StateImage, groups: &GroupCursors) {
    image.push_bytes(GROUPS_COLUMN, encode_group_cursors(groups));
}

/// Returns the state of the control log when an image was taken.
///
/// # Errors
/// If the image does not contain it.
pub fn control_in(image: &StateImage) -> Result<ReplicatedState, Malformed> {
    let missing = Malformed { what: "the control state is missing", at: 0 };
    let bytes = image.bytes(CONTROL_COLUMN).ok_or(missing)?;
    decode_control_image(bytes).map(ReplicatedState::restore)
}

/// Returns the cursors of the Raft groups' logs in an image; empty if it was written before there were any groups.
///
/// # Errors
/// If the column is not such a list.
pub fn groups_in(image: &StateImage) -> Result<GroupCursors, Malformed> {
    image.bytes(GROUPS_COLUMN).map_or(Ok(GroupCursors::new()), decode_group_cursors)
}

#[cfg(test)]
mod tests {
    use tribunal_codec::{EntryId, GroupCursor};
    use tribunal_types::{Csn, GroupId, Incarnation, NodeId};

    use super::*;

    #[test]
    fn an_image_tells_how_far_it_has_read_each_group() {
        let group = GroupId { node: NodeId(3), incarnation: Incarnation(9) };
        let cursor = GroupCursor { included: EntryId { term: 2, index: 70 }, stamp: Csn(7), members: vec![1, 2, 3] };
        for cursors in [GroupCursors::new(), GroupCursors::from([(group, cursor)])] {
            let mut image = StateImage::default();
            image.push_bytes(GROUPS_COLUMN, encode_group_cursors(&cursors));
            assert_eq!(groups_in(&image), Ok(cursors));
            image.blobs[0].bytes.pop();
            assert!(groups_in(&image).is_err());
        }
        assert_eq!(groups_in(&StateImage::default()), Ok(GroupCursors::new()), "of a node that had no groups yet");
    }
}
