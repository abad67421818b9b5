//! Early aborts: transactions that are certain to lose are answered before their epoch is sealed.

use tribunal_tests::script::check;

#[test]
fn a_stale_read_aborts_early_at_repeatable_read_and_serializable() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         early A rr read x@T1 put y=1               => read_conflict admission: read x seen T1 now T2
         early B ser read x@T1 put y=1              => read_conflict admission: read x seen T1 now T2
         early C rc read x@T1 put y=1               => open
         early D si @1 read x@T1 put y=1            => open
         early E ser read x@T2 put y=1              => open",
    );
}

#[test]
fn a_foreign_write_aborts_early_at_snapshot() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         epoch
         T2 ser put x=2                             => ok kv#2
         early A si @1 put x=3                      => write_conflict admission: write x now T2
         early B si @1 read x@T1 upd x=3            => write_conflict admission: write x now T2
         early C si @1 add x+3                      => open
         early D si @2 put x=3                      => open
         early E rc @1 put x=3                      => open",
    );
}

#[test]
fn a_snapshot_below_the_floor_aborts_early() {
    check(
        "floor_age 1000
         epoch
         T1 ser put x=1                             => ok kv#1
         epoch at +2000
         T2 ser put y=1                             => ok kv#2
         floor => 1
         early A si @0 put z=1                      => snapshot_too_old admission: write z
         early B rc @1 put z=1                      => open",
    );
}

#[test]
fn existence_absence_and_the_future_never_abort_early() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#1
         early A ser ins x=2                        => open
         early B ser upd q=2                        => open
         early C ser read x@- put y=1               => open
         early D ser @9 put y=1                     => open",
    );
}
