//! Frames of other nodes: whatever decodes comes back the same, and no group of a node panics at it.
//!
//! The nodes keep their groups' logs in memory and sync at once. What a node has to send is what the corpus begins with.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use tribunal_codec::EntryId;
use tribunal_member::{FRAME_BYTES_MAX, Frame, Part, PeerEntries, Pull};
use tribunal_raft::{GroupLog, GroupPoint, Input, Members, Output, RaftGroups, Settings, StoredGroup};
use tribunal_types::{ControlChange, ControlEntry, Digest, Epoch, GroupId, Incarnation, NodeId};

/// The node that receives.
const ME: NodeId = NodeId(2);
const GROUP: GroupId = GroupId { node: NodeId(1), incarnation: Incarnation(1) };

/// Term and content of each entry, by group and index.
type Entries = BTreeMap<(GroupId, u64), (u64, Vec<u8>)>;

/// The logs of all groups.
#[derive(Clone, Default)]
struct InMemory(Rc<RefCell<Entries>>);

impl InMemory {
    fn append(&self, group: GroupId, id: EntryId, content: &Bytes) {
        let mut entries = self.0.borrow_mut();
        entries.retain(|(known, index), _| *known != group || *index < id.index);
        entries.insert((group, id.index), (id.term, content.to_vec()));
    }
}

impl GroupLog for InMemory {
    type Error = &'static str;

    fn bounds(&self, group: GroupId) -> (EntryId, EntryId) {
        let entries = self.0.borrow();
        let last = entries.range((group, 0)..=(group, u64::MAX)).next_back();
        (
            EntryId::default(),
            last.map(|((_, index), (term, _))| EntryId { term: *term, index: *index }).unwrap_or_default(),
        )
    }

    fn term(&self, group: GroupId, index: u64) -> Option<u64> {
        if index == 0 { Some(0) } else { self.0.borrow().get(&(group, index)).map(|(term, _)| *term) }
    }

    fn entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, &'static str> {
        Ok(self.0.borrow().get(&(group, index)).map(|(_, content)| content.clone()))
    }
}

/// One node's groups.
struct Node {
    groups: RaftGroups<InMemory>,
    log: InMemory,
}

impl Node {
    fn new(me: NodeId) -> Node {
        let log = InMemory::default();
        let mut groups = RaftGroups::new(me, Settings::default(), log.clone());
        let members = Members::first([NodeId(1), NodeId(2), NodeId(3)]);
        for group in [GroupId::CONTROL, GROUP] {
            let applied = GroupPoint { members: members.clone(), ..GroupPoint::default() };
            groups.add_group(StoredGroup { group, applied, ..StoredGroup::default() }).expect("a new group");
        }
        Node { groups, log }
    }

    /// Carries out what is to be done; returns what is to be sent.
    fn follow(&mut self) -> Vec<Frame> {
        let mut sent = Vec::new();
        while let Some(output) = self.groups.poll() {
            match output {
                Output::Append { group, id, content } => self.log.append(group, id, &content),
                Output::Sync { number } => self.groups.step(Input::Persisted(number)).expect("its own sync"),
                Output::Send { message, .. } => sent.push(Frame::Raft(message)),
                Output::Durable { upto, .. } => sent.push(Frame::Durable(upto)),
                _ => {}
            }
        }
        sent
    }

    /// Takes a message, as if from the node that it names, or from node 1; tells whether it was taken.
    fn take(&mut self, frame: Frame) -> bool {
        let input = match frame {
            Frame::Raft(message) => Input::Message { from: message.from(), message },
            Frame::Durable(upto) => Input::Durable { from: NodeId(1), upto },
            _ => return true,
        };
        self.groups.step(input).is_ok()
    }
}

/// Decodes a frame and brings it to a node that has begun a term; tells whether it was one.
pub fn run(data: &[u8]) -> bool {
    let Ok(frame) = Frame::decode(&Bytes::copy_from_slice(data)) else { return false };
    let encoded = Bytes::from(frame.encode());
    assert!(encoded.len() <= FRAME_BYTES_MAX);
    assert_eq!(Frame::decode(&encoded).as_ref(), Ok(&frame));
    let mut node = Node::new(ME);
    node.groups.step(Input::Campaign(GROUP)).expect("it is a voter");
    node.follow();
    node.take(frame);
    (0..40).for_each(|_| {
        node.groups.step(Input::Tick).expect("time passes");
        node.follow();
    });
    true
}

/// Returns what nodes send each other while one of them is elected and proposes, or cannot be reached, and a change of
/// configuration.
#[must_use]
pub fn made() -> Vec<Vec<u8>> {
    let (mut one, mut two) = (Node::new(NodeId(1)), Node::new(ME));
    one.groups.step(Input::Campaign(GROUP)).expect("it is a voter");
    let mut made = Vec::new();
    for round in 0..12 {
        let sent = one.follow();
        sent.into_iter().for_each(|frame| {
            made.push(frame.encode());
            two.take(frame);
        });
        let answers = two.follow();
        answers.into_iter().for_each(|frame| {
            made.push(frame.encode());
            one.take(frame);
        });
        if round == 6 {
            one.groups.propose(GROUP, vec![7; 300]).expect("it leads");
            one.groups.step(Input::ReadIndex { group: GROUP, context: 9 }).expect("it leads");
        }
    }
    let change = ControlChange::RevokeKey { id: "k".into() };
    let entry = Box::new(ControlEntry::from(change));
    let entries = one.groups.handed_out_after(GROUP, 0, 1000);
    assert!(!entries.is_empty(), "something is agreed on");
    let entries = PeerEntries { group: GROUP, handed_out: one.groups.handed_out(GROUP), entries };
    let frames = [
        Frame::Control(entry.clone()),
        Frame::Relay(entry),
        Frame::Ask { group: GROUP, after: 1 },
        Frame::Entries(entries),
        Frame::Leaving,
        Frame::Deliveries(Bytes::from_static(b"\0")),
        Frame::Decided { epoch: Epoch(300), digest: Digest(7) },
        Frame::Pull(Pull { transfer: 3, name: "component/7".into(), offset: 300 }),
        Frame::Part(Part { transfer: 3, offset: 300, total: 310, bytes: Bytes::from_static(b"0123456789") }),
        Frame::Absent { transfer: 3, reason: "it is gone".into() },
    ];
    made.extend(frames.iter().map(Frame::encode));
    made
}
