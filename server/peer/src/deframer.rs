//! Splits a byte stream into frames: each follows its length, 4 bytes, most significant first.
//!
//! A length beyond the limit is refused before anything of the frame is read or allocated. Each frame is copied into
//! separate memory: a small frame that is retained must not retain a socket's buffer.

use bytes::{Bytes, BytesMut};

/// Size of the length before each frame, bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// An announced frame exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub announced: usize,
}

/// Splits a stream into frames, whatever pieces it arrives in.
#[derive(Debug)]
pub(crate) struct Deframer {
    frame_bytes_max: usize,
    length: [u8; LENGTH_BYTES],
    /// Number of bytes of `length` received so far.
    length_known: usize,
    /// Bytes of the current frame received so far.
    started: BytesMut,
}

impl Deframer {
    pub(crate) fn new(frame_bytes_max: usize) -> Deframer {
        Deframer { frame_bytes_max, length: [0; LENGTH_BYTES], length_known: 0, started: BytesMut::new() }
    }

    /// Returns whether the stream may end here.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.length_known == 0
    }

    /// Takes the next frame out of `piece`; `None` if `piece` is used up before a frame is complete.
    ///
    /// # Errors
    /// If the stream cannot be read any further.
    pub(crate) fn next(&mut self, piece: &mut Bytes) -> Result<Option<Bytes>, TooLong> {
        if self.length_known < LENGTH_BYTES {
            let taken = piece.split_to(piece.len().min(LENGTH_BYTES - self.length_known));
            self.length[self.length_known..self.length_known + taken.len()].copy_from_slice(&taken);
            self.length_known += taken.len();
            if self.length_known < LENGTH_BYTES {
                return Ok(None);
            }
        }
        let length = usize::try_from(u32::from_be_bytes(self.length)).unwrap_or(usize::MAX);
        if length > self.frame_bytes_max {
            return Err(TooLong { announced: length });
        }
        if self.started.is_empty() {
            self.started.reserve(length);
        }
        let taken = piece.split_to(piece.len().min(length - self.started.len()));
        self.started.extend_from_slice(&taken);
        if self.started.len() < length {
            return Ok(None);
        }
        self.length_known = 0;
        Ok(Some(std::mem::take(&mut self.started).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(frames: &[Vec<u8>]) -> Bytes {
        let mut all = Vec::new();
        for frame in frames {
            all.extend_from_slice(&u32::try_from(frame.len()).expect("a small frame").to_be_bytes());
            all.extend_from_slice(frame);
        }
        all.into()
    }

    /// Reads a stream cut at multiples of `step`.
    fn read(stream: &Bytes, step: usize, frame_bytes_max: usize) -> (Vec<Bytes>, Result<Deframer, TooLong>) {
        let mut deframer = Deframer::new(frame_bytes_max);
        let mut frames = Vec::new();
        for piece in stream.chunks(step) {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                match deframer.next(&mut piece) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Err(error)),
                }
            }
            assert!(piece.is_empty());
        }
        (frames, Ok(deframer))
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_frame_arrives() {
        let (frames, end) = read(&encoded(&[vec![1; 8], vec![2; 9]]).slice(..16), 3, 8);
        assert_eq!(frames, [&[1; 8][..]]);
        assert_eq!(end.expect_err("refused"), TooLong { announced: 9 });
    }

    #[test]
    fn a_frame_that_lacks_its_end_is_noticed() {
        let stream = encoded(&[vec![], vec![7; 5]]);
        for cut in 0..=stream.len() {
            let (frames, end) = read(&stream.slice(..cut), 2, 8);
            let whole = usize::from(cut >= 4) + usize::from(cut == stream.len());
            assert_eq!(frames.len(), whole, "{cut}");
            assert_eq!(end.expect("no long frame").is_between_frames(), [0, 4, 13].contains(&cut), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_cuts(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            step in 1..60_usize,
        ) {
            let (received, end) = read(&encoded(&frames), step, 40);
            prop_assert_eq!(received, frames);
            prop_assert!(end.expect("no long frame").is_between_frames());
        }

        #[test]
        fn garbage_never_panics_and_never_makes_a_long_frame(
            garbage in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..400),
            step in 1..60_usize,
        ) {
            let (frames, _) = read(&garbage.into(), step, 40);
            prop_assert!(frames.iter().all(|frame| frame.len() <= 40));
        }
    }
}
