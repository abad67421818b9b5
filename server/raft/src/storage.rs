//! raft-rs's view of a group's log: recent entries from memory, the others from the node's log.
//!
//! raft-rs panics when a read fails. So a failed read returns a placeholder and is recorded: the group stops before
//! anything that depends on it leaves this crate.

use std::cell::RefCell;
use std::fmt::Display;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use tribunal_codec::EntryId;
use tribunal_types::GroupId;

use crate::entry_content;
use crate::recent_entries::{RecentEntries, size};
use crate::settings::RECENT_BYTES_MAX;

/// Read access to the node's log, durable or not. The log may lag the entries returned for it: entries that are
/// not durable yet are in memory.
pub trait GroupLog: Clone {
    /// The reason why an entry cannot be read.
    type Error: Display;

    /// Returns the entry before a group's first available one, and the last one.
    fn bounds(&self, group: GroupId) -> (EntryId, EntryId);

    /// Returns the term of an available entry, or of the one before the first.
    fn term(&self, group: GroupId, index: u64) -> Option<u64>;

    /// Returns the content of an entry; `None` if it is not available.
    ///
    /// # Errors
    /// If it cannot be read.
    fn entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// The log of one group.
pub(crate) struct GroupStorage<L> {
    group: GroupId,
    log: L,
    initial: RaftState,
    /// Last entry replaced by a state image.
    compacted: EntryId,
    /// The members, for snapshots.
    members: ConfState,
    recent: RecentEntries,
    failure: RefCell<Option<String>>,
}

impl<L: GroupLog> GroupStorage<L> {
    pub(crate) fn new(group: GroupId, log: L, hard: HardState, members: ConfState, bounds: (EntryId, u64)) -> Self {
        let (compacted, last) = bounds;
        Self {
            group,
            log,
            initial: RaftState::new(hard, members.clone()),
            compacted,
            members,
            recent: RecentEntries::new(last + 1),
            failure: RefCell::new(None),
        }
    }

    /// Returns why the group cannot continue, if it cannot.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    pub(crate) fn compacted(&self) -> EntryId {
        self.compacted
    }

    pub(crate) fn last(&self) -> u64 {
        self.recent.last()
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.recent.push(entry);
    }

    pub(crate) fn set_members(&mut self, members: ConfState) {
        self.members = members;
    }

    /// Forgets the entries up to one that a state image includes.
    pub(crate) fn compact(&mut self, upto: EntryId) {
        self.compacted = upto;
        self.recent.shrink(upto.index, 0);
    }

    /// Replaces all entries with a state image.
    pub(crate) fn install(&mut self, id: EntryId) {
        self.compacted = id;
        self.recent = RecentEntries::new(id.index + 1);
    }

    /// Forgets old entries that are durable and handed out, if there are many.
    pub(crate) fn shrink(&mut self, upto: u64) {
        self.recent.shrink(upto, RECENT_BYTES_MAX);
    }

    /// Returns the id of an available entry, or of the last compacted one.
    pub(crate) fn id(&self, index: u64) -> Option<EntryId> {
        Some(EntryId { term: self.term(index).ok()?, index })
    }

    fn fail(&self, index: u64, why: &dyn Display) {
        self.failure.borrow_mut().get_or_insert_with(|| format!("entry {index} cannot be read: {why}"));
    }

    /// Returns an entry, or a placeholder if it cannot be read.
    pub(crate) fn read(&self, index: u64) -> Entry {
        if let Some(entry) = self.recent.get(index) {
            return entry.clone();
        }
        let term = self.log.term(self.group, index).unwrap_or_default();
        match self.log.entry(self.group, index) {
            Ok(Some(content)) => match entry_content::entry(EntryId { term, index }, content.into()) {
                Ok(entry) => return entry,
                Err(malformed) => self.fail(index, &malformed),
            },
            Ok(None) => self.fail(index, &"it is not in the log"),
            Err(error) => self.fail(index, &error),
        }
        let mut placeholder = Entry::default();
        (placeholder.term, placeholder.index) = (term, index);
        placeholder
    }
}

impl<L: GroupLog> Storage for GroupStorage<L> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.compacted.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for index in low..high {
            let entry = self.read(index);
            bytes += size(&entry) as u64;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.compacted.index {
            return Ok(self.compacted.term);
        }
        if index < self.compacted.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if index > self.last() {
            return Err(Error::Store(StorageError::Unavailable));
        }
        if let Some(entry) = self.recent.get(index) {
            return Ok(entry.term);
        }
        let term = self.log.term(self.group, index);
        if term.is_none() {
            self.fail(index, &"it is not in the log");
        }
        Ok(term.unwrap_or_default())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.compacted.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Returns the minimum that a follower must fetch elsewhere; the message that carries it has no other content.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        if self.compacted.index == 0 {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.compacted.index, self.compacted.term);
        metadata.set_conf_state(self.members.clone());
        Ok(snapshot)
    }
}
