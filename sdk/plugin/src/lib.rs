//! SDK for writing Tribunal plugins in Rust: conflict rules, isolation validators and LogAdaptors.
//!
//! Implement [`Plugin`] and one of [`Rule`], [`Validator`] and [`Adaptor`], and pass the type to the matching
//! `export_*!` macro. Build the crate as a `cdylib` for `wasm32-unknown-unknown`, a target without clock, files and
//! random numbers, so that the component has no imports.
//!
//! ```
//! use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
//! use tribunal_plugin_sdk::{Fault, Plugin, Rule};
//!
//! /// The biggest transaction wins.
//! struct BiggestFirst;
//!
//! impl Plugin for BiggestFirst {
//!     const NAME: &'static str = "biggest-first";
//!     const ABOUT: &'static str = "The transaction that writes the most rows wins.";
//!
//!     fn init(_config: &str) -> Result<Self, Fault> {
//!         Ok(BiggestFirst)
//!     }
//! }
//!
//! impl Rule for BiggestFirst {
//!     const NEEDS: Columns = Columns::WRITES.union(Columns::CSN);
//!
//!     fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
//!         let hi = txns.writes.iter().map(|writes| u64::from(u32::MAX - writes)).collect();
//!         Ok(Ranks { hi, lo: txns.csn })
//!     }
//! }
//!
//! tribunal_plugin_sdk::export_rule!(BiggestFirst);
//! ```
//!
//! A plugin is a pure function: its result depends only on the configuration and the columns. If it returns a fault,
//! panics, or exceeds its fuel or memory, the host decides the whole batch with its native fallback, in the same way on
//! every node.
//!
//! The version of a row is one number: the epoch that wrote it in the upper bits, and its position in that epoch's
//! serial order in the lower [`validator::POSITION_BITS`]. [`validator::epoch_of`] extracts the epoch; a validator that
//! requests `Groups::EPOCHS` gets the epochs as separate columns.
#![no_std]

extern crate alloc;

pub mod adaptor;
pub mod allocator;
#[doc(hidden)]
pub mod bindings;
pub mod config;
mod instance;
pub mod record_ids;
pub mod rule;
pub mod traces;
pub mod validator;

pub use adaptor::Adaptor;
pub use instance::Instance;
pub use rule::Rule;
pub use validator::Validator;

/// Why a plugin failed, for people. Must depend only on the configuration and the arguments.
pub type Fault = alloc::string::String;

/// The part of a plugin that all worlds have in common.
pub trait Plugin: Sized {
    /// Name, lower case with hyphens.
    const NAME: &'static str;
    /// One sentence about what it does.
    const ABOUT: &'static str;

    /// Creates the plugin from its configuration: JSON text, empty if none was given (see [`config::parse`]).
    ///
    /// # Errors
    /// If the configuration is invalid; the text should say why.
    fn init(config: &str) -> Result<Self, Fault>;
}

#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
#[global_allocator]
static ALLOCATOR: allocator::Bump = allocator::Bump::new();
