//! The durable log: a group's contribution to every epoch, the epochs' outcomes, the control log, and a replica's
//! promises to its Raft groups.
//!
//! The log carries inputs; outcomes are computed from them and recorded, and a recorded outcome is authoritative on
//! replay. Each entry is chained to its predecessor by hash, every stored chunk carries a checksum, and a separate mark
//! records how far the log was durable. Consequences:
//!
//! * [`DurableLog::sync`] makes everything appended durable by exactly one `fdatasync`. A full segment is synced before
//!   anything is written to the next one. After a failure nothing is retried and nothing more is acknowledged.
//! * Entries and outcomes are in segment files, the control log is in two files of the same content, and this crate
//!   writes all of them. Opening a log writes nothing before the whole log has been verified, and a start that fails
//!   for lack of disk space leaves nothing that breaks the next start.
//! * The mark is written after the acknowledgement, never before it; under load it lags by about 50 ms at most. A log
//!   that ends below its mark has lost acknowledged entries: [`open`] refuses it, and [`salvage`] is the way out.
//! * After a crash, data that was appended but not synced is present either completely or not at all.
//! * Reading never waits for the writer's sync.
//! * A log has an id; a position is meaningful only together with it.
//!
//! A running log accesses a disk only through the trait [`Files`]. The feature `sim` provides a simulated disk that
//! loses power after every operation.
//!
//! Must never: resolve anything, base a decision on a clock, acknowledge on its own.

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
pub use images::{ImageWriter, add_image, newest_image, read_image, write_image};
pub use open::{LogOptions, Opened, Recovered, check_member, exists, find_damage, open, open_on};
pub use reader::{Entries, Located, LogReader, PointInLog};
pub use salvage::{SalvageReport, check_salvage, preview_salvage, salvage, unfinished_salvage};
pub use tribunal_codec::{EntryId, GroupCursor, GroupCursors, GroupState};
pub use writer::{DiskLog, DurableLog, HoldBack, LogStats};
