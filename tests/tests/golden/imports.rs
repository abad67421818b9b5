//! Imported versions: existing data becomes known, nothing known is overwritten.

use tribunal_tests::script::check;

#[test]
fn an_import_makes_rows_known_after_its_epochs_transactions() {
    check(
        "epoch
         import x 0.5 int
         import y 0.6
         T1 rc upd x=1                              => row_missing join: write x
         imported => 2
         epoch
         T2 ser read x@0.5 upd x=2                  => ok kv#1
         T3 rc add y+1                              => not_a_number join: write y now 0.6
         T4 rc ins y=1                              => row_exists join: write y now 0.6
         log kv => #1 update x=2",
    );
}

#[test]
fn an_imported_integer_takes_adds() {
    check(
        "epoch
         import x 0.5 int
         imported => 1
         epoch
         T1 rc add x+1                              => ok kv#1",
    );
}

#[test]
fn known_rows_are_not_changed() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         epoch
         T2 ser del y                               => ok kv#2
         epoch
         import x 0.5
         import y 0.5
         import z 0.5
         import z 0.6
         T3 ser put w=1                             => ok kv#3
         import w 0.9
         imported => 1
         epoch
         T4 rr read x@T1 read z@0.5 read w@T3 put q=1 => ok kv#4
         T5 rc upd y=1                              => row_missing join: write y",
    );
}

#[test]
fn a_version_that_is_not_below_its_epoch_is_refused() {
    check(
        "epoch
         import x 1.0
         import y 7.3
         import z 0.1
         imported => 1
         epoch
         T1 rc ins x=1                              => ok kv#1
         T2 rc ins y=1                              => ok kv#2
         T3 rc ins z=1                              => row_exists join: write z now 0.1",
    );
}
