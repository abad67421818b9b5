//! Verdicts: the final decisions of the service.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tribunal_api::TxnState;
use tribunal_types::{Csn, Epoch, Lsn, Version};

use crate::wire_outcome::{Status, WireConflict, WireOutcome};
use crate::{Error, wire};

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction is durable.
    Committed(Committed),
    /// The transaction had no effect.
    Aborted(Box<Aborted>),
}

/// The verdict of a durable transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The transaction.
    pub txn_id: String,
    /// Epoch that decided it.
    pub epoch: Epoch,
    /// Arrival stamp; read-only transactions have none.
    pub csn: Option<Csn>,
    /// Version of every row written; `None` if nothing was.
    pub version: Option<Version>,
    /// Position in the log of each store written.
    pub lsn: BTreeMap<String, Lsn>,
    /// Token for a Begin on another client that must see this commit; this client's own transactions do so by default.
    pub session: Option<String>,
    /// With `ack: applied`: whether every store had applied it in time.
    pub applied: Option<bool>,
    /// Whether the verdict is an earlier one: the request was a repetition, or its first reply was lost.
    pub replayed: bool,
    /// W3C trace context of the server's span, if the request was traced.
    pub traceparent: Option<String>,
}

/// The verdict of a transaction without effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aborted {
    /// The transaction.
    pub txn_id: String,
    /// Epoch that decided it.
    pub epoch: Epoch,
    /// `read_conflict`, `write_conflict`, `range_conflict`, `row_exists`, `row_missing`, ...; a newer service may have
    /// others.
    pub reason: String,
    /// With reason `plugin`: the code that the isolation validator returned.
    pub plugin_code: Option<u8>,
    /// Whether the same work on fresh reads may commit.
    pub retryable: bool,
    /// How long to wait before a retry.
    pub retry_after: Duration,
    /// The operations that lost, and the winners.
    pub conflicts: Vec<Conflict>,
    /// Whether the verdict is an earlier one: the request was a repetition, or its first reply was lost.
    pub replayed: bool,
    /// W3C trace context of the server's span, if the request was traced.
    pub traceparent: Option<String>,
}

/// A row or range that defeated a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    /// Store of the row or range.
    pub store: String,
    /// The row's key, or the range's start.
    pub key: Vec<u8>,
    /// The range's end; `None` if it extends to the end of the store, and for a row.
    pub end: Option<Vec<u8>>,
    /// For a range: the first row in it that the winner wrote, if the server remembers it.
    pub row: Option<Vec<u8>>,
    /// Kind of the operation that lost: `read`, `range` or `write`.
    pub op: String,
    /// Stage of the pipeline that found it.
    pub stage: String,
    /// Version that the transaction read.
    pub read_version: Option<Version>,
    /// Current version of the row.
    pub current_version: Option<Version>,
    /// The winning transaction, if the server remembers it.
    pub by_txn: Option<String>,
}

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {} aborted: {}", self.txn_id, self.reason)?;
        if let Some(conflict) = self.conflicts.first() {
            write!(f, " at {}/{}", conflict.store, conflict.key.escape_ascii())?;
        }
        Ok(())
    }
}

/// A line of a batch's response with the members of a commit, borrowed from the text.
#[derive(Deserialize)]
struct CommittedLine<'a> {
    status: TxnState,
    #[serde(borrow)]
    txn_id: Option<&'a str>,
    #[serde(borrow)]
    epoch: Option<&'a str>,
    #[serde(borrow)]
    csn: Option<&'a str>,
    #[serde(borrow)]
    version: Option<&'a str>,
    #[serde(borrow)]
    lsn: Option<BTreeMap<&'a str, &'a str>>,
    #[serde(borrow)]
    session: Option<&'a str>,
    applied: Option<bool>,
    replayed: Option<bool>,
    problem: Option<IgnoredAny>,
}

impl Committed {
    /// Parses a line of a batch's response without copying each member first. `None` if it is not a commit, or not in
    /// the form that the service writes: then [`Outcome::of`] parses it.
    pub(crate) fn of_line(line: &str, traceparent: Option<&str>) -> Option<Committed> {
        Self::of_plain_line(line, traceparent).or_else(|| Self::of_any_line(line, traceparent))
    }

