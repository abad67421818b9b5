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
fn absence_is_dated_as_well() {
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
         B si @1 scan a..d put q=1                  => range_conflict validate: scan a..d changed in 2
         C si @2 scan a..d put r=1                  => ok kv#5
         D si @2 scan d..e put s=1                  => range_conflict validate: scan d..e changed in 3
         E si @2 scan a.. put t=1                   => range_conflict validate: scan a.. changed in 3
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
fn a_multi_version_store_is_read_at_its_snapshot() {
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
         D si @1 scan w..z put d=1                  => ok kv#4
         E si @1 scan sql/w..z put e=1              => range_conflict validate: scan sql/w..z changed in 2
         F si @2 read x@T1 read sql/y@T2 put f=1    => ok kv#5
         G si @1 read x@T1 read sql/y@T1 put g=1    => ok kv#6
         H si @1 read x@T1 read sql/y@T2 put h=1    => read_conflict validate: read x seen T1 now T2",
    );
}

#[test]
fn snapshots_of_multi_version_stores_are_one_state() {
    check(
        "stores kv:mv sql:mv log
         epoch
         T1 ser put x=1 put sql/y=1                 => ok kv#1 sql#1
         epoch
         T2 ser put x=2 put sql/y=2                 => ok kv#2 sql#2
         epoch
         A si @kv:1,sql:2 read x@T1 read sql/y@T2 put a=1 => snapshots_differ join: read x seen T1 now T2
         B si @kv:2,sql:1 read x@T2 read sql/y@T1 put b=1 => snapshots_differ join: read sql/y seen T1 now T2
         C si @kv:1,log:2 read x@T1 put log/c=1     => snapshots_differ join: read x seen T1 now T2
         D si @kv:1,sql:1 read x@T1 read sql/y@T1 put d=1 => ok kv#3
         E si @kv:2,log:1 read x@T2 put log/e=1     => ok log#1
         F rc @kv:1,sql:2 put f=1                   => ok kv#4
         G ser @kv:2,sql:1 read x@T2 put g=1        => ok kv#5
         dry-run H si @kv:1,sql:2 read x@T1 read sql/y@T2 => snapshots_differ join: read x seen T1 now T2",
    );
}

#[test]
fn a_row_read_as_absent_may_not_have_been_written_since() {
    check(
        "epoch
         T1 ser put p=1                             => ok kv#1
         epoch
         T2 ser put p=2                             => ok kv#2
         epoch
         T3 ser ins k=1                             => ok kv#3
         epoch
         T4 ser del k                               => ok kv#4
         dry-run A si @1 read p@T1 read k@- ins k=2 => write_conflict validate: write k
         dry-run B si @1 read p@T2 read k@- ins k=2 => read_only 4
         dry-run C si @1 read p@T1 read k@-         => read_only 4
         dry-run D si @1 read p@T1 ins k=2          => write_conflict validate: write k
         epoch
         E si @1 read p@T1 read k@- ins k=2         => write_conflict validate: write k
         F si @1 read p@T1 read k@- put k=2         => write_conflict validate: write k
         G si @4 read p@T2 read k@- ins k=3         => ok kv#5",
    );
}

#[test]
fn the_moment_of_the_reads_is_no_earlier_than_the_deletion() {
    for shards in 1..=4 {
        check(&format!(
            "shards {shards}
             apart
             epoch
             T1 ser put w=1                         => ok kv#1
             epoch
             T2 ser ins a=1 ins k=1                 => ok kv#2
             epoch
             T3 ser del a                           => ok kv#3
             epoch
             T4 ser ins a=2                         => ok kv#4
             epoch
             T5 ser del k                           => ok kv#5
             epoch
             T6 ser del a                           => ok kv#6
             epoch
             T7 ser put w=2                         => ok kv#7
             epoch
             A si @1 read w@T1 read a@- read k@- ins k=2 => ok kv#9
             B si @1 read w@T1 read a@T4 read k@- ins k=2 => write_conflict merge: write k by A
             C si @1 read w@T1 read a@T2 put c=1    => ok kv#8
             D si @3 read w@T1 read a@T4 read k@- ins k=2 => write_conflict merge: write k by A"
        ));
    }
}

#[test]
fn a_row_of_a_multi_version_store_was_absent_at_the_snapshot() {
    check(
        "stores kv:mv
         epoch
         T1 ser put p=1                             => ok kv#1
         epoch
         T2 ser ins k=1                             => ok kv#2
         epoch
         T3 ser del k                               => ok kv#3
         epoch
         A si @1 read k@- ins k=2                   => write_conflict validate: write k
         B si @2 read k@- ins k=2                   => write_conflict validate: write k
         C si @3 read k@- ins k=2                   => ok kv#4",
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
             A si @1 scan c..d put b=3              => range_conflict validate: scan c..d changed in 2
             B si @1 read c@T1 read b@T2 scan a..b put a=3 => read_conflict validate: read c seen T1 now T2
             C si @1 put c=1 put b=1 put a=1        => write_conflict validate: write c now T2"
        ));
    }
}

#[test]
fn a_multi_version_store_was_read_at_its_snapshot() {
    let story = |generation, later, twice| {
        check(&format!(
            "generation {generation}
             stores kv:mv log
             epoch
             T1 ser put x=1                     => ok kv#1
             epoch
             T2 ser put x=2                     => ok kv#2
             epoch
             A si @1 read x@T2 put a=1          => {later}
             B si @2 read y@- read x@T1 read x@T2 put b=1 => {twice}
             C si @2 read x@T2 read x@T2 put c=1 => ok
             D si @1 read x@T1 put d=1          => ok
             E si @2 read x@T1 read y@- read y@- => ok
             F rc @1 read x@T2 put f=1          => ok"
        ));
    };
    story(1, "ok", "ok");
    story(2, "snapshots_differ join: read x seen T2 now T2", "snapshots_differ join: read x seen T2 now T2");
}
