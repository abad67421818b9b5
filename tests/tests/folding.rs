//! Folding of group logs and visibility, on random histories, against the simplest possible model
//! of both.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tribunal_core::visibility::Visibility;
use tribunal_tests::folding::{Seen, arrival, check, history};
use tribunal_types::{Epoch, Lsn, StoreId};

/// The histories must contain the cases they are meant to test.
#[test]
fn random_histories_join_close_wait_and_share_epochs() {
    let mut runner = TestRunner::deterministic();
    let mut sum = Seen::default();
    for _ in 0..1_000 {
        let (history, arrival) = (history(), arrival()).new_tree(&mut runner).expect("a history").current();
        let seen = check(&history, &arrival).unwrap_or_else(|wrong| panic!("{history:?}\n{arrival:?}\n{wrong}"));
        sum.epochs += seen.epochs;
        sum.shared += seen.shared;
        sum.joins += seen.joins;
        sum.closes += seen.closes;
        sum.barriers += seen.barriers;
        sum.waits += seen.waits;
        sum.void += seen.void;
    }
    let Seen { epochs, shared, joins, closes, barriers, waits, void } = sum;
    let least = [epochs, shared, joins, closes, barriers, waits, void].into_iter().min();
    assert!(least >= Some(100), "too little happens in a thousand histories: {sum:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn folding_agrees_with_a_table_of_epochs_in_any_order_of_arrival(history in history(), arrival in arrival()) {
        let checked = check(&history, &arrival);
        prop_assert!(checked.is_ok(), "{}", checked.unwrap_err());
    }

    #[test]
    fn a_store_has_applied_exactly_the_epochs_it_acknowledged(
        steps in vec((0..3_u8, 0..4_u64, 0..40_u64), 0..60),
    ) {
        let store = StoreId(1);
        let mut seen = Visibility::new(Epoch(0));
        let (mut records, mut epoch, mut acked) = (Vec::<u64>::new(), 0, 0_u64);
        for (what, count, at) in steps {
            match what {
                0 => {
                    epoch += 1 + at % 3;
                    records.extend(std::iter::repeat_n(epoch, count as usize));
                    let ends: &[(StoreId, Lsn)] = &[(store, Lsn(records.len() as u64))];
                    seen.note_epoch(Epoch(epoch), if count == 0 { &[] } else { ends });
                }
                1 => {
                    acked = acked.max(at.min(records.len() as u64));
                    seen.acked(store, Lsn(at));
                }
                _ => {
                    if !records.is_empty() {
                        acked = at.min(records.len() as u64);
                        seen.rewound(store, Lsn(at));
                    }
                }
            }
            let first_pending = records.get(acked as usize);
            let expected = first_pending.map_or(epoch, |pending| pending - 1);
            prop_assert_eq!(seen.applied(store), Epoch(expected));
        }
    }
}
