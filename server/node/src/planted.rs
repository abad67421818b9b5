//! What tests change of a release and of a machine, by the environment of the process: a newer release, another plugin engine, a
//! clock that is wrong. All of it is compiled with the feature `planted` only, which is for tests; without it, nothing is
//! changed.

#[cfg(feature = "planted")]
use tribunal_types::Generations;
use tribunal_types::Release;

/// Returns what the process runs.
#[cfg(not(feature = "planted"))]
pub fn release(own: Release) -> Release {
    own
}

/// Returns what the process runs: `TRIBUNAL_PLANTED_RELEASE=<version>,<oldest>-<newest>` instead of itself.
#[cfg(feature = "planted")]
pub fn release(own: Release) -> Release {
    let Some(planted) = variable("TRIBUNAL_PLANTED_RELEASE") else { return own };
    let (version, generations) = planted.split_once(',').expect("<version>,<oldest>-<newest>");
    let generations = Generations::from_text(generations).expect("<oldest>-<newest>");
    Release { version: version.to_owned(), generations, ..own }
}

/// Returns the name of the engine.
#[cfg(not(feature = "planted"))]
pub fn engine(own: &str) -> String {
    own.to_owned()
}

/// Returns the name of the engine: that in `TRIBUNAL_PLANTED_ENGINE` instead of its own.
#[cfg(feature = "planted")]
pub fn engine(own: &str) -> String {
    variable("TRIBUNAL_PLANTED_ENGINE").unwrap_or_else(|| own.to_owned())
}

/// Returns how far the system clock is wrong, microseconds.
#[cfg(not(feature = "planted"))]
pub fn clock_offset_us() -> i64 {
    0
}

/// Returns how far the system clock is wrong, microseconds: `TRIBUNAL_PLANTED_CLOCK` seconds.
#[cfg(feature = "planted")]
pub fn clock_offset_us() -> i64 {
    let seconds = variable("TRIBUNAL_PLANTED_CLOCK").and_then(|seconds| seconds.parse::<i64>().ok());
    seconds.unwrap_or_default() * 1_000_000
}

#[cfg(feature = "planted")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
