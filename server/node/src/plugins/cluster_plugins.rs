//! Uploaded plugins of a cluster, as seen by each member's API: the announced ones, and the members on which they are
//! ready.

use std::sync::Arc;

use tribunal_core::control::components::Components;
use tribunal_types::{AnnouncedComponent, Component, NodeId};

use crate::cluster::components::AnnouncedPlugins;
use crate::cluster::view::View;
use crate::plugins::digest::{ArtefactDigest, hex};
use crate::plugins::plugin_store::Artefact;

/// A member's knowledge of all members' plugins.
pub struct ClusterPlugins {
    /// The announced components.
    pub announced: Arc<AnnouncedPlugins>,
    /// The current members.
    pub view: Arc<View>,
}

/// How far a version is ready.
#[derive(Debug, PartialEq, Eq)]
pub enum Readiness {
    /// No node has announced it.
    Unknown,
    /// Every member has it ready.
    Ready(ArtefactDigest),
    /// Some members have not reported yet: their numbers, and the remedy.
    Waiting(String),
    /// Some members cannot run it: their numbers, and the reason.
    Refused(String),
}

impl ClusterPlugins {
    /// Returns the readiness of a plugin version, or of the newest one.
    #[must_use]
    pub fn readiness(&self, name: &str, digest: Option<ArtefactDigest>) -> Readiness {
        let members: Vec<NodeId> = self.view.roles().covered.keys().map(|group| group.node).collect();
        readiness(&self.announced.components(), &members, name, digest)
    }

    /// Returns the announced versions of a plugin, or the one with this digest.
    #[must_use]
    pub fn versions(&self, name: &str, digest: Option<ArtefactDigest>) -> Vec<ArtefactDigest> {
        let components = self.announced.components();
        let versions = components.iter().map(|announced| &announced.component);
        let versions =
            versions.filter(|version| version.name == name && digest.is_none_or(|only| only == version.digest));
        versions.map(|version| version.digest).collect()
    }
}

/// Returns the announcement of a component that was uploaded here.
#[must_use]
pub fn component_of(digest: ArtefactDigest, artefact: &Artefact) -> Component {
    Component {
        digest,
        name: artefact.name.clone(),
        world: artefact.world.clone(),
        bytes: artefact.bytes,
        uploaded_ms: artefact.uploaded_ms,
        config: artefact.checked.config.clone(),
        signature: artefact.signed.as_ref().map(|signed| signed.signature.clone()).unwrap_or_default(),
    }
}

fn readiness(components: &Components, members: &[NodeId], name: &str, digest: Option<ArtefactDigest>) -> Readiness {
    let of_name = components.iter().filter(|announced| announced.component.name == name);
    let wanted = of_name.filter(|announced| digest.is_none_or(|digest| digest == announced.component.digest));
    let newest = wanted.max_by_key(|announced| (announced.component.uploaded_ms, announced.announced));
    let Some(AnnouncedComponent { component, reports, .. }) = newest else { return Readiness::Unknown };
    let short = &hex(&component.digest)[..12];
    let problem = |node: &NodeId| {
        let report = reports.get(node).filter(|report| !report.is_ready())?;
        Some(format!("node {node} cannot run it: {}", report.problem))
    };
    let problems: Vec<String> = members.iter().filter_map(problem).collect();
    if !problems.is_empty() {
        return Readiness::Refused(format!("plugin version {short} cannot be activated: {}", problems.join("; ")));
    }
    let missing: Vec<String> =
        members.iter().filter(|node| !reports.contains_key(node)).map(|node| format!("node {node}")).collect();
    if missing.is_empty() {
        return Readiness::Ready(component.digest);
    }
    Readiness::Waiting(format!(
        "plugin version {short} is not ready on every node: {} did not report yet that it has fetched and compiled it. \
         Start the nodes that are down, see the log of those that run, and activate it again",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use tribunal_core::control::{Moment, ReplicatedState};
    use tribunal_types::{ComponentReport, ControlChange, ControlIndex, Epoch};

    use super::*;

    #[test]
    fn who_is_not_ready_is_named() {
        let mut state = ReplicatedState::default();
        let mut write = |change: ControlChange| {
            let index = ControlIndex(state.index().0 + 1);
            let moment = Moment { next: Epoch(1), is_existence_fixed: &|_| false, members: &[] };
            state.apply(index, &change.into(), moment).expect("is taken");
            state.components().clone()
        };
        let announce = |code: u8, uploaded_ms| {
            let component = Component { digest: [code; 32], name: "p".into(), uploaded_ms, ..Component::default() };
            ControlChange::AnnounceComponent(component)
        };
        let report = |code: u8, node, problem: &str| {
            let report = ComponentReport { problem: problem.to_owned(), ..ComponentReport::default() };
            ControlChange::ReportComponent { digest: [code; 32], node: NodeId(node), report }
        };
        let members = [NodeId(1), NodeId(2), NodeId(3)];
        write(announce(7, 50));
        write(report(7, 1, ""));
        let found = write(report(7, 3, ""));
        let Readiness::Waiting(detail) = readiness(&found, &members, "p", None) else { panic!("2 has not reported") };
        assert!(detail.contains("node 2") && !detail.contains("node 1") && !detail.contains("node 3"), "{detail}");
        assert_eq!(readiness(&found, &members, "q", None), Readiness::Unknown);
        assert_eq!(readiness(&found, &members, "p", Some([8; 32])), Readiness::Unknown);
        let found = write(report(7, 2, "out of memory"));
        let Readiness::Refused(detail) = readiness(&found, &members, "p", None) else { panic!("2 cannot run it") };
        assert!(detail.contains("node 2 cannot run it: out of memory"), "{detail}");
        let found = write(report(7, 2, ""));
        assert_eq!(readiness(&found, &members, "p", None), Readiness::Ready([7; 32]));
        let found = write(announce(9, 60));
        assert!(matches!(readiness(&found, &members, "p", None), Readiness::Waiting(_)), "the newest one is meant");
        assert_eq!(readiness(&found, &members, "p", Some([7; 32])), Readiness::Ready([7; 32]));
    }
}
