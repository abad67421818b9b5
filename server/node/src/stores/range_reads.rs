//! Divides the bytes of one response among its ranges. A range that does not fit is cut, and continued by the reader.
//!
//! Every range with rows gets at least one, because a reader continues after the last key. The cuts depend only on the
//! rows and the request.

use std::collections::BinaryHeap;

use tribunal_push::{Row, ScanLimits, ScanPage};
use tribunal_service::{RangeRows, RowsQuery, ServiceError, StoredRow};
use tribunal_types::limits::READ_BYTES_MAX;

/// Reads `ranges`, with at most `bytes_max` bytes of keys and values in total. `scan` returns the rows of a range from
/// a key on.
///
/// Each range gets an equal share. Ranges that were cut then share the unused rest.
///
/// # Errors
/// If not even one row of each range fits, or `scan` fails.
pub(super) fn read_ranges(
    ranges: &[RowsQuery],
    bytes_max: usize,
    mut scan: impl FnMut(&RowsQuery, &[u8], ScanLimits) -> Result<ScanPage, ServiceError>,
) -> Result<Vec<RangeRows>, ServiceError> {
    let share = bytes_max / ranges.len().max(1);
    let (mut pages, mut first_rows) = (Vec::with_capacity(ranges.len()), 0);
    for (at, range) in ranges.iter().enumerate() {
        let page = scan(range, &range.start, ScanLimits { rows: range.limit, bytes: share })?;
        first_rows += page.rows.first().map_or(0, bytes_of);
        if first_rows > bytes_max {
            return Err(too_large(format!("/ranges/{at}")));
        }
        pages.push(page);
    }
    let mut left = fit(&mut pages, bytes_max);
    let is_cut = |range: &RowsQuery, page: &ScanPage| page.next.is_some() && page.rows.len() < range.limit;
    let mut cut = ranges.iter().zip(&pages).filter(|(range, page)| is_cut(range, page)).count();
    for (range, page) in ranges.iter().zip(&mut pages).filter(|_| ranges.len() > 1) {
        let Some(next) = page.next.as_ref().filter(|_| is_cut(range, page)) else { continue };
        let max = ScanLimits { rows: range.limit - page.rows.len(), bytes: left / cut };
        cut -= 1;
        let rest = scan(range, next, max)?;
        let bytes = rest.rows.iter().map(bytes_of).sum::<usize>();
        // One row is returned even if it is larger.
        if bytes <= max.bytes {
            left -= bytes;
            page.rows.extend(rest.rows);
            page.next = rest.next;
        }
    }
    let rows = |page: ScanPage| RangeRows {
        more: page.next.is_some(),
        rows: page
            .rows
            .into_iter()
            .map(|row| StoredRow { key: row.key, value: row.value, version: row.version })
            .collect(),
    };
    Ok(pages.into_iter().map(rows).collect())
}

/// Shortens the largest pages until all of them have at most `bytes_max` bytes, which their first rows do not exceed.
/// Returns the number of bytes left. Pages exceed their shares if their first rows do.
fn fit(pages: &mut [ScanPage], bytes_max: usize) -> usize {
    let sizes: Vec<usize> = pages.iter().map(|page| page.rows.iter().map(bytes_of).sum()).collect();
    let mut bytes = sizes.iter().sum::<usize>();
    let several = (0..pages.len()).filter(|at| pages[*at].rows.len() > 1);
    let mut largest: BinaryHeap<(usize, usize)> = several.map(|at| (sizes[at], at)).collect();
    while bytes > bytes_max {
        let (size, at) = largest.pop().expect("the first rows fit");
        let page = &mut pages[at];
        let row = page.rows.pop().expect("it has several");
        bytes -= bytes_of(&row);
        if page.rows.len() > 1 {
            largest.push((size - bytes_of(&row), at));
        }
        page.next = Some(row.key);
    }
    bytes_max - bytes
}

fn bytes_of(row: &Row) -> usize {
    row.key.len() + row.value.len()
}

