//! Stores: declarations, the storages that they may reach, and the pushes to them.

pub mod catalog;
pub mod credentials;
pub mod embedded_files;
pub mod embedded_memory;
pub mod embedded_stores;
pub mod fork_file;
pub mod log_rows;
pub mod long_reads;
pub mod push_control;
pub mod push_effects;
pub mod push_reports;
pub mod push_states;
pub mod pushes;
pub mod quotas;
mod range_reads;
pub mod reads;
pub mod row_quota;
mod shared_storage;
pub mod storages;
pub mod store_push;
pub mod store_service;
pub mod stored_quota;
pub mod tenant_bound;
pub mod tenant_egress;
