//! Three voters: elections, replication, takeovers and transfers.

use bytes::Bytes;
use tribunal_codec::EntryId;
use tribunal_types::NodeId;

use super::cluster::{Cluster, InFlight, Sent};
use super::{GROUP, voters};
use crate::{DurableUpTo, EntryKind, Input, Output, Refused};

/// A cluster led by node 1.
fn three() -> Cluster {
    let cluster = Cluster::led(3, voters(&[1, 2, 3]));
    assert_eq!(cluster.leader(GROUP), Some(NodeId(1)));
    cluster
}

#[test]
fn what_is_proposed_is_committed_everywhere_in_one_order() {
    let mut cluster = three();
    for text in ["a", "b", "c"] {
        cluster.node(1).propose(GROUP, text).unwrap();
    }
    cluster.settle();
    cluster.ticks(2);
    for node in 1..=3 {
        assert_eq!(cluster.node(node).proposals(GROUP), ["a", "b", "c"], "node {node}");
    }
}

#[test]
fn peers_get_what_was_handed_out_and_nothing_else() {
    let mut cluster = three();
    cluster.propose(&["a", "b"]);
    cluster.ticks(2);
    // No other node has it.
    cluster.cut_off = vec![NodeId(2), NodeId(3)];
    cluster.propose(&["c"]);
    let read = |cluster: &mut Cluster, node, after, bytes_max| {
        let entries = cluster.node(node).groups.handed_out_after(GROUP, after, bytes_max);
        let kind = |(id, content): &(EntryId, Bytes)| (id.term, id.index, EntryKind::of(content).unwrap());
        entries.iter().map(kind).collect::<Vec<_>>()
    };
    let proposal = |index, text: &'static str| (1, index, EntryKind::Proposal(Bytes::from_static(text.as_bytes())));
    let all = [(1, 1, EntryKind::TermBegins), proposal(2, "a"), proposal(3, "b")];
    for node in 1..=3 {
        assert_eq!(read(&mut cluster, node, 0, 1000), all, "node {node}");
        assert_eq!(cluster.node(node).groups.handed_out(GROUP), 3);
        assert_eq!(read(&mut cluster, node, 1, 1), all[1..2], "one in any case");
        assert_eq!(read(&mut cluster, node, 3, 1000), []);
        assert_eq!(read(&mut cluster, node, 99, 1000), []);
        assert_eq!(read(&mut cluster, node, u64::MAX, 1000), [], "a peer may ask for anything");
    }
    let node = cluster.node(2);
    node.save_image();
    node.step(Input::Compact { group: GROUP, upto: 2 }).unwrap();
    assert_eq!(read(&mut cluster, 2, 1, 1000), [], "compacted");
    assert_eq!(read(&mut cluster, 2, 2, 1000), all[2..]);
    assert!(EntryKind::of(&Bytes::from_static(&[7])).is_err());
}

#[test]
fn what_is_held_back_waits_in_the_log_and_is_handed_out_in_order() {
    let mut cluster = three();
    cluster.propose(&["a"]);
    cluster.ticks(2);
    cluster.node(2).groups.hold_back(GROUP, true);
    // Without node 2's acknowledgements, nothing more would be committed.
    cluster.cut_off = vec![NodeId(3)];
    cluster.propose(&["b", "c"]);
    cluster.ticks(2);
    assert_eq!(cluster.node(1).proposals(GROUP), ["a", "b", "c"]);
    assert_eq!(cluster.node(2).proposals(GROUP), ["a"]);
    assert_eq!(cluster.node(2).groups.held_back().collect::<Vec<_>>(), [GROUP]);
    cluster.node(2).groups.hold_back(GROUP, false);
    cluster.propose(&["d"]);
    cluster.ticks(2);
    assert_eq!(cluster.node(2).proposals(GROUP), ["a", "b", "c", "d"]);
    assert_eq!(cluster.node(2).groups.held_back().count(), 0);
}

#[test]
fn a_leader_sends_before_it_syncs_and_a_follower_acknowledges_after() {
    let mut cluster = three();
    for node in 1..=2 {
        cluster.node(node).fast_disk = false;
    }
    cluster.node(1).take_seen();
    cluster.node(1).propose(GROUP, "a").unwrap();
    let seen = cluster.node(1).take_seen();
    let is_send = |output: &Output| matches!(output, Output::Send { .. });
    assert!(is_send(&seen[0]) && is_send(&seen[1]), "{seen:?}");
    assert!(matches!(seen[2..], [Output::Append { .. }, Output::Sync { .. }]), "{seen:?}");

    cluster.node(2).take_seen();
    cluster.settle();
    let seen = cluster.node(2).take_seen();
    assert!(!seen.iter().any(is_send), "{seen:?}");
    assert!(seen.iter().any(|output| matches!(output, Output::Appended { .. })), "{seen:?}");
    cluster.node(2).complete_sync();
    assert!(cluster.node(2).take_seen().iter().any(is_send));
}

