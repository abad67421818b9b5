//! The anomaly table (Hermitage in our notation) at all four levels. Each case runs on one node, on two nodes within
//! one epoch, and across two epochs, with all rows in one shard and with rows on different shards. Aborts must report
//! the right reason.
//!
//! G1b (a write set that writes one row twice) is rejected before it reaches the core; an API test covers it.

use tribunal_tests::script::check;

const LEVELS: [&str; 4] = ["rc", "rr", "si", "ser"];

/// Where the second transaction commits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    OneNode,
    TwoNodes,
    NextEpoch,
}

/// Plays a case at every level and place, in one shard and in eight. `{T2}` and `{next}` expand to the place of the
/// second transaction, `{L}` to the level. `expect` provides the expected results for `{1}`, `{2}` and so on.
fn every_way(case: &str, expect: impl Fn(&str, bool) -> Vec<&'static str>) {
    for level in LEVELS {
        for place in [Place::OneNode, Place::TwoNodes, Place::NextEpoch] {
            for shards in ["shards 1", "shards 8\napart"] {
                let next = place == Place::NextEpoch;
                let mut script = case.replace("{L}", level);
                script = script.replace("{T2}", if place == Place::TwoNodes { "T2@2" } else { "T2" });
                script = script.replace("{next}", if next { "epoch" } else { "" });
                for (i, expected) in expect(level, next).iter().enumerate() {
                    script = script.replace(&format!("{{{}}}", i + 1), expected);
                }
                check(&format!("stores kv sql\nnodes 2\n{shards}\nepoch\nT0 ser put x=10 put y=20 => ok\n{script}"));
            }
        }
    }
}

const BOTH: &str = "#1 put x=10,put y=20; #2 put x=11,put y=21; #3 put x=12,put y=22";
const FIRST: &str = "#1 put x=10,put y=20; #2 put x=11,put y=21";

#[test]
fn g0_dirty_writes_are_never_mixed() {
    every_way(
        "epoch
         T1 {L} @1 put x=11 put y=21                => ok
         {next}
         {T2} {L} @1 put x=12 put y=22              => {1}
         log kv                                     => {2}
         dry-run R rr read x@{3} read y@{3}         => {4}",
        |level, next| match (level, next) {
            ("si", true) => vec!["write_conflict validate: write x now T1", FIRST, "T1", "read_only 3"],
            ("rc" | "si", false) => vec!["write_conflict merge: write x by T1", FIRST, "T1", "read_only 2"],
            (_, true) => vec!["ok", BOTH, "T2", "read_only 3"],
            (_, false) => vec!["ok", BOTH, "T2", "read_only 2"],
        },
    );
}

#[test]
fn g1a_aborted_writes_are_never_read() {
    // Transaction 1 gives up or is aborted: its 101 is in no log, and a reader that saw 10 is right.
    every_way(
        "epoch
         T1 {L} @1 put x=101 upd q=1                => row_missing join: write q
         give T4                                    => 2.{3}
         {next}
         {T2} {L} @1 read x@T0 put z=1              => ok
         epoch
         T5 {L} @1 read x@2.1 put w=1               => {2}
         T4@2 {L} @1 put x=102                      => replayed 2.{3}
         log kv                                     => #1 put x=10,put y=20; #2 put z=1{1}",
        |level, next| {
            let invented = "read_conflict validate: read x seen 2.1 now T0";
            let item = if next { "1" } else { "2" };
            match level {
                "rc" => vec!["; #3 put w=1", "ok", item],
                _ => vec!["", invented, item],
            }
        },
    );
}

#[test]
fn g1c_circular_information_flow() {
    every_way(
        "epoch
         T1 {L} @1 read y@T0 put x=11               => ok
         {next}
         {T2} {L} @1 read x@T0 put y=22             => {1}",
        |level, next| match (level, next) {
            ("rr" | "ser", true) => vec!["read_conflict validate: read x seen T0 now T1"],
            ("rr" | "ser", false) => vec!["order_conflict merge: read x seen T0 by T1; merge: write y by T1"],
            _ => vec!["ok"],
        },
    );
}

