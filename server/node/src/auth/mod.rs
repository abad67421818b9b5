//! Authentication: keys, tokens and their principals.

pub mod access;
pub mod jwt;
pub mod key_service;
pub mod keys;
pub mod last_use;
pub mod public_key;
