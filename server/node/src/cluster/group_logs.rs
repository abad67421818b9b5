//! The node's log, as its Raft groups read it.

use tribunal_codec::EntryId;
use tribunal_log::{LogError, LogReader};
use tribunal_member::GroupLog;
use tribunal_types::GroupId;

/// Reads the groups' logs.
#[derive(Clone)]
pub struct GroupLogs(pub LogReader);

impl GroupLog for GroupLogs {
    type Error = LogError;

    fn bounds(&self, group: GroupId) -> (EntryId, EntryId) {
        self.0.group_bounds(group)
    }

    fn term(&self, group: GroupId, index: u64) -> Option<u64> {
        self.0.group_term(group, index)
    }

    fn entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, LogError> {
        self.0.group_entry(group, index)
    }
}
