//! A body of lines, split as it arrives. Holds the received part of one line, and one frame; the frame's lines are
//! slices of it.

use axum::body::Bytes;
use memchr::{memchr, memchr_iter};

/// Splits frames into lines.
#[derive(Debug, Default)]
pub struct LineReader {
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    /// The bytes after it. Never only the beginning of a line: that is moved to `begun`.
    frame: Bytes,
    /// Number of lines returned so far.
    lines: u64,
}

/// Splits bytes at line breaks; the last part, which may be empty, has none.
pub fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut from = 0;
    let ends = memchr_iter(b'\n', bytes).chain([bytes.len()]);
    ends.map(move |end| &bytes[std::mem::replace(&mut from, end + 1)..end])
}

/// A line without its line break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Line {
    /// Returns whether the line is blank.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.bytes.trim_ascii().is_empty()
    }
}

impl LineReader {
    /// Adds a frame. All lines of the previous frame must have been taken.
    pub fn push(&mut self, frame: Bytes) {
        debug_assert!(self.frame.is_empty(), "lines of the frame before were lost");
        self.frame = frame;
    }

    /// Returns the next complete line.
    pub fn next_line(&mut self) -> Option<Line> {
        let Some(end) = memchr(b'\n', &self.frame) else {
            self.begun.extend_from_slice(&self.frame);
            self.frame = Bytes::new();
            return None;
        };
        let rest = self.frame.split_to(end + 1);
        let bytes = if self.begun.is_empty() {
            rest.slice(..end)
        } else {
            self.begun.extend_from_slice(&rest[..end]);
            Bytes::from(std::mem::take(&mut self.begun))
        };
        Some(self.numbered(bytes))
    }

    /// Returns the last line of an ended body, if no line break follows it.
    pub fn last_line(&mut self) -> Option<Line> {
        let bytes = Bytes::from(std::mem::take(&mut self.begun));
        (!bytes.is_empty()).then(|| self.numbered(bytes))
    }

    fn numbered(&mut self, bytes: Bytes) -> Line {
        self.lines += 1;
        Line { number: self.lines, bytes }
    }

    /// Returns the number of lines taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.lines
    }

    /// Returns the number of received bytes of the incomplete line.
    #[must_use]
    pub fn begun_bytes(&self) -> usize {
        self.begun.len()
    }

    /// Returns whether no complete line can be left.
    #[must_use]
    pub fn needs_more(&self) -> bool {
        self.frame.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8], piece: usize) -> Vec<(u64, String)> {
        let mut reader = LineReader::default();
        let mut lines = Vec::new();
        for frame in text.chunks(piece) {
            reader.push(Bytes::copy_from_slice(frame));
            while let Some(line) = reader.next_line() {
                lines.push(line);
            }
            assert!(reader.needs_more());
        }
        lines.extend(reader.last_line());
        lines.into_iter().map(|line| (line.number, String::from_utf8(line.bytes.to_vec()).unwrap())).collect()
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"one\n\ntwo and more\r\n{}\nhalf";
        let lines = [(1, "one"), (2, ""), (3, "two and more\r"), (4, "{}"), (5, "half")];
        let lines: Vec<_> = lines.into_iter().map(|(number, line)| (number, line.to_owned())).collect();
        for piece in 1..=text.len() {
            assert_eq!(cut(text, piece), lines, "{piece}");
        }
        assert_eq!(cut(b"one\n", 9).len(), 1, "nothing follows the last line break");
    }

    #[test]
    fn bytes_are_split_at_every_line_break() {
        let lines = |text: &'static str| split_lines(text.as_bytes()).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(lines("one\n\ntwo"), [&b"one"[..], b"", b"two"]);
        assert_eq!((lines("one\n"), lines("")), (vec![b"one".to_vec(), Vec::new()], vec![Vec::new()]));
    }

    #[test]
    fn what_has_arrived_of_a_line_is_counted() {
        let mut reader = LineReader::default();
        reader.push(Bytes::from_static(b"a\nbcd"));
        assert!(reader.next_line().is_some_and(|line| !line.is_blank()));
        assert_eq!((reader.next_line(), reader.begun_bytes(), reader.taken()), (None, 3, 1));
        reader.push(Bytes::from_static(b" \n\t\r\n"));
        assert_eq!(reader.next_line().map(|line| line.bytes), Some(Bytes::from_static(b"bcd ")));
        assert!(reader.next_line().is_some_and(|line| line.is_blank()));
        assert_eq!((reader.begun_bytes(), reader.taken()), (0, 3));
    }
}
