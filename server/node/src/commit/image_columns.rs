//! A state image: the resolver's columns, and those of the node beside them.

use tribunal_codec::{Malformed, decode_control_image, encode_control_image};
use tribunal_core::control::ReplicatedState;
use tribunal_replica::CapturedImage;
use tribunal_types::StateImage;

/// Column of bytes in a state image with what the control log adds up to; the resolver's own columns are below.
const CONTROL_COLUMN: u16 = 0xff00;

/// Column of a state image with the position of the fold.
pub const FOLD_COLUMN: u16 = 0xff02;

/// Puts an image together, on a thread that may take its time.
pub fn image_of(captured: CapturedImage) -> StateImage {
    let (mut image, control, fold) = captured.into_parts();
    image.push_words(FOLD_COLUMN, fold);
    image.push_bytes(CONTROL_COLUMN, encode_control_image(&control));
    image
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
