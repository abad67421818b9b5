//! Authentication: keys, tokens and the principals that they stand for.

pub mod access;
pub mod jwt;
pub mod keys;
mod last_use;
pub mod public_key;
