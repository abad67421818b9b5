//! The wire types of Tribunal's REST surface and the checked-in OpenAPI documents that are made of them.
//!
//! JSON only: conversions from and to domain types are where they are used. No `oneOf`, no `null` (absent
//! instead), flat structs, every 64-bit number a decimal string, so that every client generator accepts the result.

pub mod access;
pub mod checksum;
pub mod cluster;
pub mod consistency;
pub mod downgrade;
pub mod examples;
pub mod log;
pub mod meta;
pub mod plugin;
pub mod present;
pub mod problem;
pub mod read;
pub mod reader;
pub mod stats;
pub mod store;
pub mod stream;
pub mod txn;

pub use access::{KeyCreated, KeyInfo, KeyList, KeyRequest};
pub use checksum::RecordChecksum;
pub use cluster::{ClusterInfo, ClusterNode, ClusterPush, NodeAdmitted, NodeRequest, NodeStage};
pub use consistency::Consistency;
pub use log::{LogEvent, LogEventKind, LogPage, LogRecord, LogWrite, StateKind, StateLine};
pub use meta::{Health, Readiness, VersionInfo};
pub use plugin::{
    PluginActivate, PluginActivation, PluginCheck, PluginComponent, PluginDeactivate, PluginDeleted, PluginFaults,
    PluginHealth, PluginInfo, PluginList, PluginMiss, PluginReplaced, PluginRollback, PluginSlot, PluginStore,
    PluginUpload, PluginVersion,
};
pub use problem::{Problem, ProblemError};
pub use read::{RangeRead, ReadRange, ReadRequest, ReadResponse, ReadRow, RowRead};
pub use reader::{
    ConsumerInfo, ConsumerList, ConsumerOffset, OffsetRequest, PushBody, PushInfo, PushKind, PushRequest, WebhookState,
};
pub use stats::{AbortCount, Distribution, Stats, Timing};
pub use store::{
    AttachRequest, ImportLine, ImportLines, ImportResult, Row, RowPage, SkipList, SkipRequest, SkippedRecord, Snapshot,
    StorageDurability, StoreDeclaration, StoreExistence, StoreInfo, StoreList, StorePush, StorePushState,
};
pub use stream::{CommitEvent, CommitEventKind, CommitLines};
pub use txn::{
    AbortReason, Ack, BatchCommitRequest, BatchCommitResponse, BatchTxn, BeginRequest, BeginResponse, CommitRequest,
    Conflict, ConflictOp, ConflictStage, IsolationLevel, Range, Read, TxnOutcome, TxnState, Write, WriteOp,
};

/// The OpenAPI 3.1 document, as checked in.
pub const OPENAPI_3_1: &str = include_str!("../openapi.json");
/// The same document as OpenAPI 3.0.3, as checked in.
pub const OPENAPI_3_0: &str = include_str!("../openapi-3.0.json");
