//! Plugin components uploaded to a cluster, and which members have them ready: fetched, checked and compiled.
//!
//! An activation counts only if every member that exists when it is applied has the component ready, so that no member
//! has to decide an epoch with code it lacks. A single node keeps its uploads to itself; they do not appear here.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use tribunal_types::limits::PLUGIN_VERSIONS_MAX;
use tribunal_types::{AnnouncedComponent, Component, ComponentReport, ControlIndex, NodeId};

use super::effect::{Applied, Effect};
use super::refusal::{Limit, Refusal};

/// All components. A copy shares all unchanged parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Components {
    by_digest: Arc<BTreeMap<[u8; 32], AnnouncedComponent>>,
}

impl Components {
    /// Adds an uploaded component. Members' reports about it are kept.
    pub(super) fn announce(&mut self, index: ControlIndex, component: &Component) -> Applied {
        let of_other_world = |known: &AnnouncedComponent| {
            known.component.name == component.name && known.component.world != component.world
        };
        match self.by_digest.get(&component.digest) {
            Some(known) if known.component.name != component.name => return Err(Refusal::PluginNameTaken),
            Some(known) if known.component == *component => return Ok(Effect::Unchanged),
            None if self.by_digest.values().any(of_other_world) => return Err(Refusal::PluginNameTaken),
            None if self.by_digest.len() >= PLUGIN_VERSIONS_MAX => {
                return Err(Refusal::LimitReached(Limit::PluginVersions));
            }
            Some(_) | None => {}
        }
        let by_digest = Arc::make_mut(&mut self.by_digest);
        let known = by_digest.entry(component.digest);
        let announced =
            known.or_insert_with(|| AnnouncedComponent { announced: index, ..AnnouncedComponent::default() });
        announced.component = component.clone();
        Ok(Effect::ComponentAnnounced(component.digest))
    }

    /// Notes a member's report about a component.
    pub(super) fn report(&mut self, digest: &[u8; 32], node: NodeId, report: &ComponentReport) -> Effect {
        let known = self.by_digest.get(digest).map(|announced| announced.reports.get(&node));
        if known.is_none_or(|known| known.is_some_and(|known| known == report)) {
            return Effect::Unchanged;
        }
        let announced = Arc::make_mut(&mut self.by_digest).get_mut(digest);
        announced.into_iter().for_each(|announced| drop(announced.reports.insert(node, report.clone())));
        Effect::ComponentReported(*digest)
    }

    /// Forgets a component.
    pub(super) fn forget(&mut self, digest: &[u8; 32]) {
        if self.by_digest.contains_key(digest) {
            Arc::make_mut(&mut self.by_digest).remove(digest);
        }
    }

    /// Returns a component.
    #[must_use]
    pub fn get(&self, digest: &[u8; 32]) -> Option<&AnnouncedComponent> {
        self.by_digest.get(digest)
    }

    /// Returns all components in ascending order of digest.
    pub fn iter(&self) -> impl Iterator<Item = &AnnouncedComponent> {
        self.by_digest.values()
    }

    /// Returns whether a component is known and ready on all of these members.
    #[must_use]
    pub fn is_ready(&self, digest: &[u8; 32], members: &[NodeId]) -> bool {
        self.get(digest).is_some_and(|announced| members.iter().all(|member| announced.is_ready_on(*member)))
    }

    /// Returns whether none of these members has reported a different engine.
    #[must_use]
    pub fn is_for_engine(&self, digest: &[u8; 32], members: &[NodeId], engine: &str) -> bool {
        self.get(digest).is_some_and(|announced| {
            members.iter().all(|member| announced.reports.get(member).is_none_or(|report| report.engine == engine))
        })
    }

    /// Restores the components from an image.
    #[must_use]
    pub(super) fn restore(image: alloc::vec::Vec<AnnouncedComponent>) -> Components {
        let by_digest = image.into_iter().map(|announced| (announced.component.digest, announced)).collect();
        Components { by_digest: Arc::new(by_digest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(code: u8, name: &str, world: &str) -> Component {
        Component { digest: [code; 32], name: name.into(), world: world.into(), ..Component::default() }
    }

    fn report(engine: &str, problem: &str) -> ComponentReport {
        ComponentReport { engine: engine.into(), problem: problem.into() }
    }

    #[test]
    fn a_component_is_ready_once_every_member_has_reported_so() {
        let mut components = Components::default();
        let members = [NodeId(1), NodeId(2)];
        assert!(!components.is_ready(&[7; 32], &[]), "nobody has announced it");
        assert_eq!(components.report(&[7; 32], NodeId(1), &report("a", "")), Effect::Unchanged);
        assert_eq!(
            components.announce(ControlIndex(3), &component(7, "a", "rule")),
            Ok(Effect::ComponentAnnounced([7; 32]))
        );
        assert_eq!(components.report(&[7; 32], NodeId(1), &report("a", "")), Effect::ComponentReported([7; 32]));
        assert!(!components.is_ready(&[7; 32], &members));
        assert_eq!(
            components.report(&[7; 32], NodeId(2), &report("a", "too large")),
            Effect::ComponentReported([7; 32])
        );
        assert!(!components.is_ready(&[7; 32], &members));
        assert_eq!(components.report(&[7; 32], NodeId(2), &report("a", "")), Effect::ComponentReported([7; 32]));
        assert_eq!(components.report(&[7; 32], NodeId(2), &report("a", "")), Effect::Unchanged);
        assert!(components.is_ready(&[7; 32], &members) && components.is_ready(&[7; 32], &members[..1]));
        assert!(!components.is_ready(&[7; 32], &[NodeId(1), NodeId(2), NodeId(3)]), "a member has joined");
        assert!(
            components.is_for_engine(&[7; 32], &members, "a") && !components.is_for_engine(&[7; 32], &members, "b")
        );
        components.report(&[7; 32], NodeId(2), &report("b", ""));
        assert!(components.is_ready(&[7; 32], &members) && !components.is_for_engine(&[7; 32], &members, "a"));
        components.forget(&[7; 32]);
        assert!(!components.is_ready(&[7; 32], &members) && !components.is_for_engine(&[7; 32], &members, "a"));
    }

    #[test]
    fn a_name_has_one_world_and_a_component_one_name() {
        let mut components = Components::default();
        let mut announce = |component| components.announce(ControlIndex(1), &component);
        assert!(announce(component(1, "a", "rule")).is_ok());
        assert_eq!(announce(component(1, "a", "rule")), Ok(Effect::Unchanged));
        assert!(announce(component(2, "a", "rule")).is_ok());
        assert_eq!(announce(component(1, "b", "rule")), Err(Refusal::PluginNameTaken));
        assert_eq!(announce(component(3, "a", "validator")), Err(Refusal::PluginNameTaken));
        let with_config = Component { config: "{}".into(), ..component(1, "a", "rule") };
        assert_eq!(announce(with_config), Ok(Effect::ComponentAnnounced([1; 32])));
    }
}
