//! Tests of a node that continues alone with a log as the groups and peers of a real member have left it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tribunal_codec::{EntryId, GroupState, PROPOSED, batch_head, encode_batch, encode_control};
use tribunal_log::{ClusterIdentity, DurableLog, GroupEntry};
use tribunal_member::{Frame, Input, Output, PeerEntries};
use tribunal_replica::{Now, Replica};
use tribunal_types::{
    Batch, BodyHash, ControlChange, ControlEntry, ControlIndex, Csn, Digest, Epoch, GroupId, GroupJoin, Incarnation,
    Isolation, LogId, NamespaceId, ProposalId, Span, Txn, TxnId,
};

use super::*;
use crate::cluster::membership::Membership;
use crate::cluster::recovery::append_or_compare;
use crate::commit::shards::Workers;
use crate::commit::waiters::Channels;
use crate::config::{Config, PolicyHost};
use crate::data_dir::log_dir;
use crate::plugins::plugin_loader::PluginLoader;
use crate::plugins::policies::PolicySet;
use crate::plugins::signatures::Signers;
use crate::ready::{Deciding, Ready};

/// Milliseconds between two ticks.
const TICK_MS: u64 = 30;

fn group(node: u16) -> GroupId {
    Membership::group_of(NodeId(node))
}

fn entry(term: u64, index: u64, payload: Vec<u8>) -> GroupEntry {
    GroupEntry { id: EntryId { term, index }, payload }
}

/// Returns the content of an entry that seals epochs, with one transaction if `txn` is given.
fn sealed(node: u16, epochs: (u64, u64), txn: Option<u8>) -> Vec<u8> {
    let header = |number| Txn {
        id: TxnId([number; 16]),
        body_hash: BodyHash(u64::from(number)),
        csn: Csn::new(epochs.1, NodeId(node)),
        start: None,
        first_attempt_ms: TxnId([number; 16]).unix_ms(),
        origin: 1,
        namespace: NamespaceId(1),
        isolation: Isolation::Serializable,
        priority: 0,
        snapshots_end: 0,
        reads_end: 0,
        ranges_end: 0,
        writes_end: 0,
        traceparent: Span::default(),
    };
    let (first, last) = (Epoch(epochs.0), Epoch(epochs.1));
    let txns = txn.map(header).into_iter().collect();
    proposed(|content| {
        encode_batch(&Batch { group: group(node), first, last, clock_ms: 1, txns, ..Batch::default() }, content)
    })
}

fn proposed(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut content = Vec::new();
    encode(&mut content);
    content.push(PROPOSED);
    content
}

fn change(number: u64, change: ControlChange) -> Vec<u8> {
    let entry = ControlEntry { proposal: ProposalId { run: 7, number }, change };
    proposed(|content| *content = encode_control(&entry))
}

/// The disk of node 1 of three, and its process.
struct Node {
    dir: TempDir,
    ready: Option<Ready>,
    ms: u64,
    /// The epochs decided since the process started, each with the nodes whose batches it has.
    decided: Vec<(u64, Vec<u16>)>,
    /// The digests sent since the process started: the receiver, the epoch and the digest after it.
    told: Vec<(u16, u64, Digest)>,
    /// Whether entries without items from a peer are written; older releases did not write them.
    copies_all: bool,
}

impl Node {
    fn new() -> Node {
        Node {
            dir: tempfile::tempdir().unwrap(),
            ready: None,
            ms: 1,
            decided: Vec::new(),
            told: Vec::new(),
            copies_all: true,
        }
    }

    fn membership() -> Membership {
        let identity = ClusterIdentity { id: LogId([1; 16]), incarnation: Incarnation(1), row_secret: [2; 16] };
        let nodes: BTreeMap<_, _> = (1..=3).map(|id| (NodeId(id), String::new())).collect();
        let founders = nodes.keys().copied().collect();
        Membership {
            name: "test".into(),
            node: NodeId(1),
            identity,
            keeps_log: false,
            nodes,
            founders,
            authorities: Vec::new(),
        }
    }

    fn start(&mut self) -> Result<&mut Ready, String> {
        self.ready = None;
        self.decided.clear();
        self.told.clear();
        let config = Config { data: self.dir.path().to_owned(), plugins: PolicyHost::Native, ..Config::default() };
        let loader = PluginLoader::open(&config, Signers::default())?;
        let ready = Ready::member(&config, &Node::membership(), loader.into())?;
        Ok(self.ready.insert(ready))
    }

