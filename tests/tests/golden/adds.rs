//! Adds: two of one row never conflict, and first committer does not hold for them; reading the row makes an update.

use tribunal_tests::script::check;

#[test]
fn adds_of_one_row_share_an_epoch_at_every_level() {
    for level in ["rc", "rr", "si", "ser"] {
        check(&format!(
            "epoch
             T0 ser put x=0                         => ok kv#1
             epoch
             T1 {level} add x+1                     => ok kv#2
             T2 {level} add x+2                     => ok kv#3
             T3 ser add x-3                         => ok kv#4
             T4 rc add x+4                          => ok kv#5
             log kv => #1 put x=0; #2 add x=1; #3 add x=2; #4 add x=-3; #5 add x=4"
        ));
    }
}

#[test]
fn an_add_is_exempt_from_first_committer_unless_the_row_was_read() {
    check(
        "epoch
         T0 ser put x=0                             => ok kv#1
         epoch
         T1 ser put x=1                             => ok kv#2
         epoch
         T2 si @1 add x+1                           => ok kv#3
         T3 si @1 read x@T0 add x+1                 => write_conflict validate: write x now T1
         T4 si @2 read x@T1 add x+1                 => write_conflict merge: write x by T2",
    );
}

#[test]
fn an_add_of_a_row_read_counts_as_update() {
    check(
        "epoch
         T0 ser put x=0                             => ok kv#1
         epoch
         T1 rr @1 read x@T0 add x+1                 => ok kv#2
         T2 rc add x+2                              => write_conflict merge: write x by T1
         T3 rr @1 read x@T0 add x+3                 => write_conflict merge: write x by T1",
    );
}

#[test]
fn adds_conflict_with_other_writes_below_serializable() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 rc add x+1                              => ok kv#2
         T2 rc put x=2                              => write_conflict merge: write x by T1
         T3 rc upd y=3                              => ok kv#3
         T4 rc add y+4                              => write_conflict merge: write y by T3",
    );
}

#[test]
fn serializable_adds_are_ordered_with_reads_and_deletes() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 ser add x+1                             => ok kv#4
         T2 ser @1 read x@T0 put z=1                => ok kv#3
         T3 ser del y                               => ok kv#5
         T4 ser add y+1                             => ok kv#2
         order => T4 T2 T1 T3",
    );
}

#[test]
fn only_integers_can_be_added_to() {
    check(
        "epoch
         T0 ser put x=text put y=1                  => ok kv#1
         epoch
         T1 rc add x+1                              => not_a_number join: write x now T0
         T2 rc put y=text                           => ok kv#2
         epoch
         T3 rc add y+1                              => not_a_number join: write y now T2
         T4 rc put x=5                              => ok kv#3
         epoch
         T5 rc add x+1                              => ok kv#4
         epoch
         T6 rc add x+1                              => ok kv#5",
    );
}

#[test]
fn a_text_written_in_the_same_epoch_cannot_come_before_an_add() {
    check(
        "epoch
         T0 ser put x=1                             => ok kv#1
         epoch
         T1 ser put x=text                          => ok kv#3
         T2 ser add x+1                             => ok kv#2
         order => T2 T1
         log kv => #1 put x=1; #2 add x=1; #3 put x=\"text\"",
    );
}
