//! Configuration changes: the requests, the replies, and the replies that the control log calls for.
//!
//! The oracle finds repeated proposals in a list of all proposals, so it does not depend on what members remember.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_codec::{decode_control, proposed_in};
use tribunal_core::control::{Applied, Moment, ReplicatedState};
use tribunal_core::planted::{Bug, planted};
use tribunal_log::LogReader;
use tribunal_replica::ControlReply;
use tribunal_types::limits::{PLUGIN_FAULTS_MAX, STATUS_BYTES_MAX, WINDOW_BYTES_MAX};
use tribunal_types::{
    ApiKey, Bounds, ConsumerOffset, ControlChange, ControlImage, ControlIndex, Epoch, Existence, Generation, GroupId,
    Lsn, NamespaceId, ProposalId, ReaderMove, StoreId, StoreSpec, Webhook,
};

use crate::cluster::tracked;
use crate::sim::random::Random;

/// Number of stores, keys and readers to change: few, so that changes of the same one follow each other.
const NAMES: u64 = 4;

/// The configuration changes of a run.
#[derive(Default)]
pub(super) struct Changes {
    asked: u64,
    /// The machine that each pending change waits for, and which start of its process, by number of the change.
    waiting: BTreeMap<u64, (u16, u64)>,
    replies: Vec<ControlReply>,
    /// The committed entries of the control group, kept here because machines compact theirs.
    control_log: Vec<Vec<u8>>,
}

impl Changes {
    /// Draws a change to request at `node` in this start of its process.
    pub(super) fn draw(&mut self, node: u16, start: u64, random: &mut Random) -> (u64, ControlChange) {
        self.ask(node, start);
        let name = random.between(1, NAMES);
        let change = match random.between(0, 5) {
            // The operator chooses the number of partitions, whatever the number of cores. A node whose state has
            // diverged could not follow such a change.
            5 if !planted(Bug::OneNodeDiverges) => ControlChange::SetBounds(Bounds {
                window_bytes_max: WINDOW_BYTES_MAX as u64,
                status_bytes_max: STATUS_BYTES_MAX as u64,
                plugin_faults_max: PLUGIN_FAULTS_MAX,
                partitions: random.one_of(&[1, 2, 3, 8]),
            }),
            0 => ControlChange::RevokeKey { id: format!("k{}", random.between(1, self.asked)) },
            1 => {
                let (id, namespace_name) = (format!("k{}", self.asked), format!("t{name}"));
                ControlChange::CreateKey(ApiKey { id, namespace_name, ..ApiKey::default() })
            }
            _ if self.asked.is_multiple_of(5) => self.draw_move(name),
            _ if self.asked.is_multiple_of(7) => ControlChange::RegisterWebhook {
                webhook: Webhook { store: self.some_store(), watermark: Lsn(self.asked), ..Webhook::default() },
                resumes: self.asked.is_multiple_of(2),
            },
            // Each declaration differs, so that a repeat of an earlier one does harm. Half of them have a storage, and
            // some node is to push to it.
            _ => ControlChange::DeclareStore(StoreSpec {
                adaptor: self.asked.is_multiple_of(2).then(|| "redis".into()),
                adaptor_config: self.asked.to_string(),
                // Whether the engine determines existence is fixed once there are records; whether it keeps versions is
                // not.
                existence: if name == NAMES { Existence::Declared } else { Existence::Tracked },
                multi_version: name == 1 && self.asked.is_multiple_of(3),
                ..tracked(0, &format!("s{name}"))
            }),
        };
        (self.asked, change)
    }

    /// Draws a change of readers. Each differs, so that a repeat of an earlier one does harm.
    fn draw_move(&self, name: u64) -> ControlChange {
        let (namespace, reader, store) = (NamespaceId(0), format!("r{name}"), self.some_store());
        let offset = ConsumerOffset { name: reader.clone(), store, lsn: Lsn(self.asked), ..ConsumerOffset::default() };
        let forget = ReaderMove::Forget { namespace, name: reader, store: None };
        let delivered = ReaderMove::Delivered { store, delivery: ControlIndex(self.asked), lsn: Lsn(self.asked) };
        let first = if self.asked.is_multiple_of(4) { forget } else { delivered };
        ControlChange::MoveReaders(vec![first, ReaderMove::Offset(offset)])
    }

    /// Returns the number of a store that may exist: store numbers are indices of the control log.
    fn some_store(&self) -> StoreId {
        StoreId(1 + (self.asked % 24) as u32)
    }

    /// Notes another change requested at `node` in this start of its process.
    pub(super) fn ask(&mut self, node: u16, start: u64) -> u64 {
        self.asked += 1;
        self.waiting.insert(self.asked, (node, start));
        self.asked
    }

