//! Failing plugins: the native fallback decides the whole epoch, and the outcome records it.

use tribunal_tests::script::check;

#[test]
fn a_faulty_rule_is_replaced_by_the_native_fallback() {
    for rule in ["faulty", "short"] {
        check(&format!(
            "rule {rule}
             epoch
             T1 rc put x=1                          => ok kv#1
             T2 rc put x=2                          => write_conflict merge: write x by T1
             fallbacks => rule
             rule priority
             epoch
             T3 rc put x=1 prio=1                   => write_conflict merge: write x by T4
             T4 rc put x=2 prio=2                   => ok kv#2
             fallbacks =>"
        ));
    }
}

#[test]
fn a_rule_is_not_called_when_nothing_contends() {
    check(
        "rule faulty
         epoch
         T1 rc put x=1                              => ok kv#1
         T2 rc put y=2                              => ok kv#2
         fallbacks =>",
    );
}

#[test]
fn a_faulty_validator_is_replaced_by_the_native_fallback() {
    for validator in ["faulty", "short"] {
        check(&format!(
            "shards 3
             epoch
             T1 ser put x=1                         => ok kv#1
             validator {validator}
             epoch
             T2 rr @1 read x@- put y=1              => read_conflict validate: read x now T1
             T3 rr @1 read x@T1 put z=1             => ok kv#2
             fallbacks => repeatable-read"
        ));
    }
}

#[test]
fn a_validator_may_reject_with_a_code_of_its_own() {
    check(
        "validator 7
         epoch
         T1 ser put x=1                             => plugin:7 validate: write x
         T2 rc put y=1                              => plugin:7 validate: write y
         T3 si @0 scan a..b put z=1                 => plugin:7 validate: scan a..b",
    );
}

#[test]
fn a_witness_that_names_no_operation_is_replaced_by_the_first_one() {
    check(
        "validator wild
         epoch
         T1 rc put x=1                              => plugin:5 validate: write x
         T2 si @0 read y@- put z=1                  => plugin:5 validate: read y",
    );
}
