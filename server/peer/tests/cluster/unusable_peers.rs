//! Unusable peers: the problems reported by the node that dials them.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tribunal_peer::{Authority, Identity, IdentityFiles, Lane, NodeCertificate, Peers};
use tribunal_types::NodeId;

use crate::intruder::{acceptor, certificate, odd_certificate};
use crate::nodes::{Events, authority, identity, listener, node_identity, settings, start};

/// Node 1 dials node 2 at `address` and reports why it is unusable.
async fn check(authority: &Authority, address: SocketAddr, words: &[&str]) {
    let one = start(authority, settings(1, &[(2, address)]), listener().0);
    let mut words = words.to_vec();
    let address = address.to_string();
    words.extend(["node 1", "node 2", &address]);
    one.problem(2, &words).await;
    assert!(!one.status(2).is_connected());
    one.peers.stop().await;
}

/// Accepts connections as a node with this certificate that requires none, and sends garbage instead of HTTP/2.
async fn pretender(made: &NodeCertificate) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let acceptor = acceptor(made);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            if let Ok(mut socket) = acceptor.accept(socket).await {
                let _ = socket.write_all(b"certainly no settings of HTTP/2, whatever their length is").await;
                let mut rest = Vec::new();
                let _ = socket.read_to_end(&mut rest).await;
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_without_its_certificate_is_not_used() {
    let authority = authority();
    let unsigned = certificate(&Authority::create("other").expect("made"), 2);
    check(&authority, pretender(&unsigned).await, &["not signed by our authority"]).await;
    let expired = odd_certificate(&authority, &["node-2.tribunal"], (2000, 2001));
    check(&authority, pretender(&expired).await, &["its certificate has expired"]).await;
    let early = odd_certificate(&authority, &["node-2.tribunal"], (2090, 2091));
    check(&authority, pretender(&early).await, &["not valid yet", "clocks"]).await;
    let other = certificate(&authority, 3);
    check(&authority, pretender(&other).await, &["its certificate is not that of the node", "node-3.tribunal"]).await;
    let valid = certificate(&authority, 2);
    check(&authority, pretender(&valid).await, &["cannot connect"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_no_peer_is_not_used() {
    let authority = authority();
    let (unused, nowhere) = listener();
    drop(unused);
    check(&authority, nowhere, &["is it running"]).await;
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = plain.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = plain.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
            let mut rest = Vec::new();
            let _ = socket.read_to_end(&mut rest).await;
        }
    });
    check(&authority, address, &["does not talk TLS", "listener for peers"]).await;
    // The kernel accepts the connection, but no process does.
    let (_silent, address) = listener();
    check(&authority, address, &["TLS handshake takes longer than"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_refused_tells_what_its_peer_says() {
    let authority = authority();
    let (_unused, nowhere) = listener();
    let two = start(&authority, settings(2, &[(3, nowhere)]), listener().0);
    check(&authority, two.address, &["refuses node 1", "node 2 does not have node 1 among its peers, which are 3"])
        .await;
    let mut other = settings(2, &[(1, nowhere)]);
    other.cluster = "production".into();
    let two = start(&authority, other, listener().0);
    check(&authority, two.address, &["node 2 belongs to the cluster `production`, but node 1 to `test`"]).await;
    let stranger = Authority::create("other").expect("made");
    let two = start(&stranger, settings(2, &[(1, nowhere)]), listener().0);
    // It dials repeatedly: node 2's message about it is the same until it stops.
    let one = start(&authority, settings(1, &[(2, two.address)]), listener().0);
    one.problem(2, &["node 1", "node 2", "not signed by our authority"]).await;
    two.refused(0, &["node 2 refuses a connection", "our certificate is not signed by its authority"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_certificate_a_peer_does_not_accept_tells_so() {
    let authority = authority();
    let stranger = Authority::create("other").expect("made");
    // Node 1 trusts both authorities, as during their replacement; node 2 trusts only its own.
    let both = format!("{}{}", authority.certificate_pem(), stranger.certificate_pem());
    let made = certificate(&authority, 1);
    let one = Identity::from_pem(made.identity(&both)).expect("an identity");
    let (two_listener, two_address) = listener();
    let (one_listener, one_address) = listener();
    let two = start(&stranger, settings(2, &[(1, one_address)]), two_listener);
    let events = Events::processing();
    let one = Peers::start(settings(1, &[(2, two_address)]), one, one_listener, &Handle::current(), events as _);
    let one = one.expect("it starts");
    let problem = || one.status().peers[&NodeId(2)].problem().unwrap_or_default().to_owned();
    let says = "it says that our certificate is not signed by its authority";
    crate::nodes::wait(|| problem().contains(says), problem).await;
    two.refused(0, &["node 2 refuses a connection", "its certificate is not signed by our authority"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_with_a_smaller_limit_says_why_it_ends_the_connection() {
    let authority = authority();
    let ((one_listener, one_address), (two_listener, two_address)) = (listener(), listener());
    let one = start(&authority, settings(1, &[(2, two_address)]), one_listener);
    let mut small = settings(2, &[(1, one_address)]);
    small.frame_bytes_max = 10;
    let two = start(&authority, small, two_listener);
    one.connected(2).await;
    one.send(2, Lane::Bulk, [1; 10]);
    two.events.frames(1, Lane::Bulk, 1);
    one.send(2, Lane::Bulk, [1; 11]);
    crate::nodes::wait(|| !one.events.unreachable().is_empty(), || "not reported".into()).await;
    let reason = one.lane(2, Lane::Bulk).last_problem.expect("a problem").reason;
    let words =
        ["closed the connection of node 1", "node 2 takes frames of at most 10 bytes", "node 1 announces one of 11"];
    assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
    for _ in 0..3 {
        one.connected(2).await;
        one.send(2, Lane::Bulk, [2; 10]);
    }
    assert!(two.events.frames(1, Lane::Bulk, 2).iter().all(|frame| frame.len() == 10));
}

#[test]
fn a_node_does_not_start_with_what_cannot_work() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let authority = authority();
    let refused = |settings, identity| {
        let events = Events::processing();
        let started = Peers::start(settings, identity, listener().0, runtime.handle(), Arc::clone(&events) as _);
        started.err().expect("it does not start")
    };
    let (_unused, nowhere) = listener();
    let text = refused(settings(1, &[(2, nowhere)]), node_identity(&authority, 2));
    assert!(text.contains("not that of node 1 but that of node 2"), "{text}");
    let unsigned = certificate(&Authority::create("other").expect("made"), 1);
    let text = refused(settings(1, &[(2, nowhere)]), identity(&unsigned, &authority));
    assert!(text.contains("certificate of node 1 is not signed by the authority"), "{text}");
    let text = refused(settings(1, &[(1, nowhere)]), node_identity(&authority, 1));
    assert!(text.contains("node 1 is among its own peers"), "{text}");
    let missing =
        IdentityFiles { certificate: "none.pem".into(), key: "none.pem".into(), authority: "none.pem".into() };
    let text = Identity::from_files(&missing).err().expect("no such file");
    assert!(text.contains("`none.pem`"), "{text}");
}
