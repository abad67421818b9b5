//! The log of a node that ran alone continues as the log of a member: its own entries stay readable beside the groups'
//! entries, until both are truncated alike.

mod fixture;

use fixture::{batch, outcome};
use tribunal_codec::{EntryId, GroupState, PROPOSED, encode_batch};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::sim::{SimFiles, Survival};
use tribunal_log::{
    ClusterIdentity, DurableLog, Located, LogError, LogOptions, LogReader, Opened, PointInLog, add_image, open_on,
};
use tribunal_types::{Batch, Epoch, EpochOutcome, GroupId, Incarnation, Lsn, NodeId, StateImage, StoreId};

const GROUP: GroupId = GroupId { node: NodeId(1), incarnation: Incarnation(1) };
/// The entry of each group that the member's first image covers.
const INCLUDED: EntryId = EntryId { term: 1, index: 1 };
const STORE: StoreId = StoreId(1);

/// A log on a simulated disk, and the epochs written to it.
struct Node {
    disk: SimFiles,
    opened: Option<Opened>,
    cluster: Option<ClusterIdentity>,
    heads: [u64; 3],
    /// For each epoch from the first on: the store's head before it, its batch and its outcome.
    written: Vec<(u64, Batch, EpochOutcome)>,
}

fn path() -> &'static std::path::Path {
    std::path::Path::new("/log")
}

fn open(disk: &SimFiles, cluster: Option<ClusterIdentity>) -> Result<Opened, LogError> {
    let options =
        LogOptions { retention_ms: 0, kept_for_members_bytes: 0, recent_bytes: 0, cluster, ..LogOptions::default() };
    open_on(&disk.as_files(), path(), &options)
}

impl Node {
    /// Decides epochs up to `last` alone, with two images.
    fn alone(seed: u64, last: u64) -> Node {
        let disk = SimFiles::new(seed);
        let mut opened = open(&disk, None).unwrap();
        let (group, keyer) = (opened.recovered.group, RowKeyer::new(opened.recovered.row_secret));
        let (mut heads, mut written) = ([0; 3], Vec::new());
        for epoch in 1..=last {
            let batch = batch(group, &keyer, epoch);
            opened.writer.append(&batch).unwrap();
            let head = heads[1];
            let outcome = outcome(&batch, &mut heads);
            opened.writer.append_outcome(&outcome).unwrap();
            written.push((head, batch, outcome));
        }
        for epoch in [last - 1, last] {
            opened.writer.write_image(&StateImage { epoch: Epoch(epoch), ..StateImage::default() }).unwrap();
        }
        opened.writer.sync().unwrap();
        Node { disk, opened: Some(opened), cluster: None, heads, written }
    }

    /// Returns the identity shared by all members.
    fn identity(&self) -> ClusterIdentity {
        let found = &self.opened.as_ref().unwrap().recovered;
        ClusterIdentity { id: found.id, incarnation: Incarnation(1), row_secret: found.row_secret }
    }

    /// Continues as a member, from the image of the last epoch.
    fn become_member(&mut self) -> Result<(), LogError> {
        let cluster = self.identity();
        self.opened = None;
        let epoch = self.written.last().unwrap().2.epoch;
        add_image(&self.disk.as_files(), path(), &StateImage { epoch, ..StateImage::default() })?;
        let mut opened = open(&self.disk, Some(cluster))?;
        let heads = [1, 2_u32].map(|store| (StoreId(store), Lsn(self.heads[store as usize])));
        assert!(!opened.writer.continue_after(epoch, &heads)?, "it lacks nothing");
        for group in [GroupId::CONTROL, GROUP] {
            let state = GroupState { term: 1, commit: 1, compacted: INCLUDED, ..GroupState::default() };
            opened.writer.set_group_state(group, &state)?;
        }
        opened.writer.sync()?;
        (self.opened, self.cluster) = (Some(opened), Some(cluster));
        Ok(())
    }

