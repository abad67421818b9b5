//! TCP proxies between the nodes of a cluster, one per direction: node A dials node B through the link from A to B, and
//! sends to B only on that connection. Each link can be cut, silent or slow, or reset its connections.
//!
//! As in TCP, no byte is lost or changed on a connection that stays up: bytes held back by a silent link arrive later.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Pieces that one direction of a connection buffers before its sender blocks.
const PIECES_MAX: usize = 256;
const PIECE_BYTES: usize = 16 << 10;

/// The fault of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Connections are dropped, and new ones closed at once.
    Cut,
    /// Connections are accepted and stay open, but nothing arrives.
    Silent,
    /// Everything arrives with this delay, in both directions of a connection.
    Slow(Duration),
}

/// A proxy in front of one listener. It stops on drop.
pub struct Link {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes forwarded.
    bytes: AtomicU64,
    connections: AtomicU64,
}

struct State {
    fault: Fault,
    /// Connections of earlier generations are reset.
    generation: u64,
    open: Vec<TcpStream>,
    closed: bool,
}

impl Link {
    /// Listens on a free port, for connections to `target`.
    pub fn to(target: SocketAddr) -> Link {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = State { fault: Fault::None, generation: 0, open: Vec::new(), closed: false };
        let shared = Arc::new(Shared {
            target,
            state: Mutex::new(state),
            changed: Condvar::new(),
            bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Link { shared, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes its fault.
    pub fn set(&self, fault: Fault) {
        self.shared.state.lock().unwrap().fault = fault;
        self.shared.changed.notify_all();
        if fault == Fault::Cut {
            self.reset();
        }
    }

    /// Drops all connections immediately, even in the middle of a frame; clients may reconnect.
    pub fn reset(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.generation += 1;
        for socket in state.open.drain(..) {
            // An error means that it is already closed.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }

    /// Returns the bytes forwarded so far, in both directions.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of connections made through it so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap().closed = true;
        self.reset();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        for socket in listener.incoming().map_while(Result::ok) {
            let fault = {
                let state = self.state.lock().unwrap();
                if state.closed {
                    return;
                }
                state.fault
            };
            if fault == Fault::Cut {
                continue;
            }
            // The node is not running: drop the connection.
            let Ok(target) = TcpStream::connect_timeout(&self.target, Duration::from_secs(1)) else { continue };
            let _ = self.join(socket, target);
        }
    }

    fn join(self: &Arc<Shared>, one: TcpStream, other: TcpStream) -> std::io::Result<()> {
        one.set_nodelay(true)?;
        other.set_nodelay(true)?;
        let generation = {
            let mut state = self.state.lock().unwrap();
            if state.closed || state.fault == Fault::Cut {
                return Ok(());
            }
            state.open.push(one.try_clone()?);
            state.open.push(other.try_clone()?);
            state.generation
        };
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.pump(one.try_clone()?, other.try_clone()?, generation);
        self.pump(other, one, generation);
        Ok(())
    }

    /// Forwards data in one direction of a connection.
    fn pump(self: &Arc<Shared>, from: TcpStream, to: TcpStream, generation: u64) {
        let (pieces, arrived) = sync_channel(PIECES_MAX);
        let (reading, writing) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || reading.read(from, &pieces));
        std::thread::spawn(move || writing.write(to, &arrived, generation));
    }

    fn read(&self, mut from: TcpStream, pieces: &SyncSender<(Instant, Vec<u8>)>) {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(bytes @ 1..) = from.read(&mut piece) {
            let delay = match self.state.lock().unwrap().fault {
                Fault::Slow(delay) => delay,
                _ => Duration::ZERO,
            };
            if pieces.send((Instant::now() + delay, piece[..bytes].to_vec())).is_err() {
                break;
            }
        }
    }

    fn write(&self, mut to: TcpStream, arrived: &Receiver<(Instant, Vec<u8>)>, generation: u64) {
        for (due, piece) in arrived {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut state = self.state.lock().unwrap();
            while state.fault == Fault::Silent && state.generation == generation {
                state = self.changed.wait(state).unwrap();
            }
            let is_reset = state.generation != generation;
            drop(state);
            if is_reset || to.write_all(&piece).is_err() {
                break;
            }
            self.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        // The other side has closed, or the connection is reset.
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// The links between all nodes, by dialling and dialled node.
pub struct Links(BTreeMap<(u16, u16), Link>);

impl Links {
    /// Takes over the links.
    pub fn new(links: BTreeMap<(u16, u16), Link>) -> Links {
        Links(links)
    }

    pub fn link(&self, from: u16, to: u16) -> &Link {
        &self.0[&(from, to)]
    }

    /// Sets a fault on all links from and to a node.
    pub fn set_node(&self, node: u16, fault: Fault) {
        let of_node = self.0.iter().filter(|((from, to), _)| *from == node || *to == node);
        of_node.for_each(|(_, link)| link.set(fault));
    }

    /// Sets a fault on all links.
    pub fn set_all(&self, fault: Fault) {
        self.0.values().for_each(|link| link.set(fault));
    }

    /// Returns the bytes that all of them have forwarded.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(Link::bytes).sum()
    }

    /// Returns the number of connections made through them.
    pub fn connections(&self) -> u64 {
        self.0.values().map(Link::connections).sum()
    }
}
