//! The merge: walks the ranks and builds the serial order, from both ends and, from the third generation on, in between. No
//! transaction loses to a loser.

use tribunal_tests::script::check;

#[test]
fn blind_overwrites_of_serializable_transactions_share_an_epoch() {
    check(
        "epoch
         T1 ser put x=1 put y=1                     => ok kv#1
         T2 ser put x=2 put y=2                     => ok kv#2
         T3 ser put x=3                             => ok kv#3
         order => T1 T2 T3
         epoch
         T4 rr read x@T3 read y@T2 put z=1          => ok kv#4",
    );
}

#[test]
fn a_reader_of_what_a_winner_writes_goes_to_the_front() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 ser put x=1                             => ok kv#4
         T2 ser @1 read x@T0 put y=1                => ok kv#3
         T3 ser @1 read y@T0 put z=1                => ok kv#2
         order => T3 T2 T1",
    );
}

#[test]
fn a_writer_of_what_a_winner_read_goes_to_the_back() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 ser @1 read x@T0 put a=1                => ok kv#3
         T2 ser @1 put x=1                          => ok kv#4
         T3 ser @1 read a@- put b=1                 => ok kv#2
         order => T3 T1 T2",
    );
}

#[test]
fn a_transaction_that_needs_both_ends_aborts() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 ser @1 read x@T0 read y@T0 put x=1      => ok kv#2
         T2 ser @1 read x@T0 read y@T0 put y=1      => order_conflict merge: read x seen T0 by T1; merge: write y by T1
         T3 ser @1 read x@T0 put x=2                => order_conflict merge: read x seen T0 by T1; merge: write x by T1",
    );
}

/// T3 must follow T1 and precede T2.
#[test]
fn a_transaction_fits_between_others() {
    let script = |generation: u32, t3: &str, order: &str| {
        format!(
            "generation {generation}
             epoch
             T0 ser put x=0 put y=0                 => ok
             epoch
             T1 ser @1 read x@T0 put a=1            => ok
             T2 ser @1 put y=2                      => ok
             T3 ser @1 read y@T0 put x=3            => {t3}
             order => {order}"
        )
    };
    check(&script(2, "order_conflict merge: read y seen T0 by T2; merge: write x by T1", "T1 T2"));
    check(&script(3, "ok kv#3", "T1 T3 T2"));
}

#[test]
fn what_must_follow_an_inserted_transaction_moves() {
    check(
        "generation 3
         epoch
         T0 ser put x=0 put y=0 put z=0             => ok
         epoch
         T1 ser @1 read z@T0 put y=1                => ok
         T2 ser @1 put z=2                          => ok
         T3 ser @1 read x@T0 put a=3                => ok
         T4 ser @1 read y@T0 put x=4                => ok
         order => T3 T4 T1 T2
         epoch
         T5 ser read x@T4 read y@T1 read z@T2 put b=1 => ok",
    );
}

#[test]
fn a_transaction_that_closes_a_cycle_aborts() {
    check(
        "epoch
         T0 ser put x=0 put y=0 put k=0             => ok
         epoch
         T1 ser @1 read k@T0 put y=1                => ok
         T2 ser @1 read x@T0 put k=2                => ok
         T3 ser @1 read y@T0 put x=3                => order_conflict merge: read y seen T0 by T1; merge: write x by T2
         order => T1 T2",
    );
}

#[test]
fn ranges_order_what_is_placed_between() {
    check(
        "generation 3
         epoch
         T0 ser put x=0 put y=0                     => ok
         epoch
         T1 ser @1 scan a..c put p=1                => ok
         T2 ser @1 put y=2                          => ok
         T3 ser @1 read y@T0 put b=3                => ok
         T4 ser @1 scan x..z put b=4                => ok
         T5 ser @1 scan b..c put y=5                => order_conflict merge: scan b..c at b by T3; merge: write y by T3
         order => T1 T3 T4 T2",
    );
}