    /// Decides the next epoch as a member.
    fn decide(&mut self) -> Result<(), LogError> {
        let opened = self.opened.as_mut().unwrap();
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        let batch = batch(GROUP, &keyer, self.written.len() as u64 + 1);
        let mut content = Vec::new();
        encode_batch(&batch, &mut content);
        content.push(PROPOSED);
        let log = &mut opened.writer;
        let id = EntryId { term: 1, index: opened.reader.group_bounds(GROUP).1.index + 1 };
        log.append_group_entry(GROUP, id, &content)?;
        log.set_group_state(GROUP, &GroupState { commit: id.index, ..opened.reader.group_state(GROUP) })?;
        let mut heads = self.heads;
        let outcome = outcome(&batch, &mut heads);
        log.append_epoch(&outcome, &[(GROUP, id.index)])?;
        self.written.push((self.heads[1], batch, outcome));
        self.heads = heads;
        Ok(())
    }

    /// Writes an image, compacts and truncates.
    fn truncate(&mut self) -> Result<(), LogError> {
        self.truncate_but(100)
    }

    /// Likewise; keeps the last `kept` epochs at least.
    fn truncate_but(&mut self, kept: u64) -> Result<(), LogError> {
        let Opened { writer: log, reader, .. } = self.opened.as_mut().unwrap();
        let epoch = Epoch(self.written.len() as u64);
        log.write_image(&StateImage { epoch, ..StateImage::default() })?;
        let below = Epoch(epoch.0 - kept);
        for (group, index) in log.spare_group_entries(below) {
            let compacted = EntryId { term: 1, index };
            log.set_group_state(group, &GroupState { compacted, ..reader.group_state(group) })?;
        }
        log.truncate(below)
    }

    fn reopen(&mut self) {
        self.disk.cut_power();
        self.opened = None;
        self.disk.power_on(Survival::None);
        self.opened = Some(open(&self.disk, self.cluster).unwrap());
    }

    fn reader(&self) -> &LogReader {
        &self.opened.as_ref().unwrap().reader
    }

    /// Checks that the log is complete from some epoch on, at least up to `sure`; returns that first epoch.
    fn first_whole(&self, sure: u64) -> u64 {
        let reader = self.reader();
        let epochs = || 1..=self.written.len() as u64;
        let has = |epoch: &u64| reader.epoch(Epoch(*epoch)).unwrap().is_some();
        let first = epochs().find(has).unwrap();
        let last = epochs().rfind(has).unwrap();
        assert!(last >= sure, "epoch {last} is the last one, {sure} was acknowledged");
        let oldest = reader.oldest(STORE);
        for epoch in first..=last {
            let (head, batch, outcome) = &self.written[epoch as usize - 1];
            let read = reader.epoch(Epoch(epoch)).unwrap().unwrap();
            assert_eq!(&read.1, outcome, "epoch {epoch}");
            assert_eq!(read.0.batches.len(), 1);
            assert_eq!(&*read.0.batches[0], batch, "epoch {epoch}");
            if *head + 1 >= oldest.0 && outcome.lsns.iter().any(|at| at.store == STORE) {
                assert_eq!(reader.locate(STORE, Lsn(*head)).unwrap(), Located::Epoch(Epoch(epoch)));
                let known = PointInLog::Known { epoch: Epoch(epoch), digest: outcome.digest };
                assert_eq!(reader.point(STORE, Lsn(head + 1)).unwrap(), known);
            }
        }
        assert!(oldest <= Lsn(self.written[last as usize - 1].0 + 1), "{oldest} is the oldest position");
        if oldest > Lsn(1) {
            assert_eq!(reader.locate(STORE, Lsn(0)).unwrap(), Located::Truncated { oldest });
        }
        first
    }
}

#[test]
fn both_parts_of_the_log_are_read() {
    let mut node = Node::alone(1, 120);
    node.become_member().unwrap();
    assert_eq!(node.first_whole(120), 1);
    (0..120).for_each(|_| node.decide().unwrap());
    assert_eq!(node.first_whole(240), 1);
    node.opened.as_mut().unwrap().writer.sync().unwrap();
    node.reopen();
    assert_eq!(node.first_whole(240), 1);
    assert_eq!(node.reader().group_bounds(GROUP).1.index, 121);
}

