//! The floor: it rises with replicated time, never sinks, and history below it is dropped.

use tribunal_tests::script::check;

#[test]
fn the_floor_follows_epoch_time_not_epochs() {
    check(
        "floor_age 1000
         epoch
         T1 ser put x=1                             => ok kv#1
         floor => 0
         epoch at +999
         T2 ser put x=2                             => ok kv#2
         floor => 0
         epoch at +1
         T3 ser put x=3                             => ok kv#3
         floor => 1
         epoch at -500
         T4 ser put x=4                             => ok kv#4
         floor => 1
         epoch at +10000 idle 5
         T5 ser put x=5                             => ok kv#5
         floor => 4",
    );
}

#[test]
fn a_snapshot_at_the_floor_is_still_judged_exactly() {
    check(
        "floor_age 1000
         epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch at +500
         T2 ser put x=2                             => ok kv#2
         epoch at +500
         T3 ser put y=3                             => ok kv#3
         floor => 1
         epoch
         A si @1 read x@T1 read y@T1 put a=1        => ok kv#4
         B si @1 read x@T1 read y@T3 put b=1        => read_conflict validate: read x seen T1 now T2
         C si @1 scan x..z put c=1                  => range_conflict validate: scan x..z changed in 2
         D si @0 put d=1                            => snapshot_too_old join: write d",
    );
}

#[test]
fn tracked_rows_stay_known_and_deleted_ones_until_the_floor() {
    check(
        "floor_age 1000
         epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         T2 ser del y                               => ok kv#2
         epoch at +5000
         T3 ser put z=1                             => ok kv#3
         floor => 2
         epoch
         T4 rr @3 read x@T1 read y@- put a=1        => ok kv#4
         T5 rc ins x=2                              => row_exists join: write x now T1
         T6 rc upd y=2                              => row_missing join: write y
         T7 rr @3 read y@T1 put b=1                 => read_conflict validate: read y seen T1",
    );
}

#[test]
fn too_much_history_raises_the_floor_before_its_time() {
    check(
        "window_bytes 0
         epoch
         T1 ser put x=1                             => ok kv#1
         floor => 1
         epoch idle 2
         T2 ser put x=2                             => ok kv#2
         floor => 4
         epoch
         A si @1 put a=1                            => snapshot_too_old join: write a
         B si @4 read x@T2 put b=1                  => ok kv#3
         C rr read x@T1 put c=1                     => read_conflict validate: read x seen T1 now T2",
    );
}
