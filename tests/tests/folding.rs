//! Folding of group logs and visibility, on random histories, against the plainest account of both: a table with one
//! line for every epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_core::epochs::{Epochs, Folded};
use tribunal_core::visibility::Visibility;
use tribunal_tests::cluster::group;
use tribunal_types::{Batch, Epoch, FenceItem, Lsn, StoreId};

/// A committed entry of some group's log, before it is known whether it counts.
#[derive(Clone, Debug)]
struct EntryChoice {
    /// 0 starts where it should; others miss that by so many epochs.
    off: i64,
    length: u64,
    clock_ms: u64,
    has_items: bool,
}

fn entry() -> impl Strategy<Value = EntryChoice> {
    let off = prop_oneof![6 => Just(0_i64), 1 => -2..3_i64];
    (off, prop_oneof![3 => Just(1_u64), 1 => 1..5_u64], 0..50_u64, prop::bool::weighted(0.6))
        .prop_map(|(off, length, clock_ms, has_items)| EntryChoice { off, length, clock_ms, has_items })
}

/// What one group's log says of one epoch.
#[derive(Clone, Copy, Debug)]
struct Line {
    clock_ms: u64,
    /// The epoch carries the entry's items.
    has_items: bool,
}

/// A group's log: its entries in order, whether each counts, and what it says of every epoch.
struct Log {
    entries: Vec<(Arc<Batch>, bool)>,
    lines: BTreeMap<u64, Line>,
}

fn log_of(node: u16, choices: &[EntryChoice]) -> Log {
    let mut log = Log { entries: Vec::new(), lines: BTreeMap::new() };
    let mut next = 1;
    for choice in choices {
        let first = u64::try_from(next as i64 + choice.off).unwrap_or(0);
        let last = first + choice.length - 1;
        let fence = FenceItem { id: Default::default(), namespace: Default::default() };
        let batch = Batch {
            group: group(node),
            first: Epoch(first),
            last: Epoch(last),
            clock_ms: choice.clock_ms,
            fences: vec![fence; usize::from(choice.has_items)],
            ..Batch::default()
        };
        let counts = first == next;
        log.entries.push((Arc::new(batch), counts));
        if counts {
            for epoch in first..=last {
                let has_items = choice.has_items && epoch == last;
                log.lines.insert(epoch, Line { clock_ms: choice.clock_ms, has_items });
            }
            next = last + 1;
        }
    }
    log
}

/// An epoch with items: number, time, nodes that contribute.
type Told = (u64, u64, Vec<u16>);

/// Goes through the epochs one by one.
fn expected(logs: &[Log]) -> (Vec<Told>, u64, u64) {
    let mut told = Vec::new();
    let (mut epoch, mut time_ms) = (1, 0);
    while let Some(lines) = logs.iter().map(|log| log.lines.get(&epoch)).collect::<Option<Vec<_>>>() {
        let mut clocks: Vec<u64> = lines.iter().map(|line| line.clock_ms).collect();
        clocks.sort_unstable();
        time_ms = time_ms.max(clocks[(clocks.len() - 1) / 2]);
        let nodes: Vec<u16> = (1..).zip(&lines).filter(|(_, line)| line.has_items).map(|(node, _)| node).collect();
        if !nodes.is_empty() {
            told.push((epoch, time_ms, nodes));
        }
        epoch += 1;
    }
    (told, epoch - 1, time_ms)
}

fn polled(epochs: &mut Epochs, told: &mut Vec<Told>) {
    while let Some(input) = epochs.poll() {
        let nodes = input.batches.iter().map(|batch| batch.group.node.0).collect();
        told.push((input.epoch.0, input.epoch_time_ms, nodes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn folding_agrees_with_a_table_of_epochs_in_any_order_of_arrival(
        choices in vec(vec(entry(), 0..12), 1..=4),
        arrival in vec((0..4_usize, any::<bool>()), 0..60),
        restart_at in 0..30_usize,
    ) {
        let logs: Vec<Log> = choices.iter().enumerate().map(|(i, log)| log_of(i as u16 + 1, log)).collect();
        let members: Vec<_> = (1..=logs.len() as u16).map(group).collect();
        let mut epochs = Epochs::new(&members, Epoch(1), 0);
        let mut told = Vec::new();
        let mut read = vec![0; logs.len()];
        // Whatever the arrival left over, and what a restart made it read again.
        let rest = (0..logs.len()).flat_map(|log| std::iter::repeat_n((log, true), logs[log].entries.len()));
        let rest: Vec<_> = rest.collect();
        for (step, (log, poll)) in arrival.iter().chain(&rest).chain(&rest).copied().enumerate() {
            let log = log % logs.len();
            if let Some((batch, counts)) = logs[log].entries.get(read[log]) {
                read[log] += 1;
                let folded = epochs.entry(Arc::clone(batch));
                prop_assert_eq!(folded == Folded::Counted, *counts);
            }
            if poll {
                polled(&mut epochs, &mut told);
            }
            if step == restart_at {
                // A restart remembers the last epoch polled and the cursors, and reads the logs again from there.
                let cursors = epochs.cursors();
                epochs = Epochs::resume(&cursors, epochs.last_complete().next(), epochs.epoch_time_ms());
                for (log, (_, cursor)) in cursors.iter().enumerate() {
                    let still_needed = logs[log].entries.iter().position(|(b, counts)| *counts && b.first == *cursor);
                    read[log] = still_needed.unwrap_or(read[log]).min(read[log]);
                }
            }
        }
        polled(&mut epochs, &mut told);
        let (expected, last, time_ms) = expected(&logs);
        prop_assert_eq!(told, expected);
        prop_assert_eq!((epochs.last_complete().0, epochs.epoch_time_ms()), (last, time_ms));
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
