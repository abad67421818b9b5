//! State images of the machines, and the compaction and truncation of their logs.
//!
//! An image is written at once; the log is compacted and truncated a little later, with other events in between. In two
//! of three runs, entries that another machine may still need are not compacted, as on a node that retains its log for
//! longer than others are away. In the third, a machine that was away needs another machine's image.

use std::collections::BTreeMap;
use std::path::Path;

use tribunal_codec::{EntryId, GroupCursors};
use tribunal_log::{DurableLog, add_image, read_image};
use tribunal_member::{Input, groups_in, image_of};
use tribunal_replica::{CapturedImage, Event};
use tribunal_types::{Epoch, GroupId, StateImage};

use crate::sim::happening::Happening;
use crate::sim::machine::LOG_DIR;
use crate::sim::planted::Planted;
use crate::sim::world::World;

/// Maximum time to copy an image, microseconds.
const COPY_WITHIN_US: u64 = 300_000;
/// Maximum time from an image to the compaction that follows it, microseconds.
const COMPACT_WITHIN_US: u64 = 50_000;

impl World {
    /// Writes an image that a member has taken. The inner error is one of the disk.
    pub(super) fn image_taken(
        &mut self,
        node: u16,
        image: CapturedImage,
        groups: GroupCursors,
    ) -> Result<Result<(), String>, String> {
        let wait_us = self.random.between(0, COMPACT_WITHIN_US);
        let epoch = image.epoch();
        let machine = self.machine(node);
        let start = machine.starts;
        let Some(process) = &mut machine.process else { return Ok(Ok(())) };
        if let Err(error) = process.log.write_image(&image_of(image, &groups)) {
            return Ok(Err(error.to_string()));
        }
        let older = std::mem::replace(&mut process.image, groups);
        self.report.images.0 += 1;
        self.trace.note(self.time_us, format_args!("node {node} has an image of epoch {epoch}"));
        self.later(wait_us, Happening::ImageWritten { node, start, epoch, older });
        Ok(Ok(()))
    }

    /// Compacts the entries included in the image before the newest one, and truncates the log.
    pub(super) fn image_written(
        &mut self,
        node: u16,
        start: u64,
        epoch: Epoch,
        older: &GroupCursors,
    ) -> Result<(), String> {
        if self.machine(node).starts != start {
            return Ok(());
        }
        let Some(process) = &self.machine(node).process else { return Ok(()) };
        for (group, spare) in process.log.spare_group_entries(epoch) {
            let included = older.get(&group).map_or(0, |cursor| cursor.included.index);
            let kept = if self.forgets { u64::MAX } else { self.committed_everywhere(group) };
            let upto = spare.min(included).min(kept);
            if upto > 0 {
                self.report.compactions += 1;
                let compacted = self.compacted.entry(group).or_default();
                *compacted = upto.max(*compacted);
                self.step(node, Input::Compact { group, upto })?;
            }
        }
        let Some(process) = &mut self.machine(node).process else { return Ok(()) };
        let before = process.reader.bytes();
        let truncated = process.log.truncate(epoch);
        let bytes = before.saturating_sub(process.reader.bytes());
        self.report.truncated_bytes += bytes;
        if let Err(error) = truncated {
            self.trace.note(self.time_us, format_args!("node {node} stops: {error}"));
            self.stop_for_good(node);
        }
        Ok(())
    }

    /// Stops a process that lacks entries of a group up to `at_least`, and adds another machine's image to its log. The
    /// process starts again later; if no image includes the entries, or all are older than its own, from which it would
    /// start, it gets here again: until then the others take new ones.
    pub(super) fn copy_image(&mut self, node: u16, group: GroupId, at_least: EntryId) -> Result<(), String> {
        // A leader that started from an image, a copied one or its own, may never have had the entries that others need.
        let compacted = self.compacted.get(&group).copied().unwrap_or_default();
        if !self.forgets && node <= self.nodes.founders && at_least.index <= compacted {
            let upto = at_least.index;
            return Err(format!("node {node} lacks entries of group {} up to {upto}, which it had", group.node));
        }
        let forgets = self.planted == Some(Planted::CopyForgetsVotes);
        let mut needed: BTreeMap<_, _> = self.member(node).ok_or("it runs")?.compacted().collect();
        needed.entry(group).and_modify(|index| *index = at_least.index.max(*index)).or_insert(at_least.index);
        let own = self.newest_image(node, &BTreeMap::new()).map_or(Epoch(0), |image| image.epoch);
        let others = 1..=self.machines.len() as u16;
        let mut images = others.clone().filter_map(|other| self.newest_image(other, &needed));
        let image = images.find(|image| image.epoch >= own);
        if image.is_none() {
            self.report.wanted_images += 1;
            for other in others.filter(|other| *other != node) {
                if self.machine(other).process.is_some() {
                    self.step(other, Input::Replica(Event::TakeImage))?;
                }
            }
        }
        let machine = self.machine(node);
        machine.kill();
        if forgets {
            machine.votes = Some(BTreeMap::new());
        }
        let files = machine.disk.as_files();
        let wait_us = self.random.between(10_000, COPY_WITHIN_US);
        self.later(wait_us, Happening::Start { node });
        let Some(image) = image else { return Ok(()) };
        match add_image(&files, Path::new(LOG_DIR), &image) {
            Ok(()) => {
                self.report.copied_images += 1;
                self.trace.note(self.time_us, format_args!("node {node} copies an image of epoch {}", image.epoch));
            }
            Err(error) => {
                self.trace.note(self.time_us, format_args!("node {node} stops: {error}"));
                self.stop_for_good(node);
            }
        }
        Ok(())
    }

    /// Returns the newest image of a running machine, if it includes these entries of groups.
    fn newest_image(&self, node: u16, needed: &BTreeMap<GroupId, u64>) -> Option<StateImage> {
        let machine = &self.machines[usize::from(node) - 1];
        let (_, path) = machine.process.as_ref()?.log.image_writer().newest()?;
        let image = read_image(&*machine.disk.as_files(), &path).ok()?;
        let groups = groups_in(&image).ok()?;
        let included = |group| groups.get(group).map_or(0, |cursor| cursor.included.index);
        needed.iter().all(|(group, index)| included(group) >= *index).then_some(image)
    }

    /// Notes the durable state of a machine's groups, and the control log before parts of it are compacted.
    pub(super) fn note_durable(&mut self, node: u16) -> Result<(), String> {
        let machine = &mut self.machines[usize::from(node) - 1];
        let Some(process) = &machine.process else { return Ok(()) };
        for group in process.reader.groups() {
            let state = process.reader.group_state(group);
            self.votes.note_durable(node, group, &state);
            machine.durable.insert(group, state);
        }
        let reader = process.reader.clone();
        self.changes.note_control_log(&reader)
    }

    /// Returns the last entry of a group that all machines durably know to be committed: 0 while nodes are still to be
    /// added.
    fn committed_everywhere(&self, group: GroupId) -> u64 {
        if self.report.members.admitted < self.nodes.planned as u64 {
            return 0;
        }
        let known = self
            .machines
            .iter()
            .filter(|machine| !machine.left)
            .map(|machine| machine.durable.get(&group).map_or(0, |state| state.commit));
        known.min().unwrap_or_default()
    }
}
