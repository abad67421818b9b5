//! [`Client::run`]: repeats work until its transaction commits, within bounds.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tribunal_types::Epoch;

use crate::transaction::RowVersion;
use crate::{Aborted, BeginOptions, Client, Committed, Error, Outcome, PreparedCommit, RetryPolicy, Transaction};

/// Code of a commit whose id is too old to be decided, and has no known verdict.
const EXPIRED: &str = "txn_id_expired";

/// The end of one attempt of [`Client::run`].
#[derive(Debug)]
pub struct Attempt<'a> {
    /// 1 for the first.
    pub number: u32,
    /// `None` if no transaction could begin.
    pub txn_id: Option<&'a str>,
    /// The result of the attempt.
    pub end: AttemptEnd<'a>,
    /// Wait before the next attempt; `None` if this was the last one.
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

/// Work of [`Client::run_boxed`] in progress.
pub type BoxedWork<'t, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>;

impl Client {
    /// Runs `work` in a transaction and commits it. After a retryable abort the work runs again, on fresh reads, with
    /// growing waits, so its only effects must be on its transaction. It also runs again if the service was unavailable
    /// for so long that it no longer decides the transaction. `row_exists` and `row_missing` are final if the work read
    /// nothing, or if a fresh read returned the same versions as before.
    ///
    /// If the future is dropped during a commit, the outcome is in doubt: [`Client::status`] requests it by the id of
    /// the last transaction passed to the work.
    ///
    /// The compiler does not recognize the future as `Send` if an `async` closure captures variables. On a separate
    /// task (`tokio::spawn`), use [`Client::run_boxed`].
    ///
    /// # Errors
    /// The error of `work`; [`Error::Aborted`] after a final abort or the last attempt; see [`Error`].
    pub async fn run<T, E: From<Error>>(
        &self,
        options: BeginOptions,
        mut work: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let mut run = Run::new(self, options);
        loop {
            let mut txn = run.begin().await?;
            let done = work(&mut txn).await;
            if let Some(done) = run.end(&txn, done).await? {
                return Ok(done);
            }
        }
    }

    /// Runs like [`Client::run`], for work that returns a boxed future. The returned future is `Send`, so it can run on
    /// a separate task. The work is called once per attempt, so it must clone the values that its future takes.
    ///
    /// ```no_run
    /// # async fn example(client: tribunal_client::Client) -> Result<(), tribunal_client::Error> {
    /// use tribunal_client::{BeginOptions, Error};
    ///
    /// let key = format!("acct/{}", 7);
    /// let task = tokio::spawn(async move {
    ///     let begin = BeginOptions::stores(["kv"]);
    ///     client
    ///         .run_boxed(begin, |txn| {
    ///             let key = key.clone();
    ///             Box::pin(async move { txn.put("kv", key, &1) })
    ///         })
    ///         .await
    /// });
    /// task.await.expect("the task does not panic")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Client::run`].
    pub async fn run_boxed<T, E: From<Error>>(
        &self,
        options: BeginOptions,
        mut work: impl for<'t> FnMut(&'t mut Transaction) -> BoxedWork<'t, T, E>,
    ) -> Result<(T, Committed), E> {
        // Does not use `run`: the future of its closure would not be `Send` either.
        let mut run = Run::new(self, options);
        loop {
            let mut txn = run.begin().await?;
            let done = work(&mut txn).await;
            if let Some(done) = run.end(&txn, done).await? {
                return Ok(done);
            }
        }
    }

    /// Commits, and retries on [`Error::Unavailable`], which means that nothing was decided: the id makes it safe to
    /// send the same again. Returns `None` if the service was unavailable for so long that it no longer decides the id:
    /// the work is to run again.
    async fn commit_retrying(
        &self,
        prepared: &PreparedCommit,
        attempts: &mut Attempts<'_>,
    ) -> Result<Option<Outcome>, Error> {
        let mut refused = false;
        loop {
            match self.commit(prepared).await {
                Ok(outcome) => return Ok(Some(outcome)),
                // All earlier replies mean that nothing was decided: after any other error, the commit is not repeated.
                // If there are none, the work itself has taken too long, and would again.
                Err(Error::ClientMistake(problem)) if refused && problem.code == EXPIRED => {
                    attempts.expired(&prepared.txn_id, Error::ClientMistake(problem)).await?;
                    return Ok(None);
                }
                Err(error) => attempts.failed(Some(&prepared.txn_id), error).await?,
            }
            refused = true;
        }
    }
}

