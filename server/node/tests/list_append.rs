//! The checker of list-append histories finds and names each planted anomaly, and finds none in a clean history.

mod support;

use std::collections::BTreeMap;

use support::list_append::{Ending, Kind, Txn, check};

/// Returns a transaction in flight from `begun` to `ended`, with its reads and its appends, each to a list of one
/// letter.
fn txn(name: &str, begun: u64, ended: u64, reads: &[(&str, &[u64])], appends: &[(&str, u64)]) -> Txn {
    Txn {
        name: name.to_owned(),
        begun: Some(begun),
        ending: Ending::Committed(ended),
        reads: reads.iter().map(|(key, list)| ((*key).to_owned(), list.to_vec())).collect(),
        appends: appends.iter().map(|(key, element)| ((*key).to_owned(), *element)).collect(),
    }
}

fn aborted(mut txn: Txn) -> Txn {
    txn.ending = Ending::Aborted;
    txn
}

/// Checks the kinds of anomalies found in a history with these final lists.
fn finds(history: &[Txn], last: &[(&str, &[u64])], expected: &[Kind]) {
    let last: BTreeMap<String, Vec<u64>> = last.iter().map(|(key, list)| ((*key).to_owned(), list.to_vec())).collect();
    let found = check(history, &last);
    let mut kinds: Vec<Kind> = found.iter().map(|anomaly| anomaly.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, expected, "{found:#?}");
}

#[test]
fn a_serial_history_is_correct() {
    let history = [
        txn("a", 0, 10, &[("x", &[])], &[("x", 1)]),
        txn("b", 5, 20, &[("x", &[1]), ("y", &[])], &[("y", 2)]),
        txn("c", 15, 30, &[("x", &[1]), ("y", &[2])], &[("x", 3)]),
        // Concurrent with the third: before it in the order.
        txn("d", 16, 40, &[("x", &[1])], &[]),
        aborted(txn("e", 16, 40, &[("x", &[7, 7])], &[("x", 4)])),
    ];
    finds(&history, &[("x", &[1, 3]), ("y", &[2])], &[]);
}

#[test]
fn a_lost_update_is_found() {
    // Both append to the same version: the second overwrites the first.
    let history = [
        txn("a", 0, 10, &[("x", &[])], &[("x", 1)]),
        txn("b", 0, 10, &[("x", &[])], &[("x", 2)]),
        txn("c", 20, 30, &[("x", &[2])], &[]),
    ];
    finds(&history, &[("x", &[2])], &[Kind::LostAppend, Kind::LostUpdate]);
    // If the storage appends by itself, the overwritten read reveals it.
    finds(&history[..2], &[("x", &[1, 2])], &[Kind::LostUpdate, Kind::GSingle]);
}

#[test]
fn a_lost_commit_is_found() {
    let history = [txn("a", 0, 10, &[("x", &[])], &[("x", 1)]), txn("b", 0, 10, &[("y", &[])], &[("y", 2)])];
    finds(&history, &[("x", &[1]), ("y", &[])], &[Kind::LostAppend]);
}

#[test]
fn write_skew_is_found() {
    let both: &[(&str, &[u64])] = &[("x", &[]), ("y", &[])];
    let history = [txn("a", 0, 10, both, &[("x", 1)]), txn("b", 0, 10, both, &[("y", 2)])];
    finds(&history, &[("x", &[1]), ("y", &[2])], &[Kind::G2]);
}

#[test]
fn dirty_reads_are_found() {
    let write = txn("a", 0, 10, &[("x", &[])], &[("x", 1)]);
    let read = txn("b", 0, 10, &[("x", &[1])], &[]);
    finds(&[aborted(write.clone()), read.clone()], &[("x", &[])], &[Kind::TwoOrders, Kind::AbortedRead]);
    // It was not read, but it stayed.
    finds(&[aborted(write)], &[("x", &[1])], &[Kind::AbortedRead]);
    // No transaction wrote it.
    finds(&[read], &[("x", &[1])], &[Kind::Garbage]);
}

#[test]
fn read_skew_is_found() {
    let history = [
        txn("a", 0, 10, &[("x", &[]), ("y", &[])], &[("x", 1), ("y", 2)]),
        txn("b", 0, 10, &[("x", &[]), ("y", &[2])], &[]),
    ];
    finds(&history, &[("x", &[1]), ("y", &[2])], &[Kind::GSingle]);
}

#[test]
fn writes_in_two_orders_are_found() {
    let history = [txn("a", 0, 10, &[], &[("x", 1), ("y", 2)]), txn("b", 0, 10, &[], &[("x", 3), ("y", 4)])];
    finds(&history, &[("x", &[1, 3]), ("y", &[4, 2])], &[Kind::G0]);
}

#[test]
fn reads_from_each_other_are_found() {
    let history = [txn("a", 0, 10, &[("y", &[2])], &[("x", 1)]), txn("b", 0, 10, &[("x", &[1])], &[("y", 2)])];
    finds(&history, &[("x", &[1]), ("y", &[2])], &[Kind::G1c]);
}

#[test]
fn two_orders_of_one_list_are_found() {
    let history =
        [txn("a", 0, 10, &[], &[("x", 1)]), txn("b", 0, 10, &[], &[("x", 2)]), txn("c", 0, 10, &[("x", &[2])], &[])];
    finds(&history, &[("x", &[1, 2])], &[Kind::TwoOrders, Kind::GSingle]);
}

#[test]
fn a_read_of_what_was_overwritten_long_ago_is_found() {
    let mut history = [txn("a", 0, 10, &[], &[("x", 1)]), txn("b", 20, 30, &[("x", &[])], &[])];
    finds(&history, &[("x", &[1])], &[Kind::RealTime]);
    // Unless the client never learned that it had committed.
    let mut unseen = history.clone();
    unseen[0].ending = Ending::CommittedUnseen;
    finds(&unseen, &[("x", &[1])], &[]);
    // Or it did not request the newest state.
    history[1].begun = None;
    finds(&history, &[("x", &[1])], &[]);
}

#[test]
fn a_long_history_is_checked_and_one_anomaly_in_it_is_found() {
    let mut history: Vec<Txn> = Vec::new();
    let mut lists = vec![Vec::new(); 5];
    for n in 0..5_000_u64 {
        let (at, other) = ((n % 5) as usize, (n * 7 % 5) as usize);
        let key = |at: usize| format!("list/{at}");
        let mut reads = vec![(key(at), lists[at].clone())];
        if other != at {
            reads.push((key(other), lists[other].clone()));
        }
        if lists[at].len() >= 400 {
            continue;
        }
        lists[at].push(n);
        let (name, ending) = (n.to_string(), Ending::Committed(10 * n + 15));
        history.push(Txn { name, begun: Some(10 * n), ending, reads, appends: vec![(key(at), n)] });
    }
    let last: BTreeMap<String, Vec<u64>> = (0..5).map(|at| (format!("list/{at}"), lists[at].clone())).collect();
    assert!(history.len() == 2_000 && check(&history, &last).is_empty());
    // A transaction that read an old version of another list.
    let skewed =
        history.iter().position(|txn| txn.reads.len() == 2 && txn.reads[1].1.len() > 300).expect("one of them");
    history[skewed].reads[1].1.truncate(100);
    let kinds: Vec<Kind> = check(&history, &last).iter().map(|anomaly| anomaly.kind).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == Kind::GSingle), "{kinds:?}");
}
