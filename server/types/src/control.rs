//! Changes of configuration. They take effect at epoch boundaries only, through the control log.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::access::ApiKey;
use crate::ids::{Epoch, GroupId, Lsn, NodeId, StoreId};
use crate::limits::NAME_BYTES_MAX;
use crate::reader::{ReaderMove, Webhook};
use crate::release::{Generation, Release};
use crate::store::StoreSpec;
use crate::txn::Isolation;

/// Position in the control log, from 1. 0 is "none applied".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlIndex(pub u64);

/// A place that a plugin can fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginSlot {
    /// The conflict rule.
    #[default]
    Rule,
    /// The isolation validator of one level.
    Validator(Isolation),
    /// The LogAdaptor of this name.
    Adaptor(String),
}

impl PluginSlot {
    /// Returns the slot of this name: `rule`, `validator:<level>` or `adaptor:<name>`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PluginSlot> {
        match name.split_once(':') {
            None => (name == "rule").then_some(PluginSlot::Rule),
            Some(("validator", level)) => {
                Isolation::ALL.into_iter().find(|known| known.name() == level).map(PluginSlot::Validator)
            }
            Some(("adaptor", name)) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
                Some(PluginSlot::Adaptor(name.to_owned()))
            }
            Some(_) => None,
        }
    }
}

impl fmt::Display for PluginSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PluginSlot::Rule => f.write_str("rule"),
            PluginSlot::Validator(level) => write!(f, "validator:{}", level.name()),
            PluginSlot::Adaptor(name) => write!(f, "adaptor:{name}"),
        }
    }
}

/// What caused an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilledBy {
    /// The node's configuration.
    #[default]
    Configuration,
    /// A request to activate a plugin.
    Request,
    /// A request to roll back.
    Rollback,
    /// An automatic rollback after too many consecutive faults.
    Faults,
}

impl FilledBy {
    /// All causes.
    pub const ALL: [FilledBy; 4] = [FilledBy::Configuration, FilledBy::Request, FilledBy::Rollback, FilledBy::Faults];

    /// Returns the name in the API and in the control log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FilledBy::Configuration => "configuration",
            FilledBy::Request => "activate",
            FilledBy::Rollback => "rollback",
            FilledBy::Faults => "faults",
        }
    }

    /// Tells whether the slot returns to its previous plugin.
    #[must_use]
    pub fn goes_back(self) -> bool {
        matches!(self, FilledBy::Rollback | FilledBy::Faults)
    }
}

/// Which code fills a slot, and how it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginChoice {
    /// The slot.
    pub slot: PluginSlot,
    /// Name of the module.
    pub name: String,
    /// SHA-256 of the module's bytes.
    pub digest: [u8; 32],
    /// Name of the engine that runs it, or `native`: another engine may spend other fuel, so it counts from an epoch on,
    /// too. What is built in has the same results on all of them.
    pub host: String,
    /// Configuration handed to `init`, JSON text.
    pub config: String,
    /// The module was announced to the members of a cluster, and all of them have to have it ready.
    pub announced: bool,
}

impl PluginChoice {
    /// Makes the choice of no plugin for an adaptor's slot. It keeps the adaptor's name. A release that does not know this
    /// choice takes it for a component that it lacks, which affects only stores that use the adaptor.
    #[must_use]
    pub fn none(adaptor: &str) -> PluginChoice {
        let (slot, name) = (PluginSlot::Adaptor(adaptor.to_owned()), adaptor.to_owned());
        PluginChoice { slot, name, ..PluginChoice::default() }
    }

    /// Tells whether an adaptor's slot is empty with this choice: no component has this digest.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self.slot, PluginSlot::Adaptor(_)) && self.digest == [0; 32]
    }
}

/// A component of a plugin that was uploaded to a cluster: what a member needs to fetch it and to check it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Component {
    /// SHA-256 of its bytes.
    pub digest: [u8; 32],
    /// Name that it was uploaded under.
    pub name: String,
    /// Its world's name.
    pub world: String,
    /// Size, bytes.
    pub bytes: u64,
    /// When it was uploaded, Unix milliseconds.
    pub uploaded_ms: u64,
    /// Configuration that it was checked with, JSON text.
    pub config: String,
    /// Signature of name and digest, hexadecimal; empty if it has none.
    pub signature: String,
}

