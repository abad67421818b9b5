//! What is going to happen in a run.

use bytes::Bytes;
use tribunal_codec::GroupCursors;
use tribunal_types::Epoch;

use crate::sim::faults::{Fault, Planned};
use crate::sim::storage_messages::{Reply, Request};

/// Time for a process that is about to stop to hand over its leaderships, microseconds.
pub(super) const HANDING_OVER_US: u64 = 600_000;
/// Time that a stopping process may wait for work in flight, microseconds.
pub(super) const STOPPING_US: u64 = 300_000;

/// A pending event.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Start { node: u16 },
    Tick { node: u16, start: u64 },
    Frame { from: u16, to: u16, sent_us: u64, bytes: Bytes },
    Synced { node: u16, start: u64, number: u64 },
    AckedEarly { node: u16, start: u64, number: u64 },
    ClientActs { client: usize, asked: u16 },
    ClientGivesUp { client: usize, attempt: u64 },
    Change,
    ReadFresh,
    Fault(Planned),
    Repair(Fault, u16),
    Stop { node: u16, start: u64, now: bool },
    ImageWritten { node: u16, start: u64, epoch: Epoch, older: GroupCursors },
    Replace { node: u16 },
    Recover,
    Upgrade { node: u16 },
    Storage(Request),
    StorageReplies(Reply),
}
