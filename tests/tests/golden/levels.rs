//! The table of levels: the aborts of each, judged on the state before the epoch.

use tribunal_tests::script::check;

#[test]
fn before_the_third_generation_every_level_aborts_snapshots_out_of_bounds() {
    for generation in [1, 2] {
        check(&format!(
            "generation {generation}
         floor_age 1000
         epoch
         T1 ser put x=1                 => ok kv#1
         epoch at +500
         T2 ser put x=2                 => ok kv#2
         epoch at +600
         T3 ser put y=1                 => ok kv#3
         floor => 1
         epoch at +500
         T4 ser put y=2                 => ok kv#4
         floor => 2
         epoch
         A1 rc @1 put a=1               => snapshot_too_old join: write a
         A2 rr @1 put b=1               => snapshot_too_old join: write b
         A3 si @1 put c=1               => snapshot_too_old join: write c
         A4 ser @1 read x@T1 put d=1    => snapshot_too_old join: read x seen T1 now T2
         B1 rc @5 put e=1               => snapshot_from_the_future join: write e
         B2 rr @5 put f=1               => snapshot_from_the_future join: write f
         B3 si @5 put g=1               => snapshot_from_the_future join: write g
         B4 ser @99 put h=1             => snapshot_from_the_future join: write h
         C1 rc @2 put i=1               => ok kv#5
         C2 si @4 put j=1               => ok kv#6"
        ));
    }
}

/// What compares only current versions needs no history.
#[test]
fn from_the_third_generation_on_a_snapshot_is_too_old_only_for_what_needs_history() {
    check(
        "generation 3
         floor_age 1000
         stores kv sql:declared
         epoch
         T1 ser put x=1 put z=1         => ok
         epoch at +500
         T2 ser put x=2 del z           => ok
         epoch at +2000
         T3 ser put y=1                 => ok
         floor => 2
         epoch
         A1 rc @1 put a=1               => ok
         A2 rr @1 read y@- put b=1      => read_conflict validate: read y now T3
         A3 si @1 put c=1               => snapshot_too_old join: write c
         A4 ser @1 read x@T1 put d=1    => read_conflict validate: read x seen T1 now T2
         A5 ser @1 read x@T2 put e=1    => ok
         A6 ser @1 read z@T1 put f=1    => read_conflict validate: read z seen T1
         A7 ser @1 scan a..z put g=1    => snapshot_too_old join: scan a..z
         A8 rc @sql:1 put sql/h=1       => snapshot_too_old join: write sql/h
         A9 rc @9 put i=1               => snapshot_from_the_future join: write i
         B2 rr @9 put j=1               => snapshot_from_the_future join: write j
         B3 si @9 put k=1               => snapshot_from_the_future join: write k
         B4 ser @99 put l=1             => snapshot_from_the_future join: write l",
    );
}

#[test]
fn a_validator_that_needs_history_extends_this_to_its_level() {
    check(
        "generation 3
         floor_age 1000
         epoch
         T1 ser put x=1                 => ok
         epoch at +500
         T2 ser put x=2                 => ok
         epoch at +2000
         T3 ser put y=1                 => ok
         floor => 2
         early A0 rc @1 put a=1         => open
         early A1 ser @1 read x@T1 put a=1 => read_conflict admission: read x seen T1 now T2
         early A2 ser @1 scan a..z put a=1 => snapshot_too_old admission: scan a..z
         validator fresh:99
         epoch
         A3 rc @1 put a=1               => snapshot_too_old join: write a
         A4 rc @2 put a=1               => ok",
    );
}

#[test]
fn read_committed_checks_no_read() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         epoch
         T3 rc @1 read x@T1 scan a..z put y=1       => ok kv#3
         T4 rc @1 read x@- read z@1.7 put z=1       => ok kv#4",
    );
}

