//! Conflict rules rank, stamps break ties, and the order of two transactions does not depend on the
//! others present.

use tribunal_tests::script::check;

#[test]
fn first_writer_wins() {
    check(
        "nodes 2
         epoch
         T1@1 rc put x=1 csn=20                     => write_conflict merge: write x by T2
         T2@2 rc put x=2 csn=10                     => ok kv#1
         T3@1 rc put x=3 csn=15                     => write_conflict merge: write x by T2",
    );
}

#[test]
fn the_shorter_transaction_wins() {
    check(
        "rule shorter-txn-wins
         epoch
         T0 rc put q=1                              => ok kv#1
         epoch
         T1 rc put x=1 start=0                      => write_conflict merge: write x by T3
         T2 rc put x=2 start=1                      => write_conflict merge: write x by T3
         T3 rc put x=3                              => ok kv#2
         T4 rc put x=4 start=2                      => write_conflict merge: write x by T3
         epoch
         T5 rc put x=5 start=1                      => write_conflict merge: write x by T6
         T6 rc put x=6 start=2                      => ok kv#3
         T7 rc put x=7 start=2                      => write_conflict merge: write x by T6",
    );
}

#[test]
fn rotation_takes_turns_by_epoch() {
    check(
        "rule fair-rotation 3
         epoch
         T1 rc put x=1 origin=0                     => write_conflict merge: write x by T3
         T2 rc put x=2 origin=1                     => write_conflict merge: write x by T3
         T3 rc put x=3 origin=2                     => ok kv#1
         epoch
         T4 rc put x=1 origin=0                     => write_conflict merge: write x by T5
         T5 rc put x=2 origin=1                     => ok kv#2
         T6 rc put x=3 origin=2                     => write_conflict merge: write x by T5
         epoch
         T7 rc put x=1 origin=0                     => ok kv#3
         T8 rc put x=2 origin=1                     => write_conflict merge: write x by T7
         T9 rc put x=3 origin=2                     => write_conflict merge: write x by T7",
    );
}

#[test]
fn the_highest_priority_wins() {
    check(
        "rule priority
         epoch
         T1 rc put x=1                              => write_conflict merge: write x by T2
         T2 rc put x=2 prio=101                     => ok kv#1
         T3 rc put x=3 prio=0                       => write_conflict merge: write x by T2
         T4 rc put x=4 prio=101                     => write_conflict merge: write x by T2",
    );
}

#[test]
fn the_oldest_first_attempt_wins() {
    check(
        "rule oldest
         epoch
         T1 rc put x=1                              => write_conflict merge: write x by T3
         T2 rc put x=2 first=-100                   => write_conflict merge: write x by T3
         T3 rc put x=3 first=-200                   => ok kv#1
         T4 rc put x=4 first=900000                 => write_conflict merge: write x by T3",
    );
}

#[test]
fn a_first_attempt_is_never_later_than_the_transaction_itself() {
    check(
        "rule oldest
         epoch
         T1 rc put x=1 first=900000 csn=9           => ok kv#1
         T2 rc put x=2 csn=10                       => write_conflict merge: write x by T1",
    );
}

#[test]
fn equal_ranks_are_ordered_by_stamp_across_groups() {
    check(
        "nodes 3
         rule constant
         epoch
         T1@1 rc put x=1 csn=30                     => write_conflict merge: write x by T3
         T2@2 rc put x=2 csn=20                     => write_conflict merge: write x by T3
         T3@3 rc put x=3 csn=10                     => ok kv#1",
    );
}

#[test]
fn a_bystander_changes_no_rank() {
    check(
        "rule priority
         epoch
         T1 rc put x=1 prio=1                       => ok kv#1
         T2 rc put x=2 prio=1                       => write_conflict merge: write x by T1
         epoch
         T3 rc put x=1 prio=1                       => ok kv#3
         T4 rc put x=2 prio=1                       => write_conflict merge: write x by T3
         T5 rc put y=1 prio=9                       => ok kv#2",
    );
}
