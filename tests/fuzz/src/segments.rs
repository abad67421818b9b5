//! The files of a log, damaged in any way: the log opens with what had been written, or refuses and says why; what
//! refuses can be salvaged, and opens then.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, LogError, Opened, salvage};
use tribunal_types::{ControlChange, ControlIndex, Epoch, StoreId, StoreSpec};

#[path = "../../../server/log/tests/fixture/mod.rs"]
mod fixture;

use fixture::{Dir, batch, outcome};

/// Epochs in the log.
const EPOCHS: u64 = 12;
/// Steps of one damage.
const STEPS_MAX: usize = 16;

struct Written {
    dir: Dir,
    /// Its files, by name, with what they hold.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// A log that was closed in order, written once.
fn written() -> &'static Written {
    static WRITTEN: OnceLock<Written> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let dir = Dir::new("fuzz");
        write(dir.open().expect("a new log"));
        let mut files = Vec::new();
        let mut folders = vec![dir.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("lock") {
                    let name = path.strip_prefix(&dir.0).expect("inside").to_owned();
                    files.push((name, fs::read(&path).expect("a file")));
                }
            }
        }
        files.sort();
        Written { dir, files }
    })
}

fn write(mut opened: Opened) {
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let change = ControlChange::DeclareStore(StoreSpec { id: StoreId(1), ..StoreSpec::default() }).into();
    opened.writer.append_control(ControlIndex(1), &change).expect("written");
    let mut heads = [0; 3];
    for epoch in 1..=EPOCHS {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        opened.writer.append(&batch).expect("written");
        opened.writer.sync().expect("synced");
        opened.writer.append_outcome(&outcome(&batch, &mut heads)).expect("written");
    }
    opened.writer.sync().expect("synced");
    opened.writer.idle_mark().expect("marked");
}

/// Damages the log as the bytes say, and tells whether it opened all the same: steps of a kind, a file, a place and a length, eight bytes each.
pub fn run(data: &[u8]) -> bool {
    let written = written();
    let mut files = written.files.clone();
    for step in data.chunks_exact(8).take(STEPS_MAX) {
        let count = files.len();
        let (_, bytes) = &mut files[usize::from(step[1]) % count];
        damage(bytes, step);
    }
    let copy = Dir::new("fuzz-copy");
    for (name, bytes) in &files {
        let path = copy.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, bytes).expect("written");
    }
    let Err(error) = copy.open().and_then(read) else { return true };
    assert!(!error.to_string().is_empty());
    if salvage(&copy.0).is_ok() {
        copy.open().and_then(read).expect("what was salvaged is whole");
    }
    false
}

fn damage(bytes: &mut Vec<u8>, step: &[u8]) {
    // In the data, not in the zeros after it.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if used == 0 {
        return;
    }
    let at = u32::from_le_bytes([step[2], step[3], step[4], step[5]]) as usize % used;
    let len = usize::from(u16::from_le_bytes([step[6], step[7]]));
    let end = (at + len).min(used);
    match step[0] % 6 {
        0 => bytes[at] ^= 1 << (len % 8),
        1 => bytes[at..end].fill(0),
        2 => bytes[at..].fill(0),
        3 => bytes.truncate(at),
        // A piece of the file stands at another place, too.
        4 => {
            let piece = bytes[at..end].to_vec();
            let to = (at / 2).min(used - piece.len());
            bytes[to..to + piece.len()].copy_from_slice(&piece);
        }
        _ => bytes[at..end].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(step[0])),
    }
}

/// Reads all that an open log has, and compares it with what was written.
fn read(opened: Opened) -> Result<(), LogError> {
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let first = opened.reader.batches_from(Epoch(1)).next().transpose()?.map_or(1, |batch| batch.first.0);
    for (expected, entry) in (first..).zip(opened.reader.entries_from(Epoch(first))) {
        let (input, _) = entry?;
        if input.batches[0].is_empty() {
            // A salvage seals the epochs that the lost part may have used.
            continue;
        }
        let written = batch(input.batches[0].group, &keyer, expected);
        assert_eq!(*input.batches[0], written, "an epoch that nobody wrote");
    }
    Ok(())
}

/// Writes the log.
pub fn warm_up() {
    let _ = &written().dir;
}
