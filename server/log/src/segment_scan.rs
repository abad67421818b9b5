//! Reads all segments in order at start, and distinguishes a torn end from damage.
//!
//! Where the chain of frames breaks off, everything after the break is searched. A chunk there that was written when
//! the position of the break was already durable proves damage, and the log is refused. Without such a chunk (and with
//! the mark below the break, which the caller checks) it is the end of a write that was never acknowledged, and is
//! wiped.

use std::sync::Arc;

use tribunal_types::GroupId;

use crate::error::LogError;
use crate::frame::{CHUNK_BYTES_MAX, Kind, MAGIC, read_chunk};
use crate::record::Stored;
use crate::segments::{Segment, Segments};

/// The end of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// First position after the last complete record.
    pub position: u64,
    /// Whether bytes follow it.
    pub torn: bool,
    /// Everything below this position was durable when the last record was written.
    pub durable: u64,
}

/// A record whose chunks are being read.
struct Open {
    position: u64,
    kind: Kind,
    count: u32,
    next: u32,
    stored: Stored,
}

/// Passes every complete record to `each`, in order: kind, position, record.
///
/// # Errors
/// If a durable chunk is damaged.
pub(crate) fn scan(
    segments: &Segments,
    mut each: impl FnMut(Kind, u64, Stored) -> Result<(), LogError>,
) -> Result<End, LogError> {
    let files = segments.files();
    let mut open: Option<Open> = None;
    // A record may begin in a truncated segment; the rest of it is skipped.
    let mut headless = files.first().is_some_and(|first| first.base > 0);
    let mut end = files.first().map_or(0, |first| first.base);
    let mut durable = 0;
    for (ix, segment) in files.iter().enumerate() {
        let bytes = read_whole(segment)?;
        let mut at = 0;
        while at < bytes.len() {
            let position = segment.base + at as u64;
            let chunk = match read_chunk(&bytes[at..], position, segments.group) {
                Ok(chunk) => chunk,
                Err(reason) => {
                    let goes_on = files.get(ix + 1).map(|next| starts_with_chunk(next, segments.group)).transpose()?;
                    if goes_on == Some(true) && bytes[at..].iter().all(|byte| *byte == 0) {
                        // This segment had no room for the next chunk.
                        break;
                    }
                    let torn = search_after(segments, &files[ix..], &bytes, position, &reason)?;
                    return Ok(End { position: end, torn: torn || open.is_some(), durable });
                }
            };
            let part = chunk.head.part;
            let place = chunk.head.place;
            durable = durable.max(position.saturating_sub(chunk.head.durable_distance));
            at += chunk.head.bytes;
            if part.number == 0 && open.is_none() {
                headless = false;
                let stored = Stored { index: place.index, link: part.link, payload: chunk.piece.to_vec() };
                open = Some(Open { position, kind: place.kind, count: part.count, next: 1, stored });
            } else if let Some(record) = &mut open
                && (place.kind, place.index, part.number) == (record.kind, record.stored.index, record.next)
            {
                record.stored.payload.extend_from_slice(chunk.piece);
                record.next += 1;
            } else if !headless {
                let reason = format!("a chunk at position {position} belongs to another record");
                return Err(LogError::damaged(&segments.log_dir, reason));
            }
            if open.as_ref().is_some_and(|record| record.next == record.count)
                && let Some(record) = open.take()
            {
                each(record.kind, record.position, record.stored)?;
            }
            if open.is_none() {
                end = segment.base + at as u64;
            }
        }
    }
    Ok(End { position: end, torn: open.is_some(), durable })
}

fn read_whole(segment: &Segment) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; usize::try_from(segment.len).unwrap_or(usize::MAX)];
    segment.file.read_exact_at(&mut bytes, 0).map_err(|e| LogError::io("read", &segment.path, &e))?;
    Ok(bytes)
}

fn starts_with_chunk(segment: &Arc<Segment>, group: GroupId) -> Result<bool, LogError> {
    let mut bytes = vec![0; CHUNK_BYTES_MAX];
    let room = bytes.len().min(usize::try_from(segment.len).unwrap_or(usize::MAX));
    segment.file.read_exact_at(&mut bytes[..room], 0).map_err(|e| LogError::io("read", &segment.path, &e))?;
    Ok(read_chunk(&bytes[..room], segment.base, group).is_ok())
}

/// Searches for chunks after a break. Returns whether any non-zero byte follows it.
fn search_after(
    segments: &Segments,
    files: &[Arc<Segment>],
    first: &[u8],
    broken: u64,
    reason: &tribunal_codec::Malformed,
) -> Result<bool, LogError> {
    let mut torn = false;
    for (ix, segment) in files.iter().enumerate() {
        let read;
        let (bytes, mut at) = if ix == 0 {
            (first, usize::try_from(broken - segment.base).unwrap_or(usize::MAX))
        } else {
            read = read_whole(segment)?;
            (read.as_slice(), 0)
        };
        while at < bytes.len() {
            torn |= bytes[at] != 0;
            let position = segment.base + at as u64;
            if bytes[at] == MAGIC
                && let Ok(chunk) = read_chunk(&bytes[at..], position, segments.group)
            {
                if position - chunk.head.durable_distance.min(position) > broken {
                    let reason = format!(
                        "position {broken} was durable when position {position} was written, but cannot be read: {reason}"
                    );
                    return Err(LogError::damaged(&segments.log_dir, reason));
                }
                at += chunk.head.bytes;
            } else {
                at += 1;
            }
        }
    }
    Ok(torn)
}
