//! The cost of Raft groups' records: five groups that each append an entry of 1 KiB, then one sync; and a lagging
//! member that reads a group's entries.
//!
//! `cargo bench -p tribunal-log --bench groups [-- DIRECTORY]`.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tribunal_log::{DurableLog, EntryId, LogOptions};
use tribunal_types::{GroupId, Incarnation, NodeId};

const GROUPS: u16 = 5;
const ENTRY_BYTES: usize = 1024;
const ROUNDS: u64 = 2_000;
/// Rounds with one sync each; the other rounds measure everything but the disk.
const SYNCED: u64 = 300;
/// Bytes of entries in one response to a lagging member.
const ANSWER_BYTES: usize = 1024 * 1024;

fn group(node: u16) -> GroupId {
    GroupId { node: NodeId(node), incarnation: Incarnation(1) }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn measure(dir: &Path) {
    let mut opened = tribunal_log::open(dir, &LogOptions::default()).expect("a new log");
    let payload: Vec<u8> = (0..ENTRY_BYTES).map(|n| (n * 31) as u8).collect();
    let (mut appends, mut syncs, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    // The minimum cost of five durable entries: one write of their bytes each.
    let file = std::fs::File::create(dir.join("bare")).expect("a file");
    file.write_all_at(&vec![1; 8 << 20], 0).expect("written");
    file.sync_all().expect("synced");
    for round in 1..=ROUNDS {
        let start = Instant::now();
        for node in 1..=GROUPS {
            let id = EntryId { term: 1, index: round };
            opened.writer.append_group_entry(group(node), id, &payload).expect("appended");
        }
        appends.push(start.elapsed());
        let start = Instant::now();
        for n in 0..u64::from(GROUPS) {
            file.write_all_at(&payload, (round * u64::from(GROUPS) + n) % 8_000 * 1024).expect("written");
        }
        bare.push(start.elapsed());
        if round <= SYNCED {
            let start = Instant::now();
            opened.writer.sync().expect("synced");
            syncs.push(start.elapsed());
        }
    }
    opened.writer.sync().expect("synced");
    println!(
        "append: five entries p50 {:.2} us, five bare writes {:.2} us; sync p50 {:.0} us",
        median(appends),
        median(bare),
        median(syncs)
    );
    let reader = &opened.reader;
    for _ in 0..3 {
        let start = Instant::now();
        let mut bytes = 0;
        for index in 1..=ROUNDS {
            bytes += reader.group_entry(group(3), index).expect("read").map_or(0, |payload| payload.len());
        }
        let single = start.elapsed();
        let start = Instant::now();
        let mut next = 1;
        while next <= ROUNDS {
            let entries = reader.group_entries(group(3), next..ROUNDS + 1, ANSWER_BYTES).expect("read");
            bytes -= entries.iter().map(|entry| entry.payload.len()).sum::<usize>();
            next += entries.len() as u64;
        }
        assert_eq!(bytes, 0, "both read the same");
        let each = |time: Duration| time.as_secs_f64() * 1e6 / ROUNDS as f64;
        println!("read: {:.2} us an entry one by one, {:.2} us by ranges", each(single), each(start.elapsed()));
    }
}

fn main() {
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("tribunal-groups-{}", std::process::id()));
    for _ in 0..3 {
        measure(&dir);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
