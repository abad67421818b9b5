//! What storages and receivers answer: a peer on loopback that says the input's bytes, whatever it is asked. The transport
//! answers or fails in bounded time and memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tribunal_push::{
    Adaptor, EgressPolicy, RespOptions, RespTransport, SqlOptions, SqlTransport, Transport, TransportError,
    WatermarkStore, Webhook, WebhookParts,
};
use tribunal_types::{Ack, Command, HttpCall, Lsn, RespPipeline, SqlStatement, StorageReply};

/// How long the peer waits for a question before it goes on talking.
const PEER_TIMEOUT: Duration = Duration::from_millis(20);
/// Bound of each step of a transport.
const BOUND: Duration = Duration::from_millis(500);
/// Between what the peer says at once.
const PAUSE: &[u8] = b"\n--\n";

/// Bytes of a reply's text.
const TEXT_BYTES_MAX: usize = 1 << 20;

struct NoMark;

impl WatermarkStore for NoMark {
    fn watermark(&self) -> Lsn {
        Lsn(0)
    }
}

/// Asks a peer of the kind that the first byte names: RESP, SQL or HTTP; tells whether there was a whole answer.
pub fn run(data: &[u8]) -> bool {
    let Some((kind, script)) = data.split_first() else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = listener.local_addr().expect("its address").to_string();
        let peer = tokio::spawn(talk(listener, script.to_vec()));
        let answered = match kind % 3 {
            0 => resp(&endpoint).await,
            1 => sql(&endpoint).await,
            _ => webhook(&endpoint).await,
        };
        peer.abort();
        answered
    })
}

async fn talk(listener: TcpListener, script: Vec<u8>) {
    let Ok((mut socket, _)) = listener.accept().await else { return };
    let mut rest = script.as_slice();
    loop {
        let end = rest.windows(PAUSE.len()).position(|window| window == PAUSE);
        let (said, more) = rest.split_at(end.unwrap_or(rest.len()));
        if socket.write_all(said).await.is_err() {
            return;
        }
        if end.is_none() {
            break;
        }
        rest = &more[PAUSE.len()..];
        let _ = timeout(PEER_TIMEOUT, socket.read(&mut [0; 4096])).await;
    }
    let _ = socket.shutdown().await;
    let _ = timeout(PEER_TIMEOUT, socket.read_to_end(&mut Vec::new())).await;
}

fn checked(reply: Result<StorageReply, TransportError>) -> Option<StorageReply> {
    match reply {
        Ok(reply) => Some(reply),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() <= TEXT_BYTES_MAX, "{} bytes of reason", text.len());
            None
        }
    }
}

async fn resp(endpoint: &str) -> bool {
    let options = RespOptions {
        connect_timeout: BOUND,
        reply_timeout: BOUND,
        ..RespOptions::new(endpoint, EgressPolicy::loopback())
    };
    let transport = RespTransport::new(options);
    if transport.connect().await.is_err() {
        return false;
    }
    let pipeline = RespPipeline { args: b"GETGET".to_vec(), arg_ends: vec![3, 6], command_ends: vec![1, 2] };
    let Some(StorageReply::Resp(values)) = checked(transport.send(Command::Resp(pipeline)).await) else { return false };
    assert_eq!(values.len(), 2, "a value for each command");
    true
}

async fn sql(endpoint: &str) -> bool {
    let options = SqlOptions::new(endpoint, "db", "user", EgressPolicy::loopback());
    let transport = SqlTransport::new(SqlOptions { connect_timeout: BOUND, reply_timeout: BOUND, ..options });
    if transport.connect().await.is_err() {
        return false;
    }
    let statement = SqlStatement { text: "SELECT $1".into(), params: vec![Some(b"1".to_vec())] };
    match checked(transport.send(Command::Sql(vec![statement])).await) {
        Some(StorageReply::Sql { error: Some((state, text)), .. }) => {
            assert!(!state.is_empty() && text.len() <= TEXT_BYTES_MAX);
            false
        }
        reply => reply.is_some(),
    }
}

async fn webhook(endpoint: &str) -> bool {
    let parts = WebhookParts {
        url: format!("http://{endpoint}/"),
        secret: "a secret of the receiver".into(),
        timeout: BOUND,
        egress: EgressPolicy::loopback(),
        body: Arc::new(|_| Vec::new()),
        watermark: Arc::new(NoMark),
    };
    let webhook = Webhook::new(parts).expect("a URL");
    let headers = vec![("tribunal-last-lsn".to_owned(), "7".to_owned())];
    let call = HttpCall { method: "POST".into(), path: "/".into(), headers, body: b"{}".to_vec() };
    let Some(reply) = checked(webhook.send(Command::Http(call)).await) else { return false };
    let ack = webhook.classify(&reply);
    assert!(format!("{ack:?}").len() <= TEXT_BYTES_MAX);
    ack == Ack::Ok
}
