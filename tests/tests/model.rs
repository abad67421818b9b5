//! The core against the naive oracle, on random small worlds. `TRIBUNAL_MODEL_CASES` sets how many (10,000 if unset);
//! a failure prints the smallest world that still fails and the seed that leads there.

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tribunal_tests::generate::world;
use tribunal_tests::model::check;

const CASES_DEFAULT: u32 = 10_000;

#[test]
fn the_core_agrees_with_the_oracle_in_every_way_of_playing() {
    let cases = std::env::var("TRIBUNAL_MODEL_CASES").ok();
    let cases = cases.map_or(CASES_DEFAULT, |n| n.parse().expect("TRIBUNAL_MODEL_CASES is a number"));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    if let Err(failed) = runner.run(&world(), |world| check(&world).map_err(TestCaseError::fail)) {
        panic!("{failed}");
    }
}
