//! Batches of reads: merges the rows of several callers into one request, and splits the response into one part per
//! caller.

use std::collections::HashMap;

use hyper::StatusCode;
use serde::de::DeserializeOwned;
use tribunal_api::{ReadRow, RowRead};

use crate::Error;
use crate::answer::{Answer, NoAnswer, read};
use crate::coalescer::{Bounds, HEAD_START};

/// Bytes that a row counts in addition to its key, so that the limit in bytes also limits the number of rows.
const ROW_BYTES: usize = 128;

/// Bounds of batched reads: 512 callers and 10,000 rows.
pub(crate) const BOUNDS: Bounds =
    Bounds { in_flight_max: 2, head_start: HEAD_START, items_max: 512, bytes_max: 10_000 * ROW_BYTES };

/// Larger reads are separate requests: other callers would wait for the response, or be refused with it.
pub(crate) const BYTES_ALONE: usize = 1_000 * ROW_BYTES;

pub(crate) fn bytes_of(rows: &[RowRead]) -> usize {
    let key = |row: &RowRead| row.key.as_ref().or(row.key_b64.as_ref()).map_or(0, String::len);
    rows.iter().map(|row| ROW_BYTES + key(row)).sum()
}

/// One caller's result of a shared request.
pub(crate) enum Shared<T> {
    /// The caller's part of the response.
    Part(T),
    /// The request failed.
    Failed(Result<Answer, NoAnswer>),
    /// The response cannot be parsed.
    Unreadable(String),
    /// The request was refused because of its content: each caller has to send a separate one.
    Refused,
}

impl<T> Shared<T> {
    /// Returns the part; `None` if the caller has to send a separate request.
    pub(crate) fn part(self) -> Result<Option<T>, Error> {
        match self {
            Shared::Part(part) => Ok(Some(part)),
            Shared::Refused => Ok(None),
            Shared::Unreadable(text) => Err(Error::misbehaved(text)),
            Shared::Failed(Err(lost)) => Err(Error::of_no_answer(lost)),
            Shared::Failed(Ok(answer)) => match read::<serde::de::IgnoredAny>(&answer) {
                Ok(_) => Err(Error::misbehaved(format!("status {}", answer.status))),
                Err(error) => Err(error),
            },
        }
    }
}

/// Returns the reply if the runtime shut down first.
pub(crate) fn ended<T>() -> Shared<T> {
    Shared::Failed(Err(NoAnswer::lost("the runtime that sent the request has ended".to_owned())))
}

/// Splits the response to a request of `count` callers.
pub(crate) fn apart<A: DeserializeOwned, T>(
    reply: Result<Answer, NoAnswer>,
    count: usize,
    parts: impl FnOnce(A) -> Result<Vec<T>, String>,
) -> Vec<Shared<T>> {
    let answer = match reply {
        Ok(answer) if answer.status.is_success() => answer,
        Ok(answer) if count > 1 && is_refused(answer.status) => return (0..count).map(|_| Shared::Refused).collect(),
        reply => return (0..count).map(|_| Shared::Failed(reply.clone())).collect(),
    };
    // Validated as a whole, which is faster than text by text.
    let text = std::str::from_utf8(&answer.body).map_err(|e| e.to_string());
    match text.and_then(|text| serde_json::from_str(text).map_err(|e| e.to_string())).and_then(parts) {
        Ok(parts) => parts.into_iter().map(Shared::Part).collect(),
        Err(text) => (0..count).map(|_| Shared::Unreadable(text.clone())).collect(),
    }
}

/// Returns whether a request was refused because of its content, such as rows with more than 8 MiB or one invalid key.
fn is_refused(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY)
}

/// The rows of several callers, each row once.
pub(crate) struct Union {
    /// The rows to request.
    pub rows: Vec<RowRead>,
    /// For each caller, the indices of its rows in `rows`.
    places: Vec<Vec<usize>>,
}

impl Union {
    /// Merges the rows of callers. A row that two callers have cached in different versions is requested twice.
    pub(crate) fn of<'a>(callers: impl Iterator<Item = &'a [RowRead]>) -> Self {
        let (mut rows, mut known) = (Vec::new(), HashMap::new());
        let places = callers.map(|asked| {
            let place = |row: &'a RowRead| {
                let name = (&row.store, &row.key, &row.key_b64, &row.version);
                *known.entry(name).or_insert_with(|| {
                    rows.push(row.clone());
                    rows.len() - 1
                })
            };
            asked.iter().map(place).collect()
        });
        let places = places.collect();
        Union { rows, places }
    }

    /// Returns each caller's rows.
    pub(crate) fn apart(&self, found: Vec<ReadRow>) -> Result<Vec<Vec<ReadRow>>, String> {
        if found.len() != self.rows.len() {
            return Err(format!("{} rows returned where {} were requested", found.len(), self.rows.len()));
        }
        let mut callers = vec![0_u32; found.len()];
        self.places.iter().flatten().for_each(|place| callers[*place] += 1);
        let mut found: Vec<Option<ReadRow>> = found.into_iter().map(Some).collect();
        // Most rows have one caller, who gets the row itself.
        let mut row = |place: &usize| {
            callers[*place] -= 1;
            if callers[*place] == 0 { found[*place].take() } else { found[*place].clone() }
        };
        Ok(self.places.iter().map(|places| places.iter().filter_map(&mut row).collect()).collect())
    }
}
