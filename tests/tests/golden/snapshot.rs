//! The snapshot level: rule (i) one state fits all reads, (ii) first committer wins, (iii) ranges are unchanged.

use tribunal_tests::script::check;

#[test]
fn one_state_must_fit_every_read() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         epoch
         T3 ser put y=3                             => ok kv#3
         epoch
         A si @1 read x@T1 read y@T1 put a=1        => ok kv#4
         B si @1 read x@T2 read y@T1 put b=1        => ok kv#5
         C si @1 read x@T2 read y@T3 put c=1        => ok kv#6
         D si @1 read x@T1 read y@T3 put d=1        => read_conflict validate: read x seen T1 now T2
         E si @2 read x@T1 read y@T1 put e=1        => read_conflict validate: read x seen T1 now T2
         F si @3 read y@T1 put f=1                  => read_conflict validate: read y seen T1 now T3
         G si @1 read x@1.77 put g=1                => read_conflict validate: read x seen 1.77 now T2",
    );
}

#[test]
fn absence_has_its_time_as_well() {
    check(
        "epoch
         T1 ser put w=1                             => ok kv#1
         epoch
         T2 ser ins x=1                             => ok kv#2
         epoch
         T3 ser del x put w=2                       => ok kv#3
         epoch
         A si @1 read x@- read w@T1 put a=1         => ok kv#4
         B si @2 read x@- read w@T1 put b=1         => read_conflict validate: read w seen T1 now T3
         C si @1 read x@- read w@T3 put c=1         => ok kv#5
         D si @1 read x@T2 read w@T1 put d=1        => ok kv#6
         E si @1 read x@T2 read w@T3 put e=1        => read_conflict validate: read x seen T2
         F si @3 read x@T2 put f=1                  => read_conflict validate: read x seen T2",
    );
}

#[test]
fn the_newest_store_snapshot_counts() {
    check(
        "stores kv sql
         epoch
         T1 ser put x=1 put sql/y=1                 => ok kv#1 sql#1
         epoch
         T2 ser put x=2                             => ok kv#2
         epoch
         A si @kv:1,sql:2 read x@T1 read sql/y@T1 put a=1 => read_conflict validate: read x seen T1 now T2
         B si @kv:1,sql:1 read x@T1 read sql/y@T1 put b=1 => ok kv#3
         C si @kv:1,sql:2 read x@T2 read sql/y@T1 put c=1 => ok kv#4",
    );
}

#[test]
fn first_committer_wins_on_rows_not_read() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         epoch
         A si @1 put x=3                            => write_conflict validate: write x now T2
         B si @1 upd x=3                            => write_conflict validate: write x now T2
         C si @1 del x                              => write_conflict validate: write x now T2
         D si @1 put y=2                            => ok kv#3
         E si @2 put x=4                            => ok kv#4",
    );
}

#[test]
fn a_written_row_that_was_read_must_be_current() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         epoch
         A si @1 read x@T1 upd x=3                  => write_conflict validate: write x now T2
         B si @1 read x@T2 upd x=3                  => ok kv#3",
    );
}

#[test]
fn write_skew_is_allowed_lost_updates_are_not() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         A si @1 read x@T1 read y@T1 put x=2        => ok kv#3
         B si @1 read x@T1 read y@T1 put y=2        => ok kv#2
         C si @1 read x@T1 put x=3                  => write_conflict merge: write x by A",
    );
}

#[test]
fn ranges_must_be_unchanged_since_the_snapshot() {
    check(
        "epoch
         T1 ser put b=1 put d=1                     => ok kv#1
         epoch
         T2 ser put c=2                             => ok kv#2
         epoch
         T3 ser del d                               => ok kv#3
         epoch
         A si @1 scan a..c put p=1                  => ok kv#4
         B si @1 scan a..d put q=1                  => range_conflict validate: scan a..d
         C si @2 scan a..d put r=1                  => ok kv#5
         D si @2 scan d..e put s=1                  => range_conflict validate: scan d..e
         E si @2 scan a.. put t=1                   => range_conflict validate: scan a..
         F si @3 scan a.. put u=1                   => ok kv#6",
    );
}

#[test]
fn an_overwritten_version_of_the_same_epoch_was_never_current() {
    check(
        "epoch
         T0 ser put x=0                             => ok kv#1
         epoch
         T1 ser put x=1                             => ok kv#2
         T2 ser put x=2                             => ok kv#3
         epoch
         A si @1 read x@T1 put a=1                  => read_conflict validate: read x seen T1 now T2
         B si @1 read x@T2 put b=1                  => ok kv#4
         C si @1 read x@T0 put c=1                  => ok kv#5",
    );
}

#[test]
fn a_multi_version_store_keeps_rule_one_itself() {
    check(
        "stores kv:mv sql
         epoch
         T1 ser put x=1 put sql/y=1                 => ok kv#1 sql#1
         epoch
         T2 ser put x=2 put sql/y=2                 => ok kv#2 sql#2
         epoch
         A si @2 read x@T1 put a=1                  => ok kv#3
         B si @2 read x@T1 put x=3                  => write_conflict validate: write x now T2
         C si @1 put x=3                            => write_conflict validate: write x now T2
         D si @1 scan w..z put d=1                  => range_conflict validate: scan w..z
         E si @2 read x@T1 read sql/y@T2 put e=1    => read_conflict validate: read x seen T1 now T2",
    );
}

#[test]
fn the_reason_does_not_depend_on_the_number_of_shards() {
    for shards in 1..=8 {
        check(&format!(
            "shards {shards}
             apart
             epoch
             T1 ser put a=1 put b=1 put c=1         => ok kv#1
             epoch
             T2 ser put a=2 put b=2 put c=2         => ok kv#2
             epoch
             A si @1 scan c..d put b=3              => range_conflict validate: scan c..d
             B si @1 read c@T1 read b@T2 scan a..b put a=3 => read_conflict validate: read c seen T1 now T2
             C si @1 put c=1 put b=1 put a=1        => write_conflict validate: write c now T2"
        ));
    }
}
