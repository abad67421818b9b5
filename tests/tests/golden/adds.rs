//! Adds: two adds to one row never conflict, and first committer does not apply to them; reading the row turns an add
//! into an update.

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
         T3 rr @1 read x@T0 add x+3                 => order_conflict merge: read x seen T0 by T1; merge: write x by T1
         T4 si @1 read x@T0 add x+4                 => write_conflict merge: write x by T1",
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

#[test]
fn an_add_comes_before_whatever_replaces_its_row() {
    check(
        "epoch
         T0 ser put x=1 put y=1                     => ok kv#1
         epoch
         T1 ser put x=9223372036854775807           => ok kv#4
         T2 ser add x+1                             => ok kv#3
         T3 ser @1 read x@T0 add y+1                => ok kv#2
         T4 rr put y=5                              => ok kv#5
         log kv => #1 put x=1,put y=1; #2 add y=1; #3 add x=1; #4 put x=9223372036854775807; #5 put y=5",
    );
}

#[test]
fn a_sum_that_leaves_64_bits_aborts() {
    check(
        "epoch
         T0 ser put x=9223372036854775807 put y=-9223372036854775808 put z=9223372036854775800 => ok kv#1
         epoch
         T1 rc add x+1                              => add_overflow join: write x now T0
         T2 ser add y-1                             => add_overflow join: write y now T0
         T3 si @1 read x@T0 add x+1                 => add_overflow join: write x now T0
         T4 rr add x-1                              => ok kv#2
         T5 rc put q=1 add z+8                      => add_overflow join: write z now T0
         T6 rc add z+7                              => ok kv#3
         dry-run D rc add y-1                       => add_overflow join: write y now T0
         epoch
         T7 rc add x+1                              => ok kv#4
         T8 rc add z+1                              => add_overflow join: write z now T6
         epoch
         T9 rc add x+1                              => add_overflow join: write x now T7
         TA rc put z=0                              => ok kv#5
         epoch
         TB rc add z+9                              => ok kv#6",
    );
}

#[test]
fn adds_of_one_epoch_that_leave_64_bits_only_together_do_not_all_commit() {
    for shards in [1, 3] {
        for level in ["rc", "rr", "si", "ser"] {
            check(&format!(
                "shards {shards}
                 epoch
                 T0 ser put x=9223372036854775805 put y=0 => ok kv#1
                 epoch
                 T1 {level} add x+1                 => ok kv#2
                 T2 {level} add x+1                 => ok kv#3
                 T3 {level} add x+1                 => add_overflow merge: write x by T2
                 T4 {level} add y+1 add x+1         => add_overflow merge: write x by T2
                 T5 {level} add x-3                 => ok kv#4
                 T6 {level} add x+1                 => add_overflow merge: write x by T5
                 log kv => #1 put x=9223372036854775805,put y=0; #2 add x=1; #3 add x=1; #4 add x=-3
                 epoch
                 T7 rc add x+3                      => ok kv#5
                 epoch
                 T8 rc add x+1                      => add_overflow join: write x now T7"
            ));
        }
    }
}

#[test]
fn an_add_that_loses_leaves_room_for_others() {
    check(
        "epoch
         T0 ser put x=9223372036854775806 put y=0   => ok kv#1
         epoch
         T1 rc put y=1                              => ok kv#2
         T2 rc add x+1 put y=2                      => write_conflict merge: write y by T1
         T3 rc add x+1                              => ok kv#3",
    );
}

#[test]
fn of_a_short_integer_only_its_digits_are_known() {
    check(
        "epoch
         T0 ser put x=9999999999999999 put y=-999999999999999 put z=0 => ok kv#1
         epoch
         T1 rc add x+9213372036854775808            => ok kv#2
         T2 rc add y-9213372036854775809            => ok kv#3
         T3 rc add z+9213372036854775809            => add_overflow join: write z now T0
         T4 rc add z+9213372036854775808            => ok kv#4
         epoch
         T5 rc add x+1                              => add_overflow join: write x now T1
         T6 rc add y-1                              => add_overflow join: write y now T2
         T7 rc add z-5                              => ok kv#5
         epoch
         T8 rc add z+5                              => ok kv#6
         T9 rc del x                                => ok kv#7
         epoch
         TA rc ins x=1                              => ok kv#8
         epoch
         TB rc add x+1                              => ok kv#9",
    );
}

#[test]
fn an_add_that_says_what_a_row_starts_with_creates_it() {
    for level in ["rc", "rr", "si", "ser"] {
        check(&format!(
            "epoch
             T0 {level} add x+1                     => row_missing join: write x
             T1 {level} add x+1|5                   => ok kv#1
             dry-run D {level} add x+1|5            => read_only 1
             epoch
             T2 {level} add x+2|5                   => ok kv#2
             T3 {level} add x+3                     => ok kv#3
             epoch
             T4 {level} del x                       => ok kv#4
             epoch
             T5 {level} add x-1|0                   => ok kv#5
             log kv => #1 insert x=6; #2 add x=2; #3 add x=3; #4 delete x=; #5 insert x=-1"
        ));
    }
}

