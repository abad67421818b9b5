//! The state that a member starts with, from a state image or without one.

use tribunal_codec::GroupCursors;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::{Epochs, FoldPosition};
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_types::{Csn, Epoch, GroupId, StateImage};

use crate::image_columns::{FOLD_COLUMN, control_in, groups_in};

/// The restored state.
pub struct Restored {
    /// The resolver after the image's epoch.
    pub resolver: Resolver,
    /// The state of the control log.
    pub replicated: ReplicatedState,
    /// The fold of the groups' logs at that point.
    pub epochs: Epochs,
    /// The cursor of each group; empty without an image.
    pub groups: GroupCursors,
}

impl Restored {
    /// Reads an image; without one, returns the initial state of a cluster of these groups. The partitions are those of
    /// the image, if it has any, otherwise those of `config`.
    ///
    /// # Errors
    /// If the image was not taken by a member.
    pub fn read(
        image: Option<StateImage>,
        first_groups: &[GroupId],
        config: ResolverConfig,
    ) -> Result<Restored, String> {
        let Some(image) = image else {
            return Ok(Restored {
                resolver: Resolver::new(config),
                replicated: ReplicatedState::founded(first_groups),
                epochs: Epochs::new(first_groups, Epoch(1), 0),
                groups: GroupCursors::new(),
            });
        };
        let unusable =
            |what: &dyn std::fmt::Display| format!("the state image of epoch {} cannot be used: {what}", image.epoch);
        let replicated = control_in(&image).map_err(|malformed| unusable(&malformed))?;
        if !first_groups.is_empty() && replicated.members().nodes().next().is_none() {
            return Err(unusable(
                &"it has no members: an earlier version wrote it, or the node while it ran alone; begin with another directory",
            ));
        }
        let groups = groups_in(&image).map_err(|malformed| unusable(&malformed))?;
        let position = position_in(&image).ok_or_else(|| unusable(&"it does not tell where the logs continue"))?;
        let unread = |group: &&GroupId| !groups.contains_key(group);
        if let Some(group) = position.groups.iter().map(|(group, _)| group).find(unread) {
            return Err(unusable(&format_args!("it does not tell how far it has read the log of node {}", group.node)));
        }
        let shards = replicated.bounds().map_or(config.shards, |bounds| bounds.partitions);
        let epoch = image.epoch;
        let mut resolver = Resolver::restore(ResolverConfig { shards, ..config }, image)
            .map_err(|mismatch| format!("the state image of epoch {epoch} cannot be used: {mismatch}"))?;
        if let Some(bounds) = replicated.bounds() {
            resolver.set_bounds(bounds);
        }
        // A no-op, unless the switch was applied by a release that knows no later generation: that release decided
        // nothing after it, and its last image is of the epoch before the switch.
        resolver.switch_generation(replicated.releases().generation());
        let mut epochs = Epochs::resume(&position, replicated.index());
        // The last image of a stopping node may include control entries applied after its epoch, and epochs without
        // items.
        for join in replicated.members().groups() {
            let _ = epochs.join(join.group, join.first);
        }
        Ok(Restored { resolver, replicated, epochs, groups })
    }
}

/// Returns the position at which the fold continues after an image; `None` if the image contains none, or one of
/// another epoch.
#[must_use]
pub fn position_in(image: &StateImage) -> Option<FoldPosition> {
    let position = image.words(FOLD_COLUMN).and_then(FoldPosition::from_words);
    position.filter(|position| position.next == image.epoch.next())
}

/// Returns an upper bound of a group's stamps in an image; the node's next stamps are above it.
#[must_use]
pub fn stamp_in(groups: &GroupCursors, group: GroupId) -> Csn {
    groups.get(&group).map_or(Csn::new(0, group.node), |cursor| cursor.stamp.max(Csn::new(0, group.node)))
}

#[cfg(test)]
mod tests {
    use tribunal_core::control::Moment;
    use tribunal_types::{ControlChange, ControlIndex, Generation};

    use super::*;
    use crate::image_columns::first_image;

    #[test]
    fn a_state_of_the_old_generation_is_switched_if_its_control_log_has_the_switch() {
        let resolver = Resolver::new(ResolverConfig::default());
        let mut replicated = ReplicatedState::default();
        let index = ControlIndex(1);
        let moment = Moment { next: Epoch(1), is_existence_fixed: &|_| false, members: &[] };
        replicated.apply(index, &ControlChange::SwitchGeneration(Generation::NEWEST).into(), moment).expect("applied");
        let fold =
            FoldPosition { next: Epoch(1), epoch_time_ms: 0, control: index, groups: Vec::new(), ended: Vec::new() };
        let image = first_image(&resolver, &replicated, &fold, &GroupCursors::new());
        let restored = Restored::read(Some(image), &[], ResolverConfig::default()).expect("usable");
        assert_eq!(resolver.generation(), Generation::FIRST);
        assert_eq!(restored.resolver.generation(), Generation::NEWEST);
    }
}
