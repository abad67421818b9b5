//! Dropping the old end of the log. What must outlive it, the stores' last truncated positions, is noted first.

use tribunal_codec::{Malformed, Reader, put_varint};
use tribunal_disk::Tree;
use tribunal_types::{Epoch, Lsn, StoreId};

use crate::batches::head_of;
use crate::error::LogError;
use crate::frame::Kind;
use crate::lsn_index::spans_of;
use crate::outcomes;
use crate::reader::Shared;

const TRUNCATED_KEY: &[u8] = b"truncated";

/// Notes that epochs below `below` are gone, as far as whole segments can go, and forgets them. Returns the position below
/// which segments may be deleted once the note is durable; `None` if none can go.
pub(crate) fn note(shared: &Shared, meta: &Tree, below: Epoch) -> Result<Option<u64>, LogError> {
    let last_entry = shared.index.read().runs.last_below(below).map(|(_, entry)| entry);
    let Some(last_entry) = last_entry else { return Ok(None) };
    // The first entry that must stay, and the segment it begins in.
    let Some(needed) = shared.segments.find(Kind::Entry, last_entry + 1)? else { return Ok(None) };
    let Some(cut) = shared.segments.cut_below(needed) else { return Ok(None) };
    let Some(first_entry) = shared.segments.first_entry_from(cut)? else { return Ok(None) };
    let stored = shared.segments.read(Kind::Entry, first_entry)?;
    let head = stored.and_then(|stored| head_of(&stored.payload, shared.segments.group).ok());
    let Some(head) = head else {
        return Err(LogError::damaged(&shared.dir, format!("entry {first_entry} cannot be read")));
    };
    let below = head.first;
    let gone = last_positions_below(shared, below)?;
    let mut index = shared.index.write();
    for (store, lsn) in gone {
        index.lsns.set_truncated(store, lsn);
    }
    index.lsns.remove_below(below);
    index.runs.remove_below(below);
    index.retention.remove_below(below);
    index.oldest = below;
    index.first_entry = first_entry;
    let positions = index.lsns.truncated();
    drop(index);
    store(meta, &Truncated { first_entry, positions })?;
    Ok(Some(cut))
}

/// Returns each store's last position in epochs below `below`.
fn last_positions_below(shared: &Shared, below: Epoch) -> Result<Vec<(StoreId, Lsn)>, LogError> {
    let known = shared.index.read().lsns.last_below(below);
    let mut last: Vec<(StoreId, Lsn)> = Vec::new();
    for (store, span) in known {
        let Some(span) = span else { continue };
        let mut lsn = Lsn(span.first.0 + span.count - 1);
        // Between sparse spans the outcomes know better; dense ones are adjacent.
        let mut after = span.epoch.next();
        let until = Epoch(below.0.min(after.0 + crate::lsn_index::SPARSE_EPOCHS));
        while after < until {
            if let Some(stored) = outcomes::read(&shared.segments, after)?
                && let Some(span) = spans_of(&stored.outcome).get(&store)
            {
                lsn = Lsn(span.first.0 + span.count - 1);
            }
            after = after.next();
        }
        last.push((store, lsn));
    }
    Ok(last)
}

/// What outlives truncation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// Index of the oldest entry that must be there; 0 if nothing was ever truncated.
    pub first_entry: u64,
    /// Last truncated position of each store.
    pub positions: Vec<(StoreId, Lsn)>,
}

pub(crate) fn store(meta: &Tree, truncated: &Truncated) -> Result<(), LogError> {
    let mut value = vec![0; 4];
    put_varint(truncated.first_entry, &mut value);
    put_varint(truncated.positions.len() as u64, &mut value);
    for (store, lsn) in &truncated.positions {
        put_varint(u64::from(store.0), &mut value);
        put_varint(lsn.0, &mut value);
    }
    let crc = crc32c::crc32c(&value[4..]);
    value[..4].copy_from_slice(&crc.to_le_bytes());
    Ok(meta.put(TRUNCATED_KEY, &value)?)
}

/// Returns what was noted at the last truncation.
///
/// # Errors
/// If it was noted but cannot be read.
pub(crate) fn load(meta: &Tree, dir: &std::path::Path) -> Result<Truncated, LogError> {
    let Some(value) = meta.get(TRUNCATED_KEY)? else { return Ok(Truncated::default()) };
    let damaged = || LogError::damaged(dir, "the positions up to which it was truncated cannot be read");
    let crc = value.get(..4).and_then(|crc| crc.try_into().ok()).map(u32::from_le_bytes).ok_or_else(damaged)?;
    if crc32c::crc32c(&value[4..]) != crc {
        return Err(damaged());
    }
    let mut reader = Reader::new(&value[4..]);
    let mut decode = || {
        let first_entry = reader.varint("first entry")?;
        let count = reader.count(2, "stores")?;
        let positions = (0..count)
            .map(|_| Ok((StoreId(reader.number("store")?), Lsn(reader.varint("position")?))))
            .collect::<Result<_, Malformed>>()?;
        Ok::<_, Malformed>(Truncated { first_entry, positions })
    };
    decode().map_err(|_| damaged())
}
