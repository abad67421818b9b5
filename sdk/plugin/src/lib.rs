//! Everything for writing a Tribunal plugin in Rust: a conflict rule, an isolation validator or a LogAdaptor.
//!
//! An author implements [`Plugin`] and one of [`Rule`], [`Validator`] and [`Adaptor`], and names the type in the
//! matching `export_*!` macro. The crate is built as a `cdylib` for `wasm32-unknown-unknown`, a target that offers no
//! clock, no files and no random numbers, so the component imports nothing.
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
//! A plugin is a pure function: its answer follows from configuration and columns alone. If it returns a fault, panics, or
//! needs too much fuel or memory, the host decides the whole batch by its native fallback, on every node alike.
//!
//! A version of a row is one number: the epoch that wrote it in the upper bits, its position in that epoch's serial order
//! in the lower [`validator::POSITION_BITS`]. [`validator::epoch_of`] splits it; a validator that names
//! `Groups::EPOCHS` gets the epochs as columns of their own.
#![no_std]

extern crate alloc;

pub mod adaptor;
pub mod allocator;
#[doc(hidden)]
pub mod bindings;
pub mod config;
mod instance;
pub mod rule;
pub mod traces;
pub mod validator;

pub use adaptor::Adaptor;
pub use instance::Instance;
pub use rule::Rule;
pub use validator::Validator;

/// Why a plugin fails, for people. Must be a function of configuration and arguments alone.
pub type Fault = alloc::string::String;

/// What every plugin has, whatever its world.
pub trait Plugin: Sized {
    /// Name, lower case with hyphens.
    const NAME: &'static str;
    /// One sentence about what it does.
    const ABOUT: &'static str;

    /// Takes the configuration: JSON text, empty if none was given (see [`config::parse`]).
    ///
    /// # Errors
    /// If the configuration makes no sense; the text says why.
    fn init(config: &str) -> Result<Self, Fault>;
}

#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
#[global_allocator]
static ALLOCATOR: allocator::Bump = allocator::Bump::new();
