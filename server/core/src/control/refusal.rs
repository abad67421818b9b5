//! The reasons why an entry of the control log changes nothing.

use core::fmt;

use tribunal_types::limits::{
    ADDRESS_BYTES_MAX, KEYS_MAX, KEYS_PER_TENANT_MAX, NAME_BYTES_MAX, NODES_MAX, PLUGIN_VERSIONS_MAX,
    SKIPS_PER_STORE_MAX, STORES_MAX, STORES_PER_TENANT_MAX, TENANTS_MAX,
};

/// The reason why an entry changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A limit is reached.
    LimitReached(Limit),
    /// The store has records or rows, so its existence rule cannot be changed.
    ExistenceFixed,
    /// There is no such store.
    StoreUnknown,
    /// Another plugin has this name, or the component another name.
    PluginNameTaken,
    /// A member lacks the component, or it was never announced.
    PluginNotReady,
    /// A member's engine differs from the one named in the activation.
    EnginesDiffer,
    /// The version is active or pending in a slot.
    PluginInUse,
    /// Another key has this id, or had it.
    KeyIdTaken,
    /// All node ids are used.
    OutOfNodes,
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
            Refusal::LimitReached(limit) => limit.fmt(f),
            Refusal::ExistenceFixed => {
                f.write_str("`existence` of a store that has records or rows cannot be changed; declare another store")
            }
            Refusal::StoreUnknown => f.write_str("there is no such store"),
            Refusal::PluginNameTaken => {
                f.write_str("another plugin has this name, or this very component was uploaded under another one")
            }
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
            Refusal::KeyIdTaken => f.write_str("another key has this id; try again"),
            Refusal::OutOfNodes => {
                f.write_str("all node ids are used, and none is used twice; begin another cluster and copy the data")
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

/// A maximum that no entry may exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Stores of the service.
    Stores,
    /// Stores of a tenant.
    StoresOfTenant,
    /// Skipped records of a store.
    SkipsOfStore,
    /// Plugin versions of the service.
    PluginVersions,
    /// Keys of the service.
    Keys,
    /// Keys of a tenant.
    KeysOfTenant,
    /// Tenants of the service.
    Tenants,
    /// Nodes of the cluster.
    Nodes,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Stores => write!(f, "the service has {STORES_MAX} stores, the maximum"),
            Limit::StoresOfTenant => write!(f, "this tenant has {STORES_PER_TENANT_MAX} stores, the maximum"),
            Limit::SkipsOfStore => {
                write!(
                    f,
                    "{SKIPS_PER_STORE_MAX} records of this store are skipped already, the maximum; repair its storage so that it \
                     takes the records, or use another store"
                )
            }
            Limit::PluginVersions => write!(
                f,
                "{PLUGIN_VERSIONS_MAX} plugin versions are kept, which is the limit; delete versions that no slot needs"
            ),
            Limit::Keys => {
                write!(f, "the service has {KEYS_MAX} keys, the maximum, expired ones included; revoke some")
            }
            Limit::KeysOfTenant => write!(
                f,
                "this namespace has {KEYS_PER_TENANT_MAX} keys, the maximum, expired ones included; revoke some"
            ),
            Limit::Tenants => write!(f, "the service has {TENANTS_MAX} namespaces, the maximum"),
            Limit::Nodes => {
                write!(f, "the cluster has {NODES_MAX} nodes, the maximum, those included that are being removed")
            }
        }
    }
}
