//! State that survives a crash: votes, terms, entries; and the replacement of uncommitted entries.

use tribunal_types::NodeId;

use super::cluster::Cluster;
use super::{GROUP, settings, voters};
use crate::{Input, Output, Refused};

/// Nodes 1 and 3 run for election in the same term. Node 2 votes for node 1 and crashes before it receives a request
/// from node 3. Returns the leaders and their terms.
fn two_candidates(forgets_votes: bool) -> Vec<(NodeId, u64)> {
    let mut cluster = Cluster::new(3, &[(GROUP, voters(&[1, 2, 3]))]);
    for node in [1, 3] {
        cluster.node(node).step(Input::TakeOver(GROUP)).unwrap();
    }
    cluster.collect_sent();
    let (to_2, _): (Vec<_>, Vec<_>) =
        std::mem::take(&mut cluster.in_flight).into_iter().partition(|message| message.to == NodeId(2));
    cluster.node(2).fast_disk = false;
    cluster.deliver(to_2.iter().find(|message| message.from == NodeId(1)).unwrap());
    assert!(cluster.node(2).sent.is_empty(), "the vote is not durable");
    if forgets_votes {
        // The planted bug: a record reported as durable is not.
        let (number, _) = cluster.node(2).syncs.pop_front().unwrap();
        cluster.node(2).step(Input::Persisted(number)).unwrap();
    } else {
        cluster.node(2).complete_sync();
    }
    cluster.collect_sent();
    for vote in std::mem::take(&mut cluster.in_flight) {
        cluster.deliver(&vote);
    }
    cluster.nodes.values_mut().for_each(|replica| replica.sent.clear());

    cluster.node(2).fast_disk = true;
    cluster.node(2).restart(settings(8), 0);
    cluster.deliver(to_2.iter().find(|message| message.from == NodeId(3)).unwrap());
    cluster.collect_sent();
    for answer in std::mem::take(&mut cluster.in_flight) {
        cluster.deliver(&answer);
    }
    let leads = cluster.nodes.values().filter(|replica| replica.leads(GROUP));
    leads.map(|replica| (replica.node, replica.roles[&GROUP].1)).collect()
}

#[test]
fn a_vote_survives_a_crash() {
    assert_eq!(two_candidates(false), [(NodeId(1), 1)]);
}

/// The same with a vote that was sent before it was durable: the failure that the test above would detect.
#[test]
fn without_durable_votes_a_term_has_two_leaders() {
    assert_eq!(two_candidates(true), [(NodeId(1), 1), (NodeId(3), 1)]);
}

#[test]
fn what_a_majority_has_survives_when_all_crash() {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.propose(&["a", "b"]);
    cluster.node(1).fast_disk = false;
    cluster.node(2).fast_disk = false;
    // Sent only to node 2, and durable nowhere.
    cluster.cut_off = vec![NodeId(3)];
    cluster.node(1).propose(GROUP, "lost").unwrap();
    cluster.settle();
    cluster.cut_off.clear();
    for node in 1..=3 {
        cluster.node(node).fast_disk = true;
        cluster.node(node).restart(settings(10 + u64::from(node)), 0);
    }
    cluster.ticks(60);
    let leader = cluster.leader(GROUP).unwrap();
    cluster.nodes.get_mut(&leader).unwrap().propose(GROUP, "c").unwrap();
    cluster.ticks(3);
    for node in 1..=3 {
        assert_eq!(cluster.node(node).proposals(GROUP), ["a", "b", "c"], "node {node}");
    }
}

/// The commit index is written lazily: a state machine ahead of it is no contradiction.
#[test]
fn a_durable_state_machine_may_be_ahead_of_the_written_commit_index() {
    let mut cluster = Cluster::new(1, &[(GROUP, voters(&[1]))]);
    cluster.node(1).step(Input::Campaign(GROUP)).unwrap();
    cluster.node(1).propose(GROUP, "a").unwrap();
    let replica = cluster.node(1);
    assert_eq!((replica.log.durable(GROUP).state.commit, replica.point(GROUP).id.index), (0, 2));
    replica.save_image();
    replica.restart(settings(3), 0);
    replica.step(Input::Campaign(GROUP)).unwrap();
    replica.propose(GROUP, "b").unwrap();
    assert_eq!(replica.proposals(GROUP), ["a", "b"]);
}

