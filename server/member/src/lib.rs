//! One member of a cluster: its [`Replica`](tribunal_replica::Replica), and the Raft groups that replicate the
//! proposals of all members.
//!
//! Sans I/O: [`Input`]s go in through [`Member::step`], [`Output`]s come out of [`Member::poll`]. No clock, thread,
//! file, socket or random number; the same inputs at the same times produce the same outputs, byte for byte. A node
//! puts threads, a log and connections around it, the simulator a seeded world; a member behaves the same in both.
//!
//! Obligations of the caller:
//! * outputs are carried out in order, all of them before the next input;
//! * [`Output::Append`] and [`Output::SetState`] are written to the log, [`Output::Sync`] makes everything before it
//!   durable, and [`Input::Persisted`] reports that. One sync may answer several outputs. Sends never wait for the
//!   caller: the member itself holds back messages that depend on durability;
//! * [`Input::Tick`] comes at a steady pace; it drives elections and heartbeats.
//!
//! A restart reads only the log: every committed entry since the last image is delivered again. Entries from peers are
//! not in it, and are requested again.

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
