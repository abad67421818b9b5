//! The parts of a node that only a cluster member has.

pub mod adoption;
pub mod authority;
pub mod catch_up;
pub mod changes;
pub mod components;
pub mod first_start;
pub mod group_logs;
pub mod holders;
pub mod kept_log;
pub mod links;
pub mod lost_entries;
pub mod membership;
pub mod obstacle;
pub mod peer_clocks;
pub mod recovery;
pub mod refused_frames;
pub mod releases;
pub mod roster;
pub mod state_copy;
pub mod transfers;
pub mod unfinished_recovery;
pub mod view;
