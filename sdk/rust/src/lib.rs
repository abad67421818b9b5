//! Client of Tribunal, concurrency control as a service: a transaction collects its reads and writes, then requests a
//! verdict.
//!
//! ```no_run
//! use serde_json::json;
//! use tribunal_client::{BeginOptions, Client, Outcome};
//!
//! # async fn example() -> Result<(), tribunal_client::Error> {
//! let client = Client::new("http://127.0.0.1:7420")?;
//!
//! // A single attempt: you handle the verdict.
//! let mut txn = client.begin(BeginOptions::stores(["kv"])).await?;
//! txn.put("kv", "acct/1", &json!({"balance": 100}))?;
//! match txn.commit().await? {
//!     Outcome::Committed(committed) => println!("epoch {}, version {:?}", committed.epoch, committed.version),
//!     Outcome::Aborted(aborted) => println!("{}: {:?}", aborted.reason, aborted.conflicts),
//! }
//!
//! // With retries: after a conflict the closure runs again, on fresh reads.
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
//! An engine with its own storage reads there instead of calling [`Transaction::get`], and records its reads with
//! [`Transaction::observe`] and [`Transaction::observe_range`].
//!
//! Several nodes of one cluster are given separated by commas, or as a list to [`Client::with_endpoints`]. One node is
//! in use at a time; after a failure, the client switches to the next one and resends unanswered requests with the same
//! ids.
//!
//! A copy of a store starts with [`Client::state`] and continues with [`LogReader::follow`], which outlives restarts of
//! the service. The futures of both may be dropped, for example by `tokio::select!`, without a loss.
//!
//! A client may be used on several tokio runtimes, each of which has its own connections and batches.
//!
//! A lost reply is resolved, not guessed: the client requests the verdict by the transaction's id and sets a fence, so
//! that the transaction has either committed or never will. Only [`Client::run`] runs the caller's work more than once.

mod answer;
mod batch;
mod begin;
mod call;
mod client;
mod coalescer;
mod commit_batch;
mod commit_body;
mod connection;
mod consistency;
mod consumers;
mod endpoints;
mod error;
mod failover;
mod line_stream;
mod link;
mod log;
mod log_record;
mod outcome;
mod per_runtime;
mod read_batch;
mod reads;
mod retry;
mod row;
mod run;
mod sent;
mod session;
mod state;
mod store_name;
mod stored_value;
mod stream;
mod tls;
mod told;
mod transaction;
mod webhooks;
mod wire;
mod wire_outcome;
mod writes;

pub use begin::BeginOptions;
pub use call::Call;
pub use client::{Client, ClientOptions, TxnStatus};
pub use consumers::Offset;
pub use error::Error;
pub use log::LogReader;
pub use log_record::{LogRecord, LogWrite};
pub use outcome::{Aborted, Committed, Conflict, Outcome};
pub use reads::{KeyRange, RangeReads, RangeRows, ReadOptions, RowRead, RowReads, RowState};
pub use retry::RetryPolicy;
pub use row::{Row, RowPage};
pub use run::{Attempt, AttemptEnd, AttemptHook, BoxedWork};
pub use state::{StateImage, StateRow};
pub use stored_value::StoredValue;
pub use stream::CommitStream;
pub use transaction::{PreparedCommit, Transaction};
pub use tribunal_api as api;
pub use tribunal_api::{
    Ack, Consistency, IsolationLevel, Problem, StateKind, StoreDeclaration, StoreExistence, StoreInfo, StorePushState,
    WriteOp,
};
pub use tribunal_types::{Csn, Epoch, LogId, Lsn, Version};
