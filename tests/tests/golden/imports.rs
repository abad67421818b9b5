//! Imported versions: existing data becomes known; known versions are never overwritten.

use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::Policies;
use tribunal_core::resolver::ResolverConfig;
use tribunal_tests::cluster::{Cluster, EpochPlan, tracked};
use tribunal_tests::scenario::{Keying, Row};
use tribunal_tests::script::check;
use tribunal_types::{Epoch, Generation, StoreId, Version};

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

/// `x` is written in epoch 1 and deleted in epoch 2, and the floor passes the deletion.
const DELETED_BELOW_THE_FLOOR: &str = "floor_age 1000
     epoch
     T1 ser put x=1 put z=1                     => ok kv#1
     epoch
     T2 ser del x                               => ok kv#2
     epoch at +2000
     T3 ser put y=1                             => ok kv#3
     epoch at +2000
     T4 ser put y=2                             => ok kv#4
     floor => 3";

#[test]
fn an_import_does_not_bring_back_a_row_that_was_deleted() {
    for restart in ["", "restart"] {
        check(&format!(
            "generation 2
             {DELETED_BELOW_THE_FLOOR}
             {restart}
             epoch
             import x 1.0
             import v 2.9
             imported => 0
             epoch
             T5 rr read x@T1 put a=1            => read_conflict validate: read x seen T1
             T6 rc ins x=2                      => ok kv#5"
        ));
    }
}

#[test]
fn the_first_generation_imports_as_it_always_has() {
    check(&format!(
        "generation 1
         {DELETED_BELOW_THE_FLOOR}
         epoch
         import x 1.0
         imported => 1
         epoch
         T5 rr read x@T1 put a=1                => ok kv#5"
    ));
}

#[test]
fn versions_after_the_last_forgotten_deletion_of_their_store_are_imported() {
    check(&format!(
        "generation 2
         stores kv log
         {DELETED_BELOW_THE_FLOOR}
         epoch
         T5 ser del z                           => ok kv#5
         import x 3.1
         import w 3.0
         import log/x 0.1
         imported => 3
         epoch
         T6 rr read x@3.1 put a=1               => ok kv#6"
    ));
}

#[test]
fn what_was_deleted_before_the_switch_is_not_known_so_nothing_older_is_imported() {
    check(&format!(
        "generation 1
         stores kv log
         {DELETED_BELOW_THE_FLOOR}
         switch 2
         epoch
         import x 1.0
         import w 3.0
         import log/x 0.1
         imported => 1
         epoch at +2000
         T5 ser put y=3                         => ok kv#5
         epoch at +2000
         T6 ser put y=4                         => ok kv#6
         epoch
         import x 4.9
         import w 5.1
         imported => 1"
    ));
}

#[test]
fn imported_rows_fix_what_decides_existence() {
    let mut cluster = Cluster::new(1, Keying::Hashed, ResolverConfig::default(), &[tracked(1, "kv")]);
    let rule_fallback = NativeRule::FirstWriterWins;
    let policies = Policies { rule: &rule_fallback, validator: &NativeValidator, rule_fallback };
    let imported = (Row::new(1, "x"), Version::new(Epoch(0), 1).expect("fits"), false);
    let played = cluster.play(&EpochPlan { imports: vec![imported], ..EpochPlan::default() }, &policies);
    assert_eq!(played.map(|played| played.outcome.imported.iter().sum::<u64>()), Some(1));
    assert!(!cluster.resolver.is_existence_fixed(StoreId(1)), "the first generation looks at records only");
    cluster.resolver.switch_generation(Generation::SECOND);
    assert!(cluster.resolver.is_existence_fixed(StoreId(1)) && !cluster.resolver.is_existence_fixed(StoreId(2)));
}
