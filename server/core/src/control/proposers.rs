//! Tracks which proposals were applied: a change that its proposer sent again may be agreed on twice, and counts once.
//!
//! Within one run of a proposer, numbers rise and changes are agreed on in order, so the last number of each run
//! suffices. Runs that ended long ago have nothing in flight: only the runs that proposed last are kept.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::limits::PROPOSER_RUNS_KEPT;
use tribunal_types::{ControlIndex, LastProposal, ProposalId};

use crate::planted::{Bug, planted};

/// The last proposal of each run. A copy shares everything until either one is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Proposers {
    /// Number and entry by run.
    last: Arc<BTreeMap<u64, (u64, ControlIndex)>>,
}

impl Proposers {
    /// Records that entry `index` is about to be applied. Returns false if its proposal was applied before.
    pub(super) fn is_new(&mut self, proposal: ProposalId, index: ControlIndex) -> bool {
        if proposal == ProposalId::default() {
            return true;
        }
        let known = self.last.get(&proposal.run).copied();
        if known.is_some_and(|(number, _)| proposal.number <= number) {
            return planted(Bug::ChangeAppliedAgain);
        }
        let last = Arc::make_mut(&mut self.last);
        if known.is_none() && last.len() >= PROPOSER_RUNS_KEPT {
            let oldest = last.iter().min_by_key(|(_, (_, index))| *index).map(|(run, _)| *run);
            oldest.into_iter().for_each(|run| _ = last.remove(&run));
        }
        last.insert(proposal.run, (proposal.number, index));
        true
    }

    pub(super) fn image(&self) -> Vec<LastProposal> {
        let last = |(&run, &(number, index))| LastProposal { proposal: ProposalId { run, number }, index };
        self.last.iter().map(last).collect()
    }

    pub(super) fn restore(image: Vec<LastProposal>) -> Proposers {
        let last = image.into_iter().map(|LastProposal { proposal, index }| (proposal.run, (proposal.number, index)));
        Proposers { last: Arc::new(last.collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(run: u64, number: u64) -> ProposalId {
        ProposalId { run, number }
    }

    #[test]
    fn a_number_that_is_not_higher_is_of_a_repeat() {
        let mut proposers = Proposers::default();
        let mut index = 0;
        let mut is_new = |run, number| {
            index += 1;
            proposers.is_new(proposal(run, number), ControlIndex(index))
        };
        assert!(is_new(7, 1) && is_new(8, 1) && is_new(7, 2));
        assert!(!is_new(7, 2) && !is_new(7, 1) && !is_new(8, 1));
        assert!(is_new(7, 9), "those between were lost with the process, or are of another kind");
        assert!(is_new(0, 0) && is_new(0, 0), "nobody waits for these, and nobody sends them again");
        assert!(is_new(0, 1) && !is_new(0, 1), "a run may have drawn 0");
    }

    #[test]
    fn the_run_whose_last_entry_is_the_oldest_is_forgotten() {
        let mut proposers = Proposers::default();
        let runs = PROPOSER_RUNS_KEPT as u64;
        for run in 0..runs {
            assert!(proposers.is_new(proposal(run, 1), ControlIndex(1 + run)));
        }
        assert!(proposers.is_new(proposal(0, 2), ControlIndex(runs + 1)), "run 0 is the youngest now");
        assert!(!proposers.is_new(proposal(1, 1), ControlIndex(runs + 2)), "a repeat does not count");
        let mut copy = Proposers::restore(proposers.image());
        assert_eq!(copy, proposers);
        for proposers in [&mut proposers, &mut copy] {
            assert!(proposers.is_new(proposal(u64::MAX, 1), ControlIndex(runs + 3)));
            assert_eq!(proposers.image().len(), PROPOSER_RUNS_KEPT);
            assert!(!proposers.is_new(proposal(0, 2), ControlIndex(runs + 4)));
            assert!(proposers.is_new(proposal(1, 1), ControlIndex(runs + 5)), "run 1 is forgotten");
        }
        assert_eq!(copy, proposers);
    }
}
