//! The decisions and answers of a cluster so far, checked against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribunal_codec::{encode_batch, encode_outcome};
use tribunal_core::verdicts::item_verdict;
use tribunal_types::{
    ControlIndex, Decision, Digest, Epoch, EpochInput, EpochOutcome, StoreId, TxnId, Verdict, VerdictAt,
};

/// A decided epoch.
struct Decided {
    bytes: Vec<u8>,
    digest: Digest,
    control: ControlIndex,
    input: EpochInput,
    outcome: EpochOutcome,
}

/// Returns the bytes of an epoch's input and outcome.
fn bytes_of(input: &EpochInput, outcome: &EpochOutcome) -> Vec<u8> {
    let mut bytes = Vec::new();
    for batch in &input.batches {
        bytes.extend_from_slice(format!("{:?}", batch.group).as_bytes());
        encode_batch(batch, &mut bytes);
    }
    encode_outcome(outcome, &mut bytes);
    bytes
}

/// Everything that any member has decided or answered.
#[derive(Default)]
pub struct Witness {
    epochs: BTreeMap<Epoch, Arc<Decided>>,
    verdicts: BTreeMap<TxnId, Verdict>,
    /// The epoch and item at which each transaction was executed.
    executed: BTreeMap<TxnId, VerdictAt>,
    stores: BTreeMap<StoreId, String>,
    acknowledged: Epoch,
}

impl Witness {
    /// An epoch has one input, one configuration and one outcome, on all nodes and at every replay, with equal states
    /// after it.
    ///
    /// # Errors
    /// The difference.
    pub fn invariant_epochs_are_decided_once(
        &mut self,
        node: u16,
        input: &EpochInput,
        outcome: &EpochOutcome,
        (digest, control): (Digest, ControlIndex),
    ) -> Result<(), String> {
        let epoch = input.epoch;
        // Equal values have the same bytes.
        let is_same = |known: &Decided| {
            known.outcome == *outcome && known.input.batches == input.batches || known.bytes == bytes_of(input, outcome)
        };
        match self.epochs.get(&epoch) {
            Some(known) if !is_same(known) => Err(format!("node {node} decides epoch {epoch} differently")),
            Some(known) if known.control != control => Err(format!(
                "node {node} decides epoch {epoch} under control entry {}, not {}",
                control.0, known.control.0
            )),
            Some(known) if known.digest != digest => Err(format!("node {node} has another state after epoch {epoch}")),
            Some(_) => Ok(()),
            None => {
                self.invariant_an_id_is_executed_once(input, outcome)?;
                let bytes = bytes_of(input, outcome);
                let decided = Decided { bytes, digest, control, input: input.clone(), outcome: outcome.clone() };
                self.epochs.insert(epoch, Arc::new(decided));
                Ok(())
            }
        }
    }

    /// Returns whether any member has decided an epoch.
    #[must_use]
    pub fn has_decided(&self, epoch: Epoch) -> bool {
        self.epochs.contains_key(&epoch)
    }

    /// A transaction is executed once, no matter how many nodes accepted it.
    fn invariant_an_id_is_executed_once(&mut self, input: &EpochInput, outcome: &EpochOutcome) -> Result<(), String> {
        let ids = input.batches.iter().flat_map(|batch| &batch.txns).map(|txn| txn.id);
        for (item, (id, decision)) in (0..).zip(ids.zip(&outcome.decisions)) {
            if !matches!(decision, Decision::Committed { .. } | Decision::Aborted { .. }) {
                continue;
            }
            let at = VerdictAt { epoch: input.epoch, item };
            if let Some(before) = self.executed.insert(id, at) {
                return Err(format!("{id:?} is executed at {before:?}, and again at {at:?}"));
            }
        }
        Ok(())
    }

    /// A store number is assigned once, on all nodes.
    ///
    /// # Errors
    /// If two stores have the same number.
    pub fn invariant_a_number_is_given_once(&mut self, store: StoreId, name: &str) -> Result<(), String> {
        let known = self.stores.entry(store).or_insert_with(|| name.to_owned());
        if known == name { Ok(()) } else { Err(format!("stores {known} and {name} have number {}", store.0)) }
    }

    /// A transaction is decided in a later epoch than everything acknowledged before it was sent.
    ///
    /// # Errors
    /// If its epoch is not later.
    pub fn invariant_epochs_follow_real_time(&mut self, epoch: Epoch, acknowledged: Epoch) -> Result<(), String> {
        if epoch <= acknowledged {
            return Err(format!("epoch {epoch} has what came after a verdict of epoch {acknowledged}"));
        }
        self.acknowledged = self.acknowledged.max(epoch);
        Ok(())
    }

    /// A fresh read sees everything acknowledged before it began.
    ///
    /// # Errors
    /// If it does not.
    pub fn invariant_fresh_reads_see_what_was_acknowledged(
        &self,
        epoch: Epoch,
        acknowledged: Epoch,
    ) -> Result<(), String> {
        if epoch < acknowledged {
            return Err(format!("a fresh read sees epoch {epoch}, and {acknowledged} was acknowledged before it"));
        }
        Ok(())
    }

    /// Notes the epoch of a reply to a client that its reads held.
    pub fn told_of(&mut self, epoch: Epoch) {
        self.acknowledged = self.acknowledged.max(epoch);
    }

    /// Forgets the epochs after `complete`: all nodes that knew them to be complete are lost, and nothing was decided
    /// in them.
    pub fn forget_after(&mut self, complete: Epoch) {
        self.acknowledged = self.acknowledged.min(complete);
    }

    /// Forgets the stores of lost configuration changes, those after this one. A store's number is that of its change.
    pub fn forget_stores_after(&mut self, change: u64) {
        self.stores.retain(|store, _| u64::from(store.0) <= change);
    }

    /// Returns the last epoch for which any client received a verdict.
    #[must_use]
    pub fn acknowledged(&self) -> Epoch {
        self.acknowledged
    }

    /// Returns the verdict stored for an item.
    ///
    /// # Errors
    /// If no member has decided its epoch, or the item has no verdict.
    pub fn verdict_at(&self, at: VerdictAt) -> Result<Verdict, String> {
        let decided = self.epochs.get(&at.epoch).ok_or_else(|| format!("nobody has decided epoch {}", at.epoch))?;
        let verdict = item_verdict(&decided.input, &decided.outcome, at.item);
        verdict.ok_or_else(|| format!("epoch {} has no verdict of its own for item {}", at.epoch, at.item))
    }

    /// An id has one verdict, on all nodes.
    ///
    /// # Errors
    /// The two verdicts that differ.
    pub fn invariant_a_verdict_is_final(&mut self, id: TxnId, verdict: &Verdict) -> Result<(), String> {
        match self.verdicts.get(&id) {
            Some(known) if known != verdict => Err(format!("{id:?} had verdict {known:?}, and has {verdict:?} now")),
            Some(_) => Ok(()),
            None => {
                self.verdicts.insert(id, verdict.clone());
                Ok(())
            }
        }
    }

    /// Returns the number of epochs with items.
    #[must_use]
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// Returns the number of epochs to which several nodes contributed.
    #[must_use]
    pub fn shared(&self) -> usize {
        self.epochs.values().filter(|decided| decided.input.batches.len() > 1).count()
    }
}
