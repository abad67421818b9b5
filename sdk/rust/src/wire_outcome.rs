//! Outcomes in their wire form. They have the members of the API's [`TxnOutcome`](tribunal_api::TxnOutcome), but can
//! also be parsed if a newer service uses names that this client does not know: it is certain that a transaction
//! aborted, whatever the name of the reason.

use std::collections::BTreeMap;

use serde::Deserialize;
use tribunal_api::{Problem, TxnState};

/// The outcome of a transaction.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WireOutcome {
    pub status: Status,
    pub txn_id: Option<String>,
    pub epoch: Option<String>,
    pub csn: Option<String>,
    pub version: Option<String>,
    pub lsn: Option<BTreeMap<String, String>>,
    pub session: Option<String>,
    pub applied: Option<bool>,
    pub replayed: Option<bool>,
    pub reason: Option<String>,
    pub plugin_code: Option<u8>,
    pub retryable: Option<bool>,
    pub retry_after_ms: Option<u32>,
    pub conflicts: Option<Vec<WireConflict>>,
    pub problem: Option<Problem>,
}

/// A row or range that defeated a transaction.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WireConflict {
    pub store: String,
    pub key: Option<String>,
    pub key_b64: Option<String>,
    pub end: Option<String>,
    pub end_b64: Option<String>,
    pub row: Option<String>,
    pub row_b64: Option<String>,
    pub op: String,
    pub stage: String,
    pub read_version: Option<String>,
    pub current_version: Option<String>,
    pub by_txn: Option<String>,
}

/// The status of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Status {
    Known(TxnState),
    /// A status that this client does not know: the service is newer.
    Other(String),
}

impl Status {
    /// Returns the error text for a status where a verdict was expected.
    pub(crate) fn no_verdict(&self) -> String {
        match self {
            Status::Known(state) => format!("status {state:?} where a verdict was expected"),
            Status::Other(name) => {
                format!("status `{name}`, which this client does not know: the client is older than the server")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tribunal_api::{AbortReason, Conflict, TxnOutcome};

    use super::*;

    /// A member that is added to the API must be added here, or in the list below.
    #[test]
    fn an_outcome_has_the_members_that_the_api_has() {
        let conflict = Conflict { key: Some("a".into()), by_txn: Some("b".into()), ..Conflict::default() };
        let text = r#"{"status":"aborted","txn_id":"x","epoch":"9","csn":"1","version":"2","lsn":{"kv":"3"},"session":"s",
            "read_only":true,"applied":true,"replayed":true,"plugin_code":7,"retryable":true,"retry_after_ms":5}"#;
        let mut outcome: TxnOutcome = serde_json::from_str(text).expect("an outcome");
        (outcome.reason, outcome.conflicts) = (Some(AbortReason::Plugin), Some(vec![conflict]));
        let wire: WireOutcome =
            serde_json::from_value(serde_json::to_value(&outcome).expect("JSON")).expect("the same outcome");
        assert_eq!(wire.status, Status::Known(outcome.status));
        assert_eq!((wire.txn_id, wire.epoch, wire.csn), (outcome.txn_id, outcome.epoch, outcome.csn));
        assert_eq!((wire.version, wire.lsn, wire.session), (outcome.version, outcome.lsn, outcome.session));
        assert_eq!((wire.applied, wire.replayed), (outcome.applied, outcome.replayed));
        assert_eq!((wire.reason.as_deref(), wire.plugin_code), (Some("plugin"), outcome.plugin_code));
        assert_eq!((wire.retryable, wire.retry_after_ms), (outcome.retryable, outcome.retry_after_ms));
        let conflicts = wire.conflicts.expect("a list");
        let [WireConflict { key, by_txn, op, stage, .. }] = &conflicts[..] else { panic!("one: {conflicts:?}") };
        assert_eq!(
            (key.as_deref(), by_txn.as_deref(), &op[..], &stage[..]),
            (Some("a"), Some("b"), "read", "validate")
        );
    }
}
