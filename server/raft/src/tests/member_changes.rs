//! Members join and leave, and the members are known after a restart.

use tribunal_types::NodeId;

use super::cluster::{Cluster, Sent};
use super::{GROUP, settings, voters};
use crate::{DurableUpTo, Input, Members, Output, Refused};

/// Four nodes, of which 1 to 3 are voters and 1 leads.
fn four() -> Cluster {
    let mut cluster = Cluster::led(4, voters(&[1, 2, 3]));
    cluster.propose(&["a"]);
    cluster
}

fn change(cluster: &mut Cluster, members: &Members) {
    cluster.node(1).groups.propose_members(GROUP, members).unwrap();
    cluster.node(1).drain();
    cluster.settle();
    cluster.ticks(6);
}

#[test]
fn a_voter_joins_another_leaves_and_the_joint_state_ends_by_itself() {
    let mut cluster = four();
    change(&mut cluster, &voters(&[1, 2, 4]));
    let seen = cluster.node(1).take_seen().into_iter();
    let changes = seen.filter_map(|output| match output {
        Output::MembersChanged { members, .. } => Some((members.is_joint(), members.voters.len())),
        _ => None,
    });
    assert_eq!(changes.collect::<Vec<_>>(), [(true, 3), (false, 3)]);
    for node in [1, 2, 4] {
        let members = &cluster.node(node).point(GROUP).members;
        assert_eq!((members.is_joint(), &members.voters), (false, &voters(&[1, 2, 4]).voters), "node {node}");
        assert_eq!(cluster.node(node).proposals(GROUP), ["a"]);
    }
    // A majority of the new members is enough.
    cluster.cut_off = vec![NodeId(2)];
    cluster.propose(&["b"]);
    assert_eq!(cluster.node(1).proposals(GROUP), ["a", "b"]);
}

#[test]
fn members_are_known_after_a_restart_whatever_is_applied_durably() {
    let mut cluster = four();
    let mut learner = voters(&[1, 2, 3]);
    learner.learners.insert(NodeId(4));
    change(&mut cluster, &learner);
    let members = cluster.node(2).point(GROUP).members.clone();
    assert_eq!(members.learners, learner.learners);
    for saves in [false, true] {
        if saves {
            cluster.node(2).save_image();
        }
        cluster.node(2).restart(settings(9), 0);
        assert_eq!(cluster.node(2).groups.members(GROUP), Some(&members), "from the log, not from the image");
        cluster.ticks(3);
        assert_eq!(cluster.node(2).point(GROUP).members, members);
    }
    assert_eq!(Members::decode(&cluster.node(2).log.durable(GROUP).state.members).unwrap(), members);
}

#[test]
fn a_learner_is_caught_up_once_it_has_acknowledged_all_but_a_few_entries() {
    let mut cluster = four();
    cluster.cut_off = vec![NodeId(4)];
    let mut learner = voters(&[1, 2, 3]);
    learner.learners.insert(NodeId(4));
    change(&mut cluster, &learner);
    let is_caught_up =
        |cluster: &mut Cluster, at, entries| cluster.node(at).groups.is_caught_up(GROUP, NodeId(4), entries);
    assert!(!is_caught_up(&mut cluster, 1, 64), "it has acknowledged nothing");
    cluster.cut_off.clear();
    cluster.ticks(6);
    assert!(is_caught_up(&mut cluster, 1, 0));
    assert!(!is_caught_up(&mut cluster, 2, 64), "only the leader knows");
    cluster.cut_off = vec![NodeId(4)];
    cluster.propose(&["b", "c"]);
    assert!(!is_caught_up(&mut cluster, 1, 1) && is_caught_up(&mut cluster, 1, 2));
}

#[test]
fn changes_that_raft_would_drop_or_panic_at_are_refused() {
    let mut cluster = four();
    let leader = cluster.node(1);
    let mut propose = |members: &Members| leader.groups.propose_members(GROUP, members);
    assert!(matches!(propose(&voters(&[2, 3])), Err(Refused::BadMembers(_))), "the leader removes itself");
    assert!(matches!(propose(&voters(&[1, 2, 3])), Err(Refused::BadMembers(_))), "nothing changes");
    assert!(matches!(propose(&Members::default()), Err(Refused::BadMembers(_))));
    propose(&voters(&[1, 2, 3, 4])).unwrap();
    assert_eq!(propose(&voters(&[1, 2])), Err(Refused::MembersChanging));
    assert_eq!(cluster.node(2).groups.propose_members(GROUP, &voters(&[1, 2])), Err(Refused::NotLeader(NodeId(2))));
}

