//! Chained records of one kind and group in a sled tree: append at the end, read by index, verify in order. Rare records
//! (the control log) live here; entries and outcomes lie in segment files.

use std::path::{Path, PathBuf};

use tribunal_disk::{Tree, WriteBatch};
use tribunal_types::GroupId;

use crate::error::LogError;
use crate::frame::{Kind, Place, Seat, chain, pieces, put_chunk, read_chunk};

/// Keys removed at once.
const REMOVED_AT_ONCE: usize = 512;

/// A record as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub index: u64,
    /// See [`crate::frame::Chunk::link`].
    pub link: u64,
    pub payload: Vec<u8>,
}

/// The records of one kind and group.
#[derive(Clone)]
pub(crate) struct Records {
    tree: Tree,
    kind: Kind,
    group: GroupId,
    /// The log's directory, for messages.
    dir: PathBuf,
}

/// Where an appended record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    /// Chain hash behind it.
    pub chain: u64,
    /// Bytes handed to the tree, keys included.
    pub bytes: u64,
}

/// End of a chain that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub index: u64,
    pub chain: u64,
}

impl Records {
    pub(crate) fn new(tree: Tree, kind: Kind, group: GroupId, dir: &Path) -> Self {
        Self { tree, kind, group, dir: dir.to_owned() }
    }

    /// Big endian, so that bytewise order is the order of (group, index, chunk).
    fn key(&self, index: u64, chunk: u32) -> [u8; 18] {
        let mut key = [0; 18];
        key[..2].copy_from_slice(&self.group.node.0.to_be_bytes());
        key[2..6].copy_from_slice(&self.group.incarnation.0.to_be_bytes());
        key[6..14].copy_from_slice(&index.to_be_bytes());
        key[14..].copy_from_slice(&chunk.to_be_bytes());
        key
    }

    fn place(&self, index: u64) -> Place {
        Place { kind: self.kind, group: self.group, index }
    }

    fn damaged(&self, index: u64, reason: impl std::fmt::Display) -> LogError {
        let what = match self.kind {
            Kind::Entry => "entry",
            Kind::Control => "control entry",
            Kind::Outcome => "outcome of epoch",
        };
        LogError::damaged(&self.dir, format!("{what} {index}: {reason}"))
    }

    /// Appends a record whose link is `link`.
    pub(crate) fn append(&self, index: u64, link: u64, payload: &[u8]) -> Result<Appended, LogError> {
        let mut bytes = 0;
        for (part, piece) in pieces(link, payload) {
            let mut chunk = Vec::new();
            put_chunk(self.place(index), part, Seat::default(), piece, &mut chunk);
            bytes += (chunk.len() + 18) as u64;
            self.tree.put(&self.key(index, part.number), &chunk)?;
        }
        Ok(Appended { chain: chain(link, index, payload), bytes })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is there but damaged or incomplete.
    pub(crate) fn read(&self, index: u64) -> Result<Option<Stored>, LogError> {
        let Some(first) = self.tree.get(&self.key(index, 0))? else { return Ok(None) };
        let chunk = read_chunk(&first, 0, self.group).map_err(|e| self.damaged(index, e))?;
        if chunk.head.place != self.place(index) || chunk.head.part.number != 0 {
            return Err(self.damaged(index, "another record lies in its place"));
        }
        let (link, count) = (chunk.head.part.link, chunk.head.part.count);
        let mut payload = chunk.piece.to_vec();
        for number in 1..count {
            let value = self.tree.get(&self.key(index, number))?;
            let value = value.ok_or_else(|| self.damaged(index, "a chunk is missing"))?;
            let chunk = read_chunk(&value, 0, self.group).map_err(|e| self.damaged(index, e))?;
            if chunk.head.place != self.place(index)
                || chunk.head.part.number != number
                || chunk.head.part.count != count
            {
                return Err(self.damaged(index, "another record lies in its place"));
            }
            payload.extend_from_slice(chunk.piece);
        }
        Ok(Some(Stored { index, link, payload }))
    }

    /// Returns the largest index in the tree, complete or not.
    pub(crate) fn last_index(&self) -> Result<Option<u64>, LogError> {
        let found = self.tree.scan(&self.key(0, 0)[..]..=&self.key(u64::MAX, u32::MAX)[..]).next_back();
        Ok(found.transpose()?.map(|(key, _)| index_of(&key)))
    }

    /// Returns the records from `index` on, ascending. A record whose last chunks are missing is left out if nothing
    /// follows it: it was being written when the process died.
    pub(crate) fn scan(&self, index: u64) -> impl Iterator<Item = Result<Stored, LogError>> + use<'_> {
        let mut rows = self.tree.scan(&self.key(index, 0)[..]..=&self.key(u64::MAX, u32::MAX)[..]);
        let mut over = false;
        std::iter::from_fn(move || {
            if over {
                return None;
            }
            let next = self.next_record(&mut rows).transpose();
            over = !matches!(next, Some(Ok(_)));
            next
        })
    }

