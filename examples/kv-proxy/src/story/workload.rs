//! The workloads: YCSB-A, YCSB-B and a bank; each client is a loop of transactions through one proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::caller::{Caller, NoResult};
use super::random::{Random, Zipf};
use super::tally::Tally;
use crate::api::Ended;

/// Initial balance of an account.
const BALANCE: i64 = 1_000;

/// Sizes of the data.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Rows of the YCSB table.
    pub rows: u64,
    /// Bank accounts.
    pub accounts: u64,
    /// Operations of one YCSB transaction.
    pub ops_per_txn: u32,
}

/// The task of one client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// YCSB with this share of updates, percent.
    Ycsb { updates: u64 },
    /// Moves money between two accounts.
    Teller,
    /// Sums all accounts in one scan.
    Auditor,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Ycsb { updates: 50 } => "ycsb-a",
            Role::Ycsb { .. } => "ycsb-b",
            Role::Teller => "bank",
            Role::Auditor => "audit",
        }
    }
}

/// One client.
pub struct Worker {
    pub number: u64,
    pub role: Role,
    pub sizes: Sizes,
    pub caller: Caller,
    pub stop: Arc<AtomicBool>,
}

/// The operations of a transaction, before its verdict.
#[derive(Default)]
struct Done {
    wrote: bool,
    /// An observation that is a violation if the transaction commits.
    wrong: Option<String>,
}

impl Worker {
    /// Runs transactions until told to stop.
    pub async fn run(self) -> Tally {
        let mut tally = Tally::new(self.role.name());
        let mut random = Random::new(self.number + 1);
        let zipf = Zipf::new(self.sizes.rows, 0.9);
        let mut count = 0u64;
        while !self.stop.load(Ordering::Relaxed) || self.still_owes_an_audit(&tally) {
            count += 1;
            let token = format!("{}-{}-{count}", self.role.name(), self.number);
            let begun = Instant::now();
            let ended = match self.role {
                Role::Ycsb { updates } => self.ycsb(&mut random, &zipf, updates, &token).await,
                Role::Teller => self.transfer(&mut random, &token).await,
                Role::Auditor => self.audit().await,
            };
            match ended {
                Ok((ended, done)) => self.note(&mut tally, ended, done, token, begun.elapsed()),
                Err(error) => {
                    *tally.refused.entry(error.code).or_default() += 1;
                    // Redis or a proxy is down: do not retry as fast as possible.
                    tokio::time::sleep(Duration::from_millis(20 + random.below(30))).await;
                }
            }
        }
        tally
    }

    /// Returns whether it still has to complete an audit. A serializable scan of hot accounts may lose against writers
    /// repeatedly. The last audit runs after they have stopped, and must commit.
    fn still_owes_an_audit(&self, tally: &Tally) -> bool {
        self.role == Role::Auditor && tally.committed == 0
    }

    fn note(&self, tally: &mut Tally, ended: Ended, done: Done, token: String, took: Duration) {
        if ended.status == "rolled_back" {
            return;
        }
        if ended.status != "committed" {
            *tally.aborted.entry(ended.reason.unwrap_or(ended.status)).or_default() += 1;
            return;
        }
        tally.commit(took);
        tally.violations.extend(done.wrong);
        match ended.lsn.map(|text| text.parse::<u64>()) {
            Some(Ok(lsn)) => tally.acknowledged.push((lsn, token)),
            _ if done.wrote => tally.violations.push(format!("{token} wrote and committed without a position")),
            _ => {}
        }
    }

    async fn ycsb(
        &self,
        random: &mut Random,
        zipf: &Zipf,
        updates: u64,
        token: &str,
    ) -> Result<(Ended, Done), NoResult> {
        let txn = self.caller.begin().await?;
        let mut done = Done::default();
        for _ in 0..self.sizes.ops_per_txn {
            let key = row_key(zipf.draw(random));
            let value = txn.get(&key).await?;
            if value.is_none() {
                done.wrong = Some(format!("{token} committed without having seen {key}"));
            }
            if random.below(100) < updates {
                txn.put(&key, row_value(token)).await?;
                done.wrote = true;
            }
        }
        Ok((txn.commit().await?, done))
    }

    async fn transfer(&self, random: &mut Random, token: &str) -> Result<(Ended, Done), NoResult> {
        let from = random.below(self.sizes.accounts);
        let to = (from + 1 + random.below(self.sizes.accounts - 1)) % self.sizes.accounts;
        let amount = 1 + random.below(50) as i64;
        let txn = self.caller.begin().await?;
        let mut done = Done { wrote: true, wrong: None };
        for (account, change) in [(from, -amount), (to, amount)] {
            let key = account_key(account);
            match txn.get(&key).await? {
                Some(value) => txn.put(&key, account_value(balance(&value) + change, token)).await?,
                None => done.wrong = Some(format!("{token} committed without having seen {key}")),
            }
        }
        if random.below(50) == 0 {
            txn.rollback().await?;
            let status = "rolled_back".to_owned();
            return Ok((Ended { status, reason: None, retryable: None, conflict: None, lsn: None }, done));
        }
        if random.below(10) == 0 {
            // A receipt that is alternately created and deleted, so that rows come and go.
            let key = format!("receipt/{}", from % 10);
            if !txn.delete(&key).await? {
                txn.put(&key, json!({ "by": token })).await?;
            }
        }
        Ok((txn.commit().await?, done))
    }

    async fn audit(&self) -> Result<(Ended, Done), NoResult> {
        let txn = self.caller.begin().await?;
        let rows = txn.scan("acct/", "acct0", self.sizes.accounts as usize + 10).await?;
        let sum: i64 = rows.iter().map(|row| balance(&row.value)).sum();
        let wrong = (sum != total(self.sizes) || rows.len() as u64 != self.sizes.accounts)
            .then(|| format!("an audit committed with {sum} on {} accounts", rows.len()));
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok((txn.commit().await?, Done { wrote: false, wrong }))
    }
}

/// Creates all rows through a proxy.
pub async fn load(caller: &Caller, sizes: Sizes) -> Result<(), String> {
    let rows = (0..sizes.rows).map(|row| (row_key(row), row_value("load")));
    let accounts = (0..sizes.accounts).map(|account| (account_key(account), account_value(BALANCE, "load")));
    let all: Vec<(String, Value)> = rows.chain(accounts).collect();
    for chunk in all.chunks(200) {
        let loaded = async {
            let txn = caller.begin().await?;
            for (key, value) in chunk {
                txn.put(key, value.clone()).await?;
            }
            txn.commit().await
        };
        let ended = loaded.await.map_err(|error| format!("loading: {}: {}", error.code, error.detail))?;
        if ended.status != "committed" {
            return Err(format!("loading aborted: {:?}", ended.reason));
        }
    }
    Ok(())
}

/// Returns the total money, which must never change.
pub fn total(sizes: Sizes) -> i64 {
    sizes.accounts as i64 * BALANCE
}

/// Returns an account's balance; 0 for a value that is not an account.
pub fn balance(value: &Value) -> i64 {
    value["balance"].as_i64().unwrap_or(0)
}

fn row_key(row: u64) -> String {
    format!("user{row:08}")
}

fn row_value(token: &str) -> Value {
    json!({ "by": token, "field0": "the quick brown fox jumps over the lazy dog, twice a day" })
}

fn account_key(account: u64) -> String {
    format!("acct/{account:04}")
}

fn account_value(balance: i64, token: &str) -> Value {
    json!({ "balance": balance, "by": token })
}
