//! Connections that are lost and re-established.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tribunal_peer::Lane;
use tribunal_types::NodeId;

use crate::nodes::{authority, cluster, listener, settings, start, wait};

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_restarts_on_its_port_is_connected_again() {
    let authority = authority();
    let mut nodes = cluster(&authority, 2, |_| {}).await;
    let (two, one) = (nodes.pop().expect("node 2"), nodes.pop().expect("node 1"));
    one.send(2, Lane::Bulk, *b"before");
    two.events.frames(1, Lane::Bulk, 1);
    two.peers.stop().await;
    wait(|| !one.status(2).is_connected(), || "still connected".into()).await;
    one.problem(2, &["node 1", "node 2", &two.address.to_string()]).await;
    wait(|| one.events.unreachable().len() == 2, || format!("{:?}", one.events.unreachable())).await;
    // Both lanes are lost, and each loss was reported.
    for lane in [Lane::Bulk, Lane::Heartbeat] {
        assert!(!one.peers.send(NodeId(2), lane, (&b"lost"[..]).into()));
        assert_eq!(one.lane(2, lane).dropped_count, 1);
    }
    assert_eq!(one.events.unreachable(), [2, 2]);
    assert!(!two.peers.send(NodeId(1), Lane::Bulk, (&b"stopped"[..]).into()));
    assert_eq!(two.events.unreachable(), [0_u16; 0]);

    let again = std::net::TcpListener::bind(two.address).expect("the address is free again");
    let two = start(&authority, settings(2, &[(1, one.address)]), again);
    one.connected(2).await;
    two.connected(1).await;
    assert_eq!(one.status(2).problem(), None);
    for number in 0..100_u8 {
        one.send(2, Lane::Bulk, [number]);
        two.send(1, Lane::Heartbeat, [number]);
    }
    assert!(two.events.frames(1, Lane::Bulk, 100).into_iter().eq((0..100).map(|number| vec![number])));
    assert!(one.events.frames(2, Lane::Heartbeat, 100).into_iter().eq((0..100).map(|number| vec![number])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_node_ends_its_connections_and_frees_its_address() {
    let authority = authority();
    let mut nodes = cluster(&authority, 2, |_| {}).await;
    let two = nodes.pop().expect("node 2");
    let address = two.address;
    drop(two);
    wait(|| std::net::TcpListener::bind(address).is_ok(), || "the address is in use".into()).await;
    wait(|| !nodes[0].status(2).is_connected(), || "still connected".into()).await;
}

/// Passes bytes on in both directions until it is switched to swallow them.
async fn relay(listener: TcpListener, to: SocketAddr, is_silent: Arc<AtomicBool>) {
    async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_silent: Arc<AtomicBool>) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if !is_silent.load(Ordering::Relaxed) && to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(to).await else { continue };
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
        tokio::spawn(pass(near_read, far_write, Arc::clone(&is_silent)));
        tokio::spawn(pass(far_read, near_write, Arc::clone(&is_silent)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_falls_silent_is_noticed_and_connected_again_when_it_talks() {
    let authority = authority();
    let ((one_listener, one_address), (two_listener, two_address)) = (listener(), listener());
    let is_silent = Arc::new(AtomicBool::new(false));
    let relaying = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let relay_address = relaying.local_addr().expect("it is bound");
    tokio::spawn(relay(relaying, two_address, Arc::clone(&is_silent)));
    let mut soon = settings(1, &[(2, relay_address)]);
    soon.silent_after = Duration::from_secs(4);
    let one = start(&authority, soon, one_listener);
    let two = start(&authority, settings(2, &[(1, one_address)]), two_listener);
    one.connected(2).await;
    one.send(2, Lane::Heartbeat, *b"alive");
    two.events.frames(1, Lane::Heartbeat, 1);
    is_silent.store(true, Ordering::Relaxed);
    wait(|| !one.lane(2, Lane::Heartbeat).connected, || "not noticed".into()).await;
    let problem = one.lane(2, Lane::Heartbeat).last_problem.expect("a problem").reason;
    assert!(problem.contains("it has been silent for 4s"), "{problem}");
    assert!(one.events.unreachable().contains(&2));
    wait(|| !one.lane(2, Lane::Bulk).connected, || "not noticed on the bulk lane".into()).await;
    is_silent.store(false, Ordering::Relaxed);
    one.connected(2).await;
    one.send(2, Lane::Heartbeat, *b"again");
    assert_eq!(two.events.frames(1, Lane::Heartbeat, 2)[1], *b"again");
}