#[test]
fn otv_an_observed_transaction_does_not_vanish() {
    // Transaction 3 sees x of 1 and y of 2, then both of 1, then both of 2.
    for level in LEVELS {
        let stale = "read_conflict validate: read x seen T1 now T2";
        let (mixed, old) = match level {
            "rc" => ("ok", "ok"),
            "si" => (stale, "ok"),
            _ => (stale, stale),
        };
        for shards in ["shards 1", "shards 8\napart"] {
            for node in ["T2", "T2@2"] {
                check(&format!(
                    "nodes 2
                     {shards}
                     epoch
                     T0 ser put x=10 put y=20               => ok
                     epoch
                     T1 {level} @1 put x=11 put y=19        => ok
                     epoch
                     {node} {level} @2 put x=12 put y=18    => ok
                     epoch
                     T3 {level} @2 read x@T1 read y@T2 put a=1 => {mixed}
                     T4 {level} @2 read x@T1 read y@T1 put b=1 => {old}
                     T5 {level} @3 read x@T2 read y@T2 put c=1 => ok
                     log kv => #1 put x=10,put y=20; #2 put x=11,put y=19; #3 put x=12,put y=18{}",
                    match level {
                        "rc" => "; #4 put a=1; #5 put b=1; #6 put c=1",
                        "si" => "; #4 put b=1; #5 put c=1",
                        _ => "; #4 put c=1",
                    }
                ));
            }
        }
    }
}

#[test]
fn pmp_a_predicate_read_twice_gives_the_same() {
    every_way(
        "epoch
         T1 {L} @1 ins 3=30                         => ok
         {next}
         {T2} {L} @1 scan 0..9 put z=1              => {1}",
        |level, next| match (level, next) {
            ("si" | "ser", true) => vec!["range_conflict validate: scan 0..9 changed in 2"],
            _ => vec!["ok"],
        },
    );
}

#[test]
fn p4_lost_update() {
    every_way(
        "epoch
         T1 {L} @1 read x@T0 upd x=11               => ok
         {next}
         {T2} {L} @1 read x@T0 upd x=11             => {1}",
        |level, next| match (level, next) {
            ("rc", true) => vec!["ok"],
            ("si", true) => vec!["write_conflict validate: write x now T1"],
            (_, true) => vec!["read_conflict validate: read x seen T0 now T1"],
            ("rr" | "ser", false) => vec!["order_conflict merge: read x seen T0 by T1; merge: write x by T1"],
            (_, false) => vec!["write_conflict merge: write x by T1"],
        },
    );
}

#[test]
fn g_single_read_skew() {
    // Transaction 2 read x before transaction 1, and y after it; within one epoch it can only have read both before.
    every_way(
        "epoch
         T1 {L} @1 put x=12 put y=18                => ok
         {next}
         {T2} {L} @1 read x@T0 read y@{1} put z=1   => {2}
         T3 {L} @1 read x@T0 read y@T0 put w=1      => {3}",
        |level, next| {
            let stale = "read_conflict validate: read x seen T0 now T1";
            match (level, next) {
                ("rc", true) => vec!["T1", "ok", "ok"],
                ("si", true) => vec!["T1", stale, "ok"],
                (_, true) => vec!["T1", stale, stale],
                (_, false) => vec!["T0", "ok", "ok"],
            }
        },
    );
}

#[test]
fn g2_item_write_skew() {
    every_way(
        "epoch
         T1 {L} @1 read x@T0 read y@T0 upd x=11     => ok
         {next}
         {T2} {L} @1 read x@T0 read y@T0 upd y=21   => {1}",
        |level, next| match (level, next) {
            ("rr" | "ser", true) => vec!["read_conflict validate: read x seen T0 now T1"],
            ("rr" | "ser", false) => vec!["order_conflict merge: read x seen T0 by T1; merge: write y by T1"],
            _ => vec!["ok"],
        },
    );
}

#[test]
fn g2_anti_dependency_cycles_through_predicates() {
    every_way(
        "epoch
         T1 {L} @1 scan 0..9 ins 3=30               => ok
         {next}
         {T2} {L} @1 scan 0..9 ins 4=42             => {1}",
        |level, next| match (level, next) {
            ("si" | "ser", true) => vec!["range_conflict validate: scan 0..9 changed in 2"],
            ("ser", false) => vec!["order_conflict merge: scan 0..9 at 3 by T1; merge: write 4 by T1"],
            _ => vec!["ok"],
        },
    );
}

