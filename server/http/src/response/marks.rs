//! Marks that a handler puts into the extensions of its response, for the layers above it.

use std::sync::{Arc, OnceLock};

use crate::quota::Permit;

/// Marks a response that is written as its content arrives: no layer may collect or compress it.
#[derive(Clone, Copy, Debug)]
pub struct Streamed;

/// Marks a response that is written as its content arrives, and itself checks whether its reader is still admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksCaller;

/// Size of a response before compression; it is compressed while it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeBytes(pub u64);

/// Marks a response that is written while the body of its request is still being read. Holds the request's permit until
/// all clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Duplex(Arc<OnceLock<Permit>>);

impl Duplex {
    /// Stores the request's permit.
    pub fn keep(&self, permit: Permit) {
        let kept = self.0.set(permit);
        debug_assert!(kept.is_ok(), "a request has one place");
    }
}
