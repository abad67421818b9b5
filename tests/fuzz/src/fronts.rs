//! Single commits on their short way, from the bytes of a connection to those of the answer: through hyper and
//! [`tribunal_http::FastPath`], with a key asked for, which no layer of the router would do here.
//!
//! An input is the path, then headers, a line each, an empty line, and the body, whose length is said here: a request whose
//! length is wrong is hyper's affair, and most mutations would be nothing else.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tribunal_http::listener::fast_path::ConnectionContext;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{FastPath, RouterOptions};
use tribunal_service::{Principal, Service};
use tribunal_types::{NamespaceId, Roles};

use crate::bodies::fake_node::FakeNode;

/// Requests that one node takes, before a new one stands in.
const REQUESTS_MAX: usize = 256;
/// How long an answer is waited for: long enough that a busy machine finds nothing.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes on their way between the two ends.
const BUFFER_BYTES: usize = 1 << 20;
/// How a key is given.
const SCHEME: &str = "Bearer ";
/// The key that lets in.
const KEY: &str = "known";

struct Stage {
    runtime: tokio::runtime::Runtime,
    front: FastPath,
    requests: usize,
}

impl Stage {
    fn new() -> Stage {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let node = FakeNode::new();
        let (namespace_name, name) = ("default".to_owned(), "fuzz".to_owned());
        let principal = Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name };
        node.principals.lock().expect("not poisoned").insert(KEY.into(), Arc::new(principal));
        let access = Some(TenantQuota { requests_max: 16, bytes_max: 1 << 30 });
        let front = FastPath::new(Service::of(&Arc::new(node)), RouterOptions { access, ..RouterOptions::default() });
        Stage { runtime, front, requests: 0 }
    }
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::new(Stage::new());
}

/// Sends one commit and tells whether it was decided.
pub fn run(data: &[u8]) -> bool {
    let Some(at) = data.windows(2).position(|pair| pair == b"\n\n") else { return false };
    let (head, body) = (&data[..at], &data[at + 2..]);
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut request =
        [b"POST ", lines.next().unwrap_or_default(), b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"].concat();
    let mut has_key = false;
    for line in lines {
        has_key |= gives_key(line);
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    request.extend_from_slice(body);
    let answer = STAGE.with_borrow_mut(|stage| {
        if stage.requests == REQUESTS_MAX {
            *stage = Stage::new();
        }
        stage.requests += 1;
        let front = stage.front.clone();
        stage.runtime.block_on(async { tokio::time::timeout(TIMEOUT, exchange(front, request)).await })
    });
    let answer = answer.unwrap_or_else(|_| panic!("no answer"));
    judge(&answer, has_key)
}

/// Tells whether a line of the head is the header that lets in. Case is of no account in its name and its scheme.
fn gives_key(line: &[u8]) -> bool {
    let Some(at) = line.iter().position(|byte| *byte == b':') else { return false };
    let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
    let Some((scheme, key)) = value.split_at_checked(SCHEME.len()) else { return false };
    name.eq_ignore_ascii_case(b"authorization")
        && scheme.eq_ignore_ascii_case(SCHEME.as_bytes())
        && key == KEY.as_bytes()
}

async fn exchange(front: FastPath, request: Vec<u8>) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(BUFFER_BYTES);
    let service = hyper::service::service_fn(move |request| {
        let front = front.clone();
        async move { Ok::<_, std::convert::Infallible>(front.answer(request, &ConnectionContext::default()).await) }
    });
    // The client has nothing more to say while it waits, which is not to end what it waits for.
    let connection =
        hyper::server::conn::http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service);
    let mut answer = Vec::new();
    let client = async {
        // It may have answered and closed before all was sent.
        let _ = client.write_all(&request).await;
        // Or a connection that a header keeps alive would wait for another request.
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut answer).await;
    };
    let (_, ()) = tokio::join!(connection, client);
    answer
}

fn judge(answer: &[u8], has_key: bool) -> bool {
    // What comes before the answer, if the client asked for it.
    let answer = answer.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(answer);
    let Some(rest) = answer.strip_prefix(b"HTTP/1.1 ") else {
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(answer));
        return false;
    };
    let status: u16 = str::from_utf8(&rest[..3]).ok().and_then(|text| text.parse().ok()).expect("a status");
    assert!(status < 500 || status == 503, "{}", String::from_utf8_lossy(answer));
    let at = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head has an end");
    let body = &answer[at + 4..];
    let succeeded = (200..300).contains(&status);
    if succeeded {
        assert!(has_key, "let in without a key");
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        // 204 says that there is no body.
        assert!(is_json || status == 204, "{}", String::from_utf8_lossy(body));
    } else if !body.is_empty() {
        let problem: tribunal_api::Problem = serde_json::from_slice(body).expect("a problem");
        assert_eq!(problem.status, status);
    }
    succeeded
}
