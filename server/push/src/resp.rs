//! Sends RESP pipelines to a Redis-compatible storage over one TCP connection.
//!
//! Only connects to addresses that the [`EgressPolicy`] allows. Every step has a timeout. A connection is dropped after
//! any error: a late reply must not be taken for the reply to the next command.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, Value};
use tokio::task::AbortHandle;
use tribunal_types::{Command, RespPipeline, RespValue, StorageReply};

use crate::bounded_stream::{BoundedStream, ReceiveBudget};
use crate::connect::connect;
use crate::{EgressPolicy, Password, Pending, StorageDurability, Transport, TransportError};

/// Instruction for a storage that requires a password when none is configured.
const NO_PASSWORD: &str = "the storage asks for a password: `push.credentials` of the nodes' configuration needs one for this endpoint, \
                           with `protocol = \"redis\"`";
/// Bytes of the reply to one of many commands.
const REPLY_BYTES: usize = 64;

/// Address of a storage, credentials and timeouts.
#[derive(Clone)]
pub struct RespOptions {
    /// `host:port`.
    pub endpoint: String,
    /// User of the storage's access control, if any.
    pub username: Option<String>,
    /// Password, if any.
    pub password: Option<Password>,
    /// Database number.
    pub database: i64,
    /// Addresses that may be connected to.
    pub egress: EgressPolicy,
    /// Timeout of resolving, connecting and the handshake.
    pub connect_timeout: Duration,
    /// Timeout of one reply.
    pub reply_timeout: Duration,
}

impl RespOptions {
    /// Creates options for `endpoint` with timeouts of 2 s to connect and 10 s per reply.
    #[must_use]
    pub fn new(endpoint: impl Into<String>, egress: EgressPolicy) -> Self {
        RespOptions {
            endpoint: endpoint.into(),
            username: None,
            password: None,
            database: 0,
            egress,
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(10),
        }
    }
}

/// A connection to a Redis-compatible storage.
pub struct RespTransport {
    options: RespOptions,
    live: Mutex<Option<Live>>,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    budget: ReceiveBudget,
    /// Aborts the task that reads the socket when the last owner is dropped.
    _reader: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RespTransport {
    /// Creates a transport, without connecting.
    #[must_use]
    pub fn new(options: RespOptions) -> Self {
        RespTransport { options, live: Mutex::new(None) }
    }

    async fn open(&self) -> Result<(Live, StorageDurability), TransportError> {
        let password = match &self.options.password {
            Some(password) => Some(password.read().await?),
            None => None,
        };
        let (stream, budget) = BoundedStream::new(connect(&self.options.egress, &self.options.endpoint).await?);
        let mut info = RedisConnectionInfo::default().set_db(self.options.database).set_skip_set_lib_name();
        if let Some(username) = &self.options.username {
            info = info.set_username(username);
        }
        let is_login = password.is_some();
        if let Some(password) = password {
            info = info.set_password(password);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.options.reply_timeout));
        let (connection, reader) =
            MultiplexedConnection::new_with_config(&info, stream, config).await.map_err(|error| {
                match excess_of(&budget) {
                    Some(excess) => excess,
                    None if is_login && error.kind() == redis::ErrorKind::AuthenticationFailed => refused_login(&error),
                    None => unexpected(error),
                }
            })?;
        let reader = Arc::new(AbortOnDrop(tokio::spawn(reader).abort_handle()));
        let mut live = Live { connection, budget, _reader: reader };
        let durability = durability_of(&mut live.connection).await;
        let durability = durability.map_err(|error| excess_of(&live.budget).unwrap_or(error))?;
        Ok((live, durability))
    }
}

impl Transport for RespTransport {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        Box::pin(async {
            *self.live.lock() = None;
            let bound = self.options.connect_timeout;
            let opened = tokio::time::timeout(bound, self.open()).await;
            let (live, durability) = opened.map_err(|_| TransportError::Timeout { ms: bound.as_millis() as u64 })??;
            *self.live.lock() = Some(live);
            Ok(durability)
        })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        Box::pin(async move {
            let Command::Resp(commands) = command else {
                return Err(TransportError::WrongCommand("this storage takes RESP commands only"));
            };
            let pipeline = pipeline_of(&commands)?;
            let live = self.live.lock().clone();
            let Some(mut live) = live else { return Err(TransportError::Broken("not connected".to_owned())) };
            let count = commands.command_ends.len();
            live.budget.begin_request(count, REPLY_BYTES);
            match live.connection.send_packed_commands(&pipeline, 0, count).await {
                Ok(values) => Ok(StorageReply::Resp(values.into_iter().map(value_of).collect())),
                Err(error) => {
                    *self.live.lock() = None;
                    if error.is_timeout() {
                        Err(TransportError::Timeout { ms: self.options.reply_timeout.as_millis() as u64 })
                    } else {
                        Err(excess_of(&live.budget).unwrap_or_else(|| broken(error)))
                    }
                }
            }
        })
    }

    fn is_worn(&self) -> bool {
        self.live.lock().as_ref().is_some_and(|live| live.budget.is_worn())
    }
}

