//! Finds the entries of the control log that no longer have an effect, and leaves them out.
//!
//! A key that was created and revoked leaves two entries that nothing needs. Once such entries are a large part of the
//! control log, both of its files are rewritten without them. Entries keep their indices: one record in place of a
//! left-out run contains its last index and the chain hash after it.
//!
//! The core's fold of the keys determines which entries are dead: entries about keys that it has forgotten, and entries
//! that changed nothing. It never forgets the first key of a tenant, so the numbers of tenants do not change. The
//! newest entry is kept in any case, so that the log ends with an entry.
//!
//! A state image may be older than the revocation of a key, and have the key. So a state that is restored from an image has
//! to forget the keys whose entries were left out ([`Record::left_out`]); the entry of a key that is still held never is.
//!
//! Must never: count an entry as dead that decides a verdict, or without which the other entries fold to a different
//! state.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use tribunal_codec::{Reader, put_varint};
use tribunal_core::control::Effect;
use tribunal_core::control::keys::KeyTable;
use tribunal_types::{ControlChange, ControlIndex};

use crate::frame::{Kind, chain};
use crate::record::Stored;

/// Dead bytes up to which the control log is left as it is.
const DEAD_BYTES_MAX: u64 = 1 << 20;
/// Approximate overhead of an entry in addition to its payload.
const FRAME_BYTES: u64 = 32;

/// The left-out entries `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub first: u64,
    pub last: u64,
    /// Chain hash before the first.
    pub link: u64,
    /// Chain hash after the last.
    pub chain: u64,
}

impl Skipped {
    /// Returns the stored content, without index and link.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(18);
        put_varint(self.last, &mut payload);
        payload.extend_from_slice(&self.chain.to_le_bytes());
        payload
    }

    /// Reads [`Skipped::payload`]; `None` if the bytes are malformed.
    pub(crate) fn read(first: u64, link: u64, payload: &[u8]) -> Option<Skipped> {
        let mut reader = Reader::new(payload);
        let last = reader.varint("last index").ok()?;
        let chain = reader.u64_le("chain").ok()?;
        reader.finish("end of record").ok()?;
        (last >= first).then_some(Skipped { first, last, link, chain })
    }
}

/// A record in a file of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(Stored),
    Skipped(Skipped),
}

impl Record {
    pub(crate) fn entry(&self) -> Option<&Stored> {
        if let Record::Entry(stored) = self { Some(stored) } else { None }
    }

    /// Returns the entries that were left out in its place because they no longer had an effect. Those that a salvage
    /// could not find are not among them: it writes the index before the run in place of a chain hash.
    pub(crate) fn left_out(&self) -> Option<RangeInclusive<ControlIndex>> {
        let Record::Skipped(Skipped { first, last, chain, .. }) = *self else { return None };
        (chain != first - 1).then_some(ControlIndex(first)..=ControlIndex(last))
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.entry().is_some() { Kind::Control } else { Kind::Skipped }
    }

    pub(crate) fn first(&self) -> u64 {
        match self {
            Record::Entry(stored) => stored.index,
            Record::Skipped(skipped) => skipped.first,
        }
    }

    pub(crate) fn last(&self) -> u64 {
        match self {
            Record::Entry(stored) => stored.index,
            Record::Skipped(skipped) => skipped.last,
        }
    }

    /// Returns the chain hash before it.
    pub(crate) fn link(&self) -> u64 {
        match self {
            Record::Entry(stored) => stored.link,
            Record::Skipped(skipped) => skipped.link,
        }
    }

    pub(crate) fn payload(&self) -> Cow<'_, [u8]> {
        match self {
            Record::Entry(stored) => Cow::Borrowed(&stored.payload),
            Record::Skipped(skipped) => Cow::Owned(skipped.payload()),
        }
    }

    /// Returns whether it is in the place of entries that a salvage could not find.
    fn is_lost(&self) -> bool {
        matches!(self, Record::Skipped(_)) && self.left_out().is_none()
    }

    fn as_skipped(&self) -> Skipped {
        match self {
            Record::Entry(Stored { index, link, payload }) => {
                Skipped { first: *index, last: *index, link: *link, chain: chain(*link, *index, payload) }
            }
            Record::Skipped(skipped) => *skipped,
        }
    }
}

/// Returns the records without the entries `dead`. The last record stays, and so do runs of lost entries.
pub(crate) fn without(records: &[Record], dead: &BTreeSet<u64>) -> Vec<Record> {
    let mut kept: Vec<Record> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        let goes = match record {
            Record::Entry(stored) => dead.contains(&stored.index) && at + 1 < records.len(),
            Record::Skipped(_) => !record.is_lost(),
        };
        match kept.last_mut().filter(|kept| !kept.is_lost()) {
            Some(Record::Skipped(run)) if goes => {
                let Skipped { last, chain, .. } = record.as_skipped();
                (run.last, run.chain) = (last, chain);
            }
            _ if goes => kept.push(Record::Skipped(record.as_skipped())),
            _ => kept.push(record.clone()),
        }
    }
    kept
}

/// Keeps account of the entries that no longer have an effect.
#[derive(Debug, Default)]
pub(crate) struct DeadEntries {
    keys: KeyTable,
    /// Size of each entry about keys that is not dead, by index.
    bytes: HashMap<u64, u64>,
    dead: BTreeSet<u64>,
    dead_bytes: u64,
    /// After a failure: number of dead bytes above which compaction is retried.
    put_off_to: u64,
}

impl DeadEntries {
    /// Takes an entry into account; entries come in log order.
    pub(crate) fn note(&mut self, index: u64, change: &ControlChange, payload_bytes: usize) {
        let applied = match change {
            ControlChange::CreateKey(key) => self.keys.create(ControlIndex(index), key),
            ControlChange::RevokeKey { id } => Ok(self.keys.revoke(ControlIndex(index), id)),
            _ => return,
        };
        self.bytes.insert(index, payload_bytes as u64 + FRAME_BYTES);
        match applied {
            Ok(Effect::KeyRevoked { forgotten, .. }) => {
                forgotten.into_iter().flat_map(|key| [key.created, key.revoked]).for_each(|entry| self.add(entry.0));
            }
            Ok(Effect::KeyCreated { .. }) => {}
            // Proposed twice, or refused. A refused entry must not outlast the entries that left no room for it:
            // without them it would be accepted.
            _ => self.add(index),
        }
    }

    fn add(&mut self, entry: u64) {
        self.dead.insert(entry);
        self.dead_bytes += self.bytes.remove(&entry).unwrap_or_default();
    }

    /// Returns whether enough of a control log of `file_bytes` is dead to rewrite it.
    pub(crate) fn are_many(&self, file_bytes: u64) -> bool {
        self.dead_bytes > DEAD_BYTES_MAX.max(file_bytes / 2).max(self.put_off_to)
    }

    /// Returns the indices of the dead entries.
    pub(crate) fn indices(&self) -> &BTreeSet<u64> {
        &self.dead
    }

    /// Notes that all of them were left out, except the newest entry of the log.
    pub(crate) fn left_out(&mut self, newest: u64) {
        self.dead.retain(|index| *index == newest);
        (self.dead_bytes, self.put_off_to) = (0, 0);
    }

    /// Notes that they could not be left out: compaction is retried when there are many more.
    pub(crate) fn put_off(&mut self) {
        self.put_off_to = self.dead_bytes + DEAD_BYTES_MAX;
    }
}
