//! Taking a state image without stopping: the resolver's state is copied a slice at a time, between messages; the image
//! is put together and written on a thread of its own.
//!
//! Invariant: what the node adds is as it was when the image was begun, like the resolver's own columns.

use std::time::{Duration, Instant};

use tribunal_core::frozen::Frozen;
use tribunal_core::resolver::Resolver;
use tribunal_types::{ControlIndex, Epoch, StateImage};

/// Column of a state image with the last control entry that it includes; the resolver's own columns are below.
pub const CONTROL_COLUMN: u16 = 0xff00;

/// Column of a state image with what fills the slots of plugins.
pub const SLOTS_COLUMN: u16 = 0xff01;

/// How long the sequencer copies before it looks after its messages again.
pub const SLICE: Duration = Duration::from_millis(1);

/// An image that is being taken.
#[derive(Debug)]
pub struct ImageCapture {
    control: ControlIndex,
    slots: Vec<u64>,
}

/// A state that was taken.
#[derive(Debug)]
pub struct CapturedImage {
    state: Frozen,
    control: ControlIndex,
    slots: Vec<u64>,
}

impl ImageCapture {
    /// Begins an image of the state after the resolver's last epoch, which includes control entries up to `control`.
    /// One that was under way is given up.
    pub fn begin(resolver: &mut Resolver, control: ControlIndex, slots: Vec<u64>) -> ImageCapture {
        resolver.begin_image();
        ImageCapture { control, slots }
    }

    /// Copies for some time, and returns the state once all of it is copied.
    pub fn step(&mut self, resolver: &mut Resolver, budget: Duration) -> Option<CapturedImage> {
        let begun = Instant::now();
        while begun.elapsed() < budget {
            if let Some(state) = resolver.step_image() {
                return Some(CapturedImage { state, control: self.control, slots: std::mem::take(&mut self.slots) });
            }
        }
        None
    }
}

impl CapturedImage {
    /// Returns the epoch after which it was taken.
    pub fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    /// Puts the image together.
    pub fn into_image(self) -> StateImage {
        let mut image = self.state.into_image();
        image.push_words(CONTROL_COLUMN, vec![self.control.0]);
        image.push_words(SLOTS_COLUMN, self.slots);
        image
    }
}
