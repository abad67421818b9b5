//! A cluster in a simulated world: real members, real logs, and disks, clocks and a network determined by a seed.
//!
//! One thread, one queue of events. The same seed gives the same run, byte for byte; a run that breaks an invariant
//! prints its seed, and `cargo run --release -p tribunal-tests --bin sim -- --seed N --trace` replays it with all its
//! events.
//!
//! What a run checks: an epoch has one content and one outcome, a verdict is final at every node, everything
//! acknowledged is present on every machine after the last fault, and the cluster gets there.

mod answers;
mod asides;
mod changes;
pub mod clients;
pub mod drawing;
pub mod faults;
mod generations;
mod happening;
mod images;
mod judge;
pub mod machine;
mod majority_loss;
mod members;
pub mod network;
mod planted;
pub mod policies;
mod process;
mod queue;
pub mod random;
mod report;
mod storage_messages;
pub mod storages;
mod trace;
pub mod upgrades;
mod votes;
pub mod witness;
mod world;

/// A run makes many small allocations, which are slow with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use judge::HistoriesReport;
pub use majority_loss::MajorityLossReport;
pub use planted::Planted;
pub use report::{MembersReport, Report};
pub use trace::Trace;
pub use world::{Run, play};