/// Another leader may complete a change that removes this one. raft-rs continues to lead then, and panics at its next
/// sync.
#[test]
fn a_leader_that_is_removed_steps_down() {
    let mut cluster = four();
    cluster.node(1).groups.propose_members(GROUP, &voters(&[1, 4])).unwrap();
    cluster.node(1).drain();
    cluster.collect_sent();
    for message in std::mem::take(&mut cluster.in_flight) {
        cluster.deliver(&message);
    }
    // Nodes 2 and 3 have the entry; node 1 does not know that it is committed.
    cluster.nodes.values_mut().for_each(|replica| replica.sent.clear());
    cluster.node(2).step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    assert_eq!(cluster.leader(GROUP), Some(NodeId(2)));
    let _ = cluster.node(2).propose(GROUP, "b");
    cluster.ticks(60);
    let leader = cluster.leader(GROUP).unwrap();
    assert!([1, 4].contains(&leader.0), "{leader}");
    assert!(!cluster.node(2).leads(GROUP));
    cluster.nodes.get_mut(&leader).unwrap().propose(GROUP, "c").unwrap();
    cluster.ticks(3);
    assert_eq!(cluster.node(1).proposals(GROUP).last(), Some(&"c"));
    assert_eq!(cluster.node(4).proposals(GROUP).last(), Some(&"c"));
}

/// A removed node starts elections repeatedly: no node votes for it, and the leader stays.
#[test]
fn a_removed_node_disturbs_nobody() {
    let mut cluster = four();
    cluster.cut_off = vec![NodeId(3)];
    change(&mut cluster, &voters(&[1, 2]));
    let term = cluster.node(1).roles[&GROUP].1;
    cluster.cut_off.clear();
    for _ in 0..10 {
        cluster.ticks(20);
        let _ = cluster.node(3).step(Input::Campaign(GROUP));
        cluster.settle();
    }
    assert_eq!(cluster.node(1).roles[&GROUP], (Some(NodeId(1)), term));
}

/// A lone voter leads at once, and could lead the same term again after a crash, with other entries.
#[test]
fn a_lone_voter_sends_nothing_to_learners_before_its_term_is_durable() {
    let mut members = voters(&[1]);
    members.learners.insert(NodeId(2));
    let mut cluster = Cluster::new(2, &[(GROUP, members)]);
    cluster.node(1).fast_disk = false;
    cluster.node(1).step(Input::Campaign(GROUP)).unwrap();
    assert!(cluster.node(1).leads(GROUP));
    cluster.node(1).propose(GROUP, "a").unwrap();
    assert!(cluster.node(1).sent.is_empty());
    cluster.node(1).complete_sync();
    assert!(!cluster.node(1).sent.is_empty());
    cluster.node(1).fast_disk = true;
    cluster.node(1).drain();
    cluster.settle();
    cluster.ticks(4);
    assert_eq!(cluster.node(2).proposals(GROUP), ["a"]);
}

/// Otherwise a restarted node would run elections with the members of two changes ago.
#[test]
fn a_change_becomes_durable_together_with_the_commit_index_of_the_one_before() {
    let mut cluster = four();
    change(&mut cluster, &Members { learners: [NodeId(4)].into(), ..voters(&[1, 2, 3]) });
    let before = cluster.node(1).point(GROUP).members.as_of;
    assert!(before > 0);
    cluster.node(2).take_seen();
    cluster.node(1).groups.propose_members(GROUP, &voters(&[1, 2, 3, 4])).unwrap();
    cluster.node(1).drain();
    cluster.collect_sent();
    let sent = std::mem::take(&mut cluster.in_flight);
    sent.iter().filter(|sent| sent.to == NodeId(2)).for_each(|sent| cluster.deliver(sent));
    let seen = cluster.node(2).take_seen();
    let synced = seen.split(|output| matches!(output, Output::Sync { .. })).next().unwrap();
    assert!(synced.iter().any(|output| matches!(output, Output::Append { .. })), "{seen:?}");
    let tells = |output: &Output| matches!(output, Output::SetState { state, .. } if state.commit >= before);
    assert!(synced.iter().any(tells), "{seen:?}");
}

