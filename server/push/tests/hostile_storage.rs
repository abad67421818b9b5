//! Storages that send more than was requested: the amount buffered or retained is bounded.

#[path = "../../../examples/tpcc/src/postgres_server.rs"]
#[expect(dead_code, reason = "engines ask for more than a transport does")]
mod postgres_server;

use std::convert::Infallible;
use std::io;

use postgres_server::{DATABASE, PostgresServer, ROLE};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tribunal_push::{
    EgressPolicy, Password, RespOptions, RespTransport, SqlOptions, SqlTransport, Transport, TransportError,
};
use tribunal_types::{Command, RespPipeline, SqlStatement, StorageReply};

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    (listener, address)
}

#[tokio::test]
async fn a_reply_of_millions_of_values_is_cut() {
    let (listener, address) = listener().await;
    let storage = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let _ = socket.read(&mut [0; 512]).await;
            let _ = socket.write_all(format!("*5500000\r\n{}", "_\r\n".repeat(5_500_000)).as_bytes()).await;
            let _ = socket.write_all(b"*0\r\n").await;
        }
    });
    let transport = RespTransport::new(RespOptions::new(address, EgressPolicy::loopback()));
    match transport.connect().await {
        Err(TransportError::Broken(text)) => assert!(text.contains("longer than"), "{text}"),
        other => panic!("{other:?}"),
    }
    storage.abort();
}

#[tokio::test]
async fn many_commands_may_have_as_many_replies() {
    let (listener, address) = listener().await;
    let storage = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut received = Vec::new();
        let mut answered = 0;
        while socket.read_buf(&mut received).await.is_ok_and(|bytes| bytes > 0) {
            let asked = received.windows(4).filter(|bytes| *bytes == b"PING" || *bytes == b"CONF").count();
            let replies = ":1234567890123456789\r\n".repeat(asked - answered);
            answered = asked;
            if socket.write_all(replies.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let transport = RespTransport::new(RespOptions::new(address, EgressPolicy::loopback()));
    transport.connect().await.expect("it answers");
    // More than 256 KiB of replies.
    let count = 20_000_u32;
    let pipeline = RespPipeline {
        args: b"PING".repeat(count as usize),
        arg_ends: (1..=count).map(|n| n * 4).collect(),
        command_ends: (1..=count).collect(),
    };
    let reply = transport.send(Command::Resp(pipeline)).await;
    assert!(matches!(&reply, Ok(StorageReply::Resp(values)) if values.len() == count as usize), "cut");
    storage.abort();
}

/// Bytes that the proxy adds to each reply.
const ADDED: usize = 30_000;

/// Copies messages of a PostgreSQL server, and appends unrequested session parameters to each reply.
async fn copy_and_add(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<Infallible> {
    let mut unique = 0_u64;
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head).await?;
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        let mut message = head.to_vec();
        message.resize(length + 1, 0);
        from.read_exact(&mut message[5..]).await?;
        if head[0] == b'Z' {
            let end = message.len() + ADDED;
            while message.len() < end {
                unique += 1;
                let parameter = format!("{unique:x}\0\0");
                message.push(b'S');
                message.extend_from_slice(&(parameter.len() as u32 + 4).to_be_bytes());
                message.extend_from_slice(parameter.as_bytes());
            }
        }
        to.write_all(&message).await?;
    }
}

async fn proxy(mut client: TcpStream, server: String) {
    let mut server = TcpStream::connect(server).await.expect("it listens");
    client.set_nodelay(true).expect("it is open");
    server.set_nodelay(true).expect("it is open");
    let (mut from_client, to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = copy_and_add(from_server, to_client) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_a_connection_is_bounded() {
    let server = match PostgresServer::start(&["fsync=off"]) {
        Ok(server) => server,
        Err(text) if text.contains("is not installed") => return println!("SKIPPED: {text}"),
        Err(text) => panic!("{text}"),
    };
    let (listener, address) = listener().await;
    let to = server.address();
    let proxies = tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.expect("a connection");
            tokio::spawn(proxy(client, to.clone()));
        }
    });
    let mut options = SqlOptions::new(address, DATABASE, ROLE, EgressPolicy::loopback());
    options.password = Some(Password::Text(server.password().to_owned()));
    let transport = SqlTransport::new(options);
    let send = || transport.send(Command::Sql(vec![SqlStatement { text: "SELECT 1".to_owned(), params: Vec::new() }]));

    // A connection that is never replaced ends.
    transport.connect().await.expect("the replies to a handshake are short enough");
    assert!(!transport.is_worn());
    let mut sent = 0;
    let cut = loop {
        match send().await {
            Ok(_) => sent += 1,
            Err(cut) => break cut,
        }
        assert!(sent < 200, "{sent} requests on one connection, with {ADDED} bytes more in each of their replies");
    };
    assert!(matches!(cut, TransportError::Broken(_)), "{cut:?}");
    assert!(sent > 20, "{sent}");
    // One that is replaced when it is worn continues.
    let mut connections = 0;
    for _ in 0..100 {
        if connections == 0 || transport.is_worn() {
            transport.connect().await.expect("the server is up");
            connections += 1;
        }
        send().await.expect("no request is answered with too much");
    }
    assert!((5..=25).contains(&connections), "{connections}");
    proxies.abort();
}
