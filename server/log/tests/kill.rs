//! A writing process is killed at any moment: everything it had acknowledged exists, and nothing exists in part.
//!
//! `TRIBUNAL_KILLS` sets the number of kills; 20 by default, 1000 for a full run.

mod fixture;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixture::{Dir, Random, batch, outcome};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::DurableLog;
use tribunal_types::Epoch;

const CHILD: &str = "TRIBUNAL_LOG_KILL_CHILD";

/// Writes epochs and reports each one after its sync, until it is killed. It is a test only so that this binary can
/// start it.
#[test]
fn child_that_writes_until_killed() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let mut opened = tribunal_log::open(dir.as_ref(), &fixture::options()).unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut heads = [0; 3];
    // Positions continue from the log's heads.
    for store in [1, 2] {
        heads[store] = opened.reader.head(tribunal_types::StoreId(store as u32)).0;
    }
    let missing: Vec<_> = opened.reader.entries_from(Epoch(1)).map(Result::unwrap).filter(|e| e.1.is_none()).collect();
    for (input, _) in missing {
        opened.writer.append_outcome(&outcome(&input.batches[0], &mut heads)).unwrap();
    }
    let mut out = std::io::stdout();
    for epoch in opened.recovered.next.0.. {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        opened.writer.append(&batch).unwrap();
        opened.writer.sync().unwrap();
        writeln!(out, "acked {epoch}").unwrap();
        out.flush().unwrap();
        opened.writer.append_outcome(&outcome(&batch, &mut heads)).unwrap();
    }
}

#[test]
fn acknowledged_entries_survive_kill_minus_nine() {
    let kills = std::env::var("TRIBUNAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_u64);
    let dir = Dir::new("kill");
    let mut random = Random(kills);
    let mut acked = 0;
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_killed", "--nocapture"])
            .env(CHILD, &dir.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let want = 1 + random.below(60);
        let mut seen = 0;
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(epoch) = line.rsplit_once("acked ").and_then(|(_, epoch)| epoch.parse::<u64>().ok()) {
                assert_eq!(epoch, acked + 1, "round {round}: an epoch was acknowledged twice or skipped");
                acked = epoch;
                seen += 1;
                if seen >= want {
                    break;
                }
            }
        }
        assert!(seen > 0, "round {round}: the child wrote nothing after epoch {acked}");
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // The epochs acknowledged between the last line read and the kill.
        for line in lines.map_while(Result::ok) {
            if let Some(epoch) = line.rsplit_once("acked ").and_then(|(_, epoch)| epoch.parse::<u64>().ok()) {
                acked = epoch;
            }
        }
        acked = check(&dir, acked, round);
    }
    println!("{kills} kills, {acked} epochs acknowledged, all of them there");
}

/// Returns the last epoch in the log, which may be one that was written but not acknowledged.
fn check(dir: &Dir, acked: u64, round: u64) -> u64 {
    let opened = dir.open().unwrap_or_else(|error| panic!("round {round}: {error}"));
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let last = opened.recovered.next.0 - 1;
    assert!(last >= acked, "round {round}: epoch {acked} was acknowledged, the log ends with {last}");
    assert!(last <= acked + 1, "round {round}: epoch {last} appeared from nowhere");
    // Checks the whole log every tenth time, and otherwise its end.
    let from = if round.is_multiple_of(10) { 1 } else { last.saturating_sub(100).max(1) };
    let mut expected = from;
    let mut without_outcome = 0;
    for entry in opened.reader.entries_from(Epoch(from)) {
        let (input, outcome) = entry.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(*input.batches[0], batch(opened.recovered.group, &keyer, expected), "round {round}");
        match outcome {
            Some(outcome) => {
                assert_eq!(without_outcome, 0, "round {round}: an outcome is missing in the middle");
                assert_eq!(outcome.decisions.len(), input.batches[0].txns.len());
            }
            None => without_outcome += 1,
        }
        expected += 1;
    }
    assert_eq!(expected, last + 1, "round {round}");
    assert!(without_outcome <= 3, "round {round}: {without_outcome} outcomes are missing");
    last
}
