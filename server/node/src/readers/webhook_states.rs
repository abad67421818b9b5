//! States of the deliveries to a cluster's webhooks, as reported between nodes: for operators, who may query any node.
//! They decide nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tribunal_codec::{Malformed, Reader, put_bytes, put_varint};
use tribunal_push::{PushActivity, PushStatus};
use tribunal_types::{ControlIndex, Lsn, NodeId, StoreId};

use crate::stores::push_states::shortened;

/// How long a node's report is shown.
const SHOWN_FOR: Duration = Duration::from_secs(3);

/// The state of one delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// State of the push.
    pub activity: PushActivity,
    /// Last record that the receiver has acknowledged.
    pub acked: Lsn,
    /// Time since the receiver had every record, milliseconds.
    pub lag_ms: u64,
    /// Failed attempts since the last progress.
    pub attempts: u32,
    /// Last error.
    pub last_error: Option<String>,
}

impl From<PushStatus> for Delivery {
    fn from(status: PushStatus) -> Delivery {
        let PushStatus { activity, acked, lag_ms, attempts, last_error, .. } = status;
        Delivery { activity, acked, lag_ms, attempts, last_error }
    }
}

/// A node's report of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldDelivery {
    /// The store.
    pub store: StoreId,
    /// The control entry that started the delivery.
    pub delivery: ControlIndex,
    /// Its state.
    pub state: Delivery,
}

/// Encodes a node's report.
#[must_use]
pub fn encode(told: &[ToldDelivery]) -> Bytes {
    let mut out = Vec::with_capacity(16 + 32 * told.len());
    put_varint(told.len() as u64, &mut out);
    for ToldDelivery { store, delivery, state } in told {
        let Delivery { activity, acked, lag_ms, attempts, last_error } = state;
        put_varint(u64::from(store.0), &mut out);
        put_varint(delivery.0, &mut out);
        out.push(PushActivity::ALL.iter().position(|known| known == activity).unwrap_or_default() as u8);
        put_varint(acked.0, &mut out);
        put_varint(*lag_ms, &mut out);
        put_varint(u64::from(*attempts), &mut out);
        put_bytes(shortened(last_error.as_deref().unwrap_or_default()).as_bytes(), &mut out);
    }
    out.into()
}

/// Decodes another node's report.
///
/// # Errors
/// If the bytes are not such a list.
pub fn decode(bytes: &[u8]) -> Result<Vec<ToldDelivery>, Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(7, "deliveries")?;
    let told = (0..count).map(|_| take(&mut reader)).collect::<Result<_, _>>()?;
    reader.finish("end of the deliveries")?;
    Ok(told)
}

fn take(reader: &mut Reader<'_>) -> Result<ToldDelivery, Malformed> {
    let (store, delivery) = (StoreId(reader.number("store")?), ControlIndex(reader.varint("delivery")?));
    let activity = usize::from(reader.u8("state")?);
    let activity = *PushActivity::ALL.get(activity).ok_or_else(|| reader.malformed("state"))?;
    let (acked, lag_ms) = (Lsn(reader.varint("watermark")?), reader.varint("lag")?);
    let (attempts, error) = (reader.number("attempts")?, reader.text("error")?);
    let last_error = Some(error).filter(|error| !error.is_empty());
    Ok(ToldDelivery { store, delivery, state: Delivery { activity, acked, lag_ms, attempts, last_error } })
}

/// Reports of other nodes.
#[derive(Debug, Default)]
pub struct ToldDeliveries(Mutex<HashMap<StoreId, (NodeId, ControlIndex, Delivery, Instant)>>);

impl ToldDeliveries {
    /// Records a node's report. `is_known` returns whether a store has a webhook: others are dropped.
    pub fn note(&self, from: NodeId, told: Vec<ToldDelivery>, is_known: impl Fn(StoreId) -> bool) {
        let now = Instant::now();
        let mut known = self.0.lock();
        known.retain(|store, _| is_known(*store));
        for ToldDelivery { store, delivery, state } in told.into_iter().filter(|told| is_known(told.store)) {
            known.insert(store, (from, delivery, state, now));
        }
    }

    /// Returns a node's report on this delivery, unless it is too old.
    #[must_use]
    pub fn of(&self, store: StoreId, node: NodeId, delivery: ControlIndex) -> Option<Delivery> {
        let known = self.0.lock();
        let (from, of, state, at) = known.get(&store)?;
        (*from == node && *of == delivery && at.elapsed() < SHOWN_FOR).then(|| state.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(store: u32, activity: PushActivity, last_error: Option<&str>) -> ToldDelivery {
        let last_error = last_error.map(str::to_owned);
        let state = Delivery { activity, acked: Lsn(1 << 40), lag_ms: 7, attempts: 3, last_error };
        ToldDelivery { store: StoreId(store), delivery: ControlIndex(1 << 40), state }
    }

    #[test]
    fn what_is_told_survives_a_round_trip_and_no_cut() {
        let all: Vec<_> = PushActivity::ALL.into_iter().map(|activity| told(u32::MAX, activity, None)).collect();
        for told in [vec![], all, vec![told(1, PushActivity::Stopped, Some("refused"))]] {
            let bytes = encode(&told);
            assert_eq!(decode(&bytes), Ok(told));
            assert!((0..bytes.len()).all(|cut| decode(&bytes[..cut]).is_err()));
        }
    }

    #[test]
    fn only_the_node_that_delivers_is_believed_and_only_known_webhooks_are_kept() {
        let known = ToldDeliveries::default();
        let (node, delivery) = (NodeId(2), ControlIndex(1 << 40));
        known.note(node, vec![told(1, PushActivity::Idle, None), told(2, PushActivity::Idle, None)], |store| {
            store == StoreId(1)
        });
        let activity = |store, node, delivery| Some(known.of(StoreId(store), node, delivery)?.activity);
        assert_eq!(activity(1, node, delivery), Some(PushActivity::Idle));
        assert_eq!(activity(2, node, delivery), None);
        assert_eq!(activity(1, NodeId(3), delivery), None);
        assert_eq!(activity(1, node, ControlIndex(1)), None);
        known.note(NodeId(3), vec![], |_| false);
        assert_eq!(activity(1, node, delivery), None, "it was removed");
    }
}
