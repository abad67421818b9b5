//! All groups of a node: passes inputs to them, and collects their output in rounds with one sync each.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tribunal_codec::EntryId;
use tribunal_types::{GroupId, NodeId};

use crate::group::Group;
use crate::input::{Input, StoredGroup};
use crate::members::Members;
use crate::outbox::Outbox;
use crate::output::{DurableUpTo, Output};
use crate::refused::{BadGroup, Refused};
use crate::settings::{NODE_MAX, Settings};
use crate::storage::GroupLog;

/// The Raft groups of one node.
pub struct RaftGroups<L: GroupLog> {
    me: NodeId,
    settings: Settings,
    log: L,
    groups: BTreeMap<GroupId, Group<L>>,
    /// Groups that may have output ready.
    touched: BTreeSet<GroupId>,
    outbox: Outbox,
}

impl<L: GroupLog> RaftGroups<L> {
    /// Creates a node without groups.
    ///
    /// # Panics
    /// If the node's number is 0 or above [`NODE_MAX`], or the settings have no tick between two heartbeats and an
    /// election.
    pub fn new(me: NodeId, settings: Settings, log: L) -> Self {
        assert!((1..=NODE_MAX).contains(&me.0), "node {me} cannot be a member of a group");
        let Settings { election_ticks, heartbeat_ticks, .. } = settings;
        assert!((1..election_ticks).contains(&heartbeat_ticks), "an election must take longer than a heartbeat");
        Self { me, settings, log, groups: BTreeMap::new(), touched: BTreeSet::new(), outbox: Outbox::new() }
    }

    /// Adds a group from the log, or a new one.
    ///
    /// # Errors
    /// If it exists already, or if its stored state is inconsistent.
    pub fn add_group(&mut self, stored: StoredGroup) -> Result<(), BadGroup> {
        let id = stored.group;
        if self.groups.contains_key(&id) {
            return Err(BadGroup::Twice(id));
        }
        let group = Group::start(self.me, self.settings, stored, self.log.clone())?;
        self.groups.insert(id, group);
        self.touched.insert(id);
        Ok(())
    }

    /// Removes a group that has ended. Messages to it are refused from now on.
    pub fn remove_group(&mut self, group: GroupId) {
        self.groups.remove(&group);
        self.touched.remove(&group);
    }

    /// Returns the groups, ascending.
    pub fn ids(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.keys().copied()
    }

    /// Returns a group's members, as of the last collected output.
    #[must_use]
    pub fn members(&self, group: GroupId) -> Option<&Members> {
        self.groups.get(&group).map(|group| &group.members)
    }

