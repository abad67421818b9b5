//! Parses JSON in the form that clients usually write: strings without escapes, known members, no duplicates.
//!
//! Any other form ends the parsing with `None`, without a reason: the caller starts over with [`crate::request::json`],
//! which accepts all of JSON and reports errors. So the two differ only in speed. Invariant: every result of this
//! parser is also the result of the other one.

use serde::Deserialize as _;
use serde_json::value::RawValue;

/// A position in a document.
pub struct PlainJson<'de> {
    text: &'de str,
    at: usize,
}

/// The text of a value, and whether it is a string without escapes.
#[derive(Clone, Copy, Debug)]
pub struct ValueText<'de> {
    /// The text, without surrounding blanks.
    pub json: &'de str,
    /// Whether it is known to be a string without escapes.
    pub is_plain_string: bool,
}

impl<'de> From<&'de RawValue> for ValueText<'de> {
    fn from(raw: &'de RawValue) -> ValueText<'de> {
        ValueText { json: raw.get(), is_plain_string: false }
    }
}

impl<'de> PlainJson<'de> {
    /// Starts at the beginning of a document.
    #[must_use]
    pub fn new(text: &'de str) -> PlainJson<'de> {
        PlainJson { text, at: 0 }
    }

    /// Returns the next non-blank byte.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.next() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.takes(byte).then_some(())
    }

    /// Parses a string without escapes.
    pub fn string(&mut self) -> Option<&'de str> {
        self.take(b'"')?;
        let length = plain_length(&self.text.as_bytes()[self.at..])?;
        let string = self.text.get(self.at..self.at + length)?;
        self.at += length + 1;
        Some(string)
    }

    /// Parses any value.
    pub fn value(&mut self) -> Option<ValueText<'de>> {
        let first = self.next()?;
        let start = self.at;
        if first == b'"' && self.string().is_some() {
            return Some(ValueText { json: self.text.get(start..self.at)?, is_plain_string: true });
        }
        let mut reader = serde_json::Deserializer::from_str(self.text.get(start..)?);
        let raw = <&RawValue>::deserialize(&mut reader).ok()?;
        self.at = start + raw.get().len();
        Some(ValueText::from(raw))
    }

    /// Parses an object; `member` parses the value of each member.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &'de str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.takes(b'}') {
            return Some(());
        }
        loop {
            let name = self.string()?;
            self.take(b':')?;
            member(self, name)?;
            if !self.takes(b',') {
                return self.take(b'}');
            }
        }
    }

    /// Parses an array; `item` parses each item.
    pub fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.takes(b']') {
            return Some(());
        }
        loop {
            item(self)?;
            if !self.takes(b',') {
                return self.take(b']');
            }
        }
    }

    /// Returns whether the document is at its end.
    pub fn is_over(&mut self) -> bool {
        self.next().is_none()
    }
}

/// Adds a member to the set of an object's members; `None` if it is already present.
pub fn once(seen: &mut u32, index: usize) -> Option<()> {
    let bit = 1 << index;
    let is_first = *seen & bit == 0;
    *seen |= bit;
    is_first.then_some(())
}

/// Returns the distance to the closing quote; `None` if an escape or a control character comes first.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (words, _) = bytes.as_chunks::<8>();
    let mut length = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        // Marks zero bytes; above the first of them, possibly also other bytes.
        let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
        let below_blank = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let found = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\'))) | below_blank;
        if found != 0 {
            length += found.trailing_zeros() as usize / 8;
            return (bytes[length] == b'"').then_some(length);
        }
        length += 8;
    }
    let rest = &bytes[length..];
    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    (rest[end] == b'"').then_some(length + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_the_first_quote_unless_something_has_to_be_looked_at() {
        for length in 0..40 {
            for odd in [b'"', b'\\', 0, 0x1f, b'\n'] {
                for fill in ["a", "\u{7f}", "!", "#", "[", "]", " "] {
                    let mut bytes = fill.as_bytes().repeat(length);
                    bytes.push(odd);
                    bytes.extend_from_slice(b"\"\\\0 more than eight bytes");
                    assert_eq!(plain_length(&bytes), (odd == b'"').then_some(length), "{length} {odd} {fill}");
                    assert_eq!(plain_length(&bytes[..length]), None);
                }
            }
        }
        assert_eq!(plain_length("gr\u{fc}n \u{1f600} \u{80}\u{ff}\"".as_bytes()), Some(15));
    }

    #[test]
    fn values_are_returned_as_they_are() {
        let text = " [ \"plain\" , \"es\\\"caped\" ,1e3, {\"a\":[\"]\"]} ,null ]\n";
        let (mut values, mut json) = (Vec::new(), PlainJson::new(text));
        let read = json.array(|json| {
            values.push(json.value()?);
            Some(())
        });
        assert_eq!((read, json.is_over()), (Some(()), true));
        let texts: Vec<_> = values.iter().map(|value| value.json).collect();
        assert_eq!(texts, ["\"plain\"", "\"es\\\"caped\"", "1e3", "{\"a\":[\"]\"]}", "null"]);
        assert_eq!(values.iter().filter(|value| value.is_plain_string).count(), 1);
    }

    #[test]
    fn broken_syntax_is_not_read() {
        for text in [
            "",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":1]",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":01}",
            "{,}",
        ] {
            let mut json = PlainJson::new(text);
            assert_eq!(json.object(|json, _| json.value().map(|_| ())), None, "{text}");
        }
        for text in ["[", "[1", "[1,]", "[1 2]", "[,]", "[1}", "[tru]"] {
            let mut json = PlainJson::new(text);
            assert_eq!(json.array(|json| json.value().map(|_| ())), None, "{text}");
        }
    }
}