#[test]
fn a_suffix_that_was_not_committed_is_replaced_in_the_log_too() {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.cut_off = vec![NodeId(1)];
    for text in ["x", "y", "z"] {
        cluster.node(1).propose(GROUP, text).unwrap();
    }
    assert_eq!(cluster.node(1).log.durable(GROUP).last().index, 4);
    cluster.ticks(40);
    let leader = cluster.leader(GROUP).unwrap();
    cluster.nodes.get_mut(&leader).unwrap().propose(GROUP, "a").unwrap();
    cluster.settle();
    cluster.cut_off.clear();
    cluster.ticks(20);
    let expected = cluster.nodes[&leader].log.durable(GROUP).entries;
    assert_eq!(cluster.node(1).log.durable(GROUP).entries, expected);
    assert_eq!(cluster.node(1).proposals(GROUP), ["a"]);
    // The loss is reported: another term began.
    let seen = cluster.node(1).take_seen().into_iter();
    let begun = seen.filter(|output| matches!(output, Output::TermBegun { leading: false, .. })).count();
    assert_eq!(begun, 1);
}

#[test]
fn too_much_that_is_not_committed_is_refused() {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.cut_off = vec![NodeId(1)];
    let megabyte = "x".repeat(1 << 20);
    let taken = (0..40).take_while(|_| cluster.node(1).propose(GROUP, &megabyte).is_ok()).count();
    assert!((30..=32).contains(&taken), "{taken}");
    assert_eq!(
        cluster.node(1).propose(GROUP, "small"),
        Ok(tribunal_codec::EntryId { term: 1, index: 2 + taken as u64 })
    );
    let long = "x".repeat(crate::PAYLOAD_BYTES_MAX + 1);
    assert_eq!(cluster.node(1).propose(GROUP, &long), Err(Refused::TooLong(long.len())));
}

#[test]
fn reads_get_an_index_that_includes_what_was_committed_before() {
    let mut cluster = Cluster::new(3, &[(GROUP, voters(&[1, 2, 3]))]);
    assert_eq!(cluster.node(2).step(Input::ReadIndex { group: GROUP, context: 1 }), Err(Refused::NoLeader));
    cluster.node(1).step(Input::Campaign(GROUP)).unwrap();
    cluster.settle();
    cluster.propose(&["a"]);
    let committed = cluster.node(1).point(GROUP).id.index;
    for node in 1..=3 {
        cluster.node(node).take_seen();
        // The same context twice: both reads are answered.
        cluster.node(node).step(Input::ReadIndex { group: GROUP, context: 5 }).unwrap();
        cluster.node(node).step(Input::ReadIndex { group: GROUP, context: 5 }).unwrap();
        cluster.settle();
        let seen = cluster.node(node).take_seen().into_iter();
        let answers = seen.filter_map(|output| match output {
            Output::ReadState { index, context, .. } => Some((index, context)),
            _ => None,
        });
        assert_eq!(answers.collect::<Vec<_>>(), [(committed, 5), (committed, 5)], "node {node}");
    }
    // A leader without a majority answers none, and reports that when it steps down.
    cluster.cut_off = vec![NodeId(1)];
    cluster.node(1).step(Input::ReadIndex { group: GROUP, context: 6 }).unwrap();
    cluster.ticks(40);
    let seen = cluster.node(1).take_seen();
    assert!(!seen.iter().any(|output| matches!(output, Output::ReadState { .. })), "{seen:?}");
    assert!(seen.contains(&Output::ReadLost { group: GROUP, context: 6 }), "{seen:?}");
}
