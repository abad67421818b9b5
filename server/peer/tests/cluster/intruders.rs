//! Callers that are refused with a message that names both sides, while the nodes continue to exchange frames.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tribunal_peer::{Authority, Lane, NodeCertificate};
use tribunal_types::Generation;

use crate::intruder::{Answered, Headers, ask, certificate, connect, headers, odd_certificate};
use crate::nodes::{CLUSTER, DEADLINE, Node, authority, cluster};

const PATH: &str = "/peer/v1/frames";
const H2: &[&str] = &["h2"];

/// Checks that the two nodes still exchange frames.
fn undisturbed(nodes: &[Node]) {
    for (from, to) in [(0, 1), (1, 0)] {
        let numbers = [from, to].map(|index| u16::try_from(index + 1).expect("small"));
        for lane in [Lane::Heartbeat, Lane::Bulk] {
            let count = nodes[to].events.frames(numbers[0], lane, 0).len();
            nodes[from].send(numbers[1], lane, *b"undisturbed");
            nodes[to].events.frames(numbers[0], lane, count + 1);
        }
    }
}

struct Scene {
    authority: Authority,
    nodes: Vec<Node>,
}

impl Scene {
    async fn new() -> Scene {
        let authority = authority();
        let nodes = cluster(&authority, 2, |settings| settings.frame_bytes_max = 1000).await;
        Scene { authority, nodes }
    }

    fn address(&self) -> SocketAddr {
        self.nodes[0].address
    }

    async fn ask_node_1(&self, made: &NodeCertificate, path: &str, headers: Headers) -> Answered {
        let socket = connect(self.address(), 1, &self.authority, Some(made), H2).await.expect("TLS");
        ask(socket, path, headers).await.expect("an answer")
    }

    /// Checks that a caller with the certificate of `own` is refused, with words that both the response and the node's
    /// status contain.
    async fn refused(&self, own: u16, path: &str, headers: Headers, status: StatusCode, words: &[&str]) {
        let before = self.nodes[0].refused_count();
        let answered = self.ask_node_1(&certificate(&self.authority, own), path, headers).await;
        assert_eq!(answered.response.status(), status);
        let text = answered.text().await;
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} expected: {text}");
        self.nodes[0].refused(before, &[&text]).await;
        undisturbed(&self.nodes);
    }

    /// Checks that a caller without an acceptable node certificate does not get as far as a request.
    async fn no_request(&self, made: Option<&NodeCertificate>, protocols: &[&str], words: &[&str]) {
        let before = self.nodes[0].refused_count();
        let answered = match connect(self.address(), 1, &self.authority, made, protocols).await {
            Ok(socket) => ask(socket, PATH, headers(2, "bulk")).await.is_ok(),
            Err(_) => false,
        };
        assert!(!answered);
        self.nodes[0].refused(before, words).await;
        undisturbed(&self.nodes);
    }
}

