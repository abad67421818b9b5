//! The releases that the nodes of a cluster run, and the generation in which all of them decide.
//!
//! Every node announces its release at each start. The generation changes by an entry, and only to one supported by the
//! release of every current member: until the last node is upgraded, all decide as the oldest release does.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::limits::NAME_BYTES_MAX;
use tribunal_types::{Generation, NodeId, Release};

use super::effect::{Applied, Effect};
use super::refusal::Refusal;

/// All releases. A copy shares everything until either one is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Releases {
    generation: Generation,
    by_node: Arc<BTreeMap<NodeId, Release>>,
}

impl Releases {
    /// Notes a node's release.
    pub(super) fn announce(&mut self, node: NodeId, release: &Release) -> Applied {
        let Release { version, generations, engine } = release;
        if version.len().max(engine.len()) > NAME_BYTES_MAX || generations.oldest > generations.newest {
            return Err(Refusal::ReleaseMalformed);
        }
        if self.by_node.get(&node) == Some(release) {
            return Ok(Effect::Unchanged);
        }
        Arc::make_mut(&mut self.by_node).insert(node, release.clone());
        Ok(Effect::ReleaseAnnounced(node))
    }

    /// Forgets a node that has left.
    pub(super) fn forget(&mut self, node: NodeId) {
        if self.by_node.contains_key(&node) {
            Arc::make_mut(&mut self.by_node).remove(&node);
        }
    }

    /// Switches to another generation, from the first epoch that carries the entry.
    pub(super) fn switch(&mut self, generation: Generation, members: &[NodeId]) -> Applied {
        if generation <= self.generation {
            return Ok(Effect::Unchanged);
        }
        if !self.all_can(generation, members) {
            return Err(Refusal::GenerationUnknown);
        }
        self.generation = generation;
        Ok(Effect::GenerationSwitched(generation))
    }

    /// Returns whether all of these members are known to support a generation.
    fn all_can(&self, generation: Generation, members: &[NodeId]) -> bool {
        members.iter().all(|node| self.of(*node).is_some_and(|release| release.generations.contain(generation)))
    }

    /// Returns the newest generation that all of these members support, if it is newer than the current one.
    #[must_use]
    pub fn next(&self, members: &[NodeId]) -> Option<Generation> {
        let newest = members.iter().map(|node| self.of(*node).map(|release| release.generations.newest));
        // `None` is the smallest.
        let next = newest.min().flatten().filter(|next| *next > self.generation)?;
        self.all_can(next, members).then_some(next)
    }

    /// Returns the generation in which epochs are decided.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns a node's release, if announced.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<&Release> {
        self.by_node.get(&node)
    }

    pub(super) fn image(&self) -> Vec<(NodeId, Release)> {
        self.by_node.iter().map(|(node, release)| (*node, release.clone())).collect()
    }

    pub(super) fn restore(generation: Generation, releases: Vec<(NodeId, Release)>) -> Releases {
        Releases { generation, by_node: Arc::new(releases.into_iter().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::Generations;

    use super::*;

    fn release(oldest: u32, newest: u32) -> Release {
        let generations = Generations { oldest: Generation(oldest), newest: Generation(newest) };
        Release { version: "0.1.0".into(), generations, engine: "wasm-1".into() }
    }

    #[test]
    fn the_generation_changes_once_every_member_can_decide_in_the_next_one() {
        let mut releases = Releases::default();
        let members = [NodeId(1), NodeId(2)];
        assert_eq!(releases.generation(), Generation(1));
        assert_eq!(releases.announce(NodeId(1), &release(1, 2)), Ok(Effect::ReleaseAnnounced(NodeId(1))));
        assert_eq!(releases.announce(NodeId(1), &release(1, 2)), Ok(Effect::Unchanged));
        assert_eq!((releases.next(&members), releases.next(&members[..1])), (None, Some(Generation(2))));
        assert_eq!(releases.switch(Generation(2), &members), Err(Refusal::GenerationUnknown), "2 has said nothing");
        releases.announce(NodeId(2), &release(1, 1)).unwrap();
        assert_eq!(releases.next(&members), None);
        assert_eq!(releases.switch(Generation(2), &members), Err(Refusal::GenerationUnknown), "2 is an old one");
        assert_eq!(releases.generation(), Generation(1));
        releases.announce(NodeId(2), &release(2, 3)).unwrap();
        assert_eq!(releases.next(&members), Some(Generation(2)));
        assert_eq!(releases.switch(Generation(3), &members), Err(Refusal::GenerationUnknown));
        assert_eq!(releases.switch(Generation(2), &members), Ok(Effect::GenerationSwitched(Generation(2))));
        assert_eq!(releases.switch(Generation(2), &members), Ok(Effect::Unchanged), "proposed twice");
        assert_eq!(releases.switch(Generation(1), &members), Ok(Effect::Unchanged), "there is no way back");
        assert_eq!((releases.generation(), releases.next(&members)), (Generation(2), None));
        assert_eq!(Releases::restore(releases.generation(), releases.image()), releases);
        releases.forget(NodeId(1));
        assert_eq!(releases.of(NodeId(1)), None);
    }

    #[test]
    fn what_no_release_is_is_refused() {
        let mut releases = Releases::default();
        let long = Release { version: "1".repeat(NAME_BYTES_MAX + 1), ..release(1, 1) };
        for malformed in [release(2, 1), long] {
            assert_eq!(releases.announce(NodeId(1), &malformed), Err(Refusal::ReleaseMalformed));
        }
        assert_eq!(releases, Releases::default());
    }
}