/// A node was away while two voters were added. Reports of the last entry's durability arrive before that entry, which
/// two of the three old voters have; two of five are no majority.
#[test]
fn nothing_is_counted_by_members_of_two_changes_ago() {
    let mut cluster = Cluster::led(6, Members { learners: [NodeId(6)].into(), ..voters(&[1, 2, 3]) });
    cluster.propose(&["a"]);
    cluster.cut_off = vec![NodeId(6)];
    for (voters_now, learners) in
        [(vec![1, 2, 3], vec![4, 5, 6]), (vec![1, 2, 3, 4], vec![5, 6]), (vec![1, 2, 3, 4, 5], vec![6])]
    {
        change(&mut cluster, &Members { learners: learners.into_iter().map(NodeId).collect(), ..voters(&voters_now) });
    }
    // Only nodes 1 and 3 receive the last one.
    cluster.cut_off = vec![2, 4, 5].into_iter().map(NodeId).collect();
    cluster.node(1).propose(GROUP, "b").unwrap();
    cluster.collect_sent();
    let is_for = |node: u16| move |sent: &super::cluster::InFlight| sent.to == NodeId(node);
    let (to_three, mut to_six): (Vec<_>, Vec<_>) =
        std::mem::take(&mut cluster.in_flight).into_iter().filter(|sent| sent.to.0 % 3 == 0).partition(is_for(3));
    to_three.iter().for_each(|sent| cluster.deliver(sent));
    cluster.node(3).told.clear();
    let b = cluster.node(1).log.stored(GROUP).last();
    for node in [1, 3] {
        let upto = vec![DurableUpTo { group: GROUP, term: b.term, index: b.index }];
        cluster.node(6).step(Input::Durable { from: NodeId(node), upto }).unwrap();
    }
    // The probing leader sends everything to node 6 at once.
    to_six.retain(|sent| matches!(sent.what, Sent::Message(_)));
    to_six.iter().for_each(|sent| cluster.deliver(sent));
    cluster.cut_off.push(NodeId(3));
    cluster.settle();
    cluster.ticks(3);
    let six = cluster.node(6);
    assert_eq!(six.point(GROUP).members.voters.len(), 5, "it has caught up");
    assert_eq!(six.log.stored(GROUP).last(), b, "and has the last entry");
    assert_eq!(six.proposals(GROUP), ["a"]);
}

/// Another node's state image may include the members of later entries, which are no majority for the entries before
/// them. The leader's commit index counts.
#[test]
fn nothing_is_counted_by_members_of_entries_that_are_not_here() {
    let mut cluster = Cluster::led(3, Members { as_of: 9, ..voters(&[1, 2, 3]) });
    cluster.node(1).propose(GROUP, "a").unwrap();
    cluster.collect_sent();
    let sent = std::mem::take(&mut cluster.in_flight);
    sent.iter().filter(|sent| sent.to == NodeId(2)).for_each(|sent| cluster.deliver(sent));
    let a = cluster.node(2).log.stored(GROUP).last();
    assert!(a.index < 9);
    let upto = vec![DurableUpTo { group: GROUP, term: a.term, index: a.index }];
    cluster.node(2).step(Input::Durable { from: NodeId(1), upto }).unwrap();
    assert!(cluster.node(2).proposals(GROUP).is_empty());
    cluster.settle();
    cluster.ticks(3);
    assert_eq!(cluster.node(2).proposals(GROUP), ["a"]);
}

/// A voter has decided alone since a change whose commit it has lost, and the learner, which knows of the commit, has a
/// longer log.
#[test]
fn a_voter_that_has_lost_a_change_learns_of_it_from_a_node_that_refuses_its_vote() {
    let mut cluster = Cluster::led(2, voters(&[1, 2]));
    let mut alone = voters(&[1]);
    alone.learners.insert(NodeId(2));
    cluster.node(1).fast_disk = false;
    cluster.node(1).groups.propose_members(GROUP, &alone).unwrap();
    cluster.node(1).drain();
    cluster.node(1).complete_sync();
    cluster.settle();
    // The commit is written now, and the following entries are sent, but none of them becomes durable.
    cluster.propose(&["a", "b"]);
    cluster.ticks(3);
    assert_eq!(cluster.node(2).point(GROUP).members.voters, alone.voters);
    cluster.node(1).restart(settings(9), 0);
    cluster.node(1).fast_disk = true;
    assert!(cluster.node(1).groups.members(GROUP).unwrap().voters.contains(&NodeId(2)));
    // It runs for election in a term that the other node never sees.
    cluster.cut_off = vec![NodeId(2)];
    cluster.node(1).step(Input::TakeOver(GROUP)).unwrap();
    cluster.settle();
    cluster.cut_off.clear();
    cluster.ticks(60);
    assert!(cluster.node(1).leads(GROUP));
    cluster.propose(&["c"]);
    assert_eq!(cluster.node(1).proposals(GROUP), ["c"], "nobody was told that the others are committed");
    assert_eq!(cluster.node(2).proposals(GROUP), ["c"]);
}