/// Commits wait while the log is truncated, so its retained part, which can be gigabytes, must not be read for that.
#[test]
fn a_truncation_does_not_search_the_part_that_stays() {
    const EPOCHS: u64 = 3_000;
    let mut node = Node::alone(7, EPOCHS);
    let before = node.disk.reads();
    node.opened.as_mut().unwrap().writer.truncate(Epoch(EPOCHS / 2)).unwrap();
    let alone = node.disk.reads() - before;
    let oldest = node.first_whole(EPOCHS);
    assert!(oldest > 1 && oldest < EPOCHS / 2, "{oldest}");

    node.become_member().unwrap();
    (1..EPOCHS).for_each(|_| node.decide().unwrap());
    node.truncate().unwrap();
    node.decide().unwrap();
    // The older one of two images counts.
    let before = node.disk.reads();
    node.truncate_but(EPOCHS / 2).unwrap();
    let member = node.disk.reads() - before;
    let oldest = node.first_whole(2 * EPOCHS);
    assert!(oldest > EPOCHS && oldest < 3 * EPOCHS / 2, "{oldest}");
    assert!(alone.max(member) < EPOCHS / 10, "{alone} and {member} reads for {EPOCHS} epochs");
}

/// The power is cut after each operation of the change and of the following operations.
#[test]
fn a_power_cut_while_it_changes_loses_nothing() {
    let mut cuts = 0;
    for operations in 0.. {
        let mut node = Node::alone(operations, 12);
        node.disk.cut_power_after(operations);
        let mut sure = 12;
        let mut attempt = || -> Result<(), LogError> {
            node.become_member()?;
            for _ in 0..3 {
                node.decide()?;
                node.opened.as_mut().unwrap().writer.sync()?;
                sure += 1;
            }
            Ok(())
        };
        let is_done = attempt().is_ok();
        // Before the first record of a group, it is still the log of a node that runs alone.
        node.reopen();
        assert_eq!(node.first_whole(sure), 1, "after {operations} operations");
        let groups = node.reader().groups();
        assert!(groups.is_empty() || groups.len() == 2, "{groups:?}");
        if groups.is_empty() {
            node.written.truncate(12);
            node.become_member().unwrap();
        }
        if is_done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 15, "{cuts} cuts");
}

#[test]
fn its_own_entries_are_truncated_like_those_of_the_groups() {
    let mut node = Node::alone(2, 1500);
    node.become_member().unwrap();
    let (mut firsts, mut last) = (Vec::new(), 1500);
    while node.written.len() < 6000 {
        (0..100).for_each(|_| node.decide().unwrap());
        last += 100;
        node.truncate().unwrap();
        firsts.push(node.first_whole(last));
        if node.written.len().is_multiple_of(700) {
            node.reopen();
            assert_eq!(node.first_whole(last), *firsts.last().unwrap(), "the same after a start");
        }
    }
    assert!(firsts.is_sorted());
    let within = |range: std::ops::RangeInclusive<u64>| firsts.iter().any(|first| range.contains(first));
    assert!(within(2..=1500) && within(1502..=6000), "{firsts:?}");
    assert!(*firsts.last().unwrap() > 3000, "{firsts:?}");
    // A restart finds no entry from before the change.
    node.reopen();
    node.decide().unwrap();
    node.truncate().unwrap();
    node.reopen();
    node.first_whole(last + 1);
}

/// A lagging member copies another member's state, whatever it was before.
#[test]
fn it_may_have_a_gap() {
    let mut node = Node::alone(3, 40);
    node.become_member().unwrap();
    (0..5).for_each(|_| node.decide().unwrap());
    let cluster = node.cluster;
    node.opened.as_mut().unwrap().writer.sync().unwrap();
    node.opened = None;
    add_image(&node.disk.as_files(), path(), &StateImage { epoch: Epoch(90), ..StateImage::default() }).unwrap();
    for gap in [true, false] {
        let mut opened = open(&node.disk, cluster).unwrap();
        assert_eq!(opened.writer.continue_after(Epoch(90), &[(STORE, Lsn(900))]).unwrap(), gap);
        assert_eq!((opened.reader.oldest(STORE), opened.reader.head(STORE)), (Lsn(901), Lsn(900)));
        assert!((1..=40).all(|epoch| opened.reader.epoch(Epoch(epoch)).unwrap().is_none()));
    }
}
