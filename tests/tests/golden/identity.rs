//! Identity: one id, one verdict, permanently; expiry, fences, and early aborts.

use tribunal_tests::script::check;

#[test]
fn of_two_copies_in_one_epoch_the_lowest_stamp_is_real() {
    check(
        "nodes 2
         epoch
         T1@2 ser put x=1 csn=9 body=7              => ok kv#1
         T2@1 ser put x=1 id=T1 csn=12 body=7       => replayed 1.2
         T3@1 ser put x=2 id=T1 csn=11 body=8       => body_mismatch",
    );
    check(
        "nodes 2
         epoch
         T1@1 ser put x=1 csn=9 body=7              => replayed 1.1
         T2@2 ser put x=1 id=T1 csn=8 body=7        => ok kv#1",
    );
}

#[test]
fn a_retry_in_a_later_epoch_gets_the_stored_verdict() {
    check(
        "epoch
         T1 ser put x=1 body=7                      => ok kv#1
         T2 ser upd q=1 body=8                      => row_missing join: write q
         known T1 => 1.0
         known T2 => 1.1
         known T9 => unknown
         epoch
         R1 ser put x=1 id=T1 body=7                => replayed 1.0
         R2 ser upd q=1 id=T2 body=8                => replayed 1.1
         R3 ser put x=9 id=T1 body=9                => body_mismatch
         R4 ser put y=1                             => ok kv#2
         log kv => #1 put x=1; #2 put y=1",
    );
}

#[test]
fn ids_are_scoped_by_namespace() {
    check(
        "epoch
         T1 ser put x=1 body=7                      => ok kv#1
         T2 ser put y=2 id=T1 ns=1 body=8           => ok kv#2",
    );
}

#[test]
fn an_id_outside_the_window_is_refused() {
    check(
        "id_window 60000
         epoch
         T1 ser put x=1 age=-60000                  => ok kv#1
         T2 ser put y=1 age=-60001                  => expired
         T3 ser put z=1 age=60001                   => expired
         T4 ser put w=1 age=60000                   => ok kv#2
         epoch
         T5 ser put y=1 id=T2                       => expired",
    );
}

#[test]
fn a_known_id_is_answered_after_its_window() {
    check(
        "id_window 60000
         epoch
         T1 ser put x=1 body=7                      => ok kv#1
         epoch at +70000
         R1 ser put x=1 id=T1 body=7                => replayed 1.0
         known T1 => 1.0",
    );
}

#[test]
fn a_fence_stops_an_unknown_id_and_shows_a_known_one() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         fence T1                                   => known 1.0
         fence T2                                   => fenced
         fence T2                                   => known 1.2
         known T2 => 1.2
         epoch
         T2 ser put y=1                             => replayed 1.2
         fence T3                                   => fenced
         epoch
         T3 ser put z=1                             => replayed 2.1
         log kv => #1 put x=1",
    );
}

#[test]
fn a_transaction_goes_before_a_fence_of_its_own_epoch() {
    check(
        "nodes 2
         epoch
         fence T1                                   => known 1.0
         T1@2 ser put x=1                           => ok kv#1",
    );
}

#[test]
fn a_given_verdict_is_stored_unless_the_id_has_one() {
    check(
        "epoch
         T1 ser put x=1 body=7                      => ok kv#1
         give T1                                    => 1.0
         give T2                                    => 1.2
         give T3 5                                  => 1.3
         give T2                                    => 1.2
         fence T2                                   => known 1.2
         epoch
         T2 ser put y=1                             => replayed 1.2
         T3 ser put z=1 body=5                      => replayed 1.3
         T4 ser put z=1 id=T3 body=6                => body_mismatch
         log kv => #1 put x=1",
    );
}

#[test]
fn an_aborted_transaction_keeps_its_verdict() {
    check(
        "epoch
         T1 rc put x=1 body=1                       => ok kv#1
         T2 rc put x=2 body=2                       => write_conflict merge: write x by T1
         epoch
         R2 rc put x=2 id=T2 body=2                 => replayed 1.1
         log kv => #1 put x=1",
    );
}

#[test]
fn a_replay_wins_no_conflict() {
    check(
        "epoch
         T1 rc put x=1 body=1                       => ok kv#1
         epoch
         R1 rc put x=1 id=T1 body=1                 => replayed 1.0
         T2 rc put x=2                              => ok kv#2",
    );
}

#[test]
fn a_full_id_table_refuses_what_it_may_have_forgotten() {
    check(
        "status_bytes 0
         epoch
         T1 ser put x=1 body=7                      => ok kv#1
         known T1 => outside
         epoch
         R1 ser put x=1 id=T1 body=7                => expired
         T2 ser put y=1                             => expired
         epoch at +1000
         T3 ser put z=1                             => ok kv#2
         log kv => #1 put x=1; #2 put z=1",
    );
}
