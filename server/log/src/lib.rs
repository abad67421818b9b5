//! The durable log: what a group contributed to every epoch, what the epochs decided, the control log, and what a replica
//! promised to its Raft groups.
//!
//! The log carries inputs; outcomes are computed from them and recorded, and a recorded outcome is authoritative on
//! replay. An entry is chained to the one before it by hash, every stored chunk carries a checksum, and a mark of its
//! own records how far the log was durable. What follows from that:
//!
//! * [`DurableLog::sync`] makes everything appended durable by exactly one `fdatasync`. A segment that has become full is
//!   synced before anything is written to the next one. After a failure nothing is retried and nothing more is acknowledged.
//! * Entries and outcomes are in segment files, the control log in two files of the same content, all written by this
//!   crate: opening a log writes nothing before the whole of it has been verified, and a start that fails for want of room
//!   leaves nothing that the next one trips over.
//! * The mark is written after the acknowledgement, never before it, at most some 50 ms later under load. A log that ends
//!   below its mark has lost what was promised: [`open`] refuses, and [`salvage`] is the way out.
//! * What was appended but not synced is all there or not at all after a crash.
//! * Reading never waits for the writer's sync.
//! * A log has an id: positions mean something only together with it.
//!
//! A running log uses a disk by the trait [`Files`] only. The feature `sim` has a simulated one, on which the power is cut
//! after every operation.
//!
//! Must never: resolve anything, look at a clock to decide anything, acknowledge on its own.

mod batches;
mod control_compaction;
mod control_log;
mod copies;
mod epoch_pass;
mod epoch_runs;
mod epoch_starts;
mod error;
mod files;
mod former;
mod frame;
mod group_epochs;
mod group_log;
mod groups;
mod identity;
mod images;
mod kept_outcomes;
mod lsn_index;
mod mark_file;
mod open;
mod outcomes;
mod reader;
mod recent;
mod record;
mod retention;
mod salvage;
mod segment_scan;
mod segment_walk;
mod segment_writer;
mod segments;
#[cfg(feature = "sim")]
pub mod sim;
mod truncation;
mod writer;

pub use epoch_pass::EpochPass;
pub use error::{Holder, LogError};
pub use files::{Files, LockGuard, LogFile, OpenMode, RealFiles, check_unused};
pub use group_log::GroupEntry;
pub use identity::ClusterIdentity;
pub use images::{ImageWriter, add_image, read_image, write_image};
pub use open::{LogOptions, Opened, Recovered, exists, find_damage, open, open_on};
pub use reader::{Entries, Located, LogReader, PointInLog};
pub use salvage::{SalvageReport, check_salvage, preview_salvage, salvage};
pub use tribunal_codec::{EntryId, GroupCursor, GroupCursors, GroupState};
pub use writer::{DiskLog, DurableLog, HoldBack, LogStats};
