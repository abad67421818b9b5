//! Taking a state image without stopping: the resolver's state is copied a slice at a time, between messages; the image
//! is put together and written on a thread of its own.
//!
//! Invariant: what the node adds is as it was when the image was begun, like the resolver's own columns.

use std::time::{Duration, Instant};

use tribunal_codec::{Malformed, decode_control_image, encode_control_image};
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::FoldPosition;
use tribunal_core::frozen::Frozen;
use tribunal_core::resolver::Resolver;
use tribunal_types::{Epoch, StateImage};

/// Column of bytes in a state image with what the control log adds up to; the resolver's own columns are below.
const CONTROL_COLUMN: u16 = 0xff00;

/// Column of a state image with the position of the fold.
pub const FOLD_COLUMN: u16 = 0xff02;

/// How long the sequencer copies before it looks after its messages again.
pub const SLICE: Duration = Duration::from_millis(1);

/// An image that is being taken.
#[derive(Debug)]
pub struct ImageCapture {
    control: ReplicatedState,
    fold: Vec<u64>,
}

/// A state that was taken.
#[derive(Debug)]
pub struct CapturedImage {
    state: Frozen,
    control: ReplicatedState,
    fold: Vec<u64>,
}

impl ImageCapture {
    /// Begins an image of the state after the resolver's last epoch, where the fold was at `fold`, which includes `control`.
    /// One that was under way is given up.
    pub fn begin(resolver: &mut Resolver, control: ReplicatedState, fold: &FoldPosition) -> ImageCapture {
        resolver.begin_image();
        ImageCapture { control, fold: fold.to_words() }
    }

    /// Copies for some time, and returns the state once all of it is copied.
    pub fn step(&mut self, resolver: &mut Resolver, budget: Duration) -> Option<CapturedImage> {
        let begun = Instant::now();
        while begun.elapsed() < budget {
            if let Some(state) = resolver.step_image() {
                let (control, fold) = (std::mem::take(&mut self.control), std::mem::take(&mut self.fold));
                return Some(CapturedImage { state, control, fold });
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
        image.push_words(FOLD_COLUMN, self.fold);
        image.push_bytes(CONTROL_COLUMN, encode_control_image(&self.control.image()));
        image
    }
}

/// Returns what the control log added up to when an image was taken.
///
/// # Errors
/// If the image does not contain it.
pub fn control_in(image: &StateImage) -> Result<ReplicatedState, Malformed> {
    let missing = Malformed { what: "the control state is missing", at: 0 };
    let bytes = image.bytes(CONTROL_COLUMN).ok_or(missing)?;
    decode_control_image(bytes).map(ReplicatedState::restore)
}
