//! Declared stores: history is known only above the floor; below it, the engine's read set decides.

use tribunal_tests::script::check;

#[test]
fn the_engines_read_set_decides_where_there_is_no_history() {
    check(
        "stores kv:declared
         epoch
         T1 ser @0 read x@- ins x=1                     => ok kv#1
         T2 ser @0 read y@0.7 upd y=1                   => ok kv#2
         T3 ser @0 read z@0.7 ins z=1                   => row_exists join: write z
         T4 ser @0 read w@- upd w=1                     => row_missing join: write w
         T5 ser @0 read v@- del v                       => row_missing join: write v
         T6 ser @0 put u=1                              => ok kv#3",
    );
}

#[test]
fn history_above_the_floor_outweighs_the_engine() {
    check(
        "stores kv:declared
         epoch
         T1 ser @0 read x@0.7 upd x=1                   => ok kv#1
         T2 ser @0 read y@0.7 del y                     => ok kv#2
         epoch
         T3 ser @0 read x@0.7 upd x=2                   => read_conflict validate: read x seen 0.7 now T1
         T4 rc @0 read x@- ins x=2                      => row_exists join: write x now T1
         T5 rc @0 read y@0.7 upd y=2                    => row_missing join: write y
         T6 ser @1 read y@- ins y=2                     => ok kv#3
         T7 ser @1 read x@T1 upd x=3                    => ok kv#4
         T8 rr @1 read z@1.5 put z=1                    => read_conflict validate: read z seen 1.5",
    );
}

#[test]
fn below_the_floor_the_engines_read_set_decides_again() {
    check(
        "stores kv:declared
         floor_age 1000
         epoch
         T1 ser @0 read x@- ins x=1                     => ok kv#1
         epoch at +2000
         T2 ser @0 put y=1                              => ok kv#2
         floor => 1
         epoch
         T3 ser @1 read x@T1 upd x=2                    => ok kv#3
         epoch at +5000
         T4 ser @3 put z=1                              => ok kv#4
         floor => 3
         epoch
         T5 rr @3 read x@T3 put q=1                     => ok kv#5
         T6 rr @3 read x@T1 put p=1                     => ok kv#6",
    );
}

#[test]
fn snapshots_of_a_declared_store() {
    check(
        "stores kv:declared
         epoch
         T1 ser @0 read x@0.3 upd x=1                   => ok kv#1
         epoch
         T2 ser @0 put y=1                              => ok kv#2
         epoch
         A si @0 read x@0.3 put a=1                     => ok kv#3
         B si @1 read x@0.3 put b=1                     => read_conflict validate: read x seen 0.3 now T1
         C si @0 read x@0.3 upd x=2                     => write_conflict validate: write x now T1
         D si @0 read x@0.3 read y@T2 put d=1           => read_conflict validate: read x seen 0.3 now T1
         E si @0 scan x..z put e=1                      => range_conflict validate: scan x..z changed in 1",
    );
}

#[test]
fn a_put_of_an_unknown_row_may_create_it() {
    check(
        "stores kv:declared
         epoch
         T1 ser @0 put x=1                              => ok kv#3
         T2 ser @0 read x@- ins x=2                     => ok kv#2
         T3 ser @0 read y@0.7 put y=1                   => ok kv#4
         T4 ser @0 read y@0.7 read z@- put z=1          => ok kv#1
         order => T4 T2 T1 T3",
    );
}

#[test]
fn nothing_is_added_in_a_declared_store() {
    check(
        "stores kv:declared
         epoch
         T1 rc @0 read x@0.7 add x+1                    => not_a_number join: write x
         T2 rc @0 read y@- add y+1                      => row_missing join: write y
         T3 rc @0 put z=1                               => ok kv#1
         epoch
         T4 rc @1 add z+1                               => not_a_number join: write z now T3",
    );
}
