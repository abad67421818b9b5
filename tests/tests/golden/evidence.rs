//! The evidence that validators see: a column has the same meaning at every level.

use tribunal_tests::script::check;

#[test]
fn reads_are_dated_at_every_level() {
    for level in ["rc", "rr", "si @1", "ser"] {
        for shards in [1, 3] {
            check(&format!(
                "shards {shards}
                 epoch
                 T1 ser put x=1 put z=1                 => ok kv#1
                 epoch
                 T2 ser put x=2                         => ok kv#2
                 validator fresh:2
                 epoch
                 T3 {level} read x@T1 put y=1           => ok kv#3
                 epoch
                 T4 {level} read x@T1 read z@T1 put a=1 => plugin:9 validate: read x seen T1 now T2
                 T5 {level} read z@T1 put b=1           => ok kv#4"
            ));
        }
    }
}

#[test]
fn rows_seen_absent_are_dated_at_every_level() {
    for level in ["rc @1", "rr @1", "ser @1"] {
        check(&format!(
            "epoch
             T1 ser put z=1                             => ok kv#1
             epoch
             T2 ser ins x=2                             => ok kv#2
             validator fresh:2
             epoch
             T3 {level} read x@- put y=1                => ok kv#3
             epoch
             T4 {level} read x@- put a=1                => plugin:9 validate: read x now T2
             T5 {level} read w@- put b=1                => ok kv#4"
        ));
    }
}