/// A component, and what the members have made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedComponent {
    /// The component.
    pub component: Component,
    /// The entry that announced it first.
    pub announced: ControlIndex,
    /// What each member has made of it that has reported.
    pub reports: BTreeMap<NodeId, ComponentReport>,
}

/// What a member has made of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentReport {
    /// The engine that the member has, and for which the component is ready.
    pub engine: String,
    /// Why the member cannot run the component; empty if it is ready.
    pub problem: String,
}

impl ComponentReport {
    /// Returns whether the component is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.problem.is_empty()
    }
}

impl AnnouncedComponent {
    /// Returns whether a member has reported that it is ready.
    #[must_use]
    pub fn is_ready_on(&self, node: NodeId) -> bool {
        self.reports.get(&node).is_some_and(ComponentReport::is_ready)
    }
}

/// A change of what fills a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginActivation {
    /// The code.
    pub choice: PluginChoice,
    /// Earliest epoch.
    pub from: Epoch,
    /// What caused it.
    pub by: FilledBy,
    /// Of a rollback after faults: the entry that failed. The activation is void if another one holds by then.
    pub replaces: ControlIndex,
    /// Who requested it; empty for the node itself.
    pub who: String,
    /// When it was requested, Unix milliseconds by the clock of the node that took the request; 0 if unknown. Nothing is
    /// decided by it.
    pub at_ms: u64,
}

/// Name of a proposal: its reply is found by it. No two proposals have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId {
    /// Drawn at random when the proposer starts: what an earlier process proposed may still arrive.
    pub run: u64,
    /// Counts the proposals of that run.
    pub number: u64,
}

/// One entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlEntry {
    /// The proposal that it was written for.
    pub proposal: ProposalId,
    /// What it changes.
    pub change: ControlChange,
}

impl From<ControlChange> for ControlEntry {
    /// Makes an entry that nobody waits for.
    fn from(change: ControlChange) -> ControlEntry {
        ControlEntry { proposal: ProposalId::default(), change }
    }
}

