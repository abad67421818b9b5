//! The effect of a control log entry: the reply to its proposer, and the changes that the rest of the node has to
//! follow.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use tribunal_types::limits::{
    ADDRESS_BYTES_MAX, KEYS_MAX, KEYS_PER_TENANT_MAX, NAME_BYTES_MAX, NODES_MAX, PLUGIN_VERSIONS_MAX,
    SKIPS_PER_STORE_MAX, STORES_MAX, STORES_PER_TENANT_MAX, TENANTS_MAX,
};
use tribunal_types::{ApiKey, Bounds, Generation, GroupJoin, Lsn, NodeId, PluginActivation, RevokedKey, StoreId};

use super::readers::ReaderMoved;

/// The result of an entry: the same on every node that applies it.
pub type Applied = Result<Effect, Refusal>;

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A store is declared: its push starts, replacing the previous one.
    StoreDeclared {
        /// The store.
        store: StoreId,
        /// Whether it did not exist before.
        created: bool,
    },
    /// The store was already declared exactly this way.
    StoreKnown(StoreId),
    /// The store is no longer pushed to.
    PushDetached(StoreId),
    /// The store's push starts again.
    PushAttached(StoreId),
    /// Another node pushes to the store from now on.
    PushAssigned(StoreId),
    /// The store's storage was found ahead of the log, or no longer is.
    PushForked(StoreId),
    /// A store's log has a receiver, or a different one: its delivery starts.
    WebhookRegistered(StoreId),
    /// A store's log no longer has a receiver.
    WebhookRemoved(StoreId),
    /// Another node delivers a store's log from now on.
    WebhookAssigned(StoreId),
    /// Offsets and watermarks were moved: the result of each move, in the order of the entry.
    ReadersMoved(Vec<ReaderMoved>),
    /// A record is skipped for a storage.
    RecordSkipped(StoreId, Lsn),
    /// These bounds are in force from the next epoch on.
    BoundsSet(Bounds),
    /// A slot has a new entry.
    PluginActivated {
        /// Its content.
        activation: PluginActivation,
        /// It decides from the next epoch on; otherwise it is pending until its epoch.
        holds: bool,
    },
    /// All members are to fetch, check and compile a component.
    ComponentAnnounced([u8; 32]),
    /// A member has reported the outcome for a component.
    ComponentReported([u8; 32]),
    /// No slot can return to this code.
    PluginForgotten([u8; 32]),
    /// A key is valid from now on.
    KeyCreated {
        /// The key, with the number of its tenant.
        key: ApiKey,
        /// Whether its tenant did not exist before.
        founded: bool,
    },
    /// The same key was created before.
    KeyKnown(ApiKey),
    /// A key is no longer valid.
    KeyRevoked {
        /// Its public part.
        id: String,
        /// A key revoked earlier that is forgotten now, with its entries.
        forgotten: Option<RevokedKey>,
    },
    /// A node has a number, and its group begins.
    NodeAdmitted(NodeId),
    /// A node has its data directory.
    NodeClaimed(NodeId),
    /// A node's release is known, and was not before.
    ReleaseAnnounced(NodeId),
    /// All epochs from the next one on are decided in this generation.
    GenerationSwitched(Generation),
    /// A group is a member from this epoch on.
    GroupJoined(GroupJoin),
    /// A node is being removed: its group is to close.
    NodeLeaves(NodeId),
    /// A node is drained from now on.
    NodeDrained(NodeId),
    /// A node is no longer drained.
    NodeResumed(NodeId),
    /// No group contains the node any more.
    NodeLeft(NodeId),
    /// This node is the only one left; all others have left.
    OthersLeft(NodeId),
    /// An entry is missing that may have changed anything.
    EntryLost,
    /// None: the same proposal was applied before, and its proposer was answered then.
    Repeated,
    /// None: its change is already in place, or its subject no longer exists.
    Unchanged,
}

