//! Sends SQL transactions to PostgreSQL over one TCP connection.
//!
//! Only connects to addresses that the [`EgressPolicy`] allows. Every step has a timeout, on the server as well. A
//! connection is dropped after any error, which also rolls back its open transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt as _, pin_mut};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, private::BytesMut};
use tokio_postgres::{Client, NoTls, Statement};
use tribunal_types::{Command, SqlStatement, StorageReply};

use crate::bounded_stream::{BoundedStream, ReceiveBudget};
use crate::connect::connect;
use crate::{EgressPolicy, Password, Pending, StorageDurability, Transport, TransportError};

/// Maximum number of cached prepared statements. An adaptor needs a few per table.
const PREPARED_MAX: usize = 256;
/// Bytes of replies to one statement: the types of its parameters and columns, when it is prepared.
const STATEMENT_REPLY_BYTES: usize = 2 * 1024;
/// Maximum size of an error's text.
const ERROR_BYTES_MAX: usize = 600;
/// Maximum time that a transaction may wait for its next statement; all of them are sent together. An open transaction
/// of a paused or powered-off node locks the watermark, and no other node can push.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// SQLSTATE `no_data`: the first statement affected no row.
const NO_DATA: &str = "02000";

/// Address of a database, credentials and timeouts.
#[derive(Clone)]
pub struct SqlOptions {
    /// `host:port`.
    pub endpoint: String,
    /// Name of the database.
    pub database: String,
    /// Role.
    pub user: String,
    /// Password, if any.
    pub password: Option<Password>,
    /// Addresses that may be connected to.
    pub egress: EgressPolicy,
    /// Timeout of resolving, connecting and the handshake.
    pub connect_timeout: Duration,
    /// Timeout of one transaction.
    pub reply_timeout: Duration,
}

impl SqlOptions {
    /// Creates options with timeouts of 5 s to connect and 30 s per transaction.
    #[must_use]
    pub fn new(
        endpoint: impl Into<String>,
        database: impl Into<String>,
        user: impl Into<String>,
        egress: EgressPolicy,
    ) -> Self {
        SqlOptions {
            endpoint: endpoint.into(),
            database: database.into(),
            user: user.into(),
            password: None,
            egress,
            connect_timeout: Duration::from_secs(5),
            reply_timeout: Duration::from_secs(30),
        }
    }
}

/// A connection to one PostgreSQL database.
pub struct SqlTransport {
    options: SqlOptions,
    live: Mutex<Option<Arc<Live>>>,
}

struct Live {
    client: Client,
    budget: ReceiveBudget,
    prepared: Mutex<HashMap<String, Statement>>,
    /// The task that drives the connection; aborting it closes the socket.
    carrier: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

/// Why a transaction did not take effect.
enum Failed {
    /// The server returned an error, and has rolled back or will.
    Refused { state: String, text: String },
    /// Unknown whether it took effect.
    Lost(TransportError),
}

/// The result of a statement.
#[derive(Default)]
struct Done {
    affected: u64,
    cell: Option<String>,
}

impl SqlTransport {
    /// Creates a transport, without connecting.
    #[must_use]
    pub fn new(options: SqlOptions) -> Self {
        SqlTransport { options, live: Mutex::new(None) }
    }

