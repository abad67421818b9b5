//! The state after the last epoch: versions of rows, their history above the floor, keys written there, ids and stores.
//! Nothing here decides a transaction; the stages read it, and apply changes it.

pub mod id_table;

pub(crate) mod digest;
pub(crate) mod floor;
pub(crate) mod history;
pub(crate) mod id_bucket;
pub(crate) mod map;
mod map_copy;
pub(crate) mod map_entry;
mod prefetch;
pub(crate) mod row_counts;
pub(crate) mod scoped_id;
pub(crate) mod stores;
pub(crate) mod sums;
pub(crate) mod window;