    /// Writes entries of a group into the log, the first `commit` of them known to be committed.
    fn write(&mut self, group: GroupId, entries: &[GroupEntry], commit: u64) {
        let Ready { log, .. } = self.start().unwrap();
        for GroupEntry { id, payload } in entries {
            log.append_group_entry(group, *id, payload).unwrap();
        }
        let term = entries.last().map_or(1, |entry| entry.id.term);
        log.set_group_state(group, &GroupState { term, commit, ..GroupState::default() }).unwrap();
        log.sync().unwrap();
    }

    /// Delivers entries that a peer hands out.
    fn receive(&mut self, group: GroupId, entries: &[GroupEntry]) {
        let entries: Vec<_> = entries.iter().map(|entry| (entry.id, Bytes::copy_from_slice(&entry.payload))).collect();
        let handed_out = entries.last().map_or(0, |(id, _)| id.index);
        let frame = Frame::Entries(PeerEntries { group, handed_out, entries });
        self.step(Input::Frame { from: NodeId(2), frame }).unwrap();
    }

    fn step(&mut self, input: Input<Channels>) -> Result<(), String> {
        let now = Now { monotonic: Duration::from_millis(self.ms), unix_us: self.ms * 1000 };
        let Some(Ready { log, reader, deciding: Deciding::Member(member, _), .. }) = &mut self.ready else { panic!() };
        member.step(input, now).unwrap();
        loop {
            let mut synced = None;
            while let Some(output) = member.poll() {
                match output {
                    Output::Append { group, id, content } => log.append_group_entry(group, id, &content).unwrap(),
                    Output::Copy { group, id, content } => {
                        let is_batch = content.len() > 1 && group != GroupId::CONTROL;
                        let has_items = is_batch && batch_head(&content).unwrap().has_items;
                        if self.copies_all || has_items {
                            log.append_group_copy(group, id, &content).unwrap();
                        }
                    }
                    Output::SetState { group, state } => log.set_group_state(group, &state).unwrap(),
                    Output::Sync { number } => synced = Some(number),
                    Output::Decided { decided, entries } => {
                        append_or_compare(log, reader, &decided.input, &decided.outcome, &entries)
                            .map_err(|error| error.to_string())?;
                        let of = decided.input.batches.iter().map(|batch| batch.group.node.0).collect();
                        self.decided.push((decided.outcome.epoch.0, of));
                    }
                    Output::Send { to, frame: Frame::Decided { epoch, digest } } => {
                        self.told.push((to.0, epoch.0, digest));
                    }
                    Output::Diverged { reason } | Output::Failed { reason, .. } => return Err(reason),
                    _ => {}
                }
            }
            log.sync().unwrap();
            let Some(number) = synced else { return Ok(()) };
            member.step(Input::Persisted(number), now).unwrap();
        }
    }

    /// Runs the command.
    fn recover(&mut self, again: bool) -> Result<(Accepted, bool), String> {
        let Ready { log, reader, image, keyer, deciding: Deciding::Member(member, _), .. } = self.start()? else {
            panic!("it is a member")
        };
        let stopped = StoppedNode { node: NodeId(1), log, reader, image, keyer, member, run: 9, again };
        let mut noted = false;
        let accepted = stopped.go_on_alone(|_| {
            noted = true;
            Ok(())
        });
        self.ready = None;
        accepted.map(|accepted| (accepted, noted)).map_err(|error| {
            assert!(!noted, "nothing may change: {error}");
            error
        })
    }

    /// Starts the process, and lets time pass until it has closed the groups of all other nodes.
    fn goes_on(&mut self) -> Result<(), String> {
        self.start()?;
        for _ in 0..400 {
            self.ms += TICK_MS;
            self.step(Input::Tick)?;
            let replica = self.replica();
            if replica.epochs().groups().map(|(group, _)| group).eq([group(1)])
                && replica.replicated().members().present().map(|node| node.id).eq([NodeId(1)])
            {
                return Ok(());
            }
        }
        let replica = self.replica();
        let waits = replica.epochs().groups().collect::<Vec<_>>();
        Err(format!("it waits after epoch {} for {waits:?}", replica.last_complete()))
    }

