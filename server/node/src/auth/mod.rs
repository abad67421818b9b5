//! Authentication: keys, tokens and their principals.

pub mod access;
pub mod jwt;
pub mod keys;
mod last_use;
pub mod public_key;
