//! An in-memory log that rejects the same operations as the real one, and loses unsynced writes when the power fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tribunal_codec::{EntryId, GroupState};
use tribunal_types::GroupId;

use crate::GroupLog;
use crate::entry_content::MEMBERS;

/// The state that the records of one group add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub state: GroupState,
    pub before: EntryId,
    pub entries: Vec<(u64, Vec<u8>)>,
}

impl Stored {
    pub fn last(&self) -> EntryId {
        let last = |(term, _): &(u64, Vec<u8>)| EntryId { term: *term, index: self.before.index + self.len() };
        self.entries.last().map_or(self.before, last)
    }

    fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub fn entry(&self, index: u64) -> Option<&(u64, Vec<u8>)> {
        self.entries.get(usize::try_from(index.checked_sub(self.before.index + 1)?).ok()?)
    }

    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.before.index { Some(self.before.term) } else { self.entry(index).map(|(term, _)| *term) }
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Entry(id, content) => {
                assert!(id.index > self.state.commit.max(self.before.index), "{id:?} replaces a committed one");
                let before = self.term(id.index - 1).unwrap_or_else(|| panic!("{id:?} leaves a gap"));
                assert!(id.term >= before, "{id:?} after term {before}");
                self.entries.truncate((id.index - self.before.index - 1) as usize);
                let changes_members = |content: &[u8]| content.last() == Some(&MEMBERS);
                if changes_members(content) {
                    let earlier = self.entries.iter().rposition(|(_, content)| changes_members(content));
                    let earlier = earlier.map_or(0, |at| self.before.index + 1 + at as u64);
                    let commit = self.state.commit;
                    assert!(earlier <= commit, "change {id:?} is written, and {earlier} is not known to be committed");
                }
                self.entries.push((id.term, content.clone()));
            }
            Record::State(state) => {
                let known = &self.state;
                assert!(state.term >= known.term, "term {} after {}", state.term, known.term);
                let votes = (known.vote, state.vote);
                assert!(state.term > known.term || votes.0 == 0 || votes.0 == votes.1, "votes {votes:?} in one term");
                assert!(state.commit >= known.commit, "commit {} after {}", state.commit, known.commit);
                assert!(state.commit <= self.last().index.max(state.compacted.index), "commit {}", state.commit);
                let upto = state.compacted;
                assert!(upto.index >= known.compacted.index && upto.index <= state.commit, "compacted {upto:?}");
                if upto.index > self.before.index {
                    if self.term(upto.index) == Some(upto.term) {
                        self.entries.drain(..(upto.index - self.before.index) as usize);
                    } else {
                        self.entries.clear();
                    }
                    self.before = upto;
                }
                self.state = state.clone();
            }
        }
    }
}

#[derive(Clone, Debug)]
pub enum Record {
    Entry(EntryId, Vec<u8>),
    State(GroupState),
}

#[derive(Debug, Default)]
struct Disk {
    durable: BTreeMap<GroupId, Stored>,
    written: BTreeMap<GroupId, Stored>,
    /// Records in `written` that are not in `durable`.
    pending: Vec<(GroupId, Record)>,
    unreadable: Option<(GroupId, u64)>,
}

/// The log of one node.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog(Rc<RefCell<Disk>>);

impl MemoryLog {
    pub fn write(&self, group: GroupId, record: Record) {
        let disk = &mut *self.0.borrow_mut();
        disk.written.entry(group).or_default().apply(&record);
        disk.pending.push((group, record));
    }

    /// Returns the number of records that are not durable.
    pub fn pending(&self) -> usize {
        self.0.borrow().pending.len()
    }

    /// Returns the bytes of the entries that are not durable.
    pub fn pending_bytes(&self) -> usize {
        let bytes = |(_, record): &(GroupId, Record)| match record {
            Record::Entry(_, content) => content.len(),
            Record::State(_) => 0,
        };
        self.0.borrow().pending.iter().map(bytes).sum()
    }

    /// Returns whether any of them is an entry.
    pub fn pending_entries(&self) -> bool {
        self.0.borrow().pending.iter().any(|(_, record)| matches!(record, Record::Entry(..)))
    }

    /// Makes the first `count` pending records durable.
    pub fn sync(&self, count: usize) {
        let disk = &mut *self.0.borrow_mut();
        for (group, record) in disk.pending.drain(..count) {
            disk.durable.entry(group).or_default().apply(&record);
        }
    }

    /// The power fails: only the first `surviving` pending records survive.
    pub fn crash(&self, surviving: usize) {
        self.sync(surviving.min(self.pending()));
        let disk = &mut *self.0.borrow_mut();
        disk.pending.clear();
        disk.written = disk.durable.clone();
    }

    pub fn stored(&self, group: GroupId) -> Stored {
        self.0.borrow().written.get(&group).cloned().unwrap_or_default()
    }

    pub fn durable(&self, group: GroupId) -> Stored {
        self.0.borrow().durable.get(&group).cloned().unwrap_or_default()
    }

    /// Returns the term of a durable entry, or of the one before the first.
    pub fn durable_term(&self, group: GroupId, index: u64) -> Option<u64> {
        self.0.borrow().durable.get(&group).map_or((index == 0).then_some(0), |stored| stored.term(index))
    }

    /// Makes an entry unreadable.
    pub fn damage(&self, group: GroupId, index: u64) {
        self.0.borrow_mut().unreadable = Some((group, index));
    }
}

impl GroupLog for MemoryLog {
    type Error = &'static str;

    fn bounds(&self, group: GroupId) -> (EntryId, EntryId) {
        let stored = self.stored(group);
        (stored.before, stored.last())
    }

    fn term(&self, group: GroupId, index: u64) -> Option<u64> {
        self.0.borrow().written.get(&group).map_or((index == 0).then_some(0), |stored| stored.term(index))
    }

    fn entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, Self::Error> {
        let disk = self.0.borrow();
        if disk.unreadable == Some((group, index)) {
            return Err("checksum");
        }
        Ok(disk.written.get(&group).and_then(|stored| stored.entry(index)).map(|(_, content)| content.clone()))
    }
}