    /// A change is answered once.
    ///
    /// # Errors
    /// If it is answered again.
    pub(super) fn invariant_a_change_is_answered_once(
        &mut self,
        node: u16,
        change: u64,
        reply: ControlReply,
    ) -> Result<(), String> {
        self.waiting.remove(&change).ok_or_else(|| format!("node {node} answers change {change} again"))?;
        self.replies.push(reply);
        Ok(())
    }

    /// Returns a change that a live process has never answered.
    pub(super) fn unanswered(&self, is_alive: impl Fn(u16, u64) -> bool) -> Option<(u64, u16)> {
        let mut waiting = self.waiting.iter().filter(|(_, (node, start))| is_alive(*node, *start));
        waiting.next().map(|(change, (node, _))| (*change, *node))
    }

    /// A change committed twice has the effect of its first entry, and only that entry was answered. Returns the number
    /// of repeats.
    ///
    /// # Errors
    /// If a reply or a member's state differs from the control log without its repeats.
    pub(super) fn invariant_changes_are_applied_once(
        &self,
        founders: &[GroupId],
        state: &ReplicatedState,
    ) -> Result<u64, String> {
        let (expected, applied, repeats) = self.fold(ReplicatedState::founded(founders))?;
        for ControlReply { index, applied: told } in &self.replies {
            if applied.get(index) != Some(told) {
                return Err(format!("change {} was answered with {told:?}, not {:?}", index.0, applied.get(index)));
            }
        }
        let image = without_first_epochs(ControlImage { proposers: Vec::new(), ..state.image() });
        if image != expected {
            return Err(format!("the control log adds up to {expected:?}, and a member has {image:?}"));
        }
        Ok(repeats)
    }

    /// Notes the entries of the control log that a machine knows to be committed.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub(super) fn note_control_log(&mut self, log: &LogReader) -> Result<(), String> {
        self.note_control_log_up_to(log, log.group_state(GroupId::CONTROL).commit)
    }

    /// Notes the entries of a machine's control log up to a committed one.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub(super) fn note_control_log_up_to(&mut self, log: &LogReader, agreed: u64) -> Result<(), String> {
        let first = self.control_log.len() as u64 + 1;
        for at in first..=agreed {
            // A machine that continued from an image may not have the entry.
            let content = log.group_entry(GroupId::CONTROL, at).map_err(|error| error.to_string())?;
            let Some(content) = content else { break };
            self.control_log.push(content);
        }
        Ok(())
    }

    /// Forgets the changes missing from the only remaining log, and the replies to them. Returns the number of changes
    /// kept, and of changes lost.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub(super) fn forget_what_is_lost(&mut self, log: &LogReader) -> Result<(u64, u64), String> {
        let (before, _) = log.group_bounds(GroupId::CONTROL);
        let mut kept = before.index.min(self.control_log.len() as u64);
        for at in kept + 1..=self.control_log.len() as u64 {
            let content = log.group_entry(GroupId::CONTROL, at).map_err(|error| error.to_string())?;
            if content.as_ref() != Some(&self.control_log[at as usize - 1]) {
                break;
            }
            kept = at;
        }
        let changes = |log: &[Vec<u8>]| log.iter().filter(|content| proposed_in(content).is_some()).count() as u64;
        let all = changes(&self.control_log);
        self.control_log.truncate(kept as usize);
        let left = changes(&self.control_log);
        self.replies.retain(|reply| reply.index.0 <= left);
        Ok((left, all - left))
    }

    /// Returns the state after all committed entries of the control log, the effect of each, and the number of repeats.
    fn fold(&self, mut state: ReplicatedState) -> Result<(ControlImage, BTreeMap<ControlIndex, Applied>, u64), String> {
        let (mut index, mut repeats) = (0, 0);
        let (mut seen, mut applied): (BTreeSet<ProposalId>, _) = (BTreeSet::new(), BTreeMap::new());
        for content in &self.control_log {
            let Some(payload) = proposed_in(content) else { continue };
            let entry = decode_control(payload).map_err(|malformed| malformed.to_string())?;
            index += 1;
            if seen.insert(entry.proposal) {
                let moment = Moment { next: Epoch(1), is_existence_fixed: &|_| false, members: &[] };
                applied.insert(ControlIndex(index), state.apply(ControlIndex(index), &entry.change.into(), moment));
            } else {
                repeats += 1;
            }
        }
        let image = ControlImage { index: ControlIndex(index), ..state.image() };
        Ok((without_first_epochs(image), applied, repeats))
    }
}

/// Clears what the control log does not determine: the epoch at which an entry was applied, and the members at that
/// time. A group may join later, and a switch of the generation may be refused.
fn without_first_epochs(mut image: ControlImage) -> ControlImage {
    image.generation = Generation::FIRST;
    image.nodes.iter_mut().flat_map(|node| &mut node.joined).for_each(|join| join.first = Epoch(0));
    image
}