#[test]
fn the_first_in_the_order_creates_the_row_and_the_others_add() {
    for shards in [1, 3] {
        for level in ["rc", "rr", "si", "ser"] {
            check(&format!(
                "shards {shards}
                 rule constant
                 epoch
                 T1 {level} add x+1|10 csn=40       => ok kv#3
                 T2 {level} add x+2|20 csn=30       => ok kv#2
                 T3 {level} add x+4|30 put y=1 csn=20 => ok kv#1
                 log kv => #1 insert x=34,put y=1; #2 add x=2; #3 add x=1
                 epoch
                 T4 {level} add x+1|0               => ok kv#4"
            ));
        }
    }
}

#[test]
fn an_add_that_loses_creates_nothing() {
    check(
        "epoch
         T1 rc put y=1                              => ok kv#1
         T2 rc put y=2 add x+1|0                    => write_conflict merge: write y by T1
         T3 rc add x+2|0                            => ok kv#2
         log kv => #1 put y=1; #2 insert x=2",
    );
}

#[test]
fn a_creating_add_has_no_place_beside_an_insert_of_its_row() {
    check(
        "epoch
         T1 ser ins x=1                             => ok kv#1
         T2 ser add x+1|0                           => order_conflict merge: write x by T1; merge: write x by T1
         T3 ser add y+1|0                           => ok kv#2
         T4 ser ins y=1                             => order_conflict merge: write y by T3; merge: write y by T3
         T5 rc ins y=1                              => write_conflict merge: write y by T3
         T6 rc add x+1|0                            => write_conflict merge: write x by T1",
    );
}

#[test]
fn a_creating_add_comes_before_a_put_of_its_row_and_after_a_read_of_its_absence() {
    check(
        "epoch
         T1 ser put x=1                             => ok kv#3
         T2 ser add x+1|0                           => ok kv#2
         T3 ser add x+1|0                           => ok kv#1
         log kv => #1 insert x=1; #2 add x=1; #3 put x=1
         epoch
         T4 ser @1 read y@- put z=1                 => ok kv#4
         T5 ser add y+1|0                           => ok kv#5
         epoch
         T6 ser add w+1|0                           => ok kv#7
         T7 ser @2 read w@- put z=2                 => ok kv#6
         order => T7 T6",
    );
}

#[test]
fn a_creating_add_of_a_row_read_as_absent_counts_as_insert() {
    check(
        "epoch
         T1 ser @0 read x@- add x+1|0               => ok kv#1
         T2 ser add x+2|0                           => order_conflict merge: write x by T1; merge: write x by T1
         T3 rc add x+2|0                            => write_conflict merge: write x by T1
         log kv => #1 insert x=1",
    );
}

#[test]
fn a_sum_that_leaves_64_bits_creates_no_row() {
    check(
        "epoch
         T1 rc add x+9213372036854775809|0          => add_overflow join: write x
         T2 rc add y+9213372036854775808|9007199254740991 => ok kv#2
         T3 rc add y+1|0                            => add_overflow merge: write y by T2
         T4 rc add z-1|0                            => ok kv#1
         log kv => #1 insert z=-1; #2 insert y=9222379236109516799
         epoch
         T5 rc add y+1|0                            => add_overflow join: write y now T2",
    );
}

#[test]
fn nothing_is_added_to_a_missing_row_of_a_declared_store() {
    check(
        "stores kv:declared
         epoch
         T1 rc @0 read x@- add x+1|0                => not_a_number join: write x
         T2 rc @0 add y+1|0                         => not_a_number join: write y",
    );
}

#[test]
fn what_was_read_is_stale_before_a_sum_is_too_large() {
    let story = |generation, of_the_join, of_the_merge| {
        check(&format!(
            "generation {generation}
             shards 3
             epoch
             T1 ser put x=9223372036854775806 put y=1 put z=9223372036854775807 => ok kv#1
             epoch
             T2 ser add x+1 put y=2             => ok kv#2
             T3 ser read y@T1 add x+1 put a=1   => {of_the_merge}
             T4 rr read y@T1 add x+1            => {of_the_merge}
             T5 si @1 read y@T1 add x+1         => add_overflow merge: write x by T2
             T6 ser add z+1 upd w=1             => {}
             epoch
             T7 ser read y@T1 add z+1           => {of_the_join}
             T8 ser read y@T2 add z+1           => add_overflow join: write z now T1",
            if generation == 1 { "add_overflow join: write z now T1" } else { "row_missing join: write w" }
        ));
    };
    story(1, "add_overflow join: write z now T1", "add_overflow merge: write x by T2");
    story(
        2,
        "read_conflict validate: read y seen T1 now T2",
        "order_conflict merge: read y seen T1 by T2; merge: write x by T2",
    );
}
