//! One node's part in the epochs: collects transactions into batches, proposes them, folds the entries that the groups'
//! logs agreed on, resolves complete epochs, and determines the reply of every waiter.
//!
//! Sans I/O: [`Event`]s in by [`Replica::step`], [`Effect`]s out by [`Replica::poll`]. No clock (every event carries
//! the time), no thread, channel, file or random number: the same events at the same times have the same effects, byte
//! for byte. Threads, queues and the log belong to the caller, as does the code that fills the slots
//! ([`PolicyRunner`]).
#![no_std]

extern crate alloc;

mod answer;
mod backlog;
mod by_size;
mod control_queue;
mod controls;
mod deciding;
mod demand;
mod effect;
mod event;
mod idle_seal;
mod image;
mod intake;
mod items;
mod leading;
mod pace;
mod policy_runner;
mod replica;
mod sealing;
mod stall;
mod stopping;
mod store_watch;
mod stores;
mod turns;
mod watchers;

pub use answer::{Answer, ControlReply, Imported, KnownNow};
pub use by_size::BySize;
pub use effect::{AppliedTo, DecidedEpoch, Effect, OwnBatch};
pub use event::{Commit, Event, Now, PushReport, StorageAt, Waiters};
pub use image::CapturedImage;
pub use items::PendingItems;
pub use policy_runner::PolicyRunner;
pub use replica::{Replica, ReplicaStart, Settings};
pub use store_watch::delivery;
pub use stores::StoreProgress;
pub use turns::{TakesTurns, Turns};