    async fn open(&self) -> Result<(Live, StorageDurability), TransportError> {
        let options = &self.options;
        let password = match &options.password {
            Some(password) => Some(password.read().await?),
            None => None,
        };
        let (stream, budget) = BoundedStream::new(connect(&options.egress, &options.endpoint).await?);
        let (bound_ms, idle_ms) = (options.reply_timeout.as_millis(), IDLE_TIMEOUT.as_millis());
        let mut config = tokio_postgres::Config::new();
        config
            .user(&options.user)
            .dbname(&options.database)
            .application_name("tribunal")
            // A statement that times out here must not continue on the server.
            .options(format!(
                "-c statement_timeout={bound_ms} -c idle_in_transaction_session_timeout={idle_ms} -c TimeZone=UTC \
                 -c client_min_messages=error"
            ));
        if let Some(password) = password {
            config.password(password);
        }
        let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(|error| broken(said(&error)))?;
        let carrier = tokio::spawn(async move {
            // The task that waits for a reply receives the error.
            let _ = connection.await;
        });
        let live = Live { client, budget, prepared: Mutex::default(), carrier: carrier.abort_handle() };
        let durability = durability_of(&live.client).await?;
        Ok((live, durability))
    }
}

impl Transport for SqlTransport {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        Box::pin(async {
            *self.live.lock() = None;
            let bound = self.options.connect_timeout;
            let opened = tokio::time::timeout(bound, self.open()).await;
            let (live, durability) = opened.map_err(|_| TransportError::Timeout { ms: bound.as_millis() as u64 })??;
            *self.live.lock() = Some(Arc::new(live));
            Ok(durability)
        })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        Box::pin(async move {
            let Command::Sql(statements) = command else {
                return Err(TransportError::WrongCommand("this storage takes SQL statements only"));
            };
            if statements.is_empty() {
                return Err(TransportError::WrongCommand("the adaptor returned a transaction without statements"));
            }
            // Taken out while in use: if the caller gives up, the connection is dropped with its open transaction.
            let Some(live) = self.live.lock().take() else {
                return Err(TransportError::Broken("not connected".to_owned()));
            };
            live.budget.begin_request(statements.len().min(PREPARED_MAX), STATEMENT_REPLY_BYTES);
            let bound = self.options.reply_timeout;
            match tokio::time::timeout(bound, live.transact(&statements)).await {
                Err(_) => Err(TransportError::Timeout { ms: bound.as_millis() as u64 }),
                Ok(Err(Failed::Lost(error))) => Err(error),
                Ok(Ok(done)) => {
                    *self.live.lock() = Some(live);
                    Ok(StorageReply::Sql { affected: done.affected, cell: done.cell, error: None })
                }
                Ok(Err(Failed::Refused { state, text })) => {
                    if !live.client.is_closed() {
                        *self.live.lock() = Some(live);
                    }
                    Ok(StorageReply::Sql { affected: 0, cell: None, error: Some((state, text)) })
                }
            }
        })
    }

    fn is_worn(&self) -> bool {
        self.live.lock().as_ref().is_some_and(|live| live.budget.is_worn())
    }
}