/// T5 gets the place that T2 has. Which of them is first, and so the final value of z, depends only on who joined first.
#[test]
fn places_do_not_depend_on_how_transactions_are_grouped() {
    for groups in [[1; 8], [2, 1, 2, 1, 2, 1, 2, 1], [1, 1, 2, 2, 2, 1, 1, 2]] {
        let [g0, g1, g2, g3, g4, g5, g6, g7] = groups;
        check(&format!(
            "generation 3
             nodes 2
             epoch
             S@1 ser put p=0 put q=0 put r=0 put s=0 put t=0 => ok
             epoch
             T0@{g0} ser @1 read p@S put h=1 csn=10        => ok
             T1@{g1} ser @1 put h=2 csn=11                 => ok
             T2@{g2} ser @1 put z=2 put q=2 csn=12         => ok
             T3@{g3} ser @1 read r@S put h=3 csn=13        => ok
             T4@{g4} ser @1 put s=4 csn=14                 => ok
             T5@{g5} ser @1 read s@S put p=5 put z=5 put t=5 csn=15 => ok
             T7@{g7} ser @1 read q@S read t@S put r=7 csn=17 => ok
             T6@{g6} ser @1 put h=6 csn=18                 => ok
             order => T0 T1 T3 T7 T2 T5 T4 T6
             epoch
             T8@1 ser read z@T5 put a=1                   => ok"
        ));
    }
}

/// T3 has as many ranges as a search may inspect, less a few, and each counts once.
#[test]
fn the_length_of_a_search_does_not_depend_on_the_number_of_shards() {
    let scans = |count: usize| (0..count).map(|n| format!(" scan c{n}..c{n}x")).collect::<String>();
    for shards in [1, 4] {
        for (ranges, verdict) in
            [(240, "ok"), (256, "order_conflict merge: read y seen T0 by T2; merge: write x by T1")]
        {
            check(&format!(
                "generation 3
                 shards {shards}
                 epoch
                 T0 ser put x=0 put y=0                 => ok
                 epoch
                 T1 ser @1 read x@T0 put a=1            => ok
                 T2 ser @1 put y=2                      => ok
                 T3 ser @1 read y@T0{} put x=3 => {verdict}",
                scans(ranges)
            ));
        }
    }
}

#[test]
fn adds_stay_before_what_replaces_their_row() {
    check(
        "generation 3
         epoch
         T0 ser put x=0 put n=1                     => ok
         epoch
         T1 ser @1 put n=5                          => ok
         T2 ser @1 read x@T0 put a=1                => ok
         T3 ser @1 add n+1 put x=1                  => ok
         order => T2 T3 T1
         epoch
         T4 ser read n@T1 put b=1                   => ok",
    );
}

/// An add of a row that does not exist creates it, unless another one does so first: here the moved one is first no longer.
#[test]
fn adds_that_create_a_row_can_move() {
    check(
        "generation 3
         epoch
         T0 ser put x=0 put y=0                     => ok
         epoch
         T1 ser @1 put y=1 add n+1|0              => ok
         T2 ser @1 add n+2|0                      => ok
         T3 ser @1 read x@T0 put a=3                => ok
         T4 ser @1 read y@T0 put x=4                => ok
         order => T2 T3 T4 T1
         epoch
         T5 ser read n@T1 put b=1                   => ok",
    );
}

#[test]
fn no_transaction_loses_to_a_loser() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 si @1 put x=1                           => ok kv#2
         T2 si @1 put x=2 put y=2                   => write_conflict merge: write x by T1
         T3 si @1 put y=3                           => ok kv#3
         T4 si @0 put y=4                           => write_conflict validate: write y now T0
         T5 si @1 put y=5 put q=5                   => write_conflict merge: write y by T3
         T6 si @1 put q=6                           => ok kv#4",
    );
}

#[test]
fn uncontended_transactions_are_in_the_middle() {
    check(
        "nodes 2
         epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1@2 ser put m=1                           => ok kv#4
         T2@1 ser put n=1                           => ok kv#3
         T3@1 ser @1 put x=1                        => ok kv#5
         T4@2 ser @1 read x@T0 put y=1              => ok kv#2
         order => T4 T2 T1 T3",
    );
}

