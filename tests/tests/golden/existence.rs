//! Existence: an insert requires the row absent; update, delete and add require it present; a put requires nothing.

use tribunal_tests::script::check;

#[test]
fn existence_is_judged_on_the_state_before_the_epoch() {
    for level in ["rc", "rr", "si", "ser"] {
        check(&format!(
            "epoch
             T1 {level} upd x=1             => row_missing join: write x
             T2 {level} del x               => row_missing join: write x
             T3 {level} add x+1             => row_missing join: write x
             T4 {level} ins y=1             => ok kv#1
             T5 {level} put z=1             => ok kv#2
             T6 {level} upd y=2             => row_missing join: write y
             epoch
             T7 {level} ins y=2             => row_exists join: write y now T4
             T8 {level} del y               => ok kv#3
             T9 {level} upd z=2             => ok kv#4
             epoch
             T10 {level} upd y=3            => row_missing join: write y
             T11 {level} ins y=3            => ok kv#5
             T12 {level} add z+5            => ok kv#6
             log kv => #1 insert y=1; #2 put z=1; #3 delete y=; #4 update z=2; #5 insert y=3; #6 add z=5"
        ));
    }
}

#[test]
fn two_inserts_of_one_row_in_one_epoch() {
    check(
        "epoch
         T1 ser ins x=1                     => ok kv#1
         T2 ser ins x=2                     => order_conflict merge: write x by T1; merge: write x by T1
         T3 rc ins x=3                      => write_conflict merge: write x by T1",
    );
}

#[test]
fn an_insert_and_a_put_of_an_absent_row_fit_in_one_order_only() {
    check(
        "epoch
         T1 ser put x=1                     => ok kv#2
         T2 ser ins x=2                     => ok kv#1
         order => T2 T1
         epoch
         T3 ser ins y=2                     => ok kv#3
         T4 ser put y=1                     => ok kv#4
         order => T3 T4",
    );
}

#[test]
fn a_put_of_an_absent_row_changes_existence_a_put_of_a_present_row_does_not() {
    check(
        "epoch
         T0 ser put p=0 put q=0             => ok kv#1
         epoch
         T1 ser read a@- put x=1            => ok kv#2
         T2 ser ins x=2 put a=1             => order_conflict merge: write x by T1; merge: write a by T1
         T3 ser @1 read q@T0 put p=1        => ok kv#3
         T4 ser upd p=2                     => ok kv#4
         order => T1 T3 T4",
    );
}

#[test]
fn a_delete_and_an_update_of_one_row() {
    check(
        "epoch
         T0 ser put x=0 put y=0             => ok kv#1
         epoch
         T1 ser del x                       => ok kv#3
         T2 ser upd x=1                     => ok kv#2
         T3 ser upd y=1                     => ok kv#4
         T4 ser del y                       => ok kv#5
         order => T2 T1 T3 T4
         epoch
         T5 rr read x@- read y@- put z=1    => ok kv#6",
    );
}

#[test]
fn two_deletes_of_one_row() {
    check(
        "epoch
         T0 ser put x=0                     => ok kv#1
         epoch
         T1 ser del x                       => ok kv#2
         T2 ser del x                       => order_conflict merge: write x by T1; merge: write x by T1",
    );
}
