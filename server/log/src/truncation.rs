//! Truncation of the log's old end. The note that must outlive it, the stores' last truncated positions, is written
//! first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use tribunal_codec::{Malformed, Reader, put_varint};
use tribunal_types::{Epoch, Lsn, StoreId};

use crate::batches::head_of;
use crate::error::LogError;
use crate::files::{self, Files};
use crate::frame::Kind;
use crate::lsn_index::{LsnSpan, spans_of};
use crate::outcomes;
use crate::reader::Shared;

/// The file contains its content twice; each copy starts at a multiple of this block size.
const BLOCK_BYTES: usize = 4096;

fn path_in(dir: &Path) -> PathBuf {
    dir.join("truncated")
}

/// Returns the position below which segments may be deleted if epochs below `below` may be; `None` if none can be
/// deleted. Entries of groups that are not compacted stay. A log without any epoch retains everything from position
/// `retained` on.
pub(crate) fn cut_for(shared: &Shared, below: Epoch, retained: u64) -> Result<Option<u64>, LogError> {
    let (own, last_entry, oldest, of_groups, of_epochs) = {
        let index = shared.index.read();
        // A member needs none of its entries from before it became a member, once all of them are below.
        let has_groups = index.groups.ids().next().is_some();
        let own = index.runs.last().filter(|(last, _)| *last >= below || !has_groups);
        let last_entry = index.runs.last_below(below).map(|(_, entry)| entry);
        (own, last_entry, index.oldest, index.groups.first_needed(), index.starts.first_needed(below))
    };
    let mut needed = match (own, last_entry) {
        // The positions of group records below decide.
        (None, _) if of_epochs.is_some() => u64::MAX,
        (None, _) => retained,
        (Some(_), Some(entry)) if below > oldest => {
            // The first entry that must stay, and the segment in which it begins.
            let Some(position) = shared.segments.find(Kind::Entry, entry + 1)? else { return Ok(None) };
            position
        }
        _ => return Ok(None),
    };
    for record in [of_groups, of_epochs].into_iter().flatten() {
        let Some(position) = shared.segments.find(Kind::Group, record)? else { return Ok(None) };
        needed = needed.min(position);
    }
    Ok(shared.segments.cut_below(needed))
}

/// Durably notes everything below position `cut` as truncated, and forgets it. `first_record` is the first record of a
/// group that stays.
///
/// # Errors
/// If the note cannot be written: nothing has changed then.
pub(crate) fn note(shared: &Shared, cut: u64, first_record: u64) -> Result<(), LogError> {
    let (first_entry, below) = first_entry_from(shared, cut, first_record)?;
    let gone = last_positions_below(shared, below)?;
    // Only the log's thread changes the index, so the index does not change while the note is written.
    let mut positions: BTreeMap<StoreId, Lsn> = shared.index.read().lsns.truncated().into_iter().collect();
    for (store, lsn) in &gone {
        let known = positions.entry(*store).or_default();
        *known = (*known).max(*lsn);
    }
    store(
        &*shared.segments.files,
        &shared.dir,
        &Truncated {
            first_entry,
            positions: positions.into_iter().collect(),
            from: cut,
            first_record,
            first_epoch: shared.index.read().first_epoch,
        },
    )?;
    let mut index = shared.index.write();
    for (store, lsn) in gone {
        index.lsns.set_truncated(store, lsn);
    }
    index.remove_below(below);
    index.first_entry = first_entry;
    Ok(())
}

/// Durably notes that the log continues after epoch `last` of a state image, where the stores' logs end at `heads`:
/// earlier epochs are missing in this log, completely or in part.
///
/// # Errors
/// If the note cannot be written: nothing has changed then.
pub(crate) fn note_gap(shared: &Shared, last: Epoch, heads: &[(StoreId, Lsn)]) -> Result<(), LogError> {
    let (files, dir) = (&*shared.segments.files, &shared.dir);
    let mut noted = load(files, dir)?;
    let mut positions: BTreeMap<StoreId, Lsn> = noted.positions.into_iter().collect();
    positions.extend(heads.iter().copied());
    noted.positions = positions.into_iter().collect();
    noted.first_epoch = last.next();
    store(files, dir, &noted)?;
    let mut index = shared.index.write();
    for (store, lsn) in heads {
        index.lsns.set_truncated(*store, *lsn);
    }
    index.first_epoch = last.next();
    index.remove_below(last.next());
    Ok(())
}

/// Returns the first entry at or after position `cut`, and its first epoch. A log without entries of its own from there
/// on keeps the epochs that need no record of a group before `first_record`.
fn first_entry_from(shared: &Shared, cut: u64, first_record: u64) -> Result<(u64, Epoch), LogError> {
    let Some(first_entry) = shared.segments.first_index_from(Kind::Entry, cut)? else {
        let index = shared.index.read();
        let of_groups = index.oldest.max(index.starts.first_whole(first_record));
        return match shared.segments.last_index(Kind::Entry) {
            None => Ok((index.first_entry, of_groups)),
            // The entries from before the node became a member.
            Some(last) if index.groups.ids().next().is_some() => {
                let after = index.runs.last().map_or(Epoch(0), |(epoch, _)| epoch.next());
                Ok((last + 1, of_groups.max(after)))
            }
            Some(_) => Err(LogError::damaged(&shared.dir, format!("there is no entry from position {cut} on"))),
        };
    };
    let stored = shared.segments.read(Kind::Entry, first_entry)?;
    let head = stored.and_then(|stored| head_of(&stored.payload, shared.segments.group).ok());
    let Some(head) = head else {
        return Err(LogError::damaged(&shared.dir, format!("entry {first_entry} cannot be read")));
    };
    // A gap may begin after it.
    Ok((first_entry, head.first.max(shared.index.read().first_epoch)))
}

