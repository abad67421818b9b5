//! A receiver of webhooks: an HTTP server that behaves as the test specifies, and records all requests.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ring::hmac;
use serde_json::Value;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Post {
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Post {
    /// Returns a header's value; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Returns the body.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }

    /// Returns the positions of the records.
    pub fn lsns(&self) -> Vec<u64> {
        self.json()["records"].as_array().expect("records").iter().map(|record| number(&record["lsn"])).collect()
    }

    /// Verifies that a request is from its server, as a receiver does: see the README.
    pub fn is_signed(&self, secret: &str) -> bool {
        let parts: Vec<_> =
            self.header("tribunal-signature").split(',').filter_map(|part| part.split_once('=')).collect();
        let [("t", seconds), ("v1", hex)] = parts[..] else { return false };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
        let fresh = seconds.parse::<u64>().is_ok_and(|seconds| now.abs_diff(seconds) < 300);
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect();
        let signed = [seconds.as_bytes(), b".", &self.body].concat();
        fresh && hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &signed, &bytes).is_ok()
    }
}

/// A receiver's reaction to a request.
#[derive(Clone, Debug)]
pub enum Does {
    Answer(u16, &'static str, String),
    Hang,
    Close,
    Babble,
}

/// Acknowledges.
pub fn ok() -> Does {
    Does::Answer(204, "", String::new())
}

type Behaviour = Box<dyn Fn(usize, &Post) -> Does + Send + Sync>;

struct Shared {
    posts: Mutex<Vec<Post>>,
    behaviour: Mutex<Behaviour>,
    stop: AtomicBool,
}

/// An HTTP server on its own port. Its threads end with it.
pub struct Receiver {
    pub address: std::net::SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    scheme: &'static str,
}

impl Receiver {
    /// Starts a receiver.
    pub fn new(behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static) -> Receiver {
        Receiver::with(None, behaviour)
    }

    /// Starts a receiver with TLS, with a certificate for `localhost` that only the test trusts.
    pub fn tls(behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static) -> Receiver {
        let pem = include_bytes!("../tls/cert.pem");
        let chain = vec![CertificateDer::from_pem_slice(pem).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/key.pem")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(chain, key);
        Receiver::with(Some(Arc::new(config.expect("they belong together"))), behaviour)
    }

    fn with(
        tls: Option<Arc<ServerConfig>>,
        behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            posts: Mutex::default(),
            behaviour: Mutex::new(Box::new(behaviour)),
            stop: AtomicBool::new(false),
        });
        let all = Arc::clone(&shared);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming() {
                if all.stop.load(Ordering::Relaxed) {
                    return;
                }
                let one = Arc::clone(&all);
                let tls = tls.clone();
                std::thread::spawn(move || {
                    let socket = socket.expect("a connection");
                    drop(match tls {
                        None => serve(socket, &one),
                        Some(config) => {
                            let session = rustls::ServerConnection::new(config).expect("a session");
                            serve(rustls::StreamOwned::new(session, socket), &one)
                        }
                    });
                });
            }
        });
        Receiver { address, shared, thread: Some(thread), scheme }
    }

    /// Changes its behaviour from now on.
    pub fn becomes(&self, behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("{}://{}/hook?from=tribunal", self.scheme, self.address)
    }

    /// Returns the same with the host name in the certificate.
    pub fn named_url(&self) -> String {
        format!("{}://localhost:{}/hook?from=tribunal", self.scheme, self.address.port())
    }

    /// Returns all requests that arrived.
    pub fn posts(&self) -> Vec<Post> {
        self.shared.posts.lock().unwrap().clone()
    }

    /// Returns the positions of all records that arrived.
    pub fn seen(&self) -> BTreeSet<u64> {
        self.posts().iter().flat_map(Post::lsns).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: impl Read + Write, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(line.starts_with("POST "), "{line}");
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut post = Post { target, headers, body: Vec::new() };
        let length = post.header("content-length").parse().expect("a length");
        post.body = vec![0; length];
        reader.read_exact(&mut post.body)?;
        let does = {
            let mut posts = shared.posts.lock().unwrap();
            posts.push(post.clone());
            let count = posts.len();
            drop(posts);
            (shared.behaviour.lock().unwrap())(count, &post)
        };
        let writer = reader.get_mut();
        match does {
            Does::Answer(status, header, text) => {
                write!(writer, "HTTP/1.1 {status} x\r\n{header}content-length: {}\r\n\r\n{text}", text.len())?;
                writer.flush()?;
            }
            // Longer than any test waits; the other side closes.
            Does::Hang => drop(reader.read(&mut [0; 1])),
            Does::Close => return Ok(()),
            Does::Babble => writer.write_all(b"this is not HTTP at all\r\n\r\n")?,
        }
    }
}

/// Parses a decimal string.
pub fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a number")
}