    /// Returns the number of entries of a group that each other member lags, as far as this node knows; empty if it
    /// does not lead the group.
    pub fn lags(&self, group: GroupId) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.groups.get(&group).into_iter().flat_map(Group::lags)
    }

    /// Returns whether a member of a group that this node leads has recently acknowledged all but `entries` entries: as
    /// a voter it would delay nothing for long.
    #[must_use]
    pub fn is_caught_up(&self, group: GroupId, node: NodeId, entries: u64) -> bool {
        self.groups.get(&group).is_some_and(|group| group.is_caught_up(node, entries))
    }

    /// Returns the index of the last compacted entry of each group.
    pub fn compacted(&self) -> impl Iterator<Item = (GroupId, u64)> + '_ {
        self.groups.iter().map(|(id, group)| (*id, group.node.store().compacted().index))
    }

    /// Returns the index of the last entry of a group that was handed out.
    #[must_use]
    pub fn handed_out(&self, group: GroupId) -> u64 {
        self.groups.get(&group).map_or(0, |group| group.handed)
    }

    /// Returns handed-out entries of a group after `after`: at least one if there is one, and not much more than
    /// `bytes_max` bytes. Returns none if the first of them is compacted.
    #[must_use]
    pub fn handed_out_after(&self, group: GroupId, after: u64, bytes_max: usize) -> Vec<(EntryId, Bytes)> {
        self.groups.get(&group).map(|group| group.handed_out_after(after, bytes_max)).unwrap_or_default()
    }

    /// Stops a group from handing out entries, or resumes with the entries that its log has by then. Everything else
    /// continues: it writes, votes and answers, and its entries wait in the log.
    pub fn hold_back(&mut self, group: GroupId, hold: bool) {
        if let Some(found) = self.groups.get_mut(&group).filter(|found| found.held_back != hold) {
            found.held_back = hold;
            self.touched.insert(group);
        }
    }

    /// Returns the groups that are held back.
    pub fn held_back(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.iter().filter(|(_, group)| group.held_back).map(|(id, _)| *id)
    }

    /// Proposes an entry in a group that this node leads. Returns its id in case it is committed: another leader may
    /// replace it. It is lost if [`Output::TermBegun`] of a later term precedes it.
    ///
    /// # Errors
    /// If this node does not lead the group, or cannot accept the proposal at this moment.
    pub fn propose(&mut self, group: GroupId, payload: Vec<u8>) -> Result<EntryId, Refused> {
        self.with(group, |group, _| group.propose(payload))
    }

    /// Proposes new members of a group that this node leads: only `voters` and `learners` of `members` are used.
    ///
    /// # Errors
    /// If this node does not lead the group, if it would leave it, or if a change is not finished.
    pub fn propose_members(&mut self, group: GroupId, members: &Members) -> Result<EntryId, Refused> {
        self.with(group, |group, _| group.propose_members(members))
    }

    /// Returns the voters of a group that this node leads, as of the entry that it proposes next.
    ///
    /// # Errors
    /// If this node does not lead the group, or if its members are changing: then the voters may be different at that
    /// entry.
    pub fn settled_voters(&self, group: GroupId) -> Result<Vec<NodeId>, Refused> {
        self.groups.get(&group).ok_or(Refused::UnknownGroup(group))?.settled_voters()
    }

    /// Processes an input.
    ///
    /// # Errors
    /// The reason why it changes nothing.
    pub fn step(&mut self, input: Input) -> Result<(), Refused> {
        match input {
            Input::Message { from, message } => {
                for (named, known) in [(message.from(), from), (message.to(), self.me)] {
                    if named != known {
                        return Err(Refused::Forged(named));
                    }
                }
                if from == self.me {
                    return Err(Refused::Forged(from));
                }
                self.with(message.group(), |group, outbox| group.message(message.message, outbox))
            }
            Input::Tick => {
                self.for_all(|group, outbox| {
                    group.flush = true;
                    group.tick(outbox);
                });
                Ok(())
            }
            Input::Persisted(number) => {
                if number >= self.outbox.number() {
                    return Err(Refused::UnknownNumber(number));
                }
                self.for_all(|group, outbox| group.persisted(number, outbox));
                self.tell_durable();
                Ok(())
            }
            Input::Durable { from, .. } if from == self.me => Err(Refused::Forged(from)),
            Input::Durable { from, upto } => {
                for told in &upto {
                    // A group that does not exist here does not affect the others.
                    let _ = self.with(told.group, |group, _| {
                        group.durable_at(from, told);
                        Ok(())
                    });
                }
                Ok(())
            }
            Input::Unreachable(node) => {
                self.for_all(|group, _| group.unreachable(node));
                Ok(())
            }
            Input::TakeOver(group) => self.with(group, |group, _| group.take_over()),
            Input::Campaign(group) => self.with(group, |group, _| group.campaign()),
            Input::TransferLeader { group, to } => self.with(group, |group, _| group.transfer_leader(to)),
            Input::ReadIndex { group, context } => self.with(group, |group, _| group.read_index(context)),
            Input::Compact { group, upto } => self.with(group, |group, _| group.compact(upto)),
            Input::Install { group, point } => self.with(group, |group, outbox| group.install(&point, outbox)),
        }
    }

    /// Returns the next output; `None` if there is nothing to do before the next input.
    pub fn poll(&mut self) -> Option<Output> {
        if let Some(output) = self.outbox.pop() {
            return Some(output);
        }
        for id in std::mem::take(&mut self.touched) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if group.collect(&mut self.outbox) {
                self.touched.insert(id);
            }
        }
        self.outbox.end_round();
        self.outbox.pop()
    }

    /// Reports to the other members of each group how far it is durable now.
    fn tell_durable(&mut self) {
        let mut news: BTreeMap<NodeId, Vec<DurableUpTo>> = BTreeMap::new();
        for group in self.groups.values_mut().filter(|group| !group.stopped) {
            let Some((upto, others)) = group.durable_news() else { continue };
            others.into_iter().for_each(|node| news.entry(node).or_default().push(upto));
        }
        news.into_iter().for_each(|(to, upto)| self.outbox.push(Output::Durable { to, upto }));
    }

    fn with<T>(
        &mut self,
        id: GroupId,
        act: impl FnOnce(&mut Group<L>, &mut Outbox) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let group = self.groups.get_mut(&id).ok_or(Refused::UnknownGroup(id))?;
        if group.stopped {
            return Err(Refused::Stopped);
        }
        let done = act(group, &mut self.outbox);
        group.after_call(&mut self.outbox);
        self.touched.insert(id);
        done
    }

    fn for_all(&mut self, mut act: impl FnMut(&mut Group<L>, &mut Outbox)) {
        for (id, group) in self.groups.iter_mut().filter(|(_, group)| !group.stopped) {
            act(group, &mut self.outbox);
            group.after_call(&mut self.outbox);
            self.touched.insert(*id);
        }
    }
}
