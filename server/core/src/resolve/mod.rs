//! Resolution of an epoch, one stage per file: identity (in the resolver), join, validate, vote, merge, apply. Every
//! decision is made here. Between epochs it keeps only the state that the resolver passes in.

pub mod executor;
pub mod resolver;
pub mod shard;

pub(crate) mod access_class;
pub(crate) mod apply;
pub(crate) mod contention;
mod dry_run;
pub(crate) mod epoch_rows;
pub(crate) mod evidence;
pub(crate) mod join;
pub(crate) mod merge;
mod precedence;
pub(crate) mod range_votes;
pub(crate) mod scratch;
mod serial_order;
pub(crate) mod shard_place;
pub(crate) mod txns;
pub(crate) mod validate;
pub(crate) mod vote;
