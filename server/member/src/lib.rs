//! One member of a cluster: its [`Replica`](tribunal_replica::Replica), and the Raft groups that agree on what it and
//! the others propose.
//!
//! Sans I/O: [`Input`]s in by [`Member::step`], [`Output`]s out by [`Member::poll`]. No clock, thread, file, socket or
//! random number; the same inputs at the same times have the same outputs, byte for byte. A node puts threads, a log
//! and connections around it, the simulator a seeded world; what a member does is the same in both.
//!
//! What the caller owes it:
//! * outputs are carried out in their order, all of them before the next input;
//! * [`Output::Append`] and [`Output::SetState`] go into the log, [`Output::Sync`] makes durable what came before it,
//!   and [`Input::Persisted`] tells of it. One sync may answer several; what is sent never waits for the caller,
//!   because the member holds back what must be durable first;
//! * an [`Input::Tick`] comes at a steady pace, of which elections and heartbeats are made.
//!
//! A restart reads nothing but the log: every committed entry comes again, from the last image on. Entries that a peer has
//! sent are not in it, and are asked for again.

mod asking;
mod control_proposals;
mod cursors;
mod digests;
mod frame;
mod fresh_reads;
mod handing_over;
mod holding_back;
mod homecoming;
mod image_columns;
mod input;
mod member;
mod membership;
mod output;
mod own_entries;
mod peer_entries;
mod positions;
mod presence;
mod pushers;
mod restored;
mod roles;
mod serving;
mod sources;

pub use digests::OddPeer;
pub use frame::{FRAME_BYTES_MAX, Frame, Part, PeerEntries, Pull, Stage};
pub use image_columns::{control_in, first_image, groups_in, image_of, put_groups};
pub use input::Input;
pub use member::{Member, MemberStart};
pub use output::Output;
pub use restored::{Restored, position_in, stamp_in};
pub use tribunal_raft::{
    EntryKind, GroupLog, GroupPoint, Input as RaftInput, Members, NODE_MAX, RaftMessage, Refused,
    Settings as RaftSettings, SoleMember, StoredGroup, sole_member,
};