    fn replica(&self) -> &Replica<Channels, PolicySet, Workers> {
        let Some(Ready { deciding: Deciding::Member(member, _), .. }) = &self.ready else { panic!() };
        member.replica()
    }

    /// Returns the digest of all that the process has decided.
    fn state(&self) -> Digest {
        self.replica().resolver().digest()
    }

    fn digest(&self, epoch: u64) -> Option<Digest> {
        let Some(Ready { reader, .. }) = &self.ready else { panic!() };
        reader.outcome(Epoch(epoch)).unwrap().map(|outcome| outcome.digest)
    }
}

/// Returns a node whose link to node 3 was cut. Groups 1 and 2 have sealed all their epochs; of the group of node 3,
/// the log has the beginning of term 1 and `void` entries that were never committed, and the rest came through node 2.
fn cut_off(copies_all: bool, void: u64) -> (Node, Digest) {
    let mut node = Node { copies_all, ..Node::new() };
    for id in [1, 2] {
        let entries = [
            entry(1, 1, Vec::new()),
            entry(1, 2, sealed(id, (1, 5), Some(id as u8))),
            entry(1, 3, sealed(id, (6, 8), None)),
        ];
        node.write(group(id), &entries, 3);
    }
    let void = (2..2 + void).map(|index| entry(1, index, sealed(3, (index - 1, index - 1), Some(90))));
    node.write(group(3), &[entry(1, 1, Vec::new())].into_iter().chain(void).collect::<Vec<_>>(), 1);
    node.start().unwrap();
    assert!(node.decided.is_empty(), "nothing of node 3 is agreed on here");
    let by_peer = [
        entry(3, 2, Vec::new()),
        entry(3, 3, sealed(3, (1, 4), None)),
        entry(3, 4, sealed(3, (5, 5), Some(3))),
        entry(3, 5, sealed(3, (6, 7), Some(4))),
    ];
    node.receive(group(3), &by_peer);
    assert_eq!(node.decided, [(5, vec![1, 2, 3]), (7, vec![3])]);
    let digest = node.digest(7).unwrap();
    node.ready = None;
    (node, digest)
}

#[test]
fn what_was_decided_with_entries_of_peers_stays() {
    for void in 0..=4 {
        let (mut node, digest) = cut_off(true, void);
        let (accepted, _) = node.recover(false).unwrap();
        let all_was_agreed_on = Accepted { removed: vec![NodeId(2), NodeId(3)], in_doubt: Vec::new() };
        assert_eq!(accepted, all_was_agreed_on);
        node.goes_on().unwrap();
        assert_eq!((node.state(), node.digest(7)), (digest, Some(digest)), "the epochs have come again");
        node.goes_on().unwrap();
        assert_eq!(node.state(), digest);
    }
}

#[test]
fn a_member_that_appears_is_told_what_was_decided_before_and_a_difference_is_noticed() {
    let (mut node, _) = cut_off(true, 0);
    // The entries that the peer handed out are in the log now.
    let entries =
        [entry(3, 2, Vec::new()), entry(3, 3, sealed(3, (1, 4), None)), entry(3, 4, sealed(3, (5, 5), Some(3)))];
    node.write(group(3), &entries, 4);
    node.start().unwrap();
    let digest = node.state();
    let frame = |from, frame| Input::Frame { from: NodeId(from), frame };
    node.step(frame(2, Frame::Leaving)).unwrap();
    node.step(frame(2, Frame::Leaving)).unwrap();
    let last = node.replica().last_complete().0;
    assert_eq!(node.told, [(2, last, digest)], "once, without anything being decided");
    // The answer of node 2: it decided the same epoch differently, before either of the two was started.
    node.step(frame(2, Frame::Decided { epoch: Epoch(last), digest: Digest(digest.0 ^ 1) })).unwrap();
    let Some(Ready { deciding: Deciding::Member(member, _), .. }) = &node.ready else { panic!() };
    assert_eq!(member.odd_peers().keys().collect::<Vec<_>>(), [&NodeId(2)]);
    let third = Frame::Decided { epoch: Epoch(last), digest: Digest(digest.0 ^ 1) };
    let stops = node.step(frame(3, third)).unwrap_err();
    assert!(stops.contains("diverged from that of a majority"), "{stops}");
}

