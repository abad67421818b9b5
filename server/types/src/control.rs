//! Changes of configuration. They take effect only at epoch boundaries, through the control log.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::access::ApiKey;
use crate::ids::{ControlIndex, Epoch, GroupId, Lsn, NodeId, StoreId};
use crate::limits::NAME_BYTES_MAX;
use crate::reader::{ReaderMove, Webhook};
use crate::release::{Generation, Release};
use crate::store::StoreSpec;
use crate::txn::Isolation;

/// A slot that a plugin can fill.
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
    /// Returns the slot with the name `name`: `rule`, `validator:<level>` or `adaptor:<name>`.
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

    /// Returns its name; [`PluginActivation::cause`] has the API's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FilledBy::Configuration => "configuration",
            FilledBy::Request => "activate",
            FilledBy::Rollback => "rollback",
            FilledBy::Faults => "faults",
        }
    }

    /// Returns whether the slot returns to its previous plugin.
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
    /// Name of the engine that runs it, or `native`. Another engine may consume different fuel, so a change of engine
    /// takes effect at an epoch, too. Built-in code has the same results on every engine.
    pub host: String,
    /// Configuration handed to `init`, JSON text.
    pub config: String,
    /// Whether the module was announced to the members of a cluster; then all of them must have it ready.
    pub announced: bool,
}

impl PluginChoice {
    /// Returns the choice of no plugin for an adaptor's slot. It keeps the adaptor's name. A release that does not know
    /// this choice treats it as a missing component, which affects only stores that use the adaptor.
    #[must_use]
    pub fn none(adaptor: &str) -> PluginChoice {
        let (slot, name) = (PluginSlot::Adaptor(adaptor.to_owned()), adaptor.to_owned());
        PluginChoice { slot, name, ..PluginChoice::default() }
    }

    /// Returns whether this choice empties an adaptor's slot: no component has this digest.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self.slot, PluginSlot::Adaptor(_)) && self.digest == [0; 32]
    }
}

/// A plugin component that was uploaded to a cluster: everything a member needs to fetch and check it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Component {
    /// SHA-256 of its bytes.
    pub digest: [u8; 32],
    /// Name under which it was uploaded.
    pub name: String,
    /// Name of its world.
    pub world: String,
    /// Size, bytes.
    pub bytes: u64,
    /// When it was uploaded, Unix milliseconds.
    pub uploaded_ms: u64,
    /// Configuration with which it was checked, JSON text.
    pub config: String,
    /// Signature over name and digest, hexadecimal; empty if unsigned.
    pub signature: String,
}

/// A component, and the members' reports on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedComponent {
    /// The component.
    pub component: Component,
    /// The entry that first announced it.
    pub announced: ControlIndex,
    /// Reports of the members that have sent one.
    pub reports: BTreeMap<NodeId, ComponentReport>,
}

/// A member's report on a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentReport {
    /// The member's engine, for which the component is ready.
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
    /// Returns whether the member has reported that it is ready.
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
    /// Earliest epoch at which it takes effect.
    pub from: Epoch,
    /// What caused it.
    pub by: FilledBy,
    /// For a rollback after faults: the entry that failed. The activation is void if another entry fills the slot by
    /// then. For a deactivation of a rule or validator, which is a [`FilledBy::Rollback`]: the entry that it ends; earlier
    /// releases left it 0. For a [`FilledBy::Request`] that undoes a deactivation: the entry of that. No decision depends
    /// on the latter two.
    pub replaces: ControlIndex,
    /// The requester; empty for the node itself.
    pub who: String,
    /// When it was requested, Unix milliseconds on the clock of the node that received the request; 0 if unknown. No
    /// decision depends on it.
    pub at_ms: u64,
}

impl PluginActivation {
    /// Returns whether it removes a plugin from its slot.
    #[must_use]
    pub fn is_deactivation(&self) -> bool {
        match self.by {
            FilledBy::Request => self.choice.is_none(),
            FilledBy::Rollback => self.replaces > ControlIndex(0),
            FilledBy::Configuration | FilledBy::Faults => false,
        }
    }

    /// Returns the name of its cause in the API.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self.by {
            _ if self.is_deactivation() => "deactivate",
            FilledBy::Request if self.replaces > ControlIndex(0) => FilledBy::Rollback.name(),
            by => by.name(),
        }
    }
}

/// Unique name of a proposal, under which its reply is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId {
    /// Drawn at random when the proposer starts, since proposals of an earlier process may still arrive.
    pub run: u64,
    /// Counts the proposals of the run.
    pub number: u64,
}

/// One entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlEntry {
    /// The proposal that it was written for.
    pub proposal: ProposalId,
    /// The change.
    pub change: ControlChange,
}

impl From<ControlChange> for ControlEntry {
    /// Makes an entry without a waiter.
    fn from(change: ControlChange) -> ControlEntry {
        ControlEntry { proposal: ProposalId::default(), change }
    }
}

