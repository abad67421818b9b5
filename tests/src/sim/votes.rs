//! The guarantees that Raft relies on: a node remembers its terms and votes through all faults, and an entry of a term
//! has one content.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tribunal_codec::{EntryId, GroupState};
use tribunal_types::GroupId;

/// The durable votes of nodes, and the entries written by leaders.
#[derive(Default)]
pub(super) struct Votes {
    /// The last durable term of a node in a group, and its vote in that term: 0 if it gave none.
    durable: BTreeMap<(u16, GroupId), (u64, u64)>,
    /// A hash of the content, by group, index and term.
    contents: BTreeMap<(GroupId, u64, u64), u64>,
}

impl Votes {
    /// Notes the durable state of a group on a node's disk.
    pub fn note_durable(&mut self, node: u16, group: GroupId, state: &GroupState) {
        self.durable.insert((node, group), (state.term, state.vote));
    }

    /// Forgets a node whose disk is lost: it never comes back under its number.
    pub fn forget(&mut self, node: u16) {
        self.durable.retain(|(of, _), _| *of != node);
    }

    /// A node never returns to an earlier term, and votes once in each.
    ///
    /// # Errors
    /// If a node's new state contradicts its durable one.
    pub fn invariant_votes_are_kept(&self, node: u16, group: GroupId, state: &GroupState) -> Result<(), String> {
        let (term, vote) = self.durable.get(&(node, group)).copied().unwrap_or_default();
        let is_forgotten = state.term < term || state.term == term && vote != 0 && state.vote != vote;
        if is_forgotten {
            return Err(format!(
                "node {node} voted for {vote} in term {term} of group {}, and now has vote {} of term {}",
                group.node, state.vote, state.term
            ));
        }
        Ok(())
    }

    /// Forgets the entries from this one on that no node was sent: a sole voter sends nothing in a term that is not
    /// durable, so after a power cut it may lead the same term again, with different entries.
    pub fn forget_what_nobody_was_sent(&mut self, node: u16, group: GroupId, id: EntryId) {
        if self.durable.get(&(node, group)).is_none_or(|(term, _)| id.term > *term) {
            let from = (group, id.index, 0)..=(group, u64::MAX, u64::MAX);
            let unsent = self.contents.range(from).map(|(at, _)| *at).filter(|(_, _, term)| *term == id.term);
            for at in unsent.collect::<Vec<_>>() {
                self.contents.remove(&at);
            }
        }
    }

    /// The entry at an index and term is the same on all nodes.
    ///
    /// # Errors
    /// If two leaders of one term have written different entries there, or one leader has written two.
    pub fn invariant_an_entry_has_one_content(
        &mut self,
        node: u16,
        group: GroupId,
        id: EntryId,
        content: &[u8],
    ) -> Result<(), String> {
        let hash = hash_of(content);
        match self.contents.entry((group, id.index, id.term)) {
            Entry::Vacant(entry) => drop(entry.insert(hash)),
            Entry::Occupied(entry) if *entry.get() == hash => {}
            Entry::Occupied(_) => {
                return Err(format!(
                    "node {node} has another entry {} of term {} of group {} than the others",
                    id.index, id.term, group.node
                ));
            }
        }
        Ok(())
    }
}

/// Returns a hash of a content, computed eight bytes at a time for speed: every entry is hashed on every node.
fn hash_of(content: &[u8]) -> u64 {
    let mix = |hash: u64, bytes: u64| (hash.rotate_left(23) ^ bytes).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (words, rest) = content.as_chunks::<8>();
    let hash = words.iter().fold(content.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}
