//! A single node becomes the first member of a cluster: its control state becomes the cluster's.

use tribunal_types::GroupJoin;

use super::members::Members;
use super::replicated_state::ReplicatedState;

impl ReplicatedState {
    /// Turns this into the state of a cluster with one group. Plugins of announced components count as announced, too:
    /// members that join later wait until they have them.
    ///
    /// # Panics
    /// If it is already the state of a cluster.
    pub fn found(&mut self, group: GroupJoin) {
        assert!(self.members.nodes().next().is_none(), "node {} would begin a cluster in a cluster", group.group.node);
        self.members = Members::begun_by(group);
        let components = &self.components;
        self.slots.mark_announced(|digest| components.get(digest).is_some());
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{
        Component, ControlChange, ControlIndex, Epoch, GroupId, Incarnation, NodeId, PluginActivation, PluginChoice,
        PluginSlot,
    };

    use super::*;
    use crate::control::{Effect, Moment};

    #[test]
    fn the_state_of_a_node_goes_on_as_that_of_a_cluster() {
        let mut state = ReplicatedState::default();
        let apply = |state: &mut ReplicatedState, change: ControlChange| {
            let index = ControlIndex(state.index().0 + 1);
            let moment = Moment { next: Epoch(7), is_existence_fixed: &|_| false, members: &[] };
            state.apply(index, &change.into(), moment).expect("is taken")
        };
        let activate = |slot: PluginSlot, digest| {
            let choice = PluginChoice { slot, digest: [digest; 32], ..PluginChoice::default() };
            ControlChange::ActivatePlugin(PluginActivation { choice, ..PluginActivation::default() })
        };
        let adaptor = PluginSlot::Adaptor("a".into());
        apply(&mut state, activate(PluginSlot::Rule, 1));
        apply(&mut state, activate(adaptor.clone(), 2));
        apply(&mut state, ControlChange::AnnounceComponent(Component { digest: [2; 32], ..Component::default() }));
        let group = GroupId { node: NodeId(1), incarnation: Incarnation(1) };
        state.found(GroupJoin { group, first: Epoch(9) });
        let is_announced = |slot: &PluginSlot| {
            let active = state.slots().slot(slot).and_then(|state| state.active()).expect("is active");
            active.activation.choice.announced
        };
        assert_eq!([PluginSlot::Rule, adaptor].map(|slot| is_announced(&slot)), [false, true]);
        assert_eq!(state.members().groups().map(|join| join.first).collect::<alloc::vec::Vec<_>>(), [Epoch(9)]);
        assert_eq!(ReplicatedState::restore(state.image()), state);
        let admit = ControlChange::AdmitNode { name: "b".into(), address: "b:1".into(), voters: [NodeId(1)].into() };
        assert_eq!(apply(&mut state, admit), Effect::NodeAdmitted(NodeId(2)));
        let first_voters = &state.members().node(NodeId(2)).expect("is known").first_voters;
        assert_eq!(first_voters, &[NodeId(1)]);
    }
}