/// Determines when the storage makes acknowledged records durable. `Unknown` if it does not permit reading its
/// configuration.
async fn durability_of(connection: &mut MultiplexedConnection) -> Result<StorageDurability, TransportError> {
    let mut pipeline = Pipeline::with_capacity(2);
    for name in ["appendonly", "appendfsync"] {
        pipeline.cmd("CONFIG").arg("GET").arg(name);
    }
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await.map_err(unexpected)?;
    if let Some(Value::ServerError(error)) = answers.first()
        && error.code() == "NOAUTH"
    {
        return Err(TransportError::Broken(NO_PASSWORD.to_owned()));
    }
    let setting = |at: usize| match answers.get(at) {
        Some(Value::Array(pair)) => match pair.get(1) {
            Some(Value::BulkString(text)) => text.as_slice(),
            _ => b"",
        },
        _ => b"",
    };
    Ok(match (setting(0), setting(1)) {
        (b"yes", b"always") => StorageDurability::Always,
        (b"yes", b"everysec") => StorageDurability::EverySecond,
        (b"yes", b"no") | (b"no", _) => StorageDurability::None,
        _ => StorageDurability::Unknown,
    })
}

/// Converts the columns into the client's form. Rejects malformed columns, because adaptors are not trusted.
fn pipeline_of(commands: &RespPipeline) -> Result<Pipeline, TransportError> {
    const MALFORMED: TransportError = TransportError::WrongCommand("the adaptor returned a malformed RESP pipeline");
    let mut pipeline = Pipeline::with_capacity(commands.command_ends.len());
    let (mut arg, mut at) = (0usize, 0usize);
    for end in &commands.command_ends {
        let ends = commands.arg_ends.get(arg..*end as usize).ok_or(MALFORMED)?;
        if ends.is_empty() {
            return Err(MALFORMED);
        }
        let mut command = Cmd::with_capacity(ends.len(), 0);
        for end in ends {
            command.arg(commands.args.get(at..*end as usize).ok_or(MALFORMED)?);
            at = *end as usize;
        }
        pipeline.add_command(command);
        arg = *end as usize;
    }
    if commands.command_ends.is_empty() { Err(MALFORMED) } else { Ok(pipeline) }
}

fn value_of(value: Value) -> RespValue {
    match value {
        Value::Nil => RespValue::Nil,
        Value::Int(number) => RespValue::Int(number),
        Value::BulkString(bytes) => RespValue::Text(bytes),
        Value::SimpleString(text) => RespValue::Text(text.into_bytes()),
        Value::Okay => RespValue::Text(b"OK".to_vec()),
        Value::ServerError(error) => match error.details() {
            Some(details) => RespValue::Error(format!("{} {details}", error.code())),
            None => RespValue::Error(error.code().to_owned()),
        },
        _ => RespValue::Error("a reply of a type that adaptors do not support".to_owned()),
    }
}

/// Returns why a connection was cut; the client only knows that it broke.
fn excess_of(budget: &ReceiveBudget) -> Option<TransportError> {
    budget.excess().map(TransportError::Broken)
}

fn broken(error: impl ToString) -> TransportError {
    TransportError::Broken(error.to_string())
}

fn refused_login(error: &redis::RedisError) -> TransportError {
    let refused = "the storage refuses the login with `push.credentials`: a wrong user or password, or it takes no connections now";
    TransportError::Broken(format!("{refused}: {error}"))
}

/// Words an error of the first replies. Any other kind of server at this endpoint sends something that is not a reply,
/// and hangs up.
fn unexpected(error: redis::RedisError) -> TransportError {
    if error.is_io_error() || error.kind() == redis::ErrorKind::Parse {
        let expected = "a server that speaks RESP (Redis or compatible) was expected at this endpoint, without TLS";
        return TransportError::Broken(format!("{expected}: {error}"));
    }
    broken(error)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_endpoint_that_is_not_redis_is_told_by_what_was_expected() {
        for answer in
            [&b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"[..], b"\x15\x03\x01\0\x02\x02\x46", b""]
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let endpoint = listener.local_addr().expect("its address").to_string();
            let answers = tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let _ = socket.read(&mut [0; 512]).await;
                let _ = socket.write_all(answer).await;
            });
            let transport = RespTransport::new(RespOptions::new(endpoint, EgressPolicy::loopback()));
            match transport.connect().await {
                Err(TransportError::Broken(text)) => assert!(text.contains("speaks RESP"), "{answer:?}: {text}"),
                other => panic!("{answer:?}: {other:?}"),
            }
            answers.await.expect("it has answered");
        }
    }
}
