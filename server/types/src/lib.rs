//! The vocabulary of Tribunal: numbers, transactions, batches, verdicts and log records, with no logic beyond their own
//! invariants.
//!
//! Everything that crosses a crate boundary is defined here, once. Nothing here serialises (bytes belong to
//! `tribunal-codec`, JSON to `tribunal-api`), performs I/O, reads a clock or draws a random number.
#![no_std]

extern crate alloc;

pub mod access;
pub mod adaptor;
pub mod batch;
pub mod control;
pub mod control_image;
pub mod ids;
pub mod image;
pub mod limits;
pub mod outcome;
pub mod reader;
pub mod record;
pub mod release;
pub mod store;
pub mod txn;
pub mod verdict;

pub use access::{ApiKey, DEFAULT_NAMESPACE, Role, Roles};
pub use adaptor::{
    Ack, Command, HttpCall, PushRequest, RespPipeline, RespValue, SqlStatement, StorageReply, Watermark,
};
pub use batch::{Batch, EarlyAbort, FenceItem, ImportedVersion, Txn};
pub use control::{
    AnnouncedComponent, Bounds, Component, ComponentReport, ControlChange, ControlEntry, Detachment, FilledBy,
    GroupJoin, PluginActivation, PluginChoice, PluginSlot, ProposalId, Skip,
};
pub use control_image::{
    ClusterNode, ControlImage, DeclaredStore, HeldKey, LastProposal, NodeStage, PastEntry, RevokedKey, SlotEntry,
    SlotImage,
};
pub use ids::{
    BodyHash, ControlIndex, Csn, Digest, Epoch, GroupId, Incarnation, InvalidLogId, LogId, Lsn, NamespaceId, NodeId,
    RowKey, StoreId, TxnId, TxnIx, Version,
};
pub use image::{Blob, Column, StateImage};
pub use outcome::{
    CreatedRow, Decision, EpochInput, EpochOutcome, FenceResult, ItemPlaces, PolicyFallback, StoreLsn, VerdictAt,
    Witness,
};
pub use reader::{ConsumerOffset, HeldWebhook, ReaderMove, Webhook};
pub use record::{ReadLimit, RecordBatch, RecordHead, RecordId, RecordWrite};
pub use release::{Generation, Generations, Release};
pub use store::{EMBEDDED_ADAPTOR, Existence, Pusher, StoreSpec};
pub use txn::{Isolation, Range, Read, Span, StoreSnapshot, TxnRequest, Write, WriteKind, WriteKinds};
pub use verdict::{Conflict, OpKind, Reason, Stage, Verdict};
