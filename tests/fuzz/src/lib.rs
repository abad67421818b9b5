//! Fuzz targets: one function for each place where bytes of somebody else come in. Each takes any bytes, asserts what must
//! hold whatever they are, and panics on nothing else.
//!
//! `tests/replay.rs` runs them on stable Rust, in CI: over the corpora that are checked in, and over mutations of these,
//! always the same. `libfuzzer` is a crate for `cargo fuzz` over the same functions, for looking further. An input that
//! found a bug goes into `corpus` together with the fix. Files there whose names begin with `ok-` must be taken, so
//! that a target does not come to refuse everything at its door.

pub mod bodies;
pub mod frames;
pub mod fronts;
pub mod memory;
pub mod mutate;
pub mod outputs;
pub mod records;
pub mod replies;
pub mod segments;
pub mod tokens;
pub mod traces;
pub mod uploads;

// The node is a program and no library: what it makes of keys and tokens is compiled in here once more.
#[path = "../../../server/node/src/named_file.rs"]
mod named_file;
#[path = "../../../server/node/src/auth"]
mod auth {
    pub mod jwt;
    #[cfg_attr(not(test), expect(dead_code, reason = "most of it is for the node"))]
    pub mod keys;
    pub mod public_key;
}

use std::path::PathBuf;

/// A place where bytes come in.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of its corpus and of its program for `cargo fuzz`.
    pub name: &'static str,
    /// Takes any bytes; tells whether they were taken for what they should be, rather than refused.
    pub run: fn(&[u8]) -> bool,
    /// Inputs that are made here rather than checked in, because they are large or follow from the code. All must be taken.
    pub made: fn() -> Vec<Vec<u8>>,
    /// Mutated inputs of one replay.
    pub mutations: usize,
    /// Makes what is made once, so that a replay does not count it as an input's memory.
    pub warm_up: fn(),
    /// Memory that one input may take beyond 64 times its own length, bytes.
    pub memory_bytes_max: usize,
    /// Whether the target catches panics of a library, which then do not count.
    pub catches_panics: bool,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8]) -> bool, mutations: usize, memory_bytes_max: usize) -> Target {
        Target { name, run, made: Vec::new, mutations, warm_up: || {}, memory_bytes_max, catches_panics: false }
    }
}

/// All targets.
pub const TARGETS: [Target; 10] = [
    Target::new("body", bodies::run, 20_000, 8 << 20),
    Target::new("record", records::run, 200_000, 64 << 20),
    Target { warm_up: segments::warm_up, catches_panics: true, ..Target::new("segment", segments::run, 24, 256 << 20) },
    Target { made: uploads::made, warm_up: uploads::warm_up, ..Target::new("upload", uploads::run, 300, 256 << 20) },
    Target { warm_up: outputs::warm_up, ..Target::new("output", outputs::run, 20_000, 64 << 20) },
    Target::new("reply", replies::run, 600, 64 << 20),
    Target { warm_up: tokens::warm_up, ..Target::new("token", tokens::run, 50_000, 8 << 20) },
    Target::new("traceparent", traces::run, 100_000, 1 << 20),
    Target { made: frames::made, ..Target::new("frame", frames::run, 20_000, 64 << 20) },
    Target::new("front", fronts::run, 20_000, 32 << 20),
];

/// Returns the target of a name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("a target's name")
}

impl Target {
    /// Returns the folder of the corpus.
    #[must_use]
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}