#[test]
fn writes_of_unordered_transactions_never_share_a_row() {
    for level in ["rc", "si"] {
        check(&format!(
            "epoch
             T1 {level} put x=1                     => ok kv#1
             T2 {level} put x=2                     => write_conflict merge: write x by T1
             T3 ser put x=3                         => write_conflict merge: write x by T1
             T4 ser put y=4                         => ok kv#2
             T5 {level} put y=5                     => write_conflict merge: write y by T4
             T6 ser put y=6                         => ok kv#3"
        ));
    }
}

#[test]
fn blind_writes_of_ordered_transactions_share_a_row() {
    check(
        "epoch
         T1 rr put x=1                              => ok kv#1
         T2 ser put x=2                             => ok kv#2
         T3 rr put x=3                              => ok kv#3
         log kv => #1 put x=1; #2 put x=2; #3 put x=3",
    );
}

#[test]
fn reads_of_unordered_transactions_do_not_order() {
    for level in ["rc", "si"] {
        check(&format!(
            "epoch
             T0 ser put x=0 put y=0                 => ok kv#1
             epoch
             T1 {level} @1 read x@T0 put y=1        => ok kv#2
             T2 {level} @1 read y@T0 put x=1        => ok kv#3
             order => T1 T2"
        ));
    }
}

#[test]
fn a_serializable_reader_goes_before_a_weaker_writer() {
    check(
        "epoch
         T0 ser put x=0 put y=0                     => ok kv#1
         epoch
         T1 rc put x=1                              => ok kv#4
         T2 ser @1 read x@T0 put z=1                => ok kv#2
         T3 rc @1 read x@T0 put y=1                 => ok kv#3
         order => T2 T3 T1
         epoch
         T4 ser @2 read x@T1 put p=1                => ok kv#6
         T5 rc read p@- put x=2                     => ok kv#7
         T6 ser @2 read x@T1 read p@- put q=1       => ok kv#5
         order => T6 T4 T5",
    );
}

#[test]
fn ranges_read_rows_that_do_not_exist_yet() {
    check(
        "epoch
         T0 ser put m=0                             => ok kv#1
         epoch
         T1 ser ins b=1                             => ok kv#4
         T2 ser @1 scan a..c put x=1                => ok kv#3
         T3 ser @1 scan a..c put y=1 ins c=1        => ok kv#2
         order => T3 T2 T1",
    );
    check(
        "epoch
         T0 ser put m=0                             => ok kv#1
         epoch
         T1 ser @1 scan a..c ins b=1                => ok kv#2
         T2 ser @1 scan a..c ins a=1                => order_conflict merge: scan a..c at b by T1; merge: write a by T1
         T3 si @1 scan a..c ins a=1                 => ok kv#3",
    );
}

#[test]
fn the_last_in_the_order_gives_the_final_value() {
    check(
        "epoch
         T0 ser put x=0                             => ok kv#1
         epoch
         T1 ser put x=1                             => ok kv#3
         T2 ser @1 read x@T0 put q=1                => ok kv#2
         T3 ser put x=3                             => ok kv#4
         order => T2 T1 T3
         epoch
         T4 rr read x@T3 put y=1                    => ok kv#5
         T5 rr read x@T1 put z=1                    => read_conflict validate: read x seen T1 now T3",
    );
}

#[test]
fn the_winner_named_does_not_depend_on_the_number_of_shards() {
    for shards in 1..=8 {
        check(&format!(
            "shards {shards}
             apart
             epoch
             T0 ser put a=0 put c=0                 => ok kv#1
             T1 ser put b=1                         => ok kv#2
             T2 ser ins q=2                         => ok kv#3
             T3 ser @0 scan a..d ins q=3            => order_conflict merge: scan a..d at a by T0; merge: write q by T2
             T4 ser @0 scan b..d ins q=3            => order_conflict merge: scan b..d at b by T1; merge: write q by T2"
        ));
    }
}
