//! Rows by number and by key. Loaded rows are numbered from 0 in key order. Inserted rows have separate numbers that
//! determine their position among the loaded rows, so that no table of them is needed.

use std::ops::Range;

/// A row's number within the workload.
pub type Row = u32;

/// First number above those of loaded rows: keys have seven digits.
pub const LOADED_END: Row = 10_000_000;
/// Rows that can be inserted after each loaded row.
pub const INSERTS_AT_A_PLACE: Row = 428;
/// Digits of a loaded row's number in its key.
const DIGITS: usize = 7;
/// Bytes of an inserted row's number in its key.
pub const INSERTED_DIGITS: usize = DIGITS + 1 + 3;

/// Returns the `nth` row, counted from 1, to be inserted after the loaded row `place`.
#[must_use]
pub fn inserted(place: Row, nth: Row) -> Row {
    nth * LOADED_END + place
}

/// Returns whether the row is an inserted one.
#[must_use]
pub fn is_inserted(row: Row) -> bool {
    row >= LOADED_END
}

/// Returns a value that orders rows like their keys.
#[must_use]
pub fn order(row: Row) -> (Row, Row) {
    (row % LOADED_END, row / LOADED_END)
}

/// Returns a row's number in its key form, and its length: seven digits, and for an inserted row `+` and three more.
#[must_use]
pub fn number_text(row: Row) -> ([u8; INSERTED_DIGITS], usize) {
    let (place, nth) = order(row);
    let mut text = *b"0000000+000";
    digits(&mut text, 0..DIGITS, place);
    if nth == 0 {
        return (text, DIGITS);
    }
    digits(&mut text, DIGITS + 1..INSERTED_DIGITS, nth);
    (text, INSERTED_DIGITS)
}

/// Appends a row's number in its key form.
pub fn write_number(out: &mut Vec<u8>, row: Row) {
    let (text, length) = number_text(row);
    out.extend_from_slice(&text[..length]);
}

fn digits(text: &mut [u8], within: Range<usize>, mut rest: Row) {
    for digit in text[within].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Parses the result of [`number_text`].
#[must_use]
pub fn number(text: &[u8]) -> Option<Row> {
    let decimal = |text: &[u8]| crate::wire::decimal(text).and_then(|number| Row::try_from(number).ok());
    match text.len() {
        DIGITS => decimal(text),
        INSERTED_DIGITS if text[DIGITS] == b'+' => {
            let (place, nth) = (decimal(&text[..DIGITS])?, decimal(&text[DIGITS + 1..])?);
            (1..=INSERTS_AT_A_PLACE).contains(&nth).then(|| inserted(place, nth))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_rows_do_and_lead_back_to_them() {
        let last = inserted(LOADED_END - 1, INSERTS_AT_A_PLACE);
        let rows = [0, inserted(0, 1), inserted(0, 12), 1, 42, inserted(42, 1), 43, LOADED_END - 1, last];
        let text = |row: &Row| {
            let mut text = Vec::new();
            write_number(&mut text, *row);
            text
        };
        assert!(rows.is_sorted_by_key(&text));
        assert!(rows.is_sorted_by_key(|row| order(*row)));
        assert_eq!(rows.map(|row| number(&text(&row))), rows.map(Some));
        assert_eq!((text(&42), text(&inserted(42, 7))), (b"0000042".to_vec(), b"0000042+007".to_vec()));
        for wrong in ["", "42", "000004x", "0000042+000", "0000042-001", "0000042+429", "0000042+0001"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
