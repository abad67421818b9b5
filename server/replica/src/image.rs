//! Taking a state image without stopping: the resolver's state is copied slice by slice, between events.
//!
//! Invariant: the replica's own part dates from the beginning of the image, like the resolver's columns.

use alloc::vec::Vec;

use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::FoldPosition;
use tribunal_core::frozen::Frozen;
use tribunal_core::resolver::Resolver;
use tribunal_types::{ControlImage, ControlIndex, Epoch, StateImage};

/// An image being taken.
#[derive(Debug)]
pub(crate) struct ImageCapture {
    control: ReplicatedState,
    fold: FoldPosition,
}

/// A captured state.
#[derive(Debug)]
pub struct CapturedImage {
    state: Frozen,
    control: ReplicatedState,
    fold: FoldPosition,
}

impl ImageCapture {
    /// Begins an image of the state after the resolver's last epoch, with the fold at `fold`, which includes `control`.
    /// Abandons an unfinished image.
    pub(crate) fn begin(resolver: &mut Resolver, control: ReplicatedState, fold: &FoldPosition) -> ImageCapture {
        resolver.begin_image();
        ImageCapture { control, fold: fold.clone() }
    }

    /// Copies a slice, and returns the state once it is copied completely.
    pub(crate) fn copy(&mut self, resolver: &mut Resolver) -> Option<CapturedImage> {
        let state = resolver.step_image()?;
        let (control, fold) = (core::mem::take(&mut self.control), core::mem::take(&mut self.fold));
        Some(CapturedImage { state, control, fold })
    }
}

impl CapturedImage {
    /// Returns the epoch after which it was captured.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    /// Returns the position of the fold.
    #[must_use]
    pub fn fold(&self) -> &FoldPosition {
        &self.fold
    }

    /// Returns the last control entry included.
    #[must_use]
    pub fn control(&self) -> ControlIndex {
        self.control.index()
    }

    /// Returns the resolver's columns, the control state, and the position of the fold.
    #[must_use]
    pub fn into_parts(self) -> (StateImage, ControlImage, Vec<u64>) {
        (self.state.into_image(), self.control.image(), self.fold.to_words())
    }
}
