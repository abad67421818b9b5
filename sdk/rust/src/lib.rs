//! Client of Tribunal: a transaction collects what it read and what it wants to write, then asks for a verdict.
//!
//! ```no_run
//! use serde_json::json;
//! use tribunal_client::{BeginOptions, Client, Outcome};
//!
//! # async fn example() -> Result<(), tribunal_client::Error> {
//! let client = Client::new("http://127.0.0.1:7420")?;
//!
//! // One attempt, the verdict in your hands.
//! let mut txn = client.begin(BeginOptions::stores(["kv"])).await?;
//! txn.put("kv", "acct/1", &json!({"balance": 100}))?;
//! match txn.commit().await? {
//!     Outcome::Committed(committed) => println!("epoch {}, version {:?}", committed.epoch, committed.version),
//!     Outcome::Aborted(aborted) => println!("{}: {:?}", aborted.reason, aborted.conflicts),
//! }
//!
//! // As many attempts as it takes, within bounds: the closure runs again on fresh reads.
//! let (balance, committed) = client
//!     .run(BeginOptions::stores(["kv"]), async |txn| {
//!         let row = txn.get("kv", "acct/1").await?;
//!         let balance = row.map_or(0, |row| row.value["balance"].as_i64().unwrap_or(0)) + 5;
//!         txn.put("kv", "acct/1", &json!({"balance": balance}))?;
//!         Ok::<_, tribunal_client::Error>(balance)
//!     })
//!     .await?;
//! println!("balance {balance} since epoch {}", committed.epoch);
//! # Ok(())
//! # }
//! ```
//!
//! An engine with a storage of its own reads there instead of calling [`Transaction::get`], and says what it saw with
//! [`Transaction::observe`] and [`Transaction::observe_range`].
//!
//! A lost reply is never guessed: the transaction's id is asked for with a fence, so that it either had committed or
//! never will. Never does this crate run the caller's work twice outside [`Client::run`].

mod call;
mod client;
mod connection;
mod consumers;
mod error;
mod log;
mod outcome;
mod retry;
mod tls;
mod transaction;
mod wire;
mod writes;

pub use call::Call;
pub use client::{BeginOptions, Client, ClientOptions, Row, RowPage, TxnStatus};
pub use error::Error;
pub use log::{LogReader, LogRecord, LogWrite};
pub use outcome::{Aborted, Committed, Conflict, Outcome};
pub use retry::RetryPolicy;
pub use transaction::{PreparedCommit, Transaction};
pub use tribunal_api as api;
pub use tribunal_api::{
    Ack, IsolationLevel, Problem, StoreDeclaration, StoreExistence, StoreInfo, StorePushState, WriteOp,
};
pub use tribunal_types::{Csn, Epoch, Lsn, Version};
