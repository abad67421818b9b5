//! Followers that lag too far, logs with a compacted prefix, and unreadable logs.

use tribunal_codec::EntryId;
use tribunal_types::NodeId;

use super::cluster::{Cluster, Sent};
use super::{GROUP, settings, voters};
use crate::{BadGroup, GroupPoint, Input, Output, RaftGroups, Refused, StoredGroup};

/// Node 3 is cut off while the other nodes commit `a` to `j` and compact them.
fn left_behind() -> Cluster {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.cut_off = vec![NodeId(3)];
    cluster.propose(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
    cluster.ticks(2);
    for node in 1..=2 {
        compact(&mut cluster, node);
    }
    cluster.cut_off.clear();
    cluster.node(3).take_seen();
    cluster
}

fn compact(cluster: &mut Cluster, node: u16) {
    let replica = cluster.node(node);
    replica.save_image();
    let upto = replica.point(GROUP).id.index;
    replica.step(Input::Compact { group: GROUP, upto }).unwrap();
    replica.step(Input::Tick).unwrap();
    assert_eq!(replica.log.stored(GROUP).state.compacted.index, upto);
}

fn needed(cluster: &mut Cluster, node: u16) -> Vec<EntryId> {
    let seen = cluster.node(node).take_seen().into_iter();
    seen.filter_map(|output| match output {
        Output::NeedsImage { at_least, leader, .. } => {
            assert_eq!(leader, NodeId(1));
            Some(at_least)
        }
        _ => None,
    })
    .collect()
}

#[test]
fn a_follower_too_far_behind_needs_an_image_and_goes_on_from_it() {
    let mut cluster = left_behind();
    cluster.ticks(8);
    let needed = needed(&mut cluster, 3);
    let compacted = cluster.node(1).log.stored(GROUP).before;
    assert_eq!(needed, [compacted], "once, although the leader repeats it");
    assert!(cluster.node(3).proposals(GROUP).is_empty());

    // Meanwhile the group continues.
    cluster.propose(&["k"]);
    let image = cluster.node(2).applied.clone();
    cluster.node(3).install(image);
    cluster.ticks(3);
    cluster.propose(&["l"]);
    cluster.ticks(2);
    let expected = cluster.node(1).proposals(GROUP).join("");
    assert_eq!(expected, "abcdefghijkl");
    assert_eq!(cluster.node(3).proposals(GROUP).join(""), expected);
    let handed_out = cluster.node(3).take_seen().into_iter();
    let handed_out = handed_out.filter(|output| matches!(output, Output::Committed { .. })).count();
    assert!(handed_out <= 2, "what the image includes was handed out: {handed_out}");

    // And again after a restart, from the log alone.
    cluster.node(3).save_image();
    cluster.node(3).restart(settings(33), 0);
    cluster.ticks(4);
    cluster.propose(&["m"]);
    cluster.ticks(2);
    assert_eq!(cluster.node(3).proposals(GROUP).join(""), "abcdefghijklm");
}

/// The leader's messages that announce compacted entries are lost; it resends them by itself.
#[test]
fn the_announcement_of_compacted_entries_is_repeated_until_it_arrives() {
    let mut cluster = left_behind();
    for _ in 0..3 {
        // Heartbeats and their responses pass, so that the leader considers the node alive.
        cluster.node(1).step(Input::Tick).unwrap();
        cluster.collect_sent();
        for message in std::mem::take(&mut cluster.in_flight) {
            let is_snapshot =
                matches!(&message.what, Sent::Message(bytes) if super::decoded(bytes).message.has_snapshot());
            if !is_snapshot {
                cluster.deliver(&message);
            }
        }
        cluster.collect_sent();
        for message in std::mem::take(&mut cluster.in_flight) {
            cluster.deliver(&message);
        }
    }
    assert!(needed(&mut cluster, 3).is_empty());
    cluster.ticks(30);
    assert_eq!(needed(&mut cluster, 3).len(), 1);
}

#[test]
fn an_image_that_became_durable_just_before_a_crash_is_enough_for_a_start() {
    let mut cluster = left_behind();
    let image = cluster.node(2).applied.clone();
    let replica = cluster.node(3);
    replica.image = image;
    replica.restart(settings(34), 0);
    assert_eq!(replica.proposals(GROUP).join(""), "abcdefghij");
    cluster.ticks(4);
    cluster.propose(&["k"]);
    cluster.ticks(2);
    assert_eq!(cluster.node(3).proposals(GROUP).join(""), "abcdefghijk");
}

/// raft-rs panics if an election begins before the image is durable.
#[test]
fn no_election_begins_before_an_installed_image_is_durable() {
    let mut cluster = left_behind();
    let image = cluster.node(2).applied.clone();
    let replica = cluster.node(3);
    replica.fast_disk = false;
    replica.install(image);
    assert_eq!(replica.step(Input::Campaign(GROUP)), Err(Refused::WritesPending));
    assert_eq!(replica.step(Input::TakeOver(GROUP)), Err(Refused::WritesPending));
    let term = replica.log.stored(GROUP).state.term;
    (0..40).for_each(|_| replica.step(Input::Tick).unwrap());
    assert_eq!(replica.log.stored(GROUP).state.term, term);
    replica.fast_disk = true;
    replica.drain();
    replica.step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), Some(NodeId(3)));
}