/// The reason why an entry changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The service has the maximum number of stores.
    TooManyStores,
    /// The tenant has the maximum number of stores.
    TooManyStoresOfTenant,
    /// The store has records or rows, so its existence rule cannot be changed.
    ExistenceFixed,
    /// There is no such store.
    StoreUnknown,
    /// Too many records of the store are skipped already.
    TooManySkips,
    /// Another plugin has this name, or the component another name.
    PluginNameTaken,
    /// The service has the maximum number of plugin versions.
    TooManyPlugins,
    /// A member lacks the component, or it was never announced.
    PluginNotReady,
    /// A member's engine differs from the one named in the activation.
    EnginesDiffer,
    /// The version is active or pending in a slot.
    PluginInUse,
    /// The service has the maximum number of keys.
    TooManyKeys,
    /// The tenant has the maximum number of keys.
    TooManyKeysOfTenant,
    /// The service has the maximum number of tenants.
    TooManyTenants,
    /// Another key has this id, or had it.
    KeyIdTaken,
    /// All node ids are used.
    OutOfNodes,
    /// The cluster has the maximum number of nodes.
    TooManyNodes,
    /// A node has no name or no address, or one that is too long.
    NodeNameLength,
    /// Another node has this name.
    NodeNameTaken,
    /// No node ever had this number.
    NodeUnknown,
    /// Counting incomplete removals, too many nodes would leave at once, or none would be left.
    LastMajority,
    /// No other member would take commits.
    LastServing,
    /// The node is not a member yet, or is being removed.
    NodeNotMember,
    /// The node of this group was not admitted.
    NodeNotAdmitted,
    /// The node has another data directory.
    NodeClaimed,
    /// The node has another group.
    NodeHasGroup,
    /// The name of the release is too long, or it has no generation.
    ReleaseMalformed,
    /// A member runs a release that cannot decide in this generation, or has not announced its release.
    GenerationUnknown,
    /// Positions of the control log no longer fit into the numbers of stores and tenants.
    OutOfNumbers,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooManyStores => write!(f, "the service has {STORES_MAX} stores, the maximum"),
            Refusal::TooManyStoresOfTenant => write!(f, "this tenant has {STORES_PER_TENANT_MAX} stores, the maximum"),
            Refusal::ExistenceFixed => {
                f.write_str("`existence` of a store that has records or rows cannot be changed; declare another store")
            }
            Refusal::StoreUnknown => f.write_str("there is no such store"),
            Refusal::TooManySkips => {
                write!(f, "{SKIPS_PER_STORE_MAX} records of this store are skipped already; declare it again")
            }
            Refusal::PluginNameTaken => {
                f.write_str("another plugin has this name, or this very component was uploaded under another one")
            }
            Refusal::TooManyPlugins => write!(
                f,
                "{PLUGIN_VERSIONS_MAX} plugin versions are kept, which is the limit; delete versions that no slot needs"
            ),
            Refusal::PluginNotReady => {
                f.write_str("not every member of the cluster has this plugin version ready any more; try again")
            }
            Refusal::EnginesDiffer => f.write_str(
                "the members run releases with different plugin engines, so they could not decide the same; upgrade all nodes \
                 first, then activate the plugin",
            ),
            Refusal::PluginInUse => f.write_str(
                "a slot holds this plugin version, or will; deactivate it, or cancel its pending activation by a rollback",
            ),
            Refusal::TooManyKeys => {
                write!(f, "the service has {KEYS_MAX} keys, the maximum, expired ones included; revoke some")
            }
            Refusal::TooManyKeysOfTenant => write!(
                f,
                "this namespace has {KEYS_PER_TENANT_MAX} keys, the maximum, expired ones included; revoke some"
            ),
            Refusal::TooManyTenants => write!(f, "the service has {TENANTS_MAX} namespaces, the maximum"),
            Refusal::KeyIdTaken => f.write_str("another key has this id; try again"),
            Refusal::OutOfNodes => {
                f.write_str("all node ids are used, and none is used twice; begin another cluster and copy the data")
            }
            Refusal::TooManyNodes => {
                write!(f, "the cluster has {NODES_MAX} nodes, the maximum, those included that are being removed")
            }
            Refusal::NodeNameLength => {
                write!(f, "a node has a name of 1 to {NAME_BYTES_MAX} bytes and an address of 1 to {ADDRESS_BYTES_MAX}")
            }
            Refusal::NodeNameTaken => {
                f.write_str("another node has this name, and another address; choose another name, or remove that node")
            }
            Refusal::NodeUnknown => f.write_str("no node of the cluster ever had this number"),
            Refusal::LastMajority => f.write_str(
                "with the nodes whose removal is not complete, more than half would leave at once, or none would be left; \
                 add another node first, or wait until no removal is under way (a removal waits until most of the other nodes run)",
            ),
            Refusal::LastServing => f.write_str(
                "all other members are drained or are being removed, so no node would take commits; resume another one first",
            ),
            Refusal::NodeNotMember => f.write_str("the node is no member of the cluster yet, or is being removed"),
            Refusal::NodeNotAdmitted => {
                f.write_str("the node was not admitted to the cluster, or was removed; admit a node first")
            }
            Refusal::NodeClaimed => f.write_str(
                "the node has started with another data directory; a node that has lost its disk is removed, and admitted as a \
                 new one",
            ),
            Refusal::NodeHasGroup => {
                f.write_str("the node has another group already; a wiped disk is admitted as a new node")
            }
            Refusal::ReleaseMalformed => write!(
                f,
                "a release has a version and an engine of at most {NAME_BYTES_MAX} bytes, and one generation at least"
            ),
            Refusal::GenerationUnknown => f.write_str(
                "not every member runs a release that can decide in this generation; upgrade the nodes that \
                 `tribunal cluster status` shows with an older one",
            ),
            Refusal::OutOfNumbers => f.write_str("the control log is too long for another number"),
        }
    }
}
