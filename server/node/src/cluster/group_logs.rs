//! The node's log, as its Raft groups read it: one entry after another when a member starts, or when another member
//! lags. So the entries after the requested one are read ahead.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_codec::EntryId;
use tribunal_log::{GroupEntry, LogError, LogReader};
use tribunal_member::GroupLog;
use tribunal_types::GroupId;

/// Maximum number of bytes read at once.
const AHEAD_BYTES: usize = 1 << 20;

/// Reads the groups' logs.
#[derive(Clone)]
pub struct GroupLogs {
    reader: LogReader,
    /// By group, the entries read ahead and not yet requested.
    ahead: Arc<Mutex<BTreeMap<GroupId, VecDeque<GroupEntry>>>>,
}

impl GroupLogs {
    /// Creates a reader that has read nothing yet.
    #[must_use]
    pub fn new(reader: LogReader) -> GroupLogs {
        GroupLogs { reader, ahead: Arc::default() }
    }
}

/// Takes an entry from those read ahead, which ascend; entries before it are not requested again.
fn take(ahead: &mut VecDeque<GroupEntry>, index: u64) -> Option<GroupEntry> {
    while ahead.front().is_some_and(|entry| entry.id.index < index) {
        ahead.pop_front();
    }
    ahead.pop_front_if(|entry| entry.id.index == index)
}

impl GroupLog for GroupLogs {
    type Error = LogError;

    fn bounds(&self, group: GroupId) -> (EntryId, EntryId) {
        self.reader.group_bounds(group)
    }

    fn term(&self, group: GroupId, index: u64) -> Option<u64> {
        self.reader.group_term(group, index)
    }

    fn entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, LogError> {
        let Some(term) = self.reader.group_term(group, index) else { return Ok(None) };
        let mut ahead = self.ahead.lock();
        let ahead = ahead.entry(group).or_default();
        // The entry may have been replaced since it was read; an entry of the same term is the same.
        if let Some(entry) = take(ahead, index).filter(|entry| entry.id.term == term) {
            return Ok(Some(entry.payload));
        }
        *ahead = self.reader.group_entries(group, index..u64::MAX, AHEAD_BYTES)?.into();
        Ok(take(ahead, index).map(|entry| entry.payload))
    }
}

#[cfg(test)]
mod tests {
    use tribunal_log::{DurableLog, LogOptions};
    use tribunal_types::{Incarnation, NodeId};

    use super::*;

    #[test]
    fn an_entry_that_was_replaced_after_it_was_read_ahead_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = tribunal_log::open(dir.path(), &LogOptions::default()).unwrap();
        let group = GroupId { node: NodeId(1), incarnation: Incarnation(1) };
        let append = |log: &mut tribunal_log::DiskLog, term, index: u64| {
            log.append_group_entry(group, EntryId { term, index }, &[term as u8, index as u8]).unwrap();
        };
        (1..=5).for_each(|index| append(&mut opened.writer, 1, index));
        opened.writer.sync().unwrap();
        let logs = GroupLogs::new(opened.reader.clone());
        assert_eq!(logs.entry(group, 1).unwrap(), Some(vec![1, 1]));
        assert_eq!(logs.ahead.lock()[&group].len(), 4);
        assert_eq!(logs.entry(group, 3).unwrap(), Some(vec![1, 3]));
        append(&mut opened.writer, 2, 4);
        assert_eq!(logs.entry(group, 4).unwrap(), Some(vec![2, 4]));
        assert_eq!(logs.entry(group, 5).unwrap(), None);
        assert_eq!(logs.entry(group, 2).unwrap(), Some(vec![1, 2]), "it may go back");
        assert_eq!(logs.entry(group, 9).unwrap(), None);
    }
}
