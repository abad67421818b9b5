//! A cluster of one: the same path, and no more syncs than batches.

use tribunal_types::NodeId;

use super::replica::Replica;
use super::{GROUP, settings, voters};
use crate::{Input, Output, Refused};

fn alone() -> Replica {
    let mut replica = Replica::new(NodeId(1), settings(1), &[(GROUP, voters(&[1]))]);
    replica.drain();
    replica.step(Input::Campaign(GROUP)).unwrap();
    replica
}

#[test]
fn a_node_leads_its_group_as_soon_as_its_first_sync_is_done() {
    let mut replica = alone();
    assert_eq!(replica.roles[&GROUP], (Some(NodeId(1)), 1));
    let seen = replica.take_seen();
    assert!(matches!(seen.last(), Some(Output::TermBegun { leading: true, .. })), "{seen:?}");
    assert_eq!(replica.syncs_seen, 1);
}

#[test]
fn each_proposal_takes_one_sync_and_its_commit_none() {
    let mut replica = alone();
    let (syncs, states) = (replica.syncs_seen, replica.states_seen);
    for n in 0..100 {
        replica.propose(GROUP, &n.to_string()).unwrap();
        assert_eq!(replica.proposals(GROUP).len(), n + 1);
    }
    assert_eq!((replica.syncs_seen - syncs, replica.states_seen - states), (100, 0));
    // The commit index is written once, with the next tick; nothing is written after that.
    for _ in 0..5 {
        replica.step(Input::Tick).unwrap();
    }
    assert_eq!((replica.syncs_seen - syncs, replica.states_seen - states), (100, 1));
    assert_eq!(replica.log.stored(GROUP).state.commit, 101);
}

#[test]
fn proposals_of_one_round_share_its_sync() {
    let mut replica = alone();
    let syncs = replica.syncs_seen;
    for n in 0..10 {
        replica.groups.propose(GROUP, vec![b'0' + n]).unwrap();
    }
    replica.drain();
    assert_eq!((replica.syncs_seen - syncs, replica.proposals(GROUP).len()), (1, 10));
}

#[test]
fn nothing_is_committed_before_its_sync() {
    let mut replica = alone();
    replica.fast_disk = false;
    replica.propose(GROUP, "a").unwrap();
    replica.propose(GROUP, "b").unwrap();
    assert_eq!((replica.syncs.len(), replica.proposals(GROUP).len()), (2, 0));
    replica.complete_sync();
    assert_eq!(replica.proposals(GROUP), ["a"]);
    replica.restart(settings(2), 0);
    replica.fast_disk = true;
    replica.step(Input::Campaign(GROUP)).unwrap();
    replica.propose(GROUP, "c").unwrap();
    assert_eq!(replica.proposals(GROUP), ["a", "c"]);
}

#[test]
fn a_node_does_not_stand_for_election_before_its_log_is_durable() {
    let mut replica = Replica::new(NodeId(1), settings(1), &[(GROUP, voters(&[1]))]);
    replica.fast_disk = false;
    replica.drain();
    replica.step(Input::Campaign(GROUP)).unwrap();
    replica.groups.propose(GROUP, vec![1]).unwrap();
    replica.drain();
    assert_eq!(replica.step(Input::Campaign(GROUP)), Err(Refused::AlreadyLeader));
    assert_eq!(replica.step(Input::Persisted(9)), Err(Refused::UnknownNumber(9)));
}