#[test]
fn what_would_be_lost_is_listed_and_nothing_changes() {
    // Entries 2 and 3 are missing, or the log has other entries at their indices.
    for (void, missing) in [(0, 2), (1, 3), (2, 3), (4, 3)] {
        let (mut node, _) = cut_off(false, void);
        let refused = node.recover(false).unwrap_err();
        let expected = format!("entry {missing} is missing");
        assert!(refused.contains("the log of node 3") && refused.contains(&expected), "{void}: {refused}");
        for txn in [3, 4] {
            assert!(refused.contains(&format!("{} namespace 1", TxnId([txn; 16]))), "{refused}");
        }
        assert!(
            refused.contains("2 transactions would be lost") && refused.contains("Nothing was changed"),
            "{refused}"
        );
    }
}

/// Returns all files in a directory and its subdirectories.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn entries_of_peers_stay_if_a_power_cut_interrupts_the_change() {
    const CUTS: usize = 16;
    let (mut node, digest) = cut_off(true, 1);
    // A start writes to the log, too.
    node.start().unwrap();
    node.ready = None;
    let log = log_dir(node.dir.path());
    let before = files(&log);
    node.recover(false).unwrap();
    let after = files(&log);
    let is_segment = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"));
    let changed = before.iter().filter(|(path, bytes)| is_segment(path) && after[*path] != **bytes);
    let [(segment, old)] = &changed.collect::<Vec<_>>()[..] else { panic!("it writes one segment") };
    let new = &after[*segment];
    let differs = |at: &usize| new[*at] != old.get(*at).copied().unwrap_or_default();
    let first = (0..new.len()).find(differs).unwrap();
    let end = (0..new.len()).rfind(differs).unwrap() + 1;
    for cut in 0..=CUTS {
        let upto = first + (end - first) * cut / CUTS;
        // Closing the log writes to it.
        node.ready = None;
        files(&log)
            .keys()
            .filter(|path| !before.contains_key(*path))
            .for_each(|path| std::fs::remove_file(path).unwrap());
        before.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let mut survived = (*old).clone();
        survived.resize(new.len(), 0);
        survived[first..upto].copy_from_slice(&new[first..upto]);
        std::fs::write(segment, survived).unwrap();
        node.recover(true).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        node.goes_on().unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        assert_eq!((node.state(), node.digest(7)), (digest, Some(digest)), "cut {cut}");
    }
}

/// Returns the content of an empty entry that includes the control entries up to `control`.
fn carrying(node: u16, control: u64) -> Vec<u8> {
    let (first, last) = (Epoch(1), Epoch(2));
    let control = ControlIndex(control);
    proposed(|content| {
        encode_batch(&Batch { group: group(node), first, last, control, clock_ms: 1, ..Batch::default() }, content)
    })
}

/// How much node 1 knows of the entries that admit node 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Applied,
    Agreed,
    InTheLog,
    OfAPeer,
}

#[test]
fn the_group_of_a_node_of_which_little_is_known_is_closed() {
    for known in [Known::Applied, Known::Agreed, Known::InTheLog, Known::OfAPeer] {
        let mut node = Node::new();
        let voters = [1, 2, 3].map(NodeId).to_vec();
        let admit = ControlChange::AdmitNode { name: "four".into(), address: "four:1".into(), voters };
        let join = ControlChange::JoinGroup(GroupJoin { group: group(4), first: Epoch(4) });
        let control = [entry(1, 1, Vec::new()), entry(1, 2, change(1, admit)), entry(1, 3, change(2, join))];
        match known {
            Known::Applied | Known::Agreed => node.write(GroupId::CONTROL, &control, 3),
            Known::InTheLog => node.write(GroupId::CONTROL, &control, 1),
            Known::OfAPeer => {
                node.write(GroupId::CONTROL, &control[..1], 1);
                node.start().unwrap();
                node.receive(GroupId::CONTROL, &control[1..]);
            }
        }
        let index = if known == Known::Applied { 2 } else { 0 };
        for id in 1..=3 {
            node.write(group(id), &[entry(1, 1, Vec::new()), entry(1, 2, carrying(id, index))], 2);
        }
        let begun = node.start().unwrap().replicated.members().node(NodeId(4)).is_some();
        assert_eq!(begun, known == Known::Applied);
        node.recover(false).unwrap();
        node.goes_on().unwrap_or_else(|error| panic!("{known:?}: {error}"));
    }
}