    /// Parses a line without blanks and escapes, whose members are in the order in which the service writes them.
    fn of_plain_line(line: &str, traceparent: Option<&str>) -> Option<Committed> {
        let mut rest = line.strip_prefix(r#"{"status":"committed","txn_id":""#)?;
        let txn_id = until_quote(&mut rest)?;
        let mut committed = Committed { txn_id: txn_id.to_owned(), ..Committed::default() };
        committed.epoch = wire::epoch(text_member(&mut rest, r#","epoch":""#)?).ok()?;
        if let Some(version) = text_member(&mut rest, r#","version":""#) {
            committed.version = Some(wire::version(version).ok()?);
            rest = rest.strip_prefix(r#","lsn":{"#)?;
            let mut more = !rest.starts_with('}');
            while more {
                rest = rest.strip_prefix('"')?;
                let store = until_quote(&mut rest)?;
                // As in any JSON, the last duplicate of a name counts.
                committed.lsn.insert(store.to_owned(), wire::lsn(text_member(&mut rest, ":\"")?).ok()?);
                more = rest.starts_with(',');
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            rest = rest.strip_prefix('}')?;
        }
        committed.session = Some(text_member(&mut rest, r#","session":""#)?.to_owned());
        committed.csn = match text_member(&mut rest, r#","csn":""#) {
            Some(csn) => Some(wire::csn(csn).ok()?),
            None => None,
        };
        committed.traceparent = traceparent.map(str::to_owned);
        (rest == "}").then_some(committed)
    }

    fn of_any_line(line: &str, traceparent: Option<&str>) -> Option<Committed> {
        let read: CommittedLine<'_> = serde_json::from_str(line).ok()?;
        if read.status != TxnState::Committed || read.problem.is_some() {
            return None;
        }
        let mut lsn = BTreeMap::new();
        for (store, text) in read.lsn.into_iter().flatten() {
            lsn.insert(store.to_owned(), wire::lsn(text).ok()?);
        }
        Some(Committed {
            txn_id: read.txn_id.unwrap_or_default().to_owned(),
            epoch: read.epoch.map_or(Ok(Epoch(0)), wire::epoch).ok()?,
            csn: read.csn.map(wire::csn).transpose().ok()?,
            version: read.version.map(wire::version).transpose().ok()?,
            lsn,
            session: read.session.map(str::to_owned),
            applied: read.applied,
            replayed: read.replayed.unwrap_or(false),
            traceparent: traceparent.map(str::to_owned),
        })
    }
}

/// Takes text up to the next quote; `None` if it contains an escape or a control character.
fn until_quote<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (text, after) = rest.split_once('"')?;
    if text.bytes().any(|byte| byte == b'\\' || byte < b' ') {
        return None;
    }
    *rest = after;
    Some(text)
}

/// Takes a member whose value is text, if it is the next one. `name` is everything before the text.
fn text_member<'a>(rest: &mut &'a str, name: &str) -> Option<&'a str> {
    let mut after = rest.strip_prefix(name)?;
    let text = until_quote(&mut after)?;
    *rest = after;
    Some(text)
}

impl Outcome {
    /// Parses a verdict.
    ///
    /// # Errors
    /// [`Error::ServerMisbehaved`] if the response has no verdict.
    pub(crate) fn of(outcome: WireOutcome, replayed: bool, traceparent: Option<String>) -> Result<Outcome, Error> {
        let txn_id = outcome.txn_id.unwrap_or_default();
        let epoch = outcome.epoch.as_deref().map_or(Ok(Epoch(0)), wire::epoch)?;
        match outcome.status {
            Status::Known(TxnState::Committed) => Ok(Outcome::Committed(Committed {
                txn_id,
                epoch,
                csn: outcome.csn.as_deref().map(wire::csn).transpose()?,
                version: outcome.version.as_deref().map(wire::version).transpose()?,
                lsn: outcome
                    .lsn
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(store, text)| Ok((store, wire::lsn(&text)?)))
                    .collect::<Result<_, Error>>()?,
                session: outcome.session,
                applied: outcome.applied,
                replayed,
                traceparent,
            })),
            Status::Known(TxnState::Aborted) => Ok(Outcome::Aborted(Box::new(Aborted {
                txn_id,
                epoch,
                reason: outcome.reason.unwrap_or_default(),
                plugin_code: outcome.plugin_code,
                retryable: outcome.retryable.unwrap_or(false),
                retry_after: Duration::from_millis(outcome.retry_after_ms.unwrap_or(0).into()),
                conflicts: outcome
                    .conflicts
                    .unwrap_or_default()
                    .into_iter()
                    .map(Conflict::of)
                    .collect::<Result<_, Error>>()?,
                replayed,
                traceparent,
            }))),
            status => Err(Error::misbehaved(status.no_verdict())),
        }
    }
}

impl Conflict {
    fn of(conflict: WireConflict) -> Result<Self, Error> {
        Ok(Conflict {
            store: conflict.store,
            key: wire::key_of(conflict.key, conflict.key_b64)?.unwrap_or_default(),
            end: wire::key_of(conflict.end, conflict.end_b64)?,
            row: wire::key_of(conflict.row, conflict.row_b64)?,
            op: conflict.op,
            stage: conflict.stage,
            read_version: conflict.read_version.as_deref().map(wire::version).transpose()?,
            current_version: conflict.current_version.as_deref().map(wire::version).transpose()?,
            by_txn: conflict.by_txn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_tells_a_commit_is_read_as_any_outcome_is() {
        let whole = r#"{"status":"committed","txn_id":"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a","epoch":"8842","version":"9271508992",
            "lsn":{"kv":"120","orders":"7"},"session":"v1-8842","csn":"18","applied":true,"replayed":true,"later":[1]}"#;
        let read_only = r#"{"status":"committed","txn_id":"x","epoch":"8842","read_only":true,"session":"v1-8842"}"#;
        for (line, traceparent) in [(whole, None), (read_only, Some("00-1-2-01"))] {
            let outcome: WireOutcome = serde_json::from_str(line).expect("an outcome");
            let replayed = outcome.replayed.unwrap_or(false);
            let expected = Outcome::of(outcome, replayed, traceparent.map(str::to_owned)).expect("readable");
            let found = Committed::of_line(line, traceparent).map(Outcome::Committed);
            assert_eq!(found, Some(expected), "{line}");
        }
    }

    #[test]
    fn a_line_as_the_service_writes_it_is_read_without_a_parser() {
        let id = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";
        let head = format!(r#"{{"status":"committed","txn_id":"{id}","epoch":"8842""#);
        let written = r#","version":"9271508992","lsn":{"kv":"120","gr\u{fc}n":"7"},"session":"v1-8842","csn":"18"}"#;
        let blind = r#","version":"9271508992","lsn":{},"session":"v1-8842","csn":"18"}"#;
        for tail in [written, blind] {
            let line = format!("{head}{tail}").replace("\\u{fc}", "\u{fc}");
            let plain = Committed::of_plain_line(&line, Some("00-1-2-01"));
            assert!(plain.is_some(), "{line}");
            assert_eq!(plain, Committed::of_any_line(&line, Some("00-1-2-01")), "{line}");
            for cut in (0..line.len()).filter(|cut| line.is_char_boundary(*cut)) {
                assert_eq!(Committed::of_plain_line(&line[..cut], None), None, "{cut}");
            }
        }
        for tail in [
            r#","read_only":true,"session":"v1-8842"}"#,
            r#","version":"9271508992","lsn":{"kv":"120"},"session":"v1-8842","csn":"18","replayed":true}"#,
            r#","version":"9271508992","lsn":{"kv":"120",},"session":"v1-8842","csn":"18"}"#,
            r#","version":"9271508992","lsn":{"kv":"120""orders":"7"},"session":"v1-8842","csn":"18"}"#,
            r#","version":"9271508992","lsn":{"\u0078":"120"},"session":"v1-8842","csn":"18"}"#,
            r#","version":"x","lsn":{"kv":"120"},"session":"v1-8842","csn":"18"}"#,
        ] {
            assert_eq!(Committed::of_plain_line(&format!("{head}{tail}"), None), None, "{tail}");
        }
    }

    #[test]
    fn other_lines_are_left_to_the_reader_of_any_outcome() {
        for line in [
            r#"{"status":"aborted","txn_id":"x","epoch":"8842","reason":"read_conflict","retryable":true,"conflicts":[]}"#,
            r#"{"status":"problem","txn_id":"x","problem":{"status":400}}"#,
            r#"{"status":"committed","txn_id":"x","epoch":"8842","problem":{"status":400}}"#,
            r#"{"status":"committed","txn_id":"x","epoch":"a"}"#,
            r#"{"status":"committed","txn_id":"x","lsn":{"kv":"-1"}}"#,
            r#"{"status":"committed","txn_id":"\u0078","epoch":"8842"}"#,
            r#"{"status":"committed","txn_id":"x","epoch":"8842""#,
            "",
        ] {
            assert_eq!(Committed::of_line(line, None), None, "{line}");
        }
    }
}
