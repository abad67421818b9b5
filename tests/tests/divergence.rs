//! A planted bug: one node of a cluster decides an epoch differently from all others. The running members must detect
//! it from their exchanged reports, and only that node must stop.
//!
//! `cargo test -p tribunal-tests --features planted-bugs --test divergence`

use tribunal_core::planted::{Bug, plant};
use tribunal_tests::sim::faults::Faults;
use tribunal_tests::sim::{Run, play};

/// Simulated clusters.
const SEEDS: u64 = 100;

#[test]
fn a_node_that_decides_otherwise_stops() {
    plant(Some(Bug::OneNodeDiverges));
    let stops = format!("node {} stops: the state", Bug::DIVERGING_NODE);
    let mut named = 0;
    for seed in 1..=SEEDS {
        let played = play(Run { seed, trace: false, planted: None, faults: Faults::All });
        let wrong = played.err().map(|wrong| wrong.0).unwrap_or_default();
        assert!(wrong.contains(&stops) && wrong.contains("diverged"), "seed {seed}: {wrong}");
        named += u64::from(wrong.contains("from that of a majority"));
    }
    // While other nodes are slow or cut off, the node cannot learn whether they agree with each other.
    assert!(named > SEEDS / 2, "only {named} of {SEEDS} could tell what the majority has");
}
