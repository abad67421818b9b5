//! Plugins: uploads, checks, loading and activation, and the policies that decide with them.

pub mod activations;
pub mod cluster_plugins;
pub mod compiled_files;
pub mod digest;
pub mod engine;
pub mod plugin_admin;
pub mod plugin_check;
pub mod plugin_health;
pub mod plugin_loader;
pub mod plugin_store;
pub mod policies;
pub mod signatures;
