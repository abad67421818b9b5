//! Merges a key range of the three layers; the newest layer that knows a row decides.

use std::iter::Peekable;

use super::EmbeddedError;
use super::base::{Base, BaseScan};
use super::recent::{Entry, Recent, Rows, Stored};

type RecentRange<'a> = Peekable<Box<dyn Iterator<Item = Entry<'a>> + 'a>>;

/// A key, and its row unless that was deleted.
type Step = (Vec<u8>, Option<Stored>);

/// Live rows of a range in key order. Ends behind the first error.
pub(super) struct Merged<'a> {
    /// Newest first.
    recent: Vec<RecentRange<'a>>,
    base: &'a Base,
    oldest: Peekable<BaseScan>,
    failed: bool,
}

impl<'a> Merged<'a> {
    /// Begins a scan of `start..end`, `start` below `end`; an empty `end` means to the last row.
    pub(super) fn new(recent: &'a Recent, base: &'a Base, start: &[u8], end: &[u8]) -> Self {
        let range = |rows: &'a Rows| -> RecentRange<'a> {
            let entries: Box<dyn Iterator<Item = Entry<'a>> + 'a> = Box::new(rows.range(start, end));
            entries.peekable()
        };
        let frozen = recent.frozen.as_ref().map(|frozen| range(&frozen.0));
        let recent = std::iter::once(range(&recent.active)).chain(frozen).collect();
        Merged { recent, base, oldest: base.scan(start, end).peekable(), failed: false }
    }

    /// Returns the next key and its row, `None` if it was deleted.
    fn step(&mut self) -> Result<Option<Step>, EmbeddedError> {
        if let Some(Err(error)) = self.oldest.next_if(Result::is_err) {
            return Err(error);
        }
        let oldest = self.oldest.peek().and_then(|pair| pair.as_ref().ok()).map(|pair| &pair.0[..]);
        let recent = self.recent.iter_mut().filter_map(|range| range.peek().map(|pair| pair.0));
        let Some(key) = recent.chain(oldest).min().map(<[u8]>::to_vec) else { return Ok(None) };
        let mut newest = None;
        for range in &mut self.recent {
            if let Some((_, row)) = range.next_if(|pair| *pair.0 == key[..]) {
                newest = newest.or(Some(row));
            }
        }
        let oldest = self.oldest.next_if(|pair| pair.as_ref().is_ok_and(|pair| pair.0 == key)).transpose()?;
        let row = match (newest, oldest) {
            (Some(row), _) => row.cloned(),
            (None, Some((_, bytes))) => Some(self.base.stored(&key, &bytes)?),
            (None, None) => None,
        };
        Ok(Some((key, row)))
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