#[test]
fn fekete_a_read_only_transaction_sees_no_order_that_never_existed() {
    every_way(
        "epoch
         T1 {L} @1 upd y=25                         => ok
         {next}
         {T2} {L} @1 read x@T0 read y@T0 upd x=0    => {1}
         dry-run R {L} read x@{2} read y@T1         => read_only {3}",
        |level, next| match (level, next) {
            ("rr" | "ser", true) => vec!["read_conflict validate: read y seen T0 now T1", "T0", "3"],
            (_, true) => vec!["ok", "T2", "3"],
            // Within one epoch the reader comes first, and no transaction can have seen (10, 25).
            (_, false) => vec!["ok", "T2", "2"],
        },
    );
    // The same with the reader in between: it saw (10, 25), so transaction 2 must not commit at serializable.
    for (level, expected) in [
        ("rc", "ok"),
        ("rr", "read_conflict validate: read y seen T0 now T1"),
        ("si", "ok"),
        ("ser", "read_conflict validate: read y seen T0 now T1"),
    ] {
        check(&format!(
            "shards 8
             apart
             epoch
             T0 ser put x=10 put y=20                   => ok
             epoch
             T1 {level} @1 upd y=25                     => ok
             dry-run R {level} @2 read x@T0 read y@T1   => read_only 2
             epoch
             T3 {level} @2 read x@T0 read y@T1 put r=1  => ok
             epoch
             T2 {level} @1 read x@T0 read y@T0 upd x=0  => {expected}"
        ));
    }
}

#[test]
fn long_fork_readers_agree_on_the_order_of_writers() {
    // One reader sees transaction 1 without 2, the other 2 without 1. If both wrote in one epoch, neither state ever
    // existed.
    every_way(
        "epoch
         T1 {L} @1 upd x=11                         => ok
         {next}
         {T2} {L} @1 upd y=21                       => ok
         epoch
         T3 {L} @2 read x@T1 read y@T0 put a=1      => {1}
         T4@2 {L} @{3} read x@T0 read y@T2 put b=1  => {2}",
        |level, next| {
            let (x, y) =
                ("read_conflict validate: read x seen T0 now T1", "read_conflict validate: read y seen T0 now T2");
            match (level, next) {
                ("rc", true) => vec!["ok", "ok", "3"],
                ("rc", false) => vec!["ok", "ok", "2"],
                ("si", true) => vec!["ok", x, "3"],
                (_, true) => vec![y, x, "3"],
                (_, false) => vec![y, x, "2"],
            }
        },
    );
}

#[test]
fn fractured_reads_across_stores() {
    // Transaction 2 sees the write of transaction 1 in one store, but not its write in the other.
    every_way(
        "epoch
         F ser @1 put sql/y=20                      => ok
         epoch
         T1 {L} @2 put x=11 put sql/y=19            => ok
         epoch
         {T2} {L} @3 read x@T1 read sql/y@F put z=1 => {1}
         T3 {L} @2 read x@T0 read sql/y@F put w=1   => {2}",
        |level, _| {
            let (x, y) =
                ("read_conflict validate: read x seen T0 now T1", "read_conflict validate: read sql/y seen F now T1");
            match level {
                "rc" => vec!["ok", "ok"],
                "si" => vec![y, "ok"],
                _ => vec![y, x],
            }
        },
    );
}

#[test]
fn mixed_levels_each_transaction_gets_what_its_own_level_promises() {
    // Write skew: a serializable transaction excludes it only for its own reads.
    let (stale, order) = (
        "read_conflict validate: read x seen T0 now T1",
        "order_conflict merge: read x seen T0 by T1; merge: write y by T1",
    );
    every_way(
        "epoch
         T1 ser @1 read x@T0 read y@T0 upd x=11     => ok
         {next}
         {T2} {L} @1 read x@T0 read y@T0 upd y=21   => {1}",
        |level, next| match (level, next) {
            ("rr" | "ser", true) => vec![stale],
            ("rr" | "ser", false) => vec![order],
            _ => vec!["ok"],
        },
    );
    every_way(
        "epoch
         T1 {L} @1 read x@T0 read y@T0 upd x=11     => ok
         {next}
         {T2} ser @1 read x@T0 read y@T0 upd y=21   => {1}",
        |level, next| match (level, next) {
            (_, true) => vec![stale],
            ("rr" | "ser", false) => vec![order],
            (_, false) => vec!["ok"],
        },
    );
}