fn with(mut headers: Headers, name: &str, value: &str) -> Headers {
    headers.iter_mut().filter(|(header, _)| *header == name).for_each(|(_, old)| *old = value.into());
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_those_of_a_peer_are_refused() {
    let scene = Scene::new().await;
    let valid = || headers(2, "bulk");
    let other_cluster = with(valid(), "tribunal-cluster", "production");
    let words = ["node 1 belongs to the cluster `test`, but node 2 to `production`", "correct the name"];
    scene.refused(2, PATH, other_cluster, StatusCode::CONFLICT, &words).await;
    let words = ["node 1 and node 2 have different secrets", "4fec9d87 and 598ba9d7", "`cluster.secret_file`"];
    scene.refused(2, PATH, with(valid(), "tribunal-log", "598ba9d7"), StatusCode::CONFLICT, &words).await;
    let words = ["node 1 does not have node 7 among its peers, which are 2", "add it"];
    scene.refused(7, PATH, headers(7, "bulk"), StatusCode::FORBIDDEN, &words).await;
    let words = ["node 1 refuses node 7, which says that it is node 2"];
    scene.refused(7, PATH, valid(), StatusCode::FORBIDDEN, &words).await;
    let words = ["node 1 is called by node 1", "two nodes have the same number"];
    scene.refused(1, PATH, headers(1, "bulk"), StatusCode::CONFLICT, &words).await;
    let newer = with(valid(), "tribunal-peer-version", "2");
    let words = ["node 1 speaks version 1", "node 2 speaks version `2`", "same release"];
    scene.refused(2, PATH, newer, StatusCode::BAD_REQUEST, &words).await;
    let words = ["node 1 does not know the lane `express` of node 2"];
    scene.refused(2, PATH, headers(2, "express"), StatusCode::BAD_REQUEST, &words).await;
    for number in ["", "two", "+2", "02", "70000", "-1"] {
        let unknown = with(valid(), "tribunal-node", number);
        let words = ["node 1 does not know which node calls", "node 2 says"];
        scene.refused(2, PATH, unknown, StatusCode::BAD_REQUEST, &words).await;
    }
    let words = ["node 1 talks to peers here", "node 2 asked for POST /v1/commit"];
    scene.refused(2, "/v1/commit", valid(), StatusCode::NOT_FOUND, &words).await;
    scene.refused(2, PATH, Vec::new(), StatusCode::BAD_REQUEST, &["node 1", "node 2", "version ``"]).await;
    assert!(scene.nodes[0].events.frames(7, Lane::Bulk, 0).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_cannot_decide_as_the_cluster_does_is_refused() {
    let scene = Scene::new().await;
    let of = |generations: &str| {
        let mut headers = headers(2, "bulk");
        headers.push(("tribunal-generations", generations.into()));
        headers
    };
    for malformed in ["2-1", "x", "1-"] {
        let words = ["node 1 does not know the generations", "of node 2"];
        scene.refused(2, PATH, of(malformed), StatusCode::BAD_REQUEST, &words).await;
    }
    scene.nodes[0].peers.set_generation(Generation(2));
    let words =
        ["node 1 belongs to a cluster that decides in generation 2", "generation 1 only", "newer release as node 2"];
    scene.refused(2, PATH, of("1"), StatusCode::UPGRADE_REQUIRED, &words).await;
    scene.refused(2, PATH, headers(2, "bulk"), StatusCode::UPGRADE_REQUIRED, &words).await;
    for other in ["1-2", "2-3", "3-4"] {
        // The last one may know of a switch that node 1 does not know of.
        let answered = scene.ask_node_1(&certificate(&scene.authority, 2), PATH, of(other)).await;
        assert_eq!(answered.response.status(), StatusCode::OK, "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_a_nodes_name_is_refused() {
    let scene = Scene::new().await;
    let nameless = odd_certificate(&scene.authority, &["db.example"], (2000, 2100));
    let answered = scene.ask_node_1(&nameless, PATH, headers(2, "bulk")).await;
    assert_eq!(answered.response.status(), StatusCode::FORBIDDEN);
    let text = answered.text().await;
    assert!(text.contains("node 1 refuses node 2: its certificate has no DNS name `node-2.tribunal`"), "{text}");
    undisturbed(&scene.nodes);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_not_valid_get_no_answer() {
    let scene = Scene::new().await;
    let sides = "node 1 refuses a connection from 127.0.0.1";
    // An authority of the same name with another key, and one of another name.
    for cluster in [CLUSTER, "production"] {
        let stranger = certificate(&Authority::create(cluster).expect("made"), 2);
        scene.no_request(Some(&stranger), H2, &[sides, "not signed by our authority"]).await;
    }
    let expired = odd_certificate(&scene.authority, &["node-2.tribunal"], (2000, 2001));
    scene.no_request(Some(&expired), H2, &[sides, "has expired"]).await;
    let early = odd_certificate(&scene.authority, &["node-2.tribunal"], (2090, 2091));
    scene.no_request(Some(&early), H2, &[sides, "not valid yet"]).await;
    scene.no_request(None, H2, &[sides, "presents no certificate"]).await;
    let valid = certificate(&scene.authority, 2);
    scene.no_request(Some(&valid), &["http/1.1"], &[sides, "HTTP/2"]).await;
    scene.no_request(Some(&valid), &[], &[sides, "HTTP/2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_without_tls_are_refused() {
    let scene = Scene::new().await;
    let noise = (0..50_000_u32).map(|number| (number * number % 251) as u8).collect::<Vec<_>>();
    for plain in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &noise] {
        let before = scene.nodes[0].refused_count();
        let mut socket = TcpStream::connect(scene.address()).await.expect("it listens");
        // The node may have closed the connection before all of it is written.
        let _ = socket.write_all(plain).await;
        let mut rest = Vec::new();
        let _ = timeout(DEADLINE, socket.read_to_end(&mut rest)).await.expect("it is closed");
        drop(socket);
        scene.nodes[0].refused(before, &["node 1 refuses a connection from 127.0.0.1", "does not talk TLS"]).await;
        undisturbed(&scene.nodes);
    }
    // A caller that disconnects at once.
    let before = scene.nodes[0].refused_count();
    drop(TcpStream::connect(scene.address()).await.expect("it listens"));
    scene.nodes[0].refused(before, &["it closed the connection"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_a_certificate_that_talks_no_http2_is_refused() {
    let scene = Scene::new().await;
    let valid = certificate(&scene.authority, 2);
    let noise = (0..50_000_u32).map(|number| (number * number % 251) as u8).collect::<Vec<_>>();
    let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    preface.extend_from_slice(&noise);
    for garbage in [&b"POST /peer/v1/frames HTTP/1.1\r\nhost: a\r\n\r\n"[..], &noise, &preface] {
        let before = scene.nodes[0].refused_count();
        let mut socket = connect(scene.address(), 1, &scene.authority, Some(&valid), H2).await.expect("TLS");
        let _ = socket.write_all(garbage).await;
        let mut rest = Vec::new();
        let _ = timeout(DEADLINE, socket.read_to_end(&mut rest)).await.expect("it is closed");
        scene.nodes[0].refused(before, &["node 1 refuses a connection from 127.0.0.1"]).await;
        undisturbed(&scene.nodes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_do_nothing_keep_nobody_out() {
    let scene = Scene::new().await;
    let mut idle = Vec::new();
    for _ in 0..150 {
        idle.push(TcpStream::connect(scene.address()).await.expect("it listens"));
    }
    // A new peer gets in among them.
    let valid = certificate(&scene.authority, 2);
    let socket = timeout(DEADLINE, connect(scene.address(), 1, &scene.authority, Some(&valid), H2)).await;
    let answered = ask(socket.expect("in time").expect("TLS"), PATH, headers(2, "heartbeat")).await.expect("an answer");
    assert_eq!(answered.response.status(), StatusCode::OK);
    scene.nodes[0].refused(0, &["too many callers"]).await;
    // A caller that has only completed the handshake has no more time than the others, which are closed in the end.
    let mut silent = connect(scene.address(), 1, &scene.authority, Some(&valid), H2).await.expect("TLS");
    let mut rest = Vec::new();
    let _ = timeout(DEADLINE, silent.read_to_end(&mut rest)).await.expect("it is closed");
    for mut socket in idle {
        let _ = timeout(DEADLINE, socket.read_to_end(&mut rest)).await.expect("it is closed");
    }
    drop(answered);
    scene.nodes[1].connected(1).await;
    undisturbed(&scene.nodes);
}

/// Waits for the message that an admitted caller receives at the end.
async fn end(answered: Answered) -> String {
    assert_eq!(answered.response.status(), StatusCode::OK);
    answered.text().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_read_ends_with_the_reason() {
    let authority = authority();
    // The test plays node 2.
    let (unused, nowhere) = crate::nodes::listener();
    drop(unused);
    let mut settings = crate::nodes::settings(1, &[(2, nowhere), (3, nowhere)]);
    settings.frame_bytes_max = 1000;
    let one = crate::nodes::start(&authority, settings, crate::nodes::listener().0);
    let scene = Scene { authority, nodes: vec![one] };
    let valid = certificate(&scene.authority, 2);
    let events = &scene.nodes[0].events;

    let too_long = scene.ask_node_1(&valid, PATH, headers(2, "bulk")).await;
    too_long.send(&[0, 0, 0, 2, 8, 8, 0, 0]);
    assert_eq!(events.frames(2, Lane::Bulk, 1), [[8, 8]]);
    too_long.send(&[3, 233]);
    let text = end(too_long).await;
    assert!(text.contains("node 1 takes frames of at most 1000 bytes, but node 2 announces one of 1001"), "{text}");

    let mut torn = scene.ask_node_1(&valid, PATH, headers(2, "bulk")).await;
    torn.send(&[0, 0, 0, 3, 1, 1, 1, 0, 0, 0, 3, 1, 1]);
    assert_eq!(events.frames(2, Lane::Bulk, 2)[1], [1, 1, 1]);
    torn.pieces = tokio::sync::mpsc::unbounded_channel().0;
    let text = end(torn).await;
    assert!(text.contains("node 2 ended within a frame to node 1"), "{text}");

    // A connection that is cut within a frame.
    let cut = scene.ask_node_1(&valid, PATH, headers(2, "bulk")).await;
    cut.send(&[0, 0, 0, 3, 1, 1]);
    drop(cut);
    crate::nodes::wait(|| !scene.nodes[0].lane(2, Lane::Bulk).accepted, || "still accepted".into()).await;
    assert_eq!(events.arrived_count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_connection_of_a_lane_replaces_the_older_one() {
    let authority = authority();
    let (unused, nowhere) = crate::nodes::listener();
    drop(unused);
    let one = crate::nodes::start(&authority, crate::nodes::settings(1, &[(2, nowhere)]), crate::nodes::listener().0);
    let scene = Scene { authority, nodes: vec![one] };
    let valid = certificate(&scene.authority, 2);
    let events = &scene.nodes[0].events;
    let heartbeats = scene.ask_node_1(&valid, PATH, headers(2, "heartbeat")).await;
    let older = scene.ask_node_1(&valid, PATH, headers(2, "bulk")).await;
    older.send(&[0, 0, 0, 1, 1, 0, 0]);
    events.frames(2, Lane::Bulk, 1);
    let newer = scene.ask_node_1(&valid, PATH, headers(2, "bulk")).await;
    // Ignored, if the request is still open.
    let _ = older.pieces.send((&[0, 1, 9][..]).into());
    let text = end(older).await;
    assert!(text.contains("node 1 has a newer connection of node 2") && text.contains("two processes"), "{text}");
    newer.send(&[0, 0, 0, 1, 2]);
    assert_eq!(events.frames(2, Lane::Bulk, 2), [[1], [2]]);
    assert!(scene.nodes[0].lane(2, Lane::Bulk).accepted);
    // The other lane is not affected.
    heartbeats.send(&[0, 0, 0, 1, 3]);
    events.frames(2, Lane::Heartbeat, 1);
    assert!(timeout(Duration::from_millis(1), heartbeats.text()).await.is_err());
}

/// Returns the headers of a process that runs as node 2.
fn process(name: &str, lane: &str) -> Headers {
    let mut headers = headers(2, lane);
    headers.push(("tribunal-process", name.into()));
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_of_a_node_is_refused_while_the_first_one_lives() {
    let scene = Scene::new().await;
    let valid = certificate(&scene.authority, 2);
    let words = ["node 2 is connected to node 1 already", "127.0.0.1", "second process", "certificate"];
    for lane in ["heartbeat", "bulk"] {
        scene.refused(2, PATH, process("copy", lane), StatusCode::CONFLICT, &words).await;
    }
    undisturbed(&scene.nodes);
    // The operating system closes the connections of a killed process, so another one need not wait.
    let mut nodes = scene.nodes.into_iter();
    let one = nodes.next().expect("node 1");
    drop(nodes);
    crate::nodes::wait(
        || !one.lane(2, Lane::Heartbeat).accepted && !one.lane(2, Lane::Bulk).accepted,
        || "open".into(),
    )
    .await;
    let scene = Scene { authority: scene.authority, nodes: vec![one] };
    let restarted = scene.ask_node_1(&valid, PATH, process("restarted", "heartbeat")).await;
    assert_eq!(restarted.response.status(), StatusCode::OK);
    // The former first process is the second one now.
    let first = scene.ask_node_1(&valid, PATH, process("copy", "bulk")).await;
    assert_eq!(first.response.status(), StatusCode::CONFLICT);
    let bulk = scene.ask_node_1(&valid, PATH, process("restarted", "bulk")).await;
    assert_eq!(bulk.response.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_connection_is_open_and_silent_keeps_no_other_one_out() {
    let authority = authority();
    let (unused, nowhere) = crate::nodes::listener();
    drop(unused);
    let mut settings = crate::nodes::settings(1, &[(2, nowhere)]);
    settings.silent_after = Duration::from_secs(3);
    let one = crate::nodes::start(&authority, settings, crate::nodes::listener().0);
    let scene = Scene { authority, nodes: vec![one] };
    let valid = certificate(&scene.authority, 2);
    // It answers pings, if any: none is sent before it has been silent for 7.5 s.
    let old = scene.ask_node_1(&valid, PATH, process("old", "heartbeat")).await;
    let refused = scene.ask_node_1(&valid, PATH, process("new", "heartbeat")).await;
    assert_eq!(refused.response.status(), StatusCode::CONFLICT);
    let before = scene.nodes[0].refused_count();
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    assert!(scene.nodes[0].lane(2, Lane::Heartbeat).accepted, "nobody has noticed yet");
    let new = scene.ask_node_1(&valid, PATH, process("new", "heartbeat")).await;
    assert_eq!((new.response.status(), scene.nodes[0].refused_count()), (StatusCode::OK, before));
    let text = end(old).await;
    assert!(text.contains("node 1 has a newer connection of node 2"), "{text}");
}