/// Returns the error of a request whose rows do not fit one response up to what `pointer` names.
pub(super) fn too_large(pointer: String) -> ServiceError {
    ServiceError::ClientMistake {
        code: "read_too_large",
        pointer,
        detail: format!(
            "up to here, these rows exceed {READ_BYTES_MAX} bytes: read fewer rows or ranges at once. Ranges are cut where they must \
             be, with `more`, but each that has rows gets at least one"
        ),
    }
}

#[cfg(test)]
mod tests {
    use tribunal_push::ReadAt;
    use tribunal_types::{Epoch, Lsn, StoreId, Version};

    use super::*;

    /// Scans rows with one-byte keys, given the sizes of their values; a range's rows are consecutive keys from its
    /// start.
    fn scan(sizes: &[usize], start: u8, from: &[u8], max: ScanLimits) -> ScanPage {
        let mut page = ScanPage { rows: Vec::new(), next: None, at: ReadAt { lsn: Lsn(1), epoch: Epoch(1) } };
        let mut bytes = 0;
        for (key, size) in (start..).zip(sizes).filter(|(key, _)| [*key].as_slice() >= from) {
            bytes += 1 + size;
            if page.rows.len() >= max.rows || !page.rows.is_empty() && bytes > max.bytes {
                page.next = Some(vec![key]);
                break;
            }
            page.rows.push(Row { key: vec![key], value: vec![0; *size], version: Version::from_bits(1).unwrap() });
        }
        page
    }

    /// Checks the number of rows each range gets, with `+` if it was cut.
    fn check(bytes_max: usize, limit: usize, ranges: &[&[usize]], expected: Result<&str, &str>) {
        let queries: Vec<_> = (0..ranges.len())
            .map(|at| RowsQuery { store: StoreId(1), start: vec![at as u8 * 32], end: Vec::new(), limit })
            .collect();
        let found = read_ranges(&queries, bytes_max, |range, from, max| {
            let start = range.start[0];
            Ok(scan(ranges[usize::from(start / 32)], start, from, max))
        });
        let found = found.map(|ranges| {
            for (range, query) in ranges.iter().zip(&queries) {
                let keys = range.rows.iter().map(|row| row.key[0]);
                assert!(keys.eq((query.start[0]..).take(range.rows.len())), "no row is left out or repeated");
            }
            let told = ranges.iter().map(|range| format!("{}{}", range.rows.len(), if range.more { "+" } else { "" }));
            told.collect::<Vec<_>>().join(" ")
        });
        let found = found.map_err(|error| match error {
            ServiceError::ClientMistake { code: "read_too_large", pointer, .. } => pointer,
            other => panic!("{other:?}"),
        });
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn ranges_share_the_bytes_of_a_response() {
        let [large, small]: [&[usize]; 2] = [&[9; 10], &[9; 2]];
        check(100, 100, &[large], Ok("10"));
        check(99, 100, &[large], Ok("9+"));
        // The unused share of an empty or small range goes to the others.
        check(100, 100, &[large, &[]], Ok("10 0"));
        check(100, 100, &[&[], large], Ok("0 10"));
        check(100, 100, &[large, small], Ok("8+ 2"));
        check(100, 100, &[small, large], Ok("2 8+"));
        check(100, 100, &[large, large], Ok("5+ 5+"));
        check(100, 100, &[large, &[], large, small], Ok("4+ 0 4+ 2"));
        // A range that has reached its limit takes nothing from the others.
        check(100, 3, &[large, small, large], Ok("3+ 2 3+"));
        check(0, 100, &[&[], &[]], Ok("0 0"));
    }

    #[test]
    fn every_range_with_rows_gets_one_or_the_request_is_refused() {
        check(100, 100, &[&[79, 9], &[9, 9]], Ok("1+ 2"));
        check(100, 100, &[&[9, 79], &[9, 9]], Ok("1+ 2"));
        check(100, 100, &[&[39], &[9; 5], &[39]], Ok("1 2+ 1"));
        check(100, 100, &[&[59], &[59]], Err("/ranges/1"));
        check(0, 100, &[&[], &[9]], Err("/ranges/1"));
    }
}
