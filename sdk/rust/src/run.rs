//! [`Client::run`]: work that is repeated until its transaction commits, within bounds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tribunal_types::Epoch;

use crate::{Aborted, BeginOptions, Client, Committed, Error, Outcome, PreparedCommit, RetryPolicy, Transaction};

/// The end of one attempt of [`Client::run`].
#[derive(Debug)]
pub struct Attempt<'a> {
    /// 1 for the first.
    pub number: u32,
    /// `None` if no transaction could begin.
    pub txn_id: Option<&'a str>,
    /// What the attempt ended with.
    pub end: AttemptEnd<'a>,
    /// Wait before the next attempt; `None` if this was the last.
    pub wait: Option<Duration>,
}

/// How an attempt ended.
#[derive(Debug)]
pub enum AttemptEnd<'a> {
    /// The transaction committed.
    Committed(&'a Committed),
    /// The transaction aborted.
    Aborted(&'a Aborted),
    /// There is no verdict.
    Failed(&'a Error),
    /// The work returned an error.
    WorkFailed,
}

/// A function that is called at the end of each attempt of [`Client::run`].
#[derive(Clone)]
pub struct AttemptHook(Arc<dyn Fn(&Attempt<'_>) + Send + Sync>);

impl AttemptHook {
    /// Wraps a function.
    pub fn new(hook: impl Fn(&Attempt<'_>) + Send + Sync + 'static) -> Self {
        AttemptHook(Arc::new(hook))
    }
}

impl fmt::Debug for AttemptHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttemptHook")
    }
}

impl Client {
    /// Runs `work` in a transaction and commits it. After a retryable abort the work runs again, on fresh reads, with
    /// growing waits, so its only effects must be on its transaction. `row_exists` and `row_missing` are final if the
    /// work read nothing, or if a fresh read did not help.
    ///
    /// # Errors
    /// The error of `work`; [`Error::Aborted`] after a final abort or the last attempt; see [`Error`].
    pub async fn run<T, E: From<Error>>(
        &self,
        options: BeginOptions,
        mut work: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let mut attempts = Attempts::new(*self.retry(), self.attempt_hook());
        let mut first_attempt_ms = None;
        loop {
            let mut txn = loop {
                match self.begin(options.clone()).await {
                    Ok(txn) => break txn,
                    Err(error) => attempts.failed(None, error).await?,
                }
            };
            // Rules that let the oldest work win see since when this one is retried.
            match first_attempt_ms {
                None => first_attempt_ms = txn.id_ms(),
                Some(ms) => txn.set_first_attempt_ms(ms),
            }
            let value = match work(&mut txn).await {
                Ok(value) => value,
                Err(error) => {
                    attempts.end(Some(txn.id()), AttemptEnd::WorkFailed, None);
                    return Err(error);
                }
            };
            match self.commit_retrying(&txn.prepare(), &mut attempts).await? {
                Outcome::Committed(committed) => {
                    attempts.end(Some(txn.id()), AttemptEnd::Committed(&committed), None);
                    return Ok((value, committed));
                }
                Outcome::Aborted(aborted) => attempts.aborted(&txn, aborted).await?,
            }
        }
    }

    /// Commits. [`Error::Unavailable`] means that nothing was decided: the id makes it safe to send the same again.
    async fn commit_retrying(&self, prepared: &PreparedCommit, attempts: &mut Attempts<'_>) -> Result<Outcome, Error> {
        loop {
            match self.commit(prepared).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => attempts.failed(Some(&prepared.txn_id), error).await?,
            }
        }
    }
}

/// Counts the attempts of one run against a policy and reports each.
struct Attempts<'h> {
    policy: RetryPolicy,
    hook: Option<&'h AttemptHook>,
    failed: u32,
    /// Epochs at which rows were refused as existing or missing.
    refused: BTreeMap<(String, Vec<u8>), Epoch>,
}

impl<'h> Attempts<'h> {
    fn new(policy: RetryPolicy, hook: Option<&'h AttemptHook>) -> Self {
        Attempts { policy, hook, failed: 0, refused: BTreeMap::new() }
    }

    /// Waits before the next attempt; returns the error if it is not `Unavailable` or the attempt was the last.
    async fn failed(&mut self, txn_id: Option<&str>, error: Error) -> Result<(), Error> {
        let wait = match &error {
            Error::Unavailable { retry_after, .. } => self.policy.wait(self.failed + 1, *retry_after),
            _ => None,
        };
        self.end(txn_id, AttemptEnd::Failed(&error), wait);
        self.pause(wait, error).await
    }

    /// Waits before the next attempt; returns an error if the abort is final or was the last.
    async fn aborted(&mut self, txn: &Transaction, aborted: Box<Aborted>) -> Result<(), Error> {
        let again = self.may_pass(txn, &aborted)?;
        let wait = self.policy.wait(self.failed + 1, Some(aborted.retry_after)).filter(|_| again);
        self.end(Some(txn.id()), AttemptEnd::Aborted(&aborted), wait);
        self.pause(wait, Error::Aborted(aborted)).await
    }

    async fn pause(&mut self, wait: Option<Duration>, error: Error) -> Result<(), Error> {
        let Some(wait) = wait else { return Err(error) };
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn end(&mut self, txn_id: Option<&str>, end: AttemptEnd<'_>, wait: Option<Duration>) {
        self.failed += 1;
        if let Some(AttemptHook(hook)) = self.hook {
            hook(&Attempt { number: self.failed, txn_id, end, wait });
        }
    }

    /// Tells whether another attempt may pass.
    fn may_pass(&mut self, txn: &Transaction, aborted: &Aborted) -> Result<bool, Error> {
        match aborted.reason.as_str() {
            // The client itself fenced the transaction, because the request was lost: the work was not refused.
            "fenced" => return Ok(true),
            "row_exists" | "row_missing" if aborted.retryable => {}
            _ => return Ok(aborted.retryable),
        }
        // Work that reads nothing would write the same. Other work gets one fresh read: an attempt whose snapshot has the
        // epoch that refused the row. If the row is refused again, the work does not depend on what it reads.
        if txn.is_blind() {
            return Ok(false);
        }
        let row = aborted.conflicts.first().map(|at| (at.store.clone(), at.key.clone())).unwrap_or_default();
        let Some(refused) = self.refused.get(&row) else {
            self.refused.insert(row, aborted.epoch);
            return Ok(true);
        };
        Ok(txn.snapshot(&row.0)?.is_some_and(|snapshot| snapshot < *refused))
    }
}
