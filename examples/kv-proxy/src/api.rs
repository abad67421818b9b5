//! The proxy's requests and responses, in JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribunal_client::IsolationLevel;

/// `POST /begin`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Begin {
    /// Serializable if absent.
    pub isolation: IsolationLevel,
}

/// Response to a begin.
#[derive(Debug, Deserialize, Serialize)]
pub struct Begun {
    /// Identifies the transaction in all later requests.
    pub txn: String,
}

/// `POST /get` and `POST /delete`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OneKey {
    /// The transaction.
    pub txn: String,
    /// The key.
    pub key: String,
}

/// Response to a get; without `value`, the row does not exist.
#[derive(Debug, Deserialize, Serialize)]
pub struct Got {
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// `POST /put`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The transaction.
    pub txn: String,
    /// The key.
    pub key: String,
    /// The value, any JSON but null.
    pub value: Value,
}

/// Response to a put or delete.
#[derive(Debug, Deserialize, Serialize)]
pub struct Written {
    /// For a delete: whether the row existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existed: Option<bool>,
}

/// `POST /scan`: `start..end`; with an empty `end`, up to the last row.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// The transaction.
    pub txn: String,
    /// First key.
    pub start: String,
    /// End of the range, exclusive.
    pub end: String,
    /// Maximum rows to return, at most 10,000.
    pub limit: usize,
}

/// Response to a scan.
#[derive(Debug, Deserialize, Serialize)]
pub struct Scanned {
    /// Rows in key order.
    pub rows: Vec<Pair>,
    /// Whether there are further rows.
    pub more: bool,
}

/// A row of a scan.
#[derive(Debug, Deserialize, Serialize)]
pub struct Pair {
    /// Key.
    pub key: String,
    /// Value.
    pub value: Value,
}

/// `POST /commit` and `POST /rollback`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The transaction.
    pub txn: String,
}

/// Response to a commit or rollback.
#[derive(Debug, Deserialize, Serialize)]
pub struct Ended {
    /// `committed`, `aborted` or `rolled_back`.
    pub status: String,
    /// Reason of an abort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the same work on fresh reads may commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// The conflict that defeated it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
    /// The transaction's position in Tribunal's log, if it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn: Option<String>,
}

/// Response of every other kind.
#[derive(Debug, Deserialize, Serialize)]
pub struct Refused {
    /// For programs: `unknown_txn`, `storage_unavailable`, `storage_fell_back`, `outcome_unknown`, `unavailable`,
    /// `bad_request`, `too_many_txns`.
    pub code: String,
    /// For people.
    pub detail: String,
    /// Whether a new transaction may succeed.
    pub retryable: bool,
}