#[test]
fn repeatable_read_aborts_when_a_row_read_changed() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         T2 ser put x=2 del y ins z=1               => ok kv#2
         epoch
         T3 rr @1 read x@T1 put a=1                 => read_conflict validate: read x seen T1 now T2
         T4 rr @1 read y@T1 put b=1                 => read_conflict validate: read y seen T1
         T5 rr @1 read z@- put c=1                  => read_conflict validate: read z now T2
         T6 rr @2 read x@T2 read y@- read z@T2 put d=1 => ok kv#3
         T7 rr @1 scan a..zz put e=1                => ok kv#4
         T8 rr @2 read x@1.999 put f=1              => read_conflict validate: read x seen 1.999 now T2",
    );
}

#[test]
fn serializable_aborts_when_a_row_or_range_changed() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         epoch
         T3 ser @1 read x@T1 put a=1                => read_conflict validate: read x seen T1 now T2
         T4 ser @1 scan w..z put b=1                => range_conflict validate: scan w..z changed in 2
         T5 ser @2 scan w..z read x@T2 put c=1      => ok kv#4
         T6 ser @1 scan a..x put d=1                => ok kv#3
         T7 ser @1 scan y.. put e=1                 => ok kv#5",
    );
}

#[test]
fn a_transaction_that_does_nothing_commits_without_a_record() {
    check(
        "epoch
         T1 ser                                     => ok
         T2 rc read x@-                             => ok
         T3 ser put x=1                             => ok kv#1
         order => T1 T2 T3",
    );
}

#[test]
fn validators_see_the_state_before_the_epoch_only() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch
         T2 rc @1 put x=2                           => ok kv#5
         T3 rr @1 read x@T1 put y=1                 => ok kv#3
         T4 si @1 read x@T1 put z=1                 => ok kv#4
         T5 ser @1 read x@T1 put w=1                => ok kv#2
         order => T5 T3 T4 T2",
    );
}

#[test]
fn read_only_transactions_are_judged_on_the_last_complete_epoch() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch idle 3
         T2 ser put x=2                             => ok kv#2
         dry-run R1 ser @5 read x@T2                => read_only 5
         dry-run R2 ser @1 read x@T1                => read_conflict validate: read x seen T1 now T2
         dry-run R3 rc @1 read x@T1                 => read_only 5
         dry-run R4 si @1 read x@T1                 => read_only 5
         dry-run R5 si @2 read x@T2                 => read_only 5
         dry-run R6 ser @1 scan a..z                => range_conflict validate: scan a..z changed in 5
         dry-run R7 ser @6 read x@T2                => snapshot_from_the_future join: read x seen T2 now T2
         dry-run R8 ser ins x=1                     => row_exists join: write x now T2
         dry-run R9 ser @5 read x@T2 upd x=3        => read_only 5",
    );
}

#[test]
fn a_snapshot_of_an_idle_epoch_is_the_state_of_the_last_epoch_with_items() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch idle 3
         dry-run R1 ser @5 read x@T1 scan a..z      => read_only 5
         dry-run R2 ser @6 read x@T1                => snapshot_from_the_future join: read x seen T1 now T1
         epoch
         T2 si @5 read x@T1 put x=2                 => ok kv#2
         T3 si @3 put y=1                           => ok kv#3
         epoch
         T4 si @5 put x=3                           => write_conflict validate: write x now T2",
    );
}

#[test]
fn repeatable_read_allows_no_write_skew_of_rows_in_one_epoch() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         A rr @1 read x@T1 read y@T1 put x=2        => ok kv#2
         B rr @1 read x@T1 read y@T1 put y=2        => order_conflict merge: read x seen T1 by A; merge: write y by A
         C ser @1 read x@T1 read y@T1 put y=3       => order_conflict merge: read x seen T1 by A; merge: write y by A
         D si @1 read x@T1 read y@T1 put y=4        => ok kv#3",
    );
}

#[test]
fn repeatable_read_is_ordered_by_rows_and_not_by_ranges() {
    check(
        "epoch
         T1 ser put a=1 put c=1                     => ok kv#1
         epoch
         A rr @1 scan a..z ins m=1                  => ok kv#2
         B rr @1 scan a..z ins n=1                  => ok kv#3
         C rr put c=2                               => ok kv#4
         D rr put c=3                               => ok kv#5",
    );
}