/// Returns each store's last position in epochs below `below`.
fn last_positions_below(shared: &Shared, below: Epoch) -> Result<Vec<(StoreId, Lsn)>, LogError> {
    let known = shared.index.read().lsns.last_below(below);
    let mut last: Vec<(StoreId, Lsn)> = Vec::new();
    // Stores share epochs: each outcome is read once.
    let mut read: BTreeMap<Epoch, BTreeMap<StoreId, LsnSpan>> = BTreeMap::new();
    for (store, span) in known {
        let Some(span) = span else { continue };
        let mut lsn = Lsn(span.first.0 + span.count - 1);
        // Sparse spans leave epochs out: look in their outcomes. Dense spans are adjacent.
        let mut after = span.epoch.next();
        let until = Epoch(below.0.min(after.0 + crate::lsn_index::SPARSE_EPOCHS));
        while after < until {
            let spans = match read.entry(after) {
                Entry::Occupied(spans) => spans.into_mut(),
                Entry::Vacant(place) => {
                    let stored = outcomes::read(&shared.segments, after)?;
                    place.insert(stored.map(|stored| spans_of(&stored.outcome)).unwrap_or_default())
                }
            };
            if let Some(span) = spans.get(&store) {
                lsn = Lsn(span.first.0 + span.count - 1);
            }
            after = after.next();
        }
        last.push((store, lsn));
    }
    Ok(last)
}

/// The note that outlives truncation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// Index of the oldest entry that must exist; 0 if nothing was ever truncated.
    pub first_entry: u64,
    /// Last truncated position of each store.
    pub positions: Vec<(StoreId, Lsn)>,
    /// Segments below this position do not count: their removal may have been interrupted.
    pub from: u64,
    /// Sequence of the oldest record of a group that must exist; 0 as in [`Truncated::first_entry`].
    pub first_record: u64,
    /// Epochs below this one are only in the state image, which came from another member, even if some of their records
    /// are found: there is a gap. 0 without one.
    pub first_epoch: Epoch,
}

/// Replaces the note, durably.
pub(crate) fn store(files: &dyn Files, dir: &Path, truncated: &Truncated) -> Result<(), LogError> {
    files::replace(files, &path_in(dir), &content_of(truncated))
}

/// Creates the note of a new log. Its name is durable once the identity is stored.
pub(crate) fn create(files: &dyn Files, dir: &Path) -> Result<(), LogError> {
    files::create(files, &path_in(dir), &content_of(&Truncated::default()))
}

fn content_of(truncated: &Truncated) -> Vec<u8> {
    let mut body = Vec::new();
    put_varint(truncated.first_entry, &mut body);
    put_varint(truncated.positions.len() as u64, &mut body);
    for (store, lsn) in &truncated.positions {
        put_varint(u64::from(store.0), &mut body);
        put_varint(lsn.0, &mut body);
    }
    put_varint(truncated.from, &mut body);
    put_varint(truncated.first_record, &mut body);
    put_varint(truncated.first_epoch.0, &mut body);
    let mut bytes = Vec::new();
    for _ in 0..2 {
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    bytes
}

/// Returns the note of the last truncation.
///
/// # Errors
/// If neither copy can be read.
pub(crate) fn load(files: &dyn Files, dir: &Path) -> Result<Truncated, LogError> {
    let bytes = files::read(files, &path_in(dir))?.unwrap_or_default();
    let mut blocks = (0..bytes.len()).step_by(BLOCK_BYTES);
    blocks.find_map(|at| read_copy(&bytes[at..])).ok_or_else(|| {
        LogError::damaged(dir, format!("{} cannot be read: it tells where the log begins", path_in(dir).display()))
    })
}

fn read_copy(bytes: &[u8]) -> Option<Truncated> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let body = rest.get(..u32::from_le_bytes(*len) as usize)?;
    if body.is_empty() || crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut reader = Reader::new(body);
    let mut decode = || {
        let first_entry = reader.varint("first entry")?;
        let count = reader.count(2, "stores")?;
        let positions = (0..count)
            .map(|_| Ok((StoreId(reader.number("store")?), Lsn(reader.varint("position")?))))
            .collect::<Result<_, Malformed>>()?;
        let (from, first_record) = (reader.varint("first position")?, reader.varint("first record")?);
        let first_epoch = Epoch(reader.varint("first epoch")?);
        Ok::<_, Malformed>(Truncated { first_entry, positions, from, first_record, first_epoch })
    };
    decode().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::RealFiles;

    #[test]
    fn a_note_with_one_damaged_copy_is_read_and_one_with_two_is_not() {
        let dir = std::env::temp_dir().join(format!("tribunal-truncated-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let positions = (0..2_000).map(|store| (StoreId(store), Lsn(u64::from(store) << 32))).collect();
        let (from, first_record, first_epoch) = (1 << 40, 9, Epoch(1 << 50));
        for noted in [Truncated::default(), Truncated { first_entry: 7, positions, from, first_record, first_epoch }] {
            store(&RealFiles, &dir, &noted).unwrap();
            let whole = std::fs::read(path_in(&dir)).unwrap();
            for at in [0, 5, 9, whole.len() / 2, whole.len() / 2 + 9] {
                let mut damaged = whole.clone();
                damaged[at] ^= 1;
                std::fs::write(path_in(&dir), &damaged).unwrap();
                assert_eq!(load(&RealFiles, &dir).unwrap(), noted, "byte {at}");
                damaged[(at + whole.len() / 2) % whole.len()] ^= 1;
                std::fs::write(path_in(&dir), &damaged).unwrap();
                assert!(load(&RealFiles, &dir).is_err(), "byte {at} of both");
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
