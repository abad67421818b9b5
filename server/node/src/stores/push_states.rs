//! States of the pushes on a cluster's nodes, as reported between nodes: for operators, who may query any node. They
//! decide nothing.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tribunal_codec::{Malformed, Reader, put_bytes, put_varint};
use tribunal_push::StorageDurability;
use tribunal_service::PushState;
use tribunal_types::{ControlIndex, Lsn, NodeId, StoreId};

use crate::stores::store_push::StorePush;

/// Maximum length of a reported error in bytes.
const ERROR_BYTES_MAX: usize = 512;
/// All kinds of storages, in the order of their numbers in a frame.
const DURABILITIES: [StorageDurability; 4] =
    [StorageDurability::Unknown, StorageDurability::Always, StorageDurability::EverySecond, StorageDurability::None];

/// The reported state of one push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldPush {
    /// The store.
    pub store: StoreId,
    /// The control entry that started the push.
    pub push: ControlIndex,
    /// Its state.
    pub state: StorePush,
}

/// Encodes a node's report.
#[must_use]
pub fn encode(told: &[ToldPush]) -> Bytes {
    let mut out = Vec::with_capacity(16 + 32 * told.len());
    put_varint(told.len() as u64, &mut out);
    for ToldPush { store, push, state } in told {
        let StorePush { state, lag_ms, last_error, poison, durability } = state;
        put_varint(u64::from(store.0), &mut out);
        put_varint(push.0, &mut out);
        out.push(PushState::ALL.iter().position(|known| known == state).unwrap_or_default() as u8);
        put_varint(*lag_ms, &mut out);
        put_bytes(shortened(last_error.as_deref().unwrap_or_default()).as_bytes(), &mut out);
        // No record has position 0.
        put_varint(poison.map_or(0, |lsn| lsn.0), &mut out);
        let durability = durability.and_then(|of| DURABILITIES.iter().position(|known| *known == of));
        out.push(durability.map_or(0, |at| at as u8 + 1));
    }
    out.into()
}

/// Truncates a text that is too long.
pub(crate) fn shortened(text: &str) -> &str {
    let end = (0..=ERROR_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Decodes another node's report.
///
/// # Errors
/// If the bytes are not such a list.
pub fn decode(bytes: &[u8]) -> Result<Vec<ToldPush>, Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(7, "pushes")?;
    let told = (0..count).map(|_| take(&mut reader)).collect::<Result<_, _>>()?;
    reader.finish("end of the pushes")?;
    Ok(told)
}

fn take(reader: &mut Reader<'_>) -> Result<ToldPush, Malformed> {
    let (store, push) = (StoreId(reader.number("store")?), ControlIndex(reader.varint("push")?));
    let state = usize::from(reader.u8("state")?);
    let state = *PushState::ALL.get(state).ok_or_else(|| reader.malformed("state"))?;
    let (lag_ms, error, poison) = (reader.varint("lag")?, reader.text("error")?, reader.varint("record")?);
    let durability = match usize::from(reader.u8("durability")?).checked_sub(1) {
        None => None,
        Some(at) => Some(*DURABILITIES.get(at).ok_or_else(|| reader.malformed("durability"))?),
    };
    let last_error = Some(error).filter(|error| !error.is_empty());
    let poison = Some(Lsn(poison)).filter(|lsn| *lsn > Lsn(0));
    Ok(ToldPush { store, push, state: StorePush { state, lag_ms, last_error, poison, durability } })
}

/// Reports of other nodes.
#[derive(Debug, Default)]
pub struct ToldPushes(Mutex<HashMap<StoreId, (NodeId, ControlIndex, StorePush, Instant)>>);

impl ToldPushes {
    /// Records a node's report. `is_known` returns whether a store is declared: others are dropped.
    pub fn note(&self, from: NodeId, told: Vec<ToldPush>, is_known: impl Fn(StoreId) -> bool) {
        let now = Instant::now();
        let mut known = self.0.lock();
        for ToldPush { store, push, state } in told.into_iter().filter(|told| is_known(told.store)) {
            known.insert(store, (from, push, state, now));
        }
    }

    /// Returns a node's last report on this push, and when it arrived.
    #[must_use]
    pub fn of(&self, store: StoreId, node: NodeId, push: ControlIndex) -> Option<(StorePush, Instant)> {
        let known = self.0.lock();
        let (from, of, state, at) = known.get(&store)?;
        (*from == node && *of == push).then(|| (state.clone(), *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_survives_a_round_trip_and_no_cut() {
        let push = |store, state, last_error: Option<&str>, poison, durability| ToldPush {
            store: StoreId(store),
            push: ControlIndex(1 << 40),
            state: StorePush { state, lag_ms: 7, last_error: last_error.map(str::to_owned), poison, durability },
        };
        let told = [
            push(1, PushState::Running, None, None, None),
            push(u32::MAX, PushState::Stopped, Some("WRONGTYPE"), Some(Lsn(9)), Some(StorageDurability::Unknown)),
        ];
        let bytes = encode(&told);
        assert_eq!(decode(&bytes).as_deref(), Ok(&told[..]));
        assert!((0..bytes.len()).all(|cut| decode(&bytes[..cut]).is_err()));
        let long = "ä".repeat(ERROR_BYTES_MAX);
        let cut = decode(&encode(&[push(1, PushState::BackingOff, Some(&long), None, None)])).expect("decodable");
        assert_eq!(cut[0].state.last_error.as_deref(), Some(&long[..ERROR_BYTES_MAX]));
    }

    #[test]
    fn only_the_node_that_pushes_is_believed() {
        let pushes = ToldPushes::default();
        let told = |store| ToldPush { store: StoreId(store), push: ControlIndex(4), state: StorePush::default() };
        pushes.note(NodeId(2), vec![told(1), told(9)], |store| store == StoreId(1));
        let known = |store, node, push| pushes.of(StoreId(store), NodeId(node), ControlIndex(push)).is_some();
        assert!(known(1, 2, 4));
        assert!(!known(1, 3, 4) && !known(1, 2, 5) && !known(9, 2, 4));
    }
}
