//! Test overrides of a release and a machine through environment variables: a newer release, another plugin engine, a
//! wrong clock. Compiled only with the feature `planted`, which is for tests; without it, nothing is overridden.

#[cfg(feature = "planted")]
use tribunal_types::Generations;
use tribunal_types::Release;

/// Returns the process's release.
#[cfg(not(feature = "planted"))]
pub fn release(own: Release) -> Release {
    own
}

/// Returns the process's release, or `TRIBUNAL_PLANTED_RELEASE=<version>,<oldest>-<newest>`.
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

/// Returns the name of the engine, or `TRIBUNAL_PLANTED_ENGINE`.
#[cfg(feature = "planted")]
pub fn engine(own: &str) -> String {
    variable("TRIBUNAL_PLANTED_ENGINE").unwrap_or_else(|| own.to_owned())
}

/// Returns the error of the system clock, microseconds.
#[cfg(not(feature = "planted"))]
pub fn clock_offset_us() -> i64 {
    0
}

/// Returns the error of the system clock, microseconds: `TRIBUNAL_PLANTED_CLOCK` seconds.
#[cfg(feature = "planted")]
pub fn clock_offset_us() -> i64 {
    let seconds = variable("TRIBUNAL_PLANTED_CLOCK").and_then(|seconds| seconds.parse::<i64>().ok());
    seconds.unwrap_or_default() * 1_000_000
}

#[cfg(feature = "planted")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
