//! Merges a key range of the rows in memory and in the runs; the newest layer that contains a row wins.

use std::iter::Peekable;

use super::EmbeddedError;
use super::recent::{Known, Recent};
use super::runs::{RunMerge, Runs};
use super::stored::Stored;

type RecentEntries<'a> = Box<dyn Iterator<Item = (&'a [u8], Known<'a>)> + 'a>;

/// A key, and its row; `None` if it was deleted.
type Step = (Vec<u8>, Option<Stored>);

/// The live rows of a range, in key order. Ends after the first error.
pub(super) struct Merged<'a> {
    /// Layers in memory, newest first.
    recent: Vec<Peekable<RecentEntries<'a>>>,
    runs: RunMerge,
    /// End of the range; empty for no end.
    end: &'a [u8],
    failed: bool,
}

impl<'a> Merged<'a> {
    /// Begins a scan of `start..end`, where `start` is below `end`; an empty `end` means no end.
    pub(super) fn new(recent: &'a Recent, runs: &Runs, start: &[u8], end: &'a [u8]) -> Result<Self, EmbeddedError> {
        let active: RecentEntries<'a> = Box::new(recent.active.range(start, end));
        let frozen = recent.frozen.as_ref().map(|frozen| -> RecentEntries<'a> { Box::new(frozen.range(start, end)) });
        let recent = std::iter::once(active).chain(frozen).map(Iterator::peekable).collect();
        Ok(Merged { recent, runs: runs.scan(start)?, end, failed: false })
    }

    /// Returns the next key and its row, including deleted rows.
    fn step(&mut self) -> Result<Option<Step>, EmbeddedError> {
        let end = self.end;
        let oldest = self.runs.entry().map(|entry| entry.key).filter(|key| end.is_empty() || *key < end);
        let recent = self.recent.iter_mut().filter_map(|range| range.peek().map(|pair| pair.0));
        let Some(key) = recent.chain(oldest).min().map(<[u8]>::to_vec) else { return Ok(None) };
        let mut newest = None;
        for range in &mut self.recent {
            if let Some((_, row)) = range.next_if(|pair| *pair.0 == key[..]) {
                newest = newest.or(Some(row));
            }
        }
        let mut row = newest.map(|row| row.map(Stored::of));
        if let Some(entry) = self.runs.entry().filter(|entry| entry.key == key) {
            row = row.or_else(|| Some(entry.stored()));
            self.runs.advance()?;
        }
        Ok(Some((key, row.flatten())))
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<(Vec<u8>, Stored), EmbeddedError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.step() {
                Ok(None) => return None,
                Ok(Some((_, None))) => {}
                Ok(Some((key, Some(row)))) => return Some(Ok((key, row))),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
