//! Peers that are added, removed and moved while the other nodes exchange frames.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tribunal_peer::Lane;
use tribunal_types::NodeId;

use crate::nodes::{Node, authority, cluster, listener, settings, start, wait};

fn set(node: &Node, peers: &[(u16, SocketAddr)]) {
    let peers = peers.iter().map(|(peer, address)| (NodeId(*peer), address.to_string())).collect::<BTreeMap<_, _>>();
    node.peers.set_peers(peers).expect("they can be its peers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_and_leaves_disturbs_nobody() {
    let authority = authority();
    let nodes = cluster(&authority, 2, |_| {}).await;
    let (one, two) = (&nodes[0], &nodes[1]);
    let three = start(&authority, settings(3, &[(1, one.address), (2, two.address)]), listener().0);
    three.problem(1, &["refuses node 3", "node 1 does not have node 3 among its peers, which are 2"]).await;
    assert!(!one.peers.send(NodeId(3), Lane::Bulk, (&b"too early"[..]).into()));

    set(one, &[(2, two.address), (3, three.address)]);
    set(two, &[(1, one.address), (3, three.address)]);
    for node in [one, two] {
        node.connected(3).await;
        node.send(3, Lane::Bulk, *b"welcome");
    }
    for peer in [1, 2] {
        three.connected(peer).await;
        three.send(peer, Lane::Heartbeat, *b"thanks");
        assert_eq!(three.events.frames(peer, Lane::Bulk, 1), [*b"welcome"]);
    }
    one.events.frames(3, Lane::Heartbeat, 1);

    set(one, &[(2, two.address)]);
    assert!(!one.peers.send(NodeId(3), Lane::Bulk, (&b"too late"[..]).into()));
    assert!(!one.peers.status().peers.contains_key(&NodeId(3)));
    let refused = || three.lane(1, Lane::Bulk).problem().unwrap_or_default().to_owned();
    wait(|| refused().contains("node 1 does not have node 3 among its peers"), refused).await;
    assert_eq!(three.events.removed(), [0_u16; 0], "that it is no peer may have other reasons");
    one.peers.set_former([NodeId(3)].into());
    wait(|| three.events.removed().contains(&1), refused).await;
    wait(|| refused().contains("a cluster from which node 3 was removed"), refused).await;
    // The other connections are unchanged.
    two.send(3, Lane::Bulk, *b"still here");
    assert_eq!(three.events.frames(2, Lane::Bulk, 2)[1], *b"still here");
    one.send(2, Lane::Bulk, *b"still here");
    two.events.frames(1, Lane::Bulk, 1);
    assert_eq!((one.events.unreachable(), two.events.unreachable()), (Vec::new(), Vec::new()));
    assert_eq!(three.events.frames(1, Lane::Bulk, 1), [*b"welcome"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_removed_delivers_nothing_more() {
    let authority = authority();
    let nodes = cluster(&authority, 2, |_| {}).await;
    let (one, two) = (&nodes[0], &nodes[1]);
    set(one, &[]);
    let before = one.events.arrived_count();
    // Frames are accepted until the connection ends, and lost.
    while two.lane(1, Lane::Bulk).connected {
        two.peers.send(NodeId(1), Lane::Bulk, (&b"from a stranger"[..]).into());
        tokio::task::yield_now().await;
    }
    // It receives the reason, and receives it again when it reconnects.
    two.problem(1, &["node 1", "node 2 among its peers"]).await;
    two.problem(1, &["node 1 does not have node 2 among its peers, which are none"]).await;
    assert_eq!(one.events.arrived_count(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_moves_is_dialled_at_its_new_address() {
    let authority = authority();
    let mut nodes = cluster(&authority, 2, |_| {}).await;
    let (two, one) = (nodes.pop().expect("node 2"), nodes.pop().expect("node 1"));
    two.peers.stop().await;
    let two = start(&authority, settings(2, &[(1, one.address)]), listener().0);
    // It can send before node 1 can send to it.
    two.connected(1).await;
    two.send(1, Lane::Bulk, *b"moved");
    assert_eq!(one.events.frames(2, Lane::Bulk, 1), [*b"moved"]);
    set(&one, &[(2, two.address)]);
    one.connected(2).await;
    one.send(2, Lane::Bulk, *b"found");
    assert_eq!(two.events.frames(1, Lane::Bulk, 1), [*b"found"]);
    // The connection that it dialled is still the same one.
    two.send(1, Lane::Bulk, *b"again");
    assert_eq!(one.events.frames(2, Lane::Bulk, 2)[1], *b"again");
    assert_eq!(two.events.unreachable(), [0_u16; 0]);
    assert!(one.peers.set_peers(BTreeMap::from([(NodeId(1), "localhost:1".into())])).is_err());
    assert_eq!(one.peers.status().peers.keys().collect::<Vec<_>>(), [&NodeId(2)]);
}
