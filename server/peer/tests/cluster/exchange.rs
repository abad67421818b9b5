//! Frames exchanged while nothing fails.

use bytes::Bytes;
use tribunal_peer::Lane;
use tribunal_types::NodeId;

use crate::nodes::{MIB, authority, cluster, listener, settings, start, wait};

/// Returns a frame that begins with its number.
fn numbered(number: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![u8::try_from(number % 251).expect("small"); len];
    frame.splice(..0, number.to_be_bytes());
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_exchange_frames_in_order_on_both_lanes() {
    let authority = authority();
    let nodes = cluster(&authority, 3, |_| {}).await;
    let others = |node: u16| (1..=3).filter(move |other| *other != node);
    // Lengths around every boundary: empty, copied and not copied, one write and several.
    let lengths = [0, 1, 50, 5_000, 16_376, 16_377, 40_000, 130_000];
    let frame = |number: usize| numbered(number, lengths[number % lengths.len()]);
    for number in 0..200 {
        for (from, node) in (1..).zip(&nodes) {
            for to in others(from) {
                node.send(to, Lane::Bulk, frame(number));
                node.send(to, Lane::Heartbeat, numbered(number, 20));
                if number == 100 {
                    node.send(to, Lane::Bulk, []);
                }
            }
        }
        // Before the queues are full.
        if number % 50 == 49 {
            for (from, node) in (1..).zip(&nodes) {
                others(from).for_each(|to| drop(node.events.frames(to, Lane::Bulk, number)));
            }
        }
    }
    let mut expected = (0..200).map(frame).collect::<Vec<_>>();
    expected.insert(101, Vec::new());
    let heartbeats = (0..200).map(|number| numbered(number, 20)).collect::<Vec<_>>();
    for (to, node) in (1..).zip(&nodes) {
        for from in others(to) {
            assert!(node.events.frames(from, Lane::Bulk, 201) == expected);
            assert!(node.events.frames(from, Lane::Heartbeat, 200) == heartbeats);
        }
        assert_eq!(node.events.arrived_count(), 2 * 401);
        assert_eq!(node.events.unreachable(), [0_u16; 0]);
    }
    let status = nodes[0].status(2);
    let bytes = expected.iter().map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!((status.bulk.sent_bytes, status.bulk.received_bytes), (bytes, bytes));
    assert_eq!((status.bulk.sent_frames, status.bulk.received_frames), (201, 201));
    assert_eq!((status.heartbeat.sent_bytes, status.heartbeat.dropped_count), (200 * 28, 0));
    assert!(status.bulk.accepted && status.heartbeat.accepted && status.received_at().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_arrive_beside_frames_of_11_mib() {
    let authority = authority();
    let nodes = cluster(&authority, 2, |settings| settings.queue_bytes_max = 40 * MIB).await;
    let long = |number: usize| numbered(number, 11 * MIB);
    for number in 0..3 {
        nodes[0].send(2, Lane::Bulk, long(number));
    }
    for number in 0..50 {
        nodes[0].send(2, Lane::Heartbeat, numbered(number, 8));
        nodes[1].events.frames(1, Lane::Heartbeat, number + 1);
    }
    let expected = (0..50).map(|number| numbered(number, 8)).collect::<Vec<_>>();
    assert!(nodes[1].events.frames(1, Lane::Heartbeat, 50) == expected);
    let arrived = nodes[1].events.frames(1, Lane::Bulk, 3);
    assert!(arrived.iter().enumerate().all(|(number, frame)| *frame == long(number)) && arrived.len() == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_process_fills_its_peers_queue_and_no_memory() {
    let authority = authority();
    let nodes = cluster(&authority, 2, |settings| {
        settings.frame_bytes_max = MIB;
        settings.queue_bytes_max = 2 * MIB;
    })
    .await;
    nodes[1].events.process(false);
    let frame = Bytes::from(vec![7; 100 << 10]);
    let (mut queued, mut rounds_full) = (0, 0);
    // Full means that nothing leaves any more, not that the sender was faster or has to wait for the processor.
    while rounds_full < 5 {
        while nodes[0].peers.send(NodeId(2), Lane::Bulk, frame.clone()) {
            queued += 1;
            // Both queues, a window, and the buffers of two sockets, TLS and HTTP/2.
            assert!(queued * frame.len() < 64 * MIB, "memory grows");
        }
        let before = nodes[0].lane(2, Lane::Bulk);
        assert!(before.queued_bytes <= 2 * MIB && before.connected);
        // Heartbeats pass in the meantime, in both directions.
        for (from, to) in [(0, 1), (1, 0)] {
            let to_number = u16::try_from(to + 1).expect("small");
            let from_number = u16::try_from(from + 1).expect("small");
            let count = nodes[to].events.frames(from_number, Lane::Heartbeat, 0).len();
            (0..20).for_each(|_| nodes[from].send(to_number, Lane::Heartbeat, [1]));
            nodes[to].events.frames(from_number, Lane::Heartbeat, count + 20);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let is_full = nodes[0].lane(2, Lane::Bulk).sent_bytes == before.sent_bytes;
        rounds_full = if is_full { rounds_full + 1 } else { 0 };
    }
    assert!(nodes[0].lane(2, Lane::Bulk).dropped_count > 0);
    let unprocessed = nodes[1].lane(1, Lane::Bulk).received_bytes;
    assert!(unprocessed <= 2 * MIB as u64, "{unprocessed} bytes were delivered");
    let reports = nodes[0].events.unreachable();
    assert!(!reports.is_empty() && reports.iter().all(|peer| *peer == 2), "{reports:?}");
    // While it is full, further drops are not reported.
    let before = nodes[0].lane(2, Lane::Bulk).dropped_count;
    (0..100).for_each(|_| assert!(!nodes[0].peers.send(NodeId(2), Lane::Bulk, frame.clone())));
    assert_eq!(nodes[0].lane(2, Lane::Bulk).dropped_count, before + 100);
    assert_eq!(nodes[0].events.unreachable(), reports);
    // The queued frames arrive once the node processes again.
    nodes[1].events.process(true);
    let arrived = nodes[1].events.frames(1, Lane::Bulk, queued);
    assert!(arrived.len() == queued && arrived.iter().all(|arrived| *arrived == *frame));
    nodes[0].send(2, Lane::Bulk, *b"more");
    assert_eq!(nodes[1].events.frames(1, Lane::Bulk, queued + 1)[queued], *b"more");
    wait(|| nodes[0].lane(2, Lane::Bulk).queued_bytes == 0, || "the queue is not empty".into()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "a frame of 12582913 bytes for node 2: nodes take 12582912")]
async fn a_frame_that_no_node_takes_is_a_mistake_of_the_caller() {
    let authority = authority();
    let node = start(&authority, settings(1, &[]), listener().0);
    node.peers.send(NodeId(2), Lane::Bulk, vec![0; 12 * MIB + 1].into());
}