/// A change of configuration. Numbers of new objects are not part of it: they are assigned when it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlChange {
    /// Creates or changes the store of this name and namespace. `id` is 0, or the number known to the proposer.
    DeclareStore(StoreSpec),
    /// Fills a slot from the first epoch at or after `from` that carries this entry.
    ActivatePlugin(PluginActivation),
    /// Makes all members fetch, check and compile a component, and report the result.
    AnnounceComponent(Component),
    /// Reports that a member has a component ready, or cannot run it.
    ReportComponent {
        /// SHA-256 of the component's bytes.
        digest: [u8; 32],
        /// The member.
        node: NodeId,
        /// The member's report.
        report: ComponentReport,
    },
    /// Removes a plugin's code; no slot returns to it. Written once no slot holds the plugin, so that when this entry
    /// is durable, so are the outcomes of all epochs that the code decided.
    ForgetPlugin {
        /// SHA-256 of the module's bytes.
        digest: [u8; 32],
    },
    /// Lets the log continue without a store's storage, which did not acknowledge for too long.
    DetachPush(Detachment),
    /// Resumes the push to a detached store, whose storage holds enough for the log to continue from.
    AttachPush {
        /// The store.
        store: StoreId,
    },
    /// Makes a member push to a store from now on, unless another push has begun since this was proposed.
    AssignPush {
        /// The store.
        store: StoreId,
        /// The push that this one replaces.
        replaces: ControlIndex,
        /// The member.
        node: NodeId,
    },
    /// Records that a storage was found ahead of the log, or that it no longer is.
    ForkPush {
        /// The store.
        store: StoreId,
        /// The control entry that last declared or attached it; a later storage is not affected.
        generation: ControlIndex,
        /// End of the log at that time.
        fork: Option<Lsn>,
    },
    /// Registers a receiver of a store's log, replacing the previous one.
    RegisterWebhook {
        /// The receiver.
        webhook: Webhook,
        /// Whether it continues from the previous receiver's position instead of after its own watermark.
        resumes: bool,
    },
    /// Removes a store's receiver.
    RemoveWebhook {
        /// The store.
        store: StoreId,
    },
    /// Makes a member deliver a store's log to its receiver from now on, unless another delivery has begun since this
    /// was proposed.
    AssignWebhook {
        /// The store.
        store: StoreId,
        /// The delivery that this one replaces.
        replaces: ControlIndex,
        /// The member.
        node: NodeId,
    },
    /// Moves offsets and watermarks, in the given order.
    MoveReaders(Vec<ReaderMove>),
    /// Skips one record that a storage can never accept. The entry is the audit record.
    SkipRecord(Skip),
    /// Sets the bounds that affect verdicts.
    SetBounds(Bounds),
    /// Creates a key, and its tenant if it does not exist. `namespace` is 0, or the number known to the proposer.
    CreateKey(ApiKey),
    /// Revokes a key. It never becomes valid again.
    RevokeKey {
        /// Its public part.
        id: String,
    },
    /// Assigns a number to the named node, which is to become a member.
    AdmitNode {
        /// Its name, unique among the nodes that were not removed.
        name: String,
        /// Address at which the other nodes reach it, opaque.
        address: String,
        /// The voters of the control group at this entry, added by the group's leader; the new group begins with them.
        /// Empty in a proposal; an entry without voters means all remaining members.
        voters: Vec<NodeId>,
    },
    /// Permanently binds the number of an admitted node to the data directory it starts with: the promises that the
    /// node makes to other nodes are on that disk alone.
    ClaimNode {
        /// The node.
        node: NodeId,
        /// The number that the directory drew at its creation.
        directory: u64,
    },
    /// Makes a group a member. It already has a leader.
    JoinGroup(GroupJoin),
    /// Permanently removes a node: its group closes, then the node leaves all groups.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// Drains a node, or lets it resume. A drained node remains a member and a voter, but leads no group, takes no
    /// commits and pushes to no storage.
    DrainNode {
        /// The node.
        node: NodeId,
        /// Whether to drain it.
        drained: bool,
    },
    /// Completes the removal of a node: no group includes it.
    ForgetNode {
        /// The node.
        node: NodeId,
    },
    /// Announces a node's release.
    AnnounceRelease {
        /// The node.
        node: NodeId,
        /// Its release.
        release: Release,
    },
    /// From the first epoch that carries this entry, everything is decided in this generation, which all members
    /// support.
    SwitchGeneration(Generation),
    /// Makes a node the only one: all other nodes are removed permanently, without the waits of a regular removal.
    /// Written into the log of a stopped node after a majority of the other nodes was lost.
    SoleNode {
        /// The node.
        node: NodeId,
    },
    /// Takes the place of an entry that a salvage could not read. Its change is unknown.
    Lost,
}

/// A group that becomes a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupJoin {
    /// The group; its node was admitted before.
    pub group: GroupId,
    /// First epoch that needs the group's entry.
    pub first: Epoch,
}

/// A store that the log no longer waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detachment {
    /// The store.
    pub store: StoreId,
    /// The control entry that last declared or attached it; a later one is not affected.
    pub declared: ControlIndex,
    /// Last complete epoch at the time of the decision.
    pub at: Epoch,
    /// Last record that the storage had acknowledged.
    pub acked: Lsn,
    /// The reason, as text.
    pub reason: String,
}

/// A record that is withheld from a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The store.
    pub store: StoreId,
    /// The record.
    pub lsn: Lsn,
    /// When it was requested, on the clock of the node that received the request; no decision depends on it.
    pub at_ms: u64,
    /// The caller.
    pub by: String,
    /// The storage's error for the record.
    pub reason: String,
}

/// Bounds that affect verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of history above which the floor rises early.
    pub window_bytes_max: u64,
    /// Bytes of the id and status table above which its oldest second is dropped.
    pub status_bytes_max: u64,
    /// Consecutive faults after which a slot returns to its previous content; 0 for never. It determines when a
    /// rollback is proposed, and so which plugin decides later epochs.
    pub plugin_faults_max: u32,
    /// Partitions of the version map. A validator is called once per partition, so their number determines the fuel and
    /// memory of a transaction's epoch, and so which calls fail. The number of threads that share them is up to each
    /// node.
    pub partitions: u16,
}
