//! The Wasm host: turns untrusted components into deterministic policies and adaptors.
//!
//! A plugin has no imports, and an instance of a policy serves one batch. A plugin can slow down or fail its own slot;
//! it cannot crash the host, access anything outside its memory, or make replicas with the same engine name disagree.
//! There are two kinds of failures, which are never confused: a *fault* is determined by the module and its input, is
//! the same on every replica and becomes a [`tribunal_core::policy::PolicyFault`]; a *host failure* is not caused by
//! the plugin and aborts the process (see [`host_failure`]).
//!
//! This is the only crate that depends on wasmtime. It never touches a disk, a socket or a clock.

mod abi;
pub mod adaptor;
pub mod builtin;
mod call;
mod chunk;
pub mod compiled;
pub mod conformance;
pub mod encode;
pub mod engine;
mod export;
pub mod fault;
pub mod fingerprint;
mod fuel;
pub mod gate;
pub mod host_failure;
mod instance_cache;
mod instance_permits;
pub mod limits;
pub mod module;
pub mod policy;
mod shown_reply;
pub mod world;

pub use adaptor::WasmAdaptor;
pub use builtin::{BUILTINS, Builtin};
pub use compiled::{CodeKey, CodeOrigin, CodeStore};
pub use engine::PluginEngine;
pub use fault::{Fault, FaultKind};
pub use fingerprint::Fingerprint;
pub use gate::Refusal;
pub use limits::{AdaptorFuel, AdaptorLoad, PluginLimits};
pub use module::{Description, LoadError, Module};
pub use policy::{WasmRule, WasmValidator, WasmValidators};
pub use world::World;
