//! Reads many records of one kind, mostly in sequence, through a read-ahead window over the segments.
//!
//! The window is not refreshed with later writes: a caller requests only records that existed when the pass began.
//!
//! Must never: hold a lock while it reads.

use std::sync::Arc;

use crate::error::LogError;
use crate::frame::{HEAD_BYTES_MAX, Head, Kind, Place, read_chunk};
use crate::record::Stored;
use crate::segments::{SAMPLE_RECORDS, Segment, Segments};

/// Bytes read at once.
const WINDOW_BYTES: u64 = 64 * 1024;

/// A pass over records of one kind.
pub(crate) struct Walk<'a> {
    segments: &'a Segments,
    kind: Kind,
    /// Index of the last record read.
    last: Option<u64>,
    /// Where the next chunk may begin.
    position: u64,
    /// The segment read last, some of its bytes, and their position.
    segment: Option<Arc<Segment>>,
    window: Vec<u8>,
    window_at: u64,
    /// Everything before this position was written when the window was read.
    written: u64,
}

impl<'a> Walk<'a> {
    /// Begins a pass.
    pub(crate) fn over(segments: &'a Segments, kind: Kind) -> Self {
        Self { segments, kind, last: None, position: 0, segment: None, window: Vec::new(), window_at: 0, written: 0 }
    }

    /// Begins a pass at or shortly before a record.
    pub(crate) fn from(segments: &'a Segments, kind: Kind, index: u64) -> Self {
        let end = || segments.files().last().map_or(0, |segment| segment.end());
        let position = segments.near(kind, index).unwrap_or_else(end);
        Self { position, ..Self::over(segments, kind) }
    }

    /// Reads the next record of the kind, up to index `upto`; `None` past it. Later records may be only partly written.
    ///
    /// # Errors
    /// If it is damaged.
    pub(crate) fn next(&mut self, upto: u64) -> Result<Option<Stored>, LogError> {
        while let Some((at, len, head)) = self.chunk()? {
            if head.place.kind == self.kind && head.part.number == 0 {
                if head.place.index > upto {
                    break;
                }
                // The record is at the current position: no search is needed.
                self.last = Some(head.place.index.saturating_sub(1));
                return self.read(head.place.index);
            }
            self.position = at + len;
        }
        Ok(None)
    }

    /// Reads a record; `None` if it is absent or no longer present. Fast if it follows closely after the previously
    /// read one.
    ///
    /// # Errors
    /// If it exists but is damaged.
    pub(crate) fn read(&mut self, index: u64) -> Result<Option<Stored>, LogError> {
        // Step over records of other kinds and groups one by one only if there are few of them.
        let is_soon = |last| index > last && index <= last + u64::from(SAMPLE_RECORDS);
        if !self.last.is_some_and(is_soon) {
            let Some(near) = self.segments.near(self.kind, index) else { return Ok(None) };
            self.position = near;
        }
        let place = Place { kind: self.kind, group: self.segments.group, index };
        let mut stored = Stored { index, link: 0, payload: Vec::new() };
        let mut number = 0;
        while let Some((at, len, head)) = self.chunk()? {
            if head.place.kind == self.kind && head.part.number == 0 && head.place.index > index {
                return Ok(None);
            }
            self.position = at + len;
            if head.place != place {
                continue;
            }
            let segments = self.segments;
            let (bytes, _) = self.bytes(at, len)?.unwrap_or_default();
            let chunk = read_chunk(bytes, at, place.group).map_err(|e| segments.damaged(place.kind, index, e))?;
            let part = chunk.head.part;
            if part.number != number {
                return Err(segments.damaged(place.kind, index, "a chunk is missing"));
            }
            if number == 0 {
                stored.link = part.link;
            }
            stored.payload.extend_from_slice(chunk.piece);
            number += 1;
            if number == part.count {
                self.last = Some(index);
                return Ok(Some(stored));
            }
        }
        if number == 0 { Ok(None) } else { Err(self.segments.damaged(self.kind, index, "a chunk is missing")) }
    }

    /// Returns the next chunk's position, length and frame, skipping the unused rest of a segment.
    fn chunk(&mut self) -> Result<Option<(u64, u64, Head)>, LogError> {
        loop {
            let at = self.position;
            let segments = self.segments;
            let Some((bytes, written)) = self.bytes(at, HEAD_BYTES_MAX as u64)? else { return Ok(None) };
            if let Some(head) = segments.head_at(at, bytes, written)? {
                return Ok(Some((at, head.bytes as u64, head)));
            }
            self.position = self.segment.as_ref().map_or(at, |segment| segment.end());
        }
    }

    /// Returns up to `len` bytes from `position` on, fewer at the end of the segment, and the position before which
    /// everything was written when they were read; `None` if there is no segment.
    fn bytes(&mut self, position: u64, len: u64) -> Result<Option<(&[u8], u64)>, LogError> {
        if self.segment.as_ref().is_none_or(|segment| !(segment.base..segment.end()).contains(&position)) {
            self.window.clear();
            self.segment = self.segments.segment_at(position);
        }
        let Some(segment) = &self.segment else { return Ok(None) };
        let end = (position + len).min(segment.end());
        let window_end = self.window_at + self.window.len() as u64;
        if self.window.is_empty() || position < self.window_at || end > window_end {
            let room = len.max(WINDOW_BYTES).min(segment.end() - position);
            self.window.resize(usize::try_from(room).unwrap_or(usize::MAX), 0);
            self.window_at = position;
            self.written = self.segments.written_before();
            let read = segment.file.read_exact_at(&mut self.window, position - segment.base);
            if let Err(error) = read {
                self.window.clear();
                return Err(LogError::io("read", &segment.path, &error));
            }
        }
        let from = usize::try_from(position - self.window_at).unwrap_or(usize::MAX);
        let len = usize::try_from(end - position).unwrap_or(usize::MAX);
        Ok(self.window.get(from..from + len).map(|bytes| (bytes, self.written)))
    }
}