/// A change of configuration. Numbers of new things are not in it: they are given when it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlChange {
    /// Creates the store of this name and namespace, or changes it. `id` is 0, or what the proposer knows it to be.
    DeclareStore(StoreSpec),
    /// Fills a slot from the first epoch at or after `from` that carries this entry.
    ActivatePlugin(PluginActivation),
    /// Has all members fetch, check and compile a component, and report what became of it.
    AnnounceComponent(Component),
    /// A member has a component ready, or cannot run it.
    ReportComponent {
        /// SHA-256 of the component's bytes.
        digest: [u8; 32],
        /// The member.
        node: NodeId,
        /// What it has made of it.
        report: ComponentReport,
    },
    /// Removes a plugin's code: no slot returns to it. Written once no slot holds it, so that when this entry is durable,
    /// the outcomes of all epochs that the code decided are, too.
    ForgetPlugin {
        /// SHA-256 of the module's bytes.
        digest: [u8; 32],
    },
    /// Lets the log go on without a store's storage, which did not acknowledge for too long.
    DetachPush(Detachment),
    /// Pushes to a detached store again: its storage holds enough for the log to go on from.
    AttachPush {
        /// The store.
        store: StoreId,
    },
    /// Names the member that pushes to a store from now on, unless another push has begun since it was proposed.
    AssignPush {
        /// The store.
        store: StoreId,
        /// The push that it replaces.
        replaces: ControlIndex,
        /// The member.
        node: NodeId,
    },
    /// Remembers that a storage was found ahead of the log, or that it is no longer.
    ForkPush {
        /// The store.
        store: StoreId,
        /// The control entry that declared or attached it last: a later storage is not meant.
        generation: ControlIndex,
        /// Where the log ended.
        fork: Option<Lsn>,
    },
    /// Registers a receiver of a store's log, in place of the one before.
    RegisterWebhook {
        /// The receiver.
        webhook: Webhook,
        /// It continues where the one before has got to, instead of after the watermark that it comes with.
        resumes: bool,
    },
    /// Forgets a store's receiver.
    RemoveWebhook {
        /// The store.
        store: StoreId,
    },
    /// Names the member that delivers a store's log to its receiver from now on, unless another delivery has begun since it was
    /// proposed.
    AssignWebhook {
        /// The store.
        store: StoreId,
        /// The delivery that it replaces.
        replaces: ControlIndex,
        /// The member.
        node: NodeId,
    },
    /// Moves offsets and watermarks, in this order.
    MoveReaders(Vec<ReaderMove>),
    /// Passes one record by, which a storage can never take. The entry is the audit record.
    SkipRecord(Skip),
    /// Bounds that decide verdicts.
    SetBounds(Bounds),
    /// Creates a key, and its tenant if that does not exist. `namespace` is 0, or what the proposer knows it to be.
    CreateKey(ApiKey),
    /// Revokes a key. It never becomes valid again.
    RevokeKey {
        /// Its public part.
        id: String,
    },
    /// Gives a number to the node of this name, which is to become a member.
    AdmitNode {
        /// Its name, unique among the nodes that were not removed.
        name: String,
        /// Where the others reach it, opaque.
        address: String,
        /// The voters of the control group at this entry, which the group's leader adds: with them the new group begins. Empty in a
        /// proposal; an entry without them means all members that stay.
        voters: Vec<NodeId>,
    },
    /// Binds the number of a node that was admitted to the data directory with which it starts, for good: what the node
    /// promises to others is on that disk alone.
    ClaimNode {
        /// The node.
        node: NodeId,
        /// What the directory has drawn when it was made.
        directory: u64,
    },
    /// A group becomes a member. It has a leader already.
    JoinGroup(GroupJoin),
    /// Removes a node for good: its group closes, then it leaves all groups.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// Drains a node, or lets it resume: one that is drained stays a member and a voter, but leads no group, takes no commits and
    /// pushes to no storage.
    DrainNode {
        /// The node.
        node: NodeId,
        /// Whether it is to be drained.
        drained: bool,
    },
    /// The removal of a node is complete: no group has it.
    ForgetNode {
        /// The node.
        node: NodeId,
    },
    /// A node tells what it runs.
    AnnounceRelease {
        /// The node.
        node: NodeId,
        /// What it runs.
        release: Release,
    },
    /// From the first epoch that carries this entry, everything is decided in this generation, in which all members can.
    SwitchGeneration(Generation),
    /// Makes a node the only one: all others are removed for good, without any of what a removal waits for. Written into the log of
    /// a node that has stopped, after a majority of the others was lost.
    SoleNode {
        /// The node.
        node: NodeId,
    },
    /// Keeps the place of an entry that a salvage could not read. What that one changed is not known.
    Lost,
}

/// A group that becomes a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupJoin {
    /// The group; its node was admitted.
    pub group: GroupId,
    /// First epoch that waits for its entry.
    pub first: Epoch,
}

/// A store that the log no longer waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detachment {
    /// The store.
    pub store: StoreId,
    /// The control entry that declared or attached it last: a later one is not meant.
    pub declared: ControlIndex,
    /// Last complete epoch when this was decided.
    pub at: Epoch,
    /// Last record that the storage had acknowledged.
    pub acked: Lsn,
    /// Why, in words.
    pub reason: String,
}

/// A record that is not given to a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The store.
    pub store: StoreId,
    /// Which record.
    pub lsn: Lsn,
    /// When it was requested, by the clock of the node that took the request; nothing is decided by it.
    pub at_ms: u64,
    /// The caller.
    pub by: String,
    /// What the storage said to the record.
    pub reason: String,
}

/// Bounds that decide verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of history above which the floor rises early.
    pub window_bytes_max: u64,
    /// Bytes of the id and status table above which its oldest second is dropped.
    pub status_bytes_max: u64,
    /// Faults in a row after which a slot goes back to what filled it before; 0 for never. It decides when a rollback is
    /// proposed, and so by which plugin later epochs are decided.
    pub plugin_faults_max: u32,
    /// Partitions of the version map. A validator is called once for each of them, so they decide how much fuel and memory
    /// a transaction's epoch has, and with that which calls fail. How many threads share them is up to each node.
    pub partitions: u16,
}
