//! sled, opened safely and made safe against power loss.
//!
//! What sled 0.34.7 leaves open and what is done here about it:
//!
//! * `flush` calls `sync_file_range`, which neither writes metadata nor empties the drive's cache: [`Disk::sync`] calls
//!   `fdatasync` on the database file itself, and fsyncs directories at creation.
//! * A page that outgrows a quarter of a segment goes to a file of its own that sled never syncs. Not only large values do
//!   that: a page holds up to 16 of them. Values are bounded by [`VALUE_BYTES_MAX`], segments are 16 MiB, so that a full
//!   page always fits; should a file appear all the same, [`Disk::sync`] syncs it before the database.
//! * Opening or reading a damaged file may panic: every call is guarded and turns that into an error.
//! * After a failed write or sync nobody knows what is on disk: the first such error is final
//!   ([`DiskError::DurabilityInDoubt`]), nothing is tried again, the process is expected to end.
//!
//! Must never: retry a sync, acknowledge on its own, know what the bytes mean.

mod disk;
mod error;
mod guard;
mod tree;

pub use disk::{Disk, DiskOptions, Durable, sync_directory};
pub use error::DiskError;
pub use tree::{Pair, Scan, Tree, WriteBatch};

/// Largest value of a tree, bytes. Larger things are cut into chunks by their owner.
pub const VALUE_BYTES_MAX: usize = 96 * 1024;