#[test]
fn followers_know_what_is_committed_from_each_other() {
    let mut cluster = three();
    cluster.node(1).fast_disk = false;
    cluster.node(1).propose(GROUP, "a").unwrap();
    // The leader's disk is stuck, and the followers' acknowledgements to it are lost.
    for _ in 0..2 {
        cluster.collect_sent();
        let (_, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut cluster.in_flight).into_iter().partition(|sent| sent.to == NodeId(1));
        others.iter().for_each(|sent| cluster.deliver(sent));
    }
    assert_eq!([1, 2, 3].map(|node| cluster.node(node).proposals(GROUP).len()), [0, 1, 1]);
    // A majority of two: the leader's disk and the follower's own.
    cluster.node(1).fast_disk = true;
    cluster.cut_off = vec![NodeId(3)];
    cluster.node(1).drain();
    cluster.node(1).propose(GROUP, "b").unwrap();
    cluster.collect_sent();
    let sent = std::mem::take(&mut cluster.in_flight);
    sent.iter().for_each(|sent| cluster.deliver(sent));
    assert_eq!([1, 2].map(|node| cluster.node(node).proposals(GROUP).len()), [0, 2]);
}

#[test]
fn what_is_committed_is_told_by_heartbeats_if_nothing_else_arrives() {
    let mut cluster = three();
    cluster.node(1).propose(GROUP, "a").unwrap();
    for told_is_lost in [true, false] {
        cluster.collect_sent();
        let sent = std::mem::take(&mut cluster.in_flight);
        let arrives = |sent: &&InFlight| matches!(sent.what, Sent::Message(_));
        sent.iter().filter(arrives).for_each(|sent| cluster.deliver(sent));
        cluster.nodes.values_mut().filter(|_| told_is_lost).for_each(|replica| replica.told.clear());
    }
    assert_eq!([1, 2, 3].map(|node| cluster.node(node).proposals(GROUP).len()), [1, 0, 0]);
    cluster.ticks(2);
    assert_eq!([1, 2, 3].map(|node| cluster.node(node).proposals(GROUP).len()), [1, 1, 1]);
}

#[test]
fn an_acknowledgement_that_was_lost_is_made_up_for() {
    let mut cluster = three();
    cluster.node(1).propose(GROUP, "a").unwrap();
    cluster.collect_sent();
    for message in std::mem::take(&mut cluster.in_flight) {
        cluster.deliver(&message);
    }
    for node in 2..=3 {
        assert_eq!(cluster.node(node).sent.len(), 1);
        cluster.node(node).sent.clear();
    }
    cluster.settle();
    assert!(cluster.node(1).proposals(GROUP).is_empty());
    cluster.ticks(4);
    for node in 1..=3 {
        assert_eq!(cluster.node(node).proposals(GROUP), ["a"], "node {node}");
    }
}

#[test]
fn what_is_told_of_another_term_or_by_a_stranger_counts_for_nothing() {
    let mut cluster = three();
    cluster.propose(&["a"]);
    let told = |term, index| vec![DurableUpTo { group: GROUP, term, index }];
    cluster.node(1).propose(GROUP, "b").unwrap();
    cluster.collect_sent();
    let sent = std::mem::take(&mut cluster.in_flight);
    sent.iter().filter(|sent| matches!(sent.what, Sent::Message(_))).for_each(|sent| cluster.deliver(sent));
    for upto in [told(0, 3), told(2, 3), told(1, 2)] {
        cluster.node(2).step(Input::Durable { from: NodeId(3), upto }).unwrap();
        assert_eq!(cluster.node(2).proposals(GROUP), ["a"]);
    }
    // Reports of nodes outside the group do not count, nor do indices past the own log.
    cluster.node(2).step(Input::Durable { from: NodeId(4), upto: told(1, 3) }).unwrap();
    assert_eq!(cluster.node(2).proposals(GROUP), ["a"]);
    let forged = cluster.node(2).step(Input::Durable { from: NodeId(2), upto: told(1, 3) });
    assert_eq!(forged, Err(Refused::Forged(NodeId(2))));
    cluster.node(2).step(Input::Durable { from: NodeId(3), upto: told(1, u64::MAX) }).unwrap();
    assert_eq!(cluster.node(2).proposals(GROUP), ["a", "b"]);
}

/// A node whose disk is stuck is not considered dead, as long as its promises are durable.
#[test]
fn heartbeats_are_answered_while_entries_wait_for_the_disk() {
    let mut cluster = three();
    cluster.node(2).fast_disk = false;
    cluster.propose(&["a"]);
    let answers = |cluster: &mut Cluster| {
        cluster.node(1).sent.clear();
        for _ in 0..2 {
            cluster.node(1).step(Input::Tick).unwrap();
        }
        cluster.collect_sent();
        for message in std::mem::take(&mut cluster.in_flight) {
            cluster.deliver(&message);
        }
        let sent = std::mem::take(&mut cluster.node(2).sent);
        sent.iter().map(|(_, bytes)| super::decoded(bytes).is_heartbeat()).collect::<Vec<_>>()
    };
    assert_eq!(answers(&mut cluster), [true], "the acknowledgement waits, the answer does not");

    // A term that is not durable must not be sent to any node.
    cluster.node(3).step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    cluster.node(1).step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    assert!(cluster.leader(GROUP).is_some());
    assert!(answers(&mut cluster).is_empty());
    while !cluster.node(2).syncs.is_empty() {
        cluster.node(2).complete_sync();
    }
    assert!(!cluster.node(2).sent.is_empty());
}

