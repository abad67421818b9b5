//! The generations in which this release can decide, against that of its cluster (decision 107).

use tribunal_core::control::ReplicatedState;
use tribunal_types::{Generation, Generations, Release};

use crate::planted;

/// Returns the release of this process; `engine` is the name of its plugin engine.
#[must_use]
pub fn own_release(engine: String) -> Release {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    planted::release(Release { version, generations: Generations::OWN, engine })
}

/// Returns the generations in which this process can decide.
#[must_use]
pub fn own_generations() -> Generations {
    own_release(String::new()).generations
}

/// Describes a release that cannot decide in the generation of its cluster.
#[must_use]
pub fn cannot_decide(generation: Generation, own: Generations) -> String {
    let advice = if own.newest < generation {
        "its nodes were upgraded, and there is no way back: start the newer release"
    } else {
        "first upgrade all its nodes to a release that can decide in both"
    };
    format!(
        "the cluster decides in generation {generation}, but this release ({}) can decide in generation {own} only; {advice}. Nothing \
         of the node's data is lost",
        own_release(String::new()).version
    )
}

/// Checks that this release can decide in the generation of the control log.
///
/// # Errors
/// If it cannot; includes the remedy.
pub fn check_generation(replicated: &ReplicatedState) -> Result<(), String> {
    let (generation, own) = (replicated.releases().generation(), own_generations());
    if own.contain(generation) { Ok(()) } else { Err(cannot_decide(generation, own)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_cannot_decide_says_what_to_do() {
        let own = Generations { oldest: Generation(3), newest: Generation(4) };
        let told = cannot_decide(Generation(5), own);
        assert!(told.contains("generation 5") && told.contains("3-4") && told.contains("start the newer"), "{told}");
        let told = cannot_decide(Generation(2), own);
        assert!(told.contains("generation 2") && told.contains("can decide in both"), "{told}");
    }
}
