//! Logs: dense positions per store, whole transactions, serial order.

use tribunal_tests::script::check;

#[test]
fn positions_are_dense_per_store_whatever_aborts() {
    check(
        "stores kv sql doc
         epoch
         T1 rc put x=1 put sql/a=1                  => ok kv#1 sql#2
         T2 rc put x=2 put doc/a=1                  => write_conflict merge: write x by T1
         T3 rc put sql/b=1 put sql/c=1              => ok sql#1
         epoch
         T4 rc put doc/a=1 put x=4 put sql/d=1      => ok kv#2 sql#3 doc#1
         T5 rc upd q=1 put sql/e=1                  => row_missing join: write q
         T6 rc put sql/f=1                          => ok sql#4
         log kv => #1 put x=1; #2 put x=4
         log sql => #1 put b=1,put c=1; #2 put a=1; #3 put d=1; #4 put f=1
         log doc => #1 put a=1",
    );
}

#[test]
fn records_are_in_serial_order() {
    check(
        "epoch
         T0 ser put x=0                             => ok kv#1
         epoch
         T1 ser put x=1                             => ok kv#4
         T2 ser @1 read x@T0 put y=1                => ok kv#2
         T3 ser put m=1                             => ok kv#3
         order => T2 T3 T1
         log kv => #1 put x=0; #2 put y=1; #3 put m=1; #4 put x=1",
    );
}

#[test]
fn a_version_rises_along_the_log_of_a_row() {
    // A later write of the same row within an epoch has the later version: a reader of the newest version is right.
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         T2 ser put x=2                             => ok kv#2
         epoch
         T3 rr read x@T1 put y=1                    => read_conflict validate: read x seen T1 now T2
         T4 rr read x@T2 put z=1                    => ok kv#3",
    );
}

#[test]
fn transactions_that_the_merge_does_not_order_share_a_version() {
    // T2 reads what T1 writes. Only at the levels that rely on it must T2 come first, with another version.
    for (level, at_1, at_2, seen) in [
        ("rc", "kv#2", "kv#3", "ok kv#4"),
        ("si @1", "kv#2", "kv#3", "ok kv#4"),
        ("rr", "kv#3", "kv#2", "read_conflict validate: read x seen 2.0 now T1"),
        ("ser", "kv#3", "kv#2", "read_conflict validate: read x seen 2.0 now T1"),
    ] {
        check(&format!(
            "epoch
             T0 ser put x=0                         => ok kv#1
             epoch
             T1 ser put x=1                         => ok {at_1}
             T2 {level} read x@T0 put y=1           => ok {at_2}
             epoch
             T3 ser read y@2.0 read x@2.0 put z=1   => {seen}"
        ));
    }
}