/// All groups share one state machine: an image that one group needs may include less of another group than was already
/// applied.
#[test]
fn what_follows_an_older_image_is_handed_out_again() {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.propose(&["a"]);
    cluster.ticks(2);
    let image = cluster.node(2).applied.clone();
    cluster.propose(&["b", "c"]);
    cluster.ticks(2);
    for node in 1..=3 {
        cluster.node(node).install(image.clone());
        assert_eq!(cluster.node(node).proposals(GROUP), ["a", "b", "c"], "node {node}");
    }
    compact(&mut cluster, 3);
    let point = GroupPoint { id: EntryId { term: 1, index: 2 }, members: voters(&[1, 2, 3]) };
    let refused = cluster.node(3).step(Input::Install { group: GROUP, point });
    assert_eq!(refused, Err(Refused::Compacted(2)));
}

#[test]
fn a_log_with_a_compacted_prefix_is_started_from_its_image_only() {
    let mut cluster = left_behind();
    let replica = cluster.node(2);
    let state = replica.log.stored(GROUP).state;
    let mut groups = RaftGroups::new(NodeId(2), settings(9), replica.log.clone());
    let applied = GroupPoint { id: EntryId::default(), members: voters(&[1, 2, 3]) };
    let refused = groups.add_group(StoredGroup { group: GROUP, state: state.clone(), applied });
    assert!(matches!(refused, Err(BadGroup::Inconsistent { .. })), "{refused:?}");

    let stored = StoredGroup { group: GROUP, state, applied: replica.point(GROUP).clone() };
    groups.add_group(stored.clone()).unwrap();
    assert_eq!(groups.add_group(stored), Err(BadGroup::Twice(GROUP)));
    let handed_out = std::iter::from_fn(|| groups.poll()).count();
    assert_eq!(handed_out, 0);
}

/// raft-rs panics when it cannot read an entry.
#[test]
fn a_group_whose_log_cannot_be_read_stops_and_the_node_goes_on() {
    let mut cluster = Cluster::led(3, voters(&[1, 2, 3]));
    cluster.propose(&["a", "b"]);
    cluster.ticks(2);
    // Nothing is durably applied, so the start applies everything again.
    cluster.node(1).log.damage(GROUP, 3);
    cluster.node(1).restart(settings(5), usize::MAX);
    let seen = cluster.node(1).take_seen();
    let failed = seen.iter().position(|output| matches!(output, Output::Failed { .. }));
    assert!(failed.is_some(), "{seen:?}");
    assert!(!seen.iter().any(|output| matches!(output, Output::Committed { .. })), "{seen:?}");
    assert_eq!(cluster.node(1).step(Input::TakeOver(GROUP)), Err(Refused::Stopped));
    assert_eq!(cluster.node(1).propose(GROUP, "c"), Err(Refused::Stopped));
    cluster.ticks(40);
    let leader = cluster.leader(GROUP).unwrap();
    assert_ne!(leader, NodeId(1));
}
