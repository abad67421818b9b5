//! A follower whose disk is stuck: what it holds in memory, and how it catches up.

use tribunal_types::NodeId;

use super::cluster::Cluster;
use super::{GROUP, voters};
use crate::settings::UNPERSISTED_BYTES_MAX;
use crate::{Input, MESSAGE_BYTES_MAX, Refused};

/// Ticks from one heartbeat to the next.
const HEARTBEAT: usize = 2;

/// A cluster in which node 2's disk is stuck, after 80 MiB were proposed at node 1, slowly enough for a heartbeat
/// between two proposals.
fn stuck() -> Cluster {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.node(2).fast_disk = false;
    let mebibyte = "x".repeat(1 << 20);
    for _ in 0..80 {
        cluster.propose(&[&mebibyte]);
        cluster.ticks(HEARTBEAT);
        cluster.nodes.values_mut().for_each(|replica| replica.seen.clear());
    }
    assert_eq!([1, 2, 3].map(|node| cluster.node(node).proposals(GROUP).len()), [80, 0, 80]);
    cluster
}

#[test]
fn a_follower_whose_disk_is_stuck_holds_a_bounded_amount_and_catches_up_later() {
    for is_elected in [false, true] {
        let mut cluster = stuck();
        let held = cluster.node(2).log.pending_bytes();
        assert!(held + MESSAGE_BYTES_MAX > UNPERSISTED_BYTES_MAX, "the leader sends on: {held}");
        assert!(held < UNPERSISTED_BYTES_MAX + MESSAGE_BYTES_MAX, "{held}");
        assert!(!cluster.refused.is_empty());
        assert!(cluster.refused.iter().all(|refused| *refused == Refused::WritesPending), "{:?}", cluster.refused);
        // Every answer to a heartbeat makes the leader send something: it is dropped, with or without entries.
        let (refused, pending) = (cluster.refused.len(), cluster.node(2).log.pending());
        cluster.ticks(50 * HEARTBEAT);
        assert!(cluster.refused.len() >= refused + 50, "heartbeats are answered");
        assert_eq!(cluster.node(2).log.pending(), pending);
        if is_elected {
            cluster.node(3).step(Input::TakeOver(GROUP)).unwrap();
            cluster.settle();
            cluster.ticks(HEARTBEAT);
            assert_eq!(cluster.node(2).roles[&GROUP].0, Some(NodeId(3)), "a heartbeat names the new leader");
        }

        cluster.node(2).fast_disk = true;
        cluster.node(2).drain();
        cluster.ticks(10 * HEARTBEAT);
        let leader = cluster.leader(GROUP).unwrap();
        assert_eq!(leader, NodeId(if is_elected { 3 } else { 1 }));
        for proposals in [80, 81] {
            let expected = cluster.node(1).applied.clone();
            assert_eq!(cluster.node(1).proposals(GROUP).len(), proposals);
            let applied = [2, 3].map(|node| cluster.node(node).applied == expected);
            assert_eq!(applied, [true, true], "nothing is missing");
            // It follows as usual again.
            cluster.nodes.get_mut(&leader).unwrap().propose(GROUP, "last").unwrap();
            cluster.settle();
        }
    }
}

/// Two voters: the leader needs the stuck follower for every commit, and its own limit refuses proposals long before the
/// follower drops anything.
#[test]
fn a_leader_that_waits_for_the_stuck_disk_is_limited_by_its_own_bound() {
    let mut cluster = Cluster::led(2, voters(&[1, 2]));
    cluster.node(2).fast_disk = false;
    let mebibyte = "x".repeat(1 << 20);
    let taken = (0..40).take_while(|_| {
        let taken = cluster.node(1).propose(GROUP, &mebibyte).is_ok();
        cluster.settle();
        cluster.ticks(HEARTBEAT);
        taken
    });
    let taken = taken.count();
    cluster.ticks(50 * HEARTBEAT);
    assert!((30..=32).contains(&taken) && cluster.refused.is_empty(), "{taken}, {:?}", cluster.refused);
    cluster.node(2).fast_disk = true;
    cluster.node(2).drain();
    cluster.settle();
    assert_eq!(cluster.node(1).proposals(GROUP).len(), taken);
}