#[test]
fn several_batches_are_in_flight_and_one_report_may_cover_several_syncs() {
    let mut cluster = three();
    cluster.node(1).fast_disk = false;
    let mut expected = Vec::new();
    for n in 0..6 {
        cluster.node(1).propose(GROUP, &n.to_string()).unwrap();
        expected.push(n.to_string());
    }
    assert_eq!(cluster.node(1).syncs.len(), 6);
    assert_eq!(cluster.node(1).sent.len(), 12, "each of them was sent to both");
    cluster.settle();
    assert!(cluster.node(1).proposals(GROUP).is_empty(), "committed by the others, and not durable here");
    let node = cluster.node(1);
    let (number, _) = *node.syncs.back().unwrap();
    node.syncs.clear();
    let pending = node.log.pending();
    node.log.sync(pending);
    node.step(Input::Persisted(number)).unwrap();
    assert_eq!(cluster.node(1).proposals(GROUP), expected);
}

#[test]
fn the_votes_of_a_node_are_held_until_they_are_durable() {
    let mut cluster = Cluster::new(3, &[(GROUP, voters(&[1, 2, 3]))]);
    for node in 2..=3 {
        cluster.node(node).fast_disk = false;
    }
    cluster.node(1).step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), None);
    assert_eq!(cluster.node(2).log.durable(GROUP).state.vote, 0);
    cluster.node(2).complete_sync();
    assert_eq!(cluster.node(2).log.durable(GROUP).state.vote, 1);
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), Some(NodeId(1)));
}

#[test]
fn a_proposal_to_a_follower_is_refused_and_not_forwarded() {
    let mut cluster = three();
    assert_eq!(cluster.node(2).propose(GROUP, "a"), Err(Refused::NotLeader(NodeId(2))));
    cluster.settle();
    cluster.ticks(3);
    assert!(cluster.node(1).proposals(GROUP).is_empty());
}

/// The leader's disk is stuck, and it sends heartbeats: an ordinary election fails, a takeover succeeds.
#[test]
fn a_takeover_replaces_a_leader_that_still_sends_heartbeats() {
    let mut cluster = three();
    cluster.node(1).fast_disk = false;
    cluster.node(1).propose(GROUP, "stuck").unwrap();
    cluster.node(1).sent.clear();
    cluster.ticks(30);
    assert_eq!(cluster.leader(GROUP), Some(NodeId(1)), "its heartbeats keep it the leader");
    cluster.node(2).step(Input::Campaign(GROUP)).unwrap();
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), Some(NodeId(1)), "the others still receive its heartbeats");
    cluster.ticks(3);

    cluster.node(2).step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), Some(NodeId(2)));
    cluster.node(2).propose(GROUP, "for it").unwrap();
    cluster.settle();
    let mut term_begun = cluster.node(2).take_seen().into_iter();
    assert!(term_begun.any(|output| matches!(output, Output::TermBegun { leading: true, .. })));

    // The disk works again, and the home node regains its leadership.
    cluster.node(1).fast_disk = true;
    cluster.node(1).drain();
    cluster.ticks(3);
    cluster.node(2).step(Input::TransferLeader { group: GROUP, to: NodeId(1) }).unwrap();
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), Some(NodeId(1)));
    cluster.node(1).propose(GROUP, "back").unwrap();
    cluster.settle();
    cluster.ticks(2);
    for node in 1..=3 {
        // "stuck" reached the other nodes when it was resent, or it is lost on all of them.
        let proposals = cluster.node(node).proposals(GROUP).join(" ");
        assert!(proposals.ends_with("for it back"), "node {node}: {proposals}");
    }
}

#[test]
fn a_cut_off_leader_steps_down_and_its_proposals_are_replaced() {
    let mut cluster = three();
    cluster.cut_off = vec![NodeId(1)];
    cluster.node(1).propose(GROUP, "lost").unwrap();
    cluster.ticks(40);
    let leader = cluster.leader(GROUP).unwrap();
    assert_ne!(leader, NodeId(1));
    assert_eq!(cluster.node(1).roles[&GROUP].0, None, "no majority: it leads no more");
    cluster.nodes.get_mut(&leader).unwrap().propose(GROUP, "kept").unwrap();
    cluster.settle();
    cluster.cut_off.clear();
    cluster.ticks(10);
    for node in 1..=3 {
        assert_eq!(cluster.node(node).proposals(GROUP), ["kept"], "node {node}");
    }
}
