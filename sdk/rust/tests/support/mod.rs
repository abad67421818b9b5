//! A live server for one test, and a TCP proxy before it that loses requests or replies on demand.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

const START_MAX: Duration = Duration::from_secs(120);

/// A node for development on a free port. Stopped by its id when dropped.
pub struct Server {
    process: Child,
    folder: PathBuf,
    pub url: String,
}

impl Server {
    /// Starts a server; `None`, with a message, if there is no binary.
    pub fn start(name: &str) -> Option<Server> {
        let binary = binary()?;
        let folder = std::env::temp_dir().join(format!("tribunal-client-{name}-{}", std::process::id()));
        // Left by a process with this number that was killed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        let said = folder.join("said");
        let output = File::create(&said).expect("a file for the output");
        let process = Command::new(&binary)
            .args(["dev", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("the same file"))
            .stderr(output)
            .spawn()
            .expect("the server starts");
        let mut server = Server { process, folder, url: String::new() };
        let begun = Instant::now();
        loop {
            let text = fs::read_to_string(&said).unwrap_or_default();
            let url = text.lines().find_map(|line| line.strip_prefix("tribunal listens on "));
            // Only a complete line has the whole port.
            if let Some(url) = url.filter(|url| text.contains(&format!("{url}\n"))) {
                server.url = url.to_owned();
                return Some(server);
            }
            let ended = server.process.try_wait().expect("its status");
            assert!(ended.is_none() && begun.elapsed() < START_MAX, "the server does not start ({ended:?}):\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The server that was built beside this test.
fn binary() -> Option<PathBuf> {
    let built = profile_folder().join("tribunal");
    let binary = std::env::var_os("TRIBUNAL_BIN").map_or(built, PathBuf::from);
    if !binary.exists() {
        println!("SKIPPED: no server at {}: cargo build --release --bin tribunal", binary.display());
        return None;
    }
    Some(binary)
}

/// `target/<profile>`; its `deps` has this test.
pub fn profile_folder() -> PathBuf {
    let this = std::env::current_exe().expect("the test's own path");
    this.ancestors().nth(2).map(Path::to_owned).expect("a profile's folder")
}

/// What is lost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The reply: the connection breaks before the client receives it.
    Reply,
    /// The request: the connection breaks before it arrives.
    Request,
    /// The reply, while the connection stays open.
    Silence,
}

pub struct Proxy {
    pub url: String,
    next: Arc<Mutex<Option<(Loss, &'static str)>>>,
    /// Notified of each loss.
    pub lost: Arc<Notify>,
    alive: watch::Sender<bool>,
}

impl Proxy {
    pub async fn start(target: &str) -> Proxy {
        let target = target.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (alive, ends) = watch::channel(true);
        let (next, lost) = (Arc::default(), Arc::new(Notify::new()));
        let proxy = Proxy { url, next: Arc::clone(&next), lost: Arc::clone(&lost), alive };
        tokio::spawn(async move {
            let mut stopped = ends.clone();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = stopped.changed() => return,
                };
                let Ok((client, _)) = accepted else { return };
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (next, lost, mut ends) = (Arc::clone(&next), Arc::clone(&lost), ends.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = pair(client, server, next, lost) => {}
                        _ = ends.changed() => {}
                    }
                });
            }
        });
        proxy
    }

    /// Loses the next request whose first line has `line`.
    pub fn lose(&self, loss: Loss, line: &'static str) {
        *self.next.lock().expect("nobody panics with it") = Some((loss, line));
    }

    /// Closes all connections and accepts no more.
    pub fn stop(&self) {
        let _ = self.alive.send(false);
    }
}

async fn pair(client: TcpStream, server: TcpStream, next: Arc<Mutex<Option<(Loss, &'static str)>>>, lost: Arc<Notify>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (losing, loss) = watch::channel(None);
    // Whichever ends first ends both connections.
    tokio::select! {
        () = requests(from_client, to_server, next, lost, losing) => {}
        () = answers(from_server, to_client, loss) => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    next: Arc<Mutex<Option<(Loss, &'static str)>>>,
    lost: Arc<Notify>,
    losing: watch::Sender<Option<Loss>>,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let first = String::from_utf8_lossy(&buffer[..read]).lines().next().unwrap_or_default().to_owned();
        let now = next.lock().expect("nobody panics with it").take_if(|(_, line)| first.contains(*line));
        if let Some((loss, _)) = now {
            losing.send_replace(Some(loss));
            lost.notify_one();
            if loss == Loss::Request {
                return;
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, loss: watch::Receiver<Option<Loss>>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let now = *loss.borrow();
        if now == Some(Loss::Reply) || now.is_none() && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