impl Live {
    /// Runs the statements in one transaction, which commits if all succeed and the first one affects a row.
    async fn transact(&self, statements: &[SqlStatement]) -> Result<Done, Failed> {
        let begin = async {
            // Regardless of the role's defaults: the watermark's row serializes concurrent pushers.
            self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(failed)
        };
        let known: Option<Vec<Statement>> = {
            let prepared = self.prepared.lock();
            statements.iter().map(|statement| prepared.get(&statement.text).cloned()).collect()
        };
        let done = match known {
            // Pipelined: one round trip, whatever the number of tables.
            Some(known) => {
                let all = join_all(known.iter().zip(statements).map(|(known, given)| self.run(known, given)));
                let (begun, done) = join(begin, all).await;
                begun.and_then(|()| decided(done))
            }
            None => match begin.await {
                Ok(()) => decided(self.run_unprepared(statements).await),
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(done) => {
                self.client.batch_execute("COMMIT").await.map_err(failed)?;
                Ok(done)
            }
            Err(error) => {
                // A statement may have been prepared for a table that has since been replaced.
                self.prepared.lock().clear();
                if let Failed::Refused { .. } = &error {
                    self.client.batch_execute("ROLLBACK").await.map_err(failed)?;
                }
                Err(error)
            }
        }
    }

    /// Runs statements one by one until one fails: preparing a statement may require the effects of earlier ones.
    async fn run_unprepared(&self, statements: &[SqlStatement]) -> Vec<Result<Done, Failed>> {
        let mut done = Vec::with_capacity(statements.len());
        for statement in statements {
            let ran = match self.prepare(&statement.text).await {
                Ok(known) => self.run(&known, statement).await,
                Err(error) => Err(error),
            };
            let goes_on = ran.as_ref().is_ok_and(|ran| ran.affected > 0 || !done.is_empty());
            done.push(ran);
            if !goes_on {
                break;
            }
        }
        done
    }

    async fn prepare(&self, text: &str) -> Result<Statement, Failed> {
        if let Some(known) = self.prepared.lock().get(text) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(text).await.map_err(failed)?;
        let mut prepared = self.prepared.lock();
        if prepared.len() >= PREPARED_MAX {
            prepared.clear();
        }
        prepared.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    async fn run(&self, known: &Statement, given: &SqlStatement) -> Result<Done, Failed> {
        let (expected, found) = (known.params().len(), given.params.len());
        if expected != found {
            let text = format!("the adaptor binds {found} values to a statement with {expected} parameters");
            return Err(Failed::Refused { state: "07001".to_owned(), text });
        }
        let params = given.params.iter().map(|value| TextParam(value.as_deref()));
        let rows = self.client.query_raw(known, params).await.map_err(failed)?;
        pin_mut!(rows);
        let mut done = Done::default();
        let mut first = true;
        while let Some(row) = rows.next().await {
            let row = row.map_err(failed)?;
            if first && !row.is_empty() {
                done.cell = row.try_get::<_, Option<Cell>>(0).ok().flatten().map(|Cell(text)| text);
            }
            first = false;
        }
        done.affected = rows.rows_affected().unwrap_or(0);
        Ok(done)
    }
}

/// Determines the result of a transaction: the first statement's condition, else the first failure, else the last result.
fn decided(done: Vec<Result<Done, Failed>>) -> Result<Done, Failed> {
    let mut last = Done::default();
    for (at, ran) in done.into_iter().enumerate() {
        last = ran?;
        if at == 0 && last.affected == 0 {
            let text = "the first statement affected no row".to_owned();
            return Err(Failed::Refused { state: NO_DATA.to_owned(), text });
        }
    }
    Ok(last)
}

/// A value of any type in the server's text format.
#[derive(Debug)]
struct TextParam<'a>(Option<&'a [u8]>);

impl ToSql for TextParam<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Some(text) => {
                out.extend_from_slice(text);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    fn to_sql_checked(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql(kind, out)
    }
}

/// The first cell of a result, for types with a simple binary format. Adaptors must cast others to text.
struct Cell(String);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Cell(match *kind {
            Type::INT8 => i64::from_sql(kind, raw)?.to_string(),
            Type::INT4 => i32::from_sql(kind, raw)?.to_string(),
            Type::BOOL => bool::from_sql(kind, raw)?.to_string(),
            _ => String::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::INT4 | Type::BOOL) || <String as FromSql>::accepts(kind)
    }
}

/// Determines when the server makes commits durable.
async fn durability_of(client: &Client) -> Result<StorageDurability, TransportError> {
    let question = "SELECT current_setting('fsync'), current_setting('synchronous_commit'), \
                    (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_writer_delay')";
    let row = client.query_one(question, &[]).await.map_err(|error| broken(said(&error)))?;
    let answer = (row.try_get::<_, String>(0), row.try_get::<_, String>(1), row.try_get::<_, i64>(2));
    let (Ok(fsync), Ok(commit), Ok(delay_ms)) = answer else { return Ok(StorageDurability::Unknown) };
    Ok(match (fsync.as_str(), commit.as_str()) {
        ("off", _) => StorageDurability::None,
        // The WAL writer syncs at least once in three of its delays.
        (_, "off") if delay_ms <= 333 => StorageDurability::EverySecond,
        (_, "off") => StorageDurability::None,
        _ => StorageDurability::Always,
    })
}

fn failed(error: tokio_postgres::Error) -> Failed {
    match error.as_db_error() {
        Some(refused) => Failed::Refused { state: refused.code().code().to_owned(), text: text_of(refused) },
        None => Failed::Lost(broken(said(&error))),
    }
}

fn text_of(error: &tokio_postgres::error::DbError) -> String {
    let mut text = error.message().to_owned();
    for more in [error.detail(), error.hint()].into_iter().flatten() {
        text.push_str(": ");
        text.push_str(more);
    }
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text
}

/// Formats an error with its cause, which `tokio_postgres` does not include.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(refused) => format!("{}: {}", refused.code().code(), text_of(refused)),
        None => match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}

fn broken(error: impl ToString) -> TransportError {
    TransportError::Broken(error.to_string())
}