/// One run and its attempts so far.
struct Run<'c> {
    client: &'c Client,
    options: BeginOptions,
    attempts: Attempts<'c>,
    first_attempt_ms: Option<u64>,
}

impl<'c> Run<'c> {
    fn new(client: &'c Client, options: BeginOptions) -> Self {
        let attempts = Attempts::new(*client.retry(), client.attempt_hook());
        Run { client, options, attempts, first_attempt_ms: None }
    }

    /// Begins the transaction of the next attempt.
    async fn begin(&mut self) -> Result<Transaction, Error> {
        let mut txn = loop {
            match self.client.begin(self.options.clone()).await {
                Ok(txn) => break txn,
                Err(error) => self.attempts.failed(None, error).await?,
            }
        };
        // Rules in which the oldest work wins see when this work was first attempted.
        match self.first_attempt_ms {
            None => self.first_attempt_ms = txn.id_ms(),
            Some(ms) => txn.set_first_attempt_ms(ms),
        }
        Ok(txn)
    }

    /// Commits the transaction. Returns `None` if the work is to run again.
    async fn end<T, E: From<Error>>(
        &mut self,
        txn: &Transaction,
        done: Result<T, E>,
    ) -> Result<Option<(T, Committed)>, E> {
        let value = match done {
            Ok(value) => value,
            Err(error) => {
                self.attempts.end(Some(txn.id()), AttemptEnd::WorkFailed, None);
                return Err(error);
            }
        };
        match self.client.commit_retrying(&txn.prepare(), &mut self.attempts).await? {
            None => Ok(None),
            Some(Outcome::Committed(committed)) => {
                self.attempts.end(Some(txn.id()), AttemptEnd::Committed(&committed), None);
                Ok(Some((value, committed)))
            }
            Some(Outcome::Aborted(aborted)) => {
                self.attempts.aborted(txn, aborted).await?;
                Ok(None)
            }
        }
    }
}

/// Counts the attempts of one run against a policy and reports each.
struct Attempts<'h> {
    policy: RetryPolicy,
    hook: Option<&'h AttemptHook>,
    failed: u32,
    /// Rows that were refused as existing or missing.
    refused: BTreeMap<(String, Vec<u8>), Refused>,
}

/// The refusal of a row.
struct Refused {
    epoch: Epoch,
    /// Versions that the attempt had read.
    read: Vec<RowVersion>,
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

    /// Waits before an attempt under another id; returns the error if this attempt was the last.
    async fn expired(&mut self, txn_id: &str, error: Error) -> Result<(), Error> {
        let wait = self.policy.wait(self.failed + 1, None);
        self.end(Some(txn_id), AttemptEnd::Failed(&error), wait);
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

    /// Returns whether another attempt may succeed.
    fn may_pass(&mut self, txn: &Transaction, aborted: &Aborted) -> Result<bool, Error> {
        match aborted.reason.as_str() {
            // The client itself fenced the transaction because the request was lost: the work was not refused.
            "fenced" => return Ok(true),
            "row_exists" | "row_missing" if aborted.retryable => {}
            _ => return Ok(aborted.retryable),
        }
        // Work that reads nothing would write the same again. Other work gets a fresh read: an attempt whose snapshot
        // includes the epoch that refused the row. If that attempt reads the same, the work does not depend on the
        // change. If it reads something else, another commit may have intervened, as before the first refusal.
        if txn.is_blind() {
            return Ok(false);
        }
        let row = aborted.conflicts.first().map(|at| (at.store.clone(), at.key.clone())).unwrap_or_default();
        let read = txn.versions_read();
        match self.refused.get(&row) {
            Some(before) if before.read == read => {
                Ok(txn.snapshot(&row.0)?.is_some_and(|snapshot| snapshot < before.epoch))
            }
            _ => {
                self.refused.insert(row, Refused { epoch: aborted.epoch, read });
                Ok(true)
            }
        }
    }
}
