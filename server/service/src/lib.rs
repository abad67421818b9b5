//! The boundary between the HTTP API and the node: one trait per area, and the plain types that they exchange.
//!
//! Protocol-agnostic (no JSON, no HTTP, no WebAssembly) and without behaviour of its own. The binary implements the
//! traits; the tests of the HTTP API implement them with a fake node, to test the mapping alone.

use std::sync::Arc;

mod catalog;
mod error;
mod keys;
mod log;
mod node;
pub mod plugins;
mod reads;
mod stores;
mod txns;

pub use catalog::{Catalog, RowNamer};
pub use error::{IdTime, ServiceError, ServiceFuture};
pub use keys::{KeyApi, KeyStatus, NewKey, Principal, Unauthenticated};
pub use log::{
    ConsumerPosition, ConsumerStatus, LogApi, LogPage, LogQuery, Registration, StateRows, StoreState, WebhookStatus,
};
pub use node::{
    ClusterView, MemberStage, NodeApi, NodeView, PushView, Readiness, Stats, Summary, TenantStats, Timed, VersionInfo,
};
pub use plugins::PluginApi;
pub use reads::{Freshness, RangeRows, ReadAnswer, ReadQuery, RowQuery, RowState, RowsQuery, StoredRow};
pub use stores::{Declared, PushState, SkipRequest, StoreApi, StoreStatus, Watermarks};
pub use txns::{AckMode, Begin, Begun, Decided, DryRun, Lane, Phases, Session, StatusQuery, TxnApi, TxnStatus};

/// The operations of a node, by area.
#[derive(Clone)]
pub struct Service {
    /// Transactions.
    pub txns: Arc<dyn TxnApi>,
    /// Stores.
    pub stores: Arc<dyn StoreApi>,
    /// Logs and their readers.
    pub log: Arc<dyn LogApi>,
    /// Keys and tokens.
    pub keys: Arc<dyn KeyApi>,
    /// Plugins.
    pub plugins: Arc<dyn PluginApi>,
    /// The node itself.
    pub node: Arc<dyn NodeApi>,
}

impl Service {
    /// Builds a service from one object that implements all areas.
    #[must_use]
    pub fn of<S>(one: &Arc<S>) -> Service
    where
        S: TxnApi + StoreApi + LogApi + KeyApi + PluginApi + NodeApi + 'static,
    {
        Service {
            txns: Arc::clone(one) as _,
            stores: Arc::clone(one) as _,
            log: Arc::clone(one) as _,
            keys: Arc::clone(one) as _,
            plugins: Arc::clone(one) as _,
            node: Arc::clone(one) as _,
        }
    }
}
