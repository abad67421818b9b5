//! The digest by which replicas compare their decisions: a chain of multiply-rotate steps over an outcome's words,
//! whose definition never changes. No protection against forgery; replicas trust each other.

use tribunal_types::{Decision, Digest, EpochInput, EpochOutcome, FenceResult, VerdictAt, Witness};

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// A running digest.
#[derive(Clone, Copy, Debug)]
struct Chain(u64);

impl Chain {
    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1);
    }

    fn verdict_at(&mut self, at: VerdictAt) {
        self.word(at.epoch.0);
        self.word(u64::from(at.item));
    }

    fn witness(&mut self, witness: &Witness) {
        self.word(u64::from(witness.index) << 16 | (witness.op as u64) << 8 | witness.stage as u64);
        self.word(witness.current.map_or(0, |v| v.bits()));
        self.word(witness.winner.map_or(u64::MAX, |t| u64::from(t.0)));
    }

    fn decision(&mut self, decision: &Decision) {
        match *decision {
            Decision::Committed { version } => self.word(version.bits() << 1),
            Decision::Aborted { reason, count, .. } => {
                self.word(1 | u64::from(reason.code()) << 8 | u64::from(count) << 32);
            }
            Decision::Replayed { original } => {
                self.word(3);
                self.verdict_at(original);
            }
            Decision::BodyMismatch => self.word(5),
            Decision::Expired => self.word(7),
        }
    }
}

/// Chains an outcome to the previous digest. The keyed hash of a body is included, so that a digest cannot be predicted
/// from the decisions alone.
pub(crate) fn chained(before: Digest, input: &EpochInput, outcome: &EpochOutcome) -> Digest {
    let mut chain = Chain(before.0 ^ PRIME_1);
    chain.word(outcome.epoch.0);
    chain.word(outcome.epoch_time_ms);
    chain.word(input.batches.first().and_then(|b| b.txns.first()).map_or(0, |t| t.body_hash.0));
    chain.word(outcome.decisions.len() as u64);
    outcome.decisions.iter().for_each(|d| chain.decision(d));
    outcome.witnesses.iter().for_each(|w| chain.witness(w));
    chain.word(outcome.lsns.len() as u64);
    for lsn in &outcome.lsns {
        chain.word(u64::from(lsn.txn.0) << 32 | u64::from(lsn.store.0));
        chain.word(lsn.lsn.0);
    }
    outcome.early_aborts.iter().for_each(|&at| chain.verdict_at(at));
    for fence in &outcome.fences {
        match *fence {
            FenceResult::Fenced => chain.word(1),
            FenceResult::Known(at) => chain.verdict_at(at),
            FenceResult::Expired => chain.word(2),
        }
    }
    chain.word(outcome.imported.len() as u64);
    outcome.imported.iter().for_each(|&rows| chain.word(rows));
    chain.word(outcome.floor.0);
    outcome.created.iter().for_each(|row| chain.word(u64::from(row.txn.0) << 32 | u64::from(row.write)));
    outcome.fallbacks.iter().for_each(|f| chain.word(f.level.map_or(9, |level| level as u64)));
    Digest(chain.0)
}

#[cfg(test)]
mod tests {
    use tribunal_types::{Epoch, Version};

    use super::*;

    #[test]
    fn the_digest_depends_on_every_earlier_epoch() {
        let input = EpochInput { epoch: Epoch(1), epoch_time_ms: 5, batches: alloc::vec![] };
        let outcome = EpochOutcome { epoch: Epoch(1), epoch_time_ms: 5, ..EpochOutcome::default() };
        let once = chained(Digest(0), &input, &outcome);
        assert_ne!(once, chained(Digest(1), &input, &outcome));
        let version = Version::new(Epoch(1), 0).expect("fits");
        let other = EpochOutcome { decisions: alloc::vec![Decision::Committed { version }], ..outcome };
        assert_ne!(once, chained(Digest(0), &input, &other));
    }
}
