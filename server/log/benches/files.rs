//! The cost of the trait `Files`: writes and syncs through a trait object against the same system calls on the same
//! file.
//!
//! `cargo bench -p tribunal-log --bench files [-- DIRECTORY]`. Both take turns of many calls each; the ratio is the
//! median of the turns' ratios.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tribunal_log::{Files, LogFile, OpenMode, RealFiles};

/// Size of the file, which is overwritten repeatedly.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Turns of each of the two.
const TURNS: usize = 201;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures pairs of turns, `calls` calls per turn.
fn compare(what: &str, calls: u32, mut by_trait: impl FnMut(u64), mut direct: impl FnMut(u64)) {
    let mut at = 0;
    let mut turn = |call: &mut dyn FnMut(u64)| {
        let start = Instant::now();
        for _ in 0..calls {
            at += 1;
            call(at);
        }
        start.elapsed()
    };
    let (mut times, mut ratios): ([Vec<f64>; 2], Vec<f64>) = Default::default();
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(calls);
    for n in 0..TURNS {
        // Each of them goes first in every other pair.
        let (with, without) = if n % 2 == 0 {
            let with = turn(&mut by_trait);
            (with, turn(&mut direct))
        } else {
            let without = turn(&mut direct);
            (turn(&mut by_trait), without)
        };
        times[0].push(micros(with));
        times[1].push(micros(without));
        ratios.push(with.as_secs_f64() / without.as_secs_f64());
    }
    let [with, without] = times.map(median);
    println!("{what}: by trait {with:.3} us, direct {without:.3} us, ratio {:.3}", median(ratios));
}

fn run(dir: &Path) -> std::io::Result<()> {
    let path = dir.join("file");
    let files: Box<dyn Files> = black_box(Box::new(RealFiles));
    let by_trait: Box<dyn LogFile> = files.open(&path, OpenMode::Create)?;
    by_trait.write_all_at(&vec![1; FILE_BYTES as usize], 0)?;
    by_trait.sync_all()?;
    let direct = File::options().read(true).write(true).open(&path)?;
    for bytes in [512, 4096, 65_536] {
        let content = vec![7; bytes];
        let offset = |at: u64| at * bytes as u64 % FILE_BYTES;
        compare(
            &format!("write of {bytes} bytes"),
            200,
            |at| black_box(&by_trait).write_all_at(&content, offset(at)).expect("written"),
            |at| FileExt::write_all_at(black_box(&direct), &content, offset(at)).expect("written"),
        );
    }
    let content = vec![7; 4096];
    let offset = |at: u64| at * 4096 % FILE_BYTES;
    compare(
        "write of 4096 bytes and fdatasync",
        2,
        |at| {
            black_box(&by_trait).write_all_at(&content, offset(at)).expect("written");
            black_box(&by_trait).sync_data().expect("synced");
        },
        |at| {
            FileExt::write_all_at(black_box(&direct), &content, offset(at)).expect("written");
            black_box(&direct).sync_data().expect("synced");
        },
    );
    Ok(())
}

fn main() {
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("tribunal-files-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let result = run(&dir);
    let _ = std::fs::remove_dir_all(&dir);
    result.expect("a disk that works");
}
