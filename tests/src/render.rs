//! Outcomes as text, for the expectations of scripts: `ok kv#1`, or `read_conflict validate: read x seen T1 now T2`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tribunal_core::verdicts::verdict_of;
use tribunal_types::{Conflict, Decision, FenceResult, OpKind, StoreId, TxnId, Verdict, VerdictAt, Version};

use crate::cluster::Played;
use crate::scenario::{Row, TxnSpec};

/// Names of numbered objects in a script.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Stores by number.
    pub stores: BTreeMap<StoreId, String>,
    /// Transactions by id.
    pub txns: BTreeMap<TxnId, String>,
    /// Transactions by the versions they wrote.
    pub versions: BTreeMap<(Row, Version), String>,
}

impl Names {
    /// Returns a row in the notation of scripts: the first store's name is omitted.
    #[must_use]
    pub fn row(&self, row: &Row) -> String {
        if row.store == StoreId(1) { row.key.clone() } else { format!("{}/{}", self.stores[&row.store], row.key) }
    }

    /// Returns the transaction that wrote this version of a row.
    #[must_use]
    pub fn version(&self, row: &Row, version: Version) -> String {
        self.versions.get(&(row.clone(), version)).cloned().unwrap_or_else(|| format!("{version:?}"))
    }

    /// Records the versions that an epoch's transactions wrote.
    pub fn learn(&mut self, txns: &[(String, TxnSpec)], played: &Played) {
        for ((name, txn), ix) in txns.iter().zip(&played.index) {
            if let Decision::Committed { version } = played.outcome.decisions[ix.0 as usize] {
                for (row, _) in &txn.writes {
                    self.versions.insert((row.clone(), version), name.clone());
                }
            }
        }
    }

    /// Returns an epoch's decision on its transaction number `i`.
    #[must_use]
    pub fn decision(&self, played: &Played, i: usize) -> String {
        let ix = played.index[i];
        match played.outcome.decisions[ix.0 as usize] {
            Decision::Replayed { original } => format!("replayed {}", at(original)),
            Decision::BodyMismatch => "body_mismatch".to_owned(),
            Decision::Expired => "expired".to_owned(),
            Decision::Committed { .. } | Decision::Aborted { .. } => {
                let verdict = verdict_of(&played.input, &played.outcome, ix);
                self.verdict(&verdict.expect("committed or aborted"))
            }
        }
    }

    /// Returns a verdict as text.
    #[must_use]
    pub fn verdict(&self, verdict: &Verdict) -> String {
        match verdict {
            Verdict::Committed { lsns, .. } => {
                let at = |(store, lsn): &(StoreId, _)| format!(" {}#{lsn}", self.stores[store]);
                format!("ok{}", lsns.iter().map(at).collect::<String>())
            }
            Verdict::ReadOnly { epoch } => format!("read_only {epoch}"),
            Verdict::Aborted { reason, conflicts, .. } => self.abort(&reason.to_string(), conflicts),
        }
    }

    /// Returns a reason with its conflicts as text.
    #[must_use]
    pub fn abort(&self, reason: &str, conflicts: &[Conflict]) -> String {
        let mut text = reason.to_owned();
        for (i, conflict) in conflicts.iter().enumerate() {
            let separator = if i == 0 { ' ' } else { ';' };
            let _ = write!(text, "{separator}{}", self.conflict(conflict, i == 0));
        }
        text
    }

    fn conflict(&self, conflict: &Conflict, first: bool) -> String {
        let mut text =
            if first { format!("{}: ", conflict.stage.name()) } else { format!(" {}: ", conflict.stage.name()) };
        let row = Row { store: conflict.store, key: String::from_utf8_lossy(&conflict.key).into_owned() };
        text += match conflict.op {
            OpKind::Read => "read ",
            OpKind::Range => "scan ",
            OpKind::Write => "write ",
        };
        text += &self.row(&row);
        if let Some(end) = &conflict.end {
            let _ = write!(text, "..{}", String::from_utf8_lossy(end));
        }
        for (word, version) in [("seen", conflict.read_version), ("now", conflict.current_version)] {
            if let Some(version) = version {
                let _ = write!(text, " {word} {}", self.version(&row, version));
            }
        }
        if let Some(epoch) = conflict.changed_in {
            let _ = write!(text, " changed in {epoch}");
        }
        if let Some(key) = &conflict.row {
            let row = Row { store: conflict.store, key: String::from_utf8_lossy(key).into_owned() };
            let _ = write!(text, " at {}", self.row(&row));
        }
        if let Some(id) = conflict.by_txn {
            let _ = write!(text, " by {}", self.txns.get(&id).cloned().unwrap_or_else(|| id.to_string()));
        }
        text
    }
}

/// Returns a verdict's location as `epoch.item`.
#[must_use]
pub fn at(place: VerdictAt) -> String {
    format!("{}.{}", place.epoch, place.item)
}

/// Returns a fence's result as text.
#[must_use]
pub fn fence(result: FenceResult) -> String {
    match result {
        FenceResult::Fenced => "fenced".to_owned(),
        FenceResult::Known(place) => format!("known {}", at(place)),
        FenceResult::Expired => "expired".to_owned(),
    }
}
