//! Taking a state image without stopping: the resolver's state is copied a slice at a time, between events.
//!
//! Invariant: what the replica adds is as it was when the image was begun, like the resolver's own columns.

use alloc::vec::Vec;

use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::FoldPosition;
use tribunal_core::frozen::Frozen;
use tribunal_core::resolver::Resolver;
use tribunal_types::{ControlImage, ControlIndex, Epoch, StateImage};

/// An image that is being taken.
#[derive(Debug)]
pub(crate) struct ImageCapture {
    control: ReplicatedState,
    fold: FoldPosition,
}

/// A state that was taken.
#[derive(Debug)]
pub struct CapturedImage {
    state: Frozen,
    control: ReplicatedState,
    fold: FoldPosition,
}

impl ImageCapture {
    /// Begins an image of the state after the resolver's last epoch, where the fold was at `fold`, which includes `control`.
    /// One that was under way is given up.
    pub(crate) fn begin(resolver: &mut Resolver, control: ReplicatedState, fold: &FoldPosition) -> ImageCapture {
        resolver.begin_image();
        ImageCapture { control, fold: fold.clone() }
    }

    /// Copies a slice, and returns the state once all of it is copied.
    pub(crate) fn copy(&mut self, resolver: &mut Resolver) -> Option<CapturedImage> {
        let state = resolver.step_image()?;
        let (control, fold) = (core::mem::take(&mut self.control), core::mem::take(&mut self.fold));
        Some(CapturedImage { state, control, fold })
    }
}

impl CapturedImage {
    /// Returns the epoch after which it was taken.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    /// Returns where the fold was.
    #[must_use]
    pub fn fold(&self) -> &FoldPosition {
        &self.fold
    }

    /// Returns the last control entry that it includes.
    #[must_use]
    pub fn control(&self) -> ControlIndex {
        self.control.index()
    }

    /// Returns the resolver's columns, what the control log added up to, and the position of the fold.
    #[must_use]
    pub fn into_parts(self) -> (StateImage, ControlImage, Vec<u64>) {
        (self.state.into_image(), self.control.image(), self.fold.to_words())
    }
}
