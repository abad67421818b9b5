//! Bytes that are not a message, messages that no replica sends, and forged senders.

use bytes::Bytes;
use proptest::prelude::*;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use tribunal_types::{GroupId, Incarnation, NodeId};

use super::cluster::Cluster;
use super::{GROUP, decoded, settings, voters};
use crate::message::TYPES;
use crate::settings::{MESSAGE_BYTES_MAX, NUMBER_MAX};
use crate::{Input, RaftMessage, Refused};

/// Three nodes; node 1 leads in term 1 and has three entries.
fn three() -> Cluster {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.propose(&["a", "b"]);
    cluster.ticks(2);
    cluster
}

fn message(kind: MessageType, from: u16, to: u16, change: impl FnOnce(&mut Message)) -> RaftMessage {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (u64::from(from), u64::from(to), 1);
    change(&mut message);
    RaftMessage::new(GROUP, message)
}

fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    Entry { index, term, data: data.to_vec().into(), ..Entry::default() }
}

/// Returns a message after encoding and decoding; `None` if it cannot be decoded.
fn sent(message: &RaftMessage) -> Option<RaftMessage> {
    RaftMessage::decode(&message.encode().into()).ok()
}

#[test]
fn messages_survive_a_round_trip_and_no_cut() {
    let mut change = entry(9, 3, &[]);
    change.set_entry_type(EntryType::EntryConfChangeV2);
    let append = message(MessageType::MsgAppend, 1, 1023, |message| {
        (message.term, message.index, message.log_term, message.commit) = (4, 7, 2, 6);
        message.set_entries(vec![entry(8, 2, b"proposed\0"), change, entry(10, 4, b"")].into());
    });
    let vote = message(MessageType::MsgRequestVote, 2, 1, |message| {
        (message.index, message.log_term, message.commit, message.commit_term) = (5, 1, 4, 1);
        message.context = raft::CAMPAIGN_TRANSFER.into();
    });
    let rejected = message(MessageType::MsgAppendResponse, 2, 1, |message| {
        (message.reject, message.index, message.reject_hint, message.log_term) = (true, 9, 3, 1);
    });
    let snapshot = message(MessageType::MsgSnapshot, 1, 2, |message| {
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (30, 1);
    });
    let read = message(MessageType::MsgReadIndex, 2, 1, |message| {
        message.term = 0;
        message.set_entries(vec![entry(0, 0, b"name")].into());
    });
    for message in [append, vote, rejected, snapshot, read] {
        let bytes = Bytes::from(message.encode());
        assert_eq!(decoded(&bytes), message);
        assert_eq!((message.from().0, message.group()), (message.message.from as u16, GROUP));
        assert!(message.bytes() >= bytes.len(), "{message:?}");
        for cut in 0..bytes.len() {
            assert!(RaftMessage::decode(&bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
    }
    assert!(RaftMessage::decode(&vec![0; MESSAGE_BYTES_MAX + 1].into()).is_err());
}

#[test]
fn what_no_replica_sends_is_not_decoded() {
    let append = |change: &dyn Fn(&mut Message)| {
        let message = message(MessageType::MsgAppend, 1, 2, |message| {
            (message.index, message.log_term) = (3, 1);
            message.set_entries(vec![entry(4, 1, b"x\0")].into());
            change(message);
        });
        sent(&message).is_some()
    };
    assert!(append(&|_| {}));
    assert!(!append(&|message| message.log_term = 0), "raft-rs would append it after a gap");
    assert!(!append(&|message| message.mut_entries()[0].term = 2), "an entry of a later term");
    assert!(!append(&|message| message.mut_entries()[0].term = 0), "an entry of no term");
    assert!(!append(&|message| message.mut_entries()[0].data = vec![b'x', 7].into()), "an unknown kind of entry");
    assert!(!append(&|message| message.term = 0), "raft-rs would take it for a local message");
    assert!(!append(&|message| message.term = NUMBER_MAX + 1), "terms would overflow");
    assert!(!append(&|message| message.from = 0));
    assert!(!append(&|message| message.to = 1024));
    assert!(!append(&|message| message.context = vec![0; 33].into()));
    // A membership change whose bytes are invalid.
    assert!(!append(&|message| message.mut_entries()[0].data = vec![0x0B, 0x0B, 1].into()));
    for kind in [
        MessageType::MsgHup,
        MessageType::MsgBeat,
        MessageType::MsgPropose,
        MessageType::MsgUnreachable,
        MessageType::MsgSnapStatus,
        MessageType::MsgCheckQuorum,
        MessageType::MsgTransferLeader,
    ] {
        assert!(sent(&message(kind, 1, 2, |_| {})).is_none(), "{kind:?} is local");
    }
    let with_entries = message(MessageType::MsgHeartbeat, 1, 2, |message| {
        message.set_entries(vec![entry(1, 1, b"x\0")].into());
    });
    assert!(sent(&with_entries).is_none());
}

#[test]
fn senders_and_receivers_are_checked() {
    let mut cluster = three();
    let heartbeat = message(MessageType::MsgHeartbeat, 1, 2, |_| {});
    let node = cluster.node(2);
    let mut step = |from: u16, message: &RaftMessage| {
        node.step(Input::Message { from: NodeId(from), message: sent(message).unwrap() })
    };
    step(1, &heartbeat).unwrap();
    assert_eq!(step(3, &heartbeat), Err(Refused::Forged(NodeId(1))));
    let other_node = message(MessageType::MsgHeartbeat, 1, 3, |_| {});
    assert_eq!(step(1, &other_node), Err(Refused::Forged(NodeId(3))));
    let mut other_group = heartbeat.encode();
    other_group[1] = 9;
    let unknown = GroupId { node: NodeId(1), incarnation: Incarnation(9) };
    assert_eq!(step(1, &decoded(&other_group.into())), Err(Refused::UnknownGroup(unknown)));
    let stranger = message(MessageType::MsgAppendResponse, 9, 2, |_| {});
    assert_eq!(step(9, &stranger), Err(Refused::NotAMember(NodeId(9))));
    let usurper = message(MessageType::MsgTimeoutNow, 3, 2, |_| {});
    assert_eq!(step(3, &usurper), Err(Refused::NotLeader(NodeId(3))));
}

/// All of these panic in raft-rs.
#[test]
fn what_vouches_for_entries_that_are_not_there_is_refused() {
    let mut cluster = three();
    let heartbeat = message(MessageType::MsgHeartbeat, 1, 2, |message| message.commit = 99);
    let refused = cluster.node(2).step(Input::Message { from: NodeId(1), message: heartbeat });
    assert_eq!(refused, Err(Refused::PastLog { index: 99, last: 3 }));
    let forged = message(MessageType::MsgHeartbeat, 3, 2, |message| message.commit = 99);
    let refused = cluster.node(2).step(Input::Message { from: NodeId(3), message: forged });
    assert_eq!(refused, Err(Refused::NotLeader(NodeId(3))), "another node leads this term");
    let ack = message(MessageType::MsgAppendResponse, 2, 1, |message| message.index = NUMBER_MAX);
    let refused = cluster.node(1).step(Input::Message { from: NodeId(2), message: ack });
    assert_eq!(refused, Err(Refused::PastLeader { from: NodeId(2), index: NUMBER_MAX, last: 3 }));
    // A vote for a candidate that has not requested it yet: its log is not durable.
    let node = cluster.node(2);
    node.fast_disk = false;
    let append = message(MessageType::MsgAppend, 1, 2, |message| {
        (message.index, message.log_term, message.commit) = (3, 1, 3);
        message.set_entries(vec![entry(4, 1, b"c\0")].into());
    });
    node.step(Input::Message { from: NodeId(1), message: append }).unwrap();
    node.step(Input::TakeOver(GROUP)).unwrap();
    let vote = message(MessageType::MsgRequestVoteResponse, 3, 2, |message| message.term = 2);
    let refused = node.step(Input::Message { from: NodeId(3), message: vote });
    assert_eq!(refused, Err(Refused::WritesPending));
    // A read through a follower would be forwarded.
    let read = message(MessageType::MsgReadIndex, 3, 2, |message| {
        message.term = 0;
        message.set_entries(vec![entry(0, 0, b"name")].into());
    });
    let refused = node.step(Input::Message { from: NodeId(3), message: read });
    assert_eq!(refused, Err(Refused::NotLeader(NodeId(2))));
}

/// One message of a new leader replaces a suffix and commits the replacement: in the log, the commit index must not
/// precede those entries. The tests' log refuses to replace a committed entry.
#[test]
fn a_commit_index_is_written_after_the_entries_that_it_names() {
    let mut cluster = three();
    let node = cluster.node(2);
    for (from, term, commit) in [(1, 1, 3), (3, 2, 5)] {
        let append = message(MessageType::MsgAppend, from, 2, |message| {
            (message.term, message.index, message.log_term, message.commit) = (term, 3, 1, commit);
            message.set_entries(vec![entry(4, term, b"x\0"), entry(5, term, b"y\0")].into());
        });
        node.step(Input::Message { from: NodeId(from), message: append }).unwrap();
    }
    assert_eq!(node.proposals(GROUP), ["a", "b", "x", "y"]);
    let stored = node.log.durable(GROUP);
    assert_eq!((stored.state.term, stored.last().term), (2, 2));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = RaftMessage::decode(&bytes.into());
    }

    /// No decodable message of a member, in any role, changes committed state or panics.
    #[test]
    fn no_message_of_a_member_panics(
        kinds in proptest::collection::vec((0..TYPES.len(), 1..=3_u16, 1..=3_u16), 1..20),
        numbers in proptest::collection::vec(
            prop_oneof![4 => 0..6_u64, 1 => Just(NUMBER_MAX), 1 => any::<u64>()], 200),
        flags in any::<u64>(),
    ) {
        let mut cluster = three();
        let mut numbers = numbers.into_iter().cycle();
        for (at, (kind, from, to)) in kinds.into_iter().enumerate() {
            let mut next = || numbers.next().unwrap_or_default();
            let kind = TYPES[kind];
            let message = message(kind, from, to, |message| {
                message.term = next();
                (message.index, message.log_term) = (next(), next());
                (message.commit, message.commit_term, message.reject_hint) = (next(), next(), next());
                message.reject = flags >> at & 1 == 1;
                let first = message.index;
                let count = next() % 3;
                let entries = (1..=count).map(|at| entry(first.wrapping_add(at), next(), b"e\0"));
                message.set_entries(entries.collect::<Vec<_>>().into());
                let metadata = message.mut_snapshot().mut_metadata();
                (metadata.index, metadata.term) = (next(), next());
            });
            if let Some(message) = sent(&message) {
                let _ = cluster.node(to).step(Input::Message { from: NodeId(from), message });
            }
            if flags >> at & 2 == 2 {
                cluster.node(to).step(Input::Tick).unwrap();
            }
        }
        for node in 1..=3 {
            prop_assert_eq!(&cluster.node(node).proposals(GROUP)[..2], ["a", "b"]);
            cluster.node(node).restart(settings(50), 0);
        }
    }
}

/// In the last possible term, no node could ever be elected again.
#[test]
fn terms_that_no_elections_reach_are_refused() {
    let mut cluster = three();
    for kind in [MessageType::MsgAppend, MessageType::MsgHeartbeat, MessageType::MsgRequestVote] {
        let far = message(kind, 1, 2, |message| message.term = NUMBER_MAX);
        let refused = cluster.node(2).step(Input::Message { from: NodeId(1), message: sent(&far).unwrap() });
        assert_eq!(refused, Err(Refused::TermTooFar { term: NUMBER_MAX, own: 1 }));
    }
    let own = cluster.node(2).roles[&GROUP].1;
    let ahead = message(MessageType::MsgHeartbeat, 1, 2, |message| message.term = own + (1 << 20));
    cluster.node(2).step(Input::Message { from: NodeId(1), message: sent(&ahead).unwrap() }).unwrap();
}