    fn next_record(
        &self,
        rows: &mut impl Iterator<Item = Result<tribunal_disk::Pair, tribunal_disk::DiskError>>,
    ) -> Result<Option<Stored>, LogError> {
        let Some((key, value)) = rows.next().transpose()? else { return Ok(None) };
        let index = index_of(&key);
        let chunk = read_chunk(&value, 0, self.group).map_err(|e| self.damaged(index, e))?;
        if chunk.head.place != self.place(index) || chunk.head.part.number != 0 || key != self.key(index, 0) {
            return Err(self.damaged(index, "its first chunk is missing"));
        }
        let (link, count) = (chunk.head.part.link, chunk.head.part.count);
        let mut payload = chunk.piece.to_vec();
        for number in 1..count {
            let Some((key, value)) = rows.next().transpose()? else { return Ok(None) };
            if key != self.key(index, number) {
                return Err(self.damaged(index, "a chunk is missing"));
            }
            let chunk = read_chunk(&value, 0, self.group).map_err(|e| self.damaged(index, e))?;
            if chunk.head.place != self.place(index)
                || chunk.head.part.number != number
                || chunk.head.part.count != count
            {
                return Err(self.damaged(index, "another record lies in its place"));
            }
            payload.extend_from_slice(chunk.piece);
        }
        Ok(Some(Stored { index, link, payload }))
    }

    /// Walks the chain from `index` on, shows every record to `each`, and returns where it ends. `None` if there is
    /// no record. The first record's own link is taken for granted unless it is the first of all.
    ///
    /// # Errors
    /// If a record is damaged, missing, or linked to something else.
    pub(crate) fn verify(
        &self,
        index: u64,
        mut each: impl FnMut(&Stored) -> Result<(), LogError>,
    ) -> Result<Option<Tip>, LogError> {
        let mut tip: Option<Tip> = None;
        for stored in self.scan(index) {
            let stored = stored?;
            let fits = match tip {
                Some(tip) => tip.index + 1 == stored.index && tip.chain == stored.link,
                None => stored.index != 1 || stored.link == 0,
            };
            if !fits {
                return Err(self.damaged(stored.index, "the chain is broken before it"));
            }
            each(&stored)?;
            tip = Some(Tip { index: stored.index, chain: chain(stored.link, stored.index, &stored.payload) });
        }
        Ok(tip)
    }

    /// Removes everything above `index`: the remains of a write that was never acknowledged.
    pub(crate) fn remove_above(&self, index: u64) -> Result<(), LogError> {
        loop {
            let rows = self.tree.scan(&self.key(index.saturating_add(1), 0)[..]..=&self.key(u64::MAX, u32::MAX)[..]);
            let keys = rows.take(REMOVED_AT_ONCE).map(|row| row.map(|(key, _)| key)).collect::<Result<Vec<_>, _>>()?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut batch = WriteBatch::default();
            keys.iter().for_each(|key| batch.delete(key));
            self.tree.apply(batch)?;
        }
    }
}

/// Reads the index out of a key. A key of another length is no key of ours and sorts as 0.
fn index_of(key: &[u8]) -> u64 {
    key.get(6..14).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}
