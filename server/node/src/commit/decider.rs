//! The component that decides: the replica of a single node, or a member of a cluster. The sequencer treats both alike.

use tribunal_log::GroupCursors;
use tribunal_member::{Input, Output};
use tribunal_replica::{Effect, Event, Now, Replica};

use crate::cluster::first_start::FirstStart;
use crate::cluster::node_member::NodeMember;
use crate::commit::shards::Workers;
use crate::commit::waiters::Channels;
use crate::plugins::policies::PolicySet;

/// The replica of this node.
pub type NodeReplica = Replica<Channels, PolicySet, Workers>;

/// The component that decides.
pub enum Decider {
    /// A replica whose proposals the log takes unchanged.
    Alone(Box<NodeReplica>),
    /// A member whose proposals need a majority, once it takes part.
    Member(Box<NodeMember>, FirstStart),
}

impl Decider {
    /// Returns the replica.
    #[must_use]
    pub fn replica(&self) -> &NodeReplica {
        match self {
            Decider::Alone(replica) => replica,
            Decider::Member(member, _) => member.replica(),
        }
    }

    /// Returns the replica, for calls without effects.
    pub fn replica_mut(&mut self) -> &mut NodeReplica {
        match self {
            Decider::Alone(replica) => replica,
            Decider::Member(member, _) => member.replica_mut(),
        }
    }

    /// Returns the member, if the node is one.
    pub fn member(&mut self) -> Option<&mut NodeMember> {
        match self {
            Decider::Alone(_) => None,
            Decider::Member(member, _) => Some(member),
        }
    }

    /// Returns the progress of a member's first start.
    pub fn first_start(&mut self) -> Option<&mut FirstStart> {
        match self {
            Decider::Alone(_) => None,
            Decider::Member(_, first_start) => Some(first_start),
        }
    }

    /// Passes an event to the replica. [`Decider::poll`] returns the resulting outputs.
    pub fn step(&mut self, event: Event<Channels>, now: Now) {
        match self {
            Decider::Alone(replica) => replica.step(event, now),
            Decider::Member(member, _) => {
                let refused = member.step(Input::Replica(event), now);
                debug_assert!(refused.is_ok(), "only what peers send is refused");
            }
        }
    }

    /// Returns the next output that is due before a member decides any epoch.
    pub fn poll_urgent(&mut self) -> Option<Output<Channels>> {
        match self {
            Decider::Alone(_) => self.poll(),
            Decider::Member(member, _) => member.poll_urgent(),
        }
    }

    /// Returns the next output.
    pub fn poll(&mut self) -> Option<Output<Channels>> {
        match self {
            Decider::Alone(replica) => replica.poll().map(|effect| match effect {
                Effect::Decided(decided) => Output::Decided { decided, entries: Vec::new() },
                Effect::Image { image, applied, last } => {
                    Output::Image { image, groups: GroupCursors::new(), applied, last }
                }
                effect => Output::Effect(effect),
            }),
            Decider::Member(member, _) => member.poll(),
        }
    }
}
