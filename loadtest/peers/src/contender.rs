//! The contenders of a measurement.

use serde::{Deserialize, Serialize};
use tribunal_bench::options::Workload;

use crate::sdk;
use crate::tribunal::Kind;

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// Tribunal, rows in the engine.
    Tribunal,
    /// Tribunal, rows in the engine, which posts the commits of its sessions together.
    TribunalGathered,
    /// Tribunal, rows read over HTTP.
    TribunalReads,
    /// Tribunal through its Rust client's defaults, rows in the engine.
    TribunalSdk,
    /// Tribunal through its Rust client's defaults, rows read over HTTP.
    TribunalSdkReads,
    /// Tribunal through a commit stream of its Rust client, rows in the engine.
    TribunalStream,
    /// Redis, WATCH and MULTI, synced append-only file.
    Redis,
    /// PostgreSQL 15, SERIALIZABLE.
    Postgres,
    /// etcd 3.6, JSON gateway.
    Etcd,
    /// Three nodes of Tribunal, rows in the engine, clients at all nodes.
    TribunalThree,
    /// The same nodes, all clients at one.
    TribunalThreeAtOne,
    /// Three nodes of etcd, clients at all nodes.
    EtcdThree,
    /// Five nodes of Tribunal, rows in the engine, clients at all nodes.
    TribunalFive,
    /// The same nodes, all clients at one.
    TribunalFiveAtOne,
    /// Five nodes of etcd, clients at all nodes.
    EtcdFive,
    /// Tribunal, batches into a log-only store.
    TribunalBatch,
    /// Omid 1.1.3, status oracle in memory.
    Omid,
}

impl Name {
    /// Returns its name in tables and charts.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Name::Tribunal => "Tribunal",
            Name::TribunalGathered => "Tribunal, commits gathered by the engine",
            Name::TribunalReads => "Tribunal, rows read over HTTP",
            Name::TribunalSdk => "Tribunal, Rust client",
            Name::TribunalSdkReads => "Tribunal, Rust client, rows read over HTTP",
            Name::TribunalStream => "Tribunal, Rust client, commit stream",
            Name::Redis => "Redis WATCH/MULTI, AOF always",
            Name::Postgres => "PostgreSQL 15 SERIALIZABLE",
            Name::Etcd => "etcd 3.6 JSON gateway",
            Name::TribunalThree => "Tribunal, three nodes, clients at all",
            Name::TribunalThreeAtOne => "Tribunal, three nodes, clients at one",
            Name::EtcdThree => "etcd 3.6 JSON gateway, three nodes, clients at all",
            Name::TribunalFive => "Tribunal, five nodes, clients at all",
            Name::TribunalFiveAtOne => "Tribunal, five nodes, clients at one",
            Name::EtcdFive => "etcd 3.6 JSON gateway, five nodes, clients at all",
            Name::TribunalBatch => "Tribunal, batches, log-only store",
            Name::Omid => "Omid 1.1.3 in memory",
        }
    }

    /// Returns how it uses Tribunal, if it does.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        match self {
            Name::Tribunal
            | Name::TribunalSdk
            | Name::TribunalStream
            | Name::TribunalThree
            | Name::TribunalThreeAtOne
            | Name::TribunalFive
            | Name::TribunalFiveAtOne => Some(Kind::OwnRows),
            Name::TribunalGathered => Some(Kind::Gathered),
            Name::TribunalReads | Name::TribunalSdkReads => Some(Kind::HttpReads),
            Name::TribunalBatch => Some(Kind::Batches),
            _ => None,
        }
    }

    /// Returns where its transactions read, if they use the Rust client.
    #[must_use]
    pub fn sdk_reads(self) -> Option<sdk::Reads> {
        match self {
            Name::TribunalSdk | Name::TribunalStream => Some(sdk::Reads::OwnRows),
            Name::TribunalSdkReads => Some(sdk::Reads::Http),
            _ => None,
        }
    }

    /// Returns why it does not run a workload, if it does not.
    #[must_use]
    pub fn leaves_out(self, workload: Workload) -> Option<&'static str> {
        match (self.kind(), workload) {
            (Some(Kind::HttpReads), Workload::Hot) => {
                Some("a counter is not read, so it is the same as with rows in the engine")
            }
            _ => None,
        }
    }

    /// Returns the number of its nodes.
    #[must_use]
    pub fn nodes(self) -> u16 {
        match self {
            Name::TribunalThree | Name::TribunalThreeAtOne | Name::EtcdThree => 3,
            Name::TribunalFive | Name::TribunalFiveAtOne | Name::EtcdFive => 5,
            _ => 1,
        }
    }

    /// Returns whether it is a cluster.
    #[must_use]
    pub fn is_cluster(self) -> bool {
        self.nodes() > 1
    }

    /// Returns whether all clients of a cluster are connected to its first node.
    #[must_use]
    pub fn is_at_one(self) -> bool {
        matches!(self, Name::TribunalThreeAtOne | Name::TribunalFiveAtOne)
    }

    /// Returns whether it takes part in the comparison of status oracles, with many transactions in flight.
    #[must_use]
    pub fn is_oracle(self) -> bool {
        matches!(self, Name::TribunalBatch | Name::Omid)
    }
}
