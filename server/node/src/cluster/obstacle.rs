//! Why a member takes no commits, and the remedy, for operators.

use tribunal_service::{ClusterView, MemberStage, NodeView};

use crate::cluster::membership::Membership;

/// Silence of a connected node after which it does not count as reached. A running node sends heartbeats every 60 ms, or
/// requests votes within 450 ms. The connection to one that sends nothing is closed later.
const OVERDUE_MS: u32 = 500;

/// The obstacle of a drained node, which is no fault.
pub const DRAINED: &str = "this node is drained, and takes commits again once `tribunal cluster resume` is called";

/// Returns why a new cluster has not begun, as far as one of its founders knows. All founders must be running once, and
/// one of them sets the configuration: if it is lost before that, no other node does so.
#[must_use]
pub fn not_begun(membership: &Membership, not_connected: &[String]) -> String {
    let Some(first) = membership.founders.first().filter(|first| **first != membership.node) else {
        return format!(
            "the cluster has not started yet: at its first start, all of its nodes must be running{}",
            listed(not_connected)
        );
    };
    format!(
        "the cluster has not started yet: at its first start, all of its nodes must be running, and node {first} gives it its \
         configuration{}. Start every node that is missing. If node {first} is lost for good, and no node of this cluster was ever \
         ready, nothing was committed: begin again without it, with another list in `cluster.nodes`, and empty data directories on all \
         nodes",
        listed(not_connected)
    )
}

/// Returns why an added node is no member yet, as far as it knows: a node that refuses it reports why.
#[must_use]
pub fn not_let_in(not_connected: &[String]) -> String {
    format!(
        "this node is not a member yet: it waits for the others to let it in and to give it what they have. It must have been \
         admitted (`tribunal cluster add`){}",
        listed(not_connected)
    )
}

/// Returns the obstacle of a node that is about to take part again in an existing cluster.
#[must_use]
pub fn starting(not_connected: &[String]) -> String {
    format!("this node has just started, and learns from the others what it has missed{}", listed(not_connected))
}

fn listed(not_connected: &[String]) -> String {
    if not_connected.is_empty() { String::new() } else { format!("; not connected: {}", not_connected.join(", ")) }
}

/// Returns why the node takes no commits, or cannot learn of the other nodes' commits, as far as it knows.
#[must_use]
pub fn obstacle(cluster: &ClusterView) -> String {
    let ClusterView { node, nodes, takes_commits, .. } = cluster;
    let own = nodes.iter().find(|other| other.node == *node);
    if let Some(problem) = own.and_then(|own| own.problem.as_ref()) {
        return format!("{problem}. Send the request to another node");
    }
    if let Some(NodeView { stage, .. }) = own.filter(|own| own.stage != MemberStage::Member) {
        return match stage {
            MemberStage::Joining => "this node is about to become a member, once it has what the others have",
            MemberStage::Drained => DRAINED,
            _ => "this node is being removed from the cluster",
        }
        .to_owned()
            + ". Send the request to another node";
    }
    // Only a majority of the voters counts: a joining node votes before it is a member, and a leaving one until it is
    // out.
    let known = nodes.iter().any(|other| other.votes);
    let counts = |other: &&NodeView| if known { other.votes } else { other.stage != MemberStage::Joining };
    let nodes: Vec<&NodeView> = nodes.iter().filter(counts).collect();
    let missing: Vec<String> =
        nodes.iter().filter(|other| !other.connected).map(|other| other.node.to_string()).collect();
    let connected = nodes.len() - missing.len();
    if connected <= nodes.len() / 2 {
        let why = nodes.iter().filter(|other| !other.connected).find_map(|other| other.problem.as_deref());
        return format!(
            "this node reaches no majority of the voting nodes, only {connected} of {}, itself included; not connected: \
             {}{}. Send the request to another node, and check the missing ones and the network between them",
            nodes.len(),
            missing.join(", "),
            why.map(|why| format!(" ({why})")).unwrap_or_default()
        );
    }
    let led_by = own.and_then(|NodeView { led_by, .. }| *led_by);
    match led_by {
        Some(leader) if leader != *node => format!(
            "node {leader} leads the log of this node at present, and gives it back within seconds. Send the request again, \
             here or to another node"
        ),
        Some(_) if *takes_commits => {
            "the other nodes have not replied, or the leader of a log has just changed. Send the request again".into()
        }
        _ => {
            let others = nodes.iter().filter(|other| other.node != *node && other.connected);
            let overdue = others.filter_map(|other| {
                let ms = other.silent_ms.filter(|ms| *ms >= OVERDUE_MS)?;
                Some(format!("node {} for {ms} ms", other.node))
            });
            let overdue: Vec<String> = overdue.collect();
            let silence = if overdue.is_empty() {
                String::new()
            } else {
                format!("; connected, but silent: {}", overdue.join(", "))
            };
            format!(
                "the log of this node has no leader at present; it reaches {} of {} voting nodes{silence}. Send the request again, \
                 here or to another node",
                connected - overdue.len(),
                nodes.len()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tribunal_log::ClusterIdentity;
    use tribunal_types::{Incarnation, LogId, NodeId};

    use super::*;

    fn view(connected: [bool; 3], led_by: Option<u16>, takes_commits: bool) -> ClusterView {
        let nodes = (1..=3).zip(connected).map(|(id, connected)| NodeView {
            node: NodeId(id),
            connected,
            led_by: led_by.filter(|_| id == 1).map(NodeId),
            ..NodeView::default()
        });
        ClusterView { node: NodeId(1), takes_commits, nodes: nodes.collect(), ..ClusterView::default() }
    }

    #[test]
    fn who_joins_is_not_missed_and_says_so() {
        let joining = NodeView { node: NodeId(4), stage: MemberStage::Joining, ..NodeView::default() };
        let mut cluster = view([true, true, false], None, false);
        cluster.nodes.push(joining);
        assert!(obstacle(&cluster).contains("it reaches 2 of 3"), "{}", obstacle(&cluster));
        cluster.node = NodeId(4);
        assert!(obstacle(&cluster).contains("about to become a member"));
        cluster.node = NodeId(1);
        // It votes before it is a member, so two of four are no majority.
        cluster.nodes.iter_mut().for_each(|node| node.votes = true);
        assert!(
            obstacle(&cluster).contains("only 2 of 4, itself included; not connected: 3, 4"),
            "{}",
            obstacle(&cluster)
        );
        cluster.nodes[2].problem = Some("node 3 refuses node 1".into());
        assert!(
            obstacle(&cluster).contains("not connected: 3, 4 (node 3 refuses node 1). Send"),
            "{}",
            obstacle(&cluster)
        );
        cluster.nodes[3].votes = false;
        assert!(obstacle(&cluster).contains("it reaches 2 of 3"), "{}", obstacle(&cluster));
        for (stage, expected) in [(MemberStage::Leaving, "being removed"), (MemberStage::Drained, "cluster resume")] {
            cluster.nodes[0].stage = stage;
            assert!(obstacle(&cluster).contains(expected), "{}", obstacle(&cluster));
        }
    }

    #[test]
    fn a_cluster_that_has_not_begun_tells_who_is_waited_for() {
        let identity = ClusterIdentity { id: LogId([1; 16]), incarnation: Incarnation(1), row_secret: [2; 16] };
        let told = |node, missing: &[&str]| {
            let founders = [1, 2, 3].map(NodeId).into();
            let (name, nodes, keeps_log) = ("a".into(), BTreeMap::new(), false);
            let membership =
                Membership { name, node: NodeId(node), identity, keeps_log, nodes, founders, authorities: Vec::new() };
            not_begun(&membership, &missing.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let waits = told(2, &["1 (refused)"]);
        assert!(waits.contains("node 1 gives it its configuration; not connected: 1 (refused). Start"), "{waits}");
        assert!(waits.contains("begin again without it"), "{waits}");
        assert!(told(1, &["2", "3"]).ends_with("must be running; not connected: 2, 3"));
        assert!(told(3, &[]).contains("its configuration. Start"));
        let added = not_let_in(&["1 (node 1 refuses node 4)".into()]);
        assert!(added.ends_with("(`tribunal cluster add`); not connected: 1 (node 1 refuses node 4)"), "{added}");
    }

    #[test]
    fn each_cause_is_told_apart() {
        for (view, expected) in [
            (view([true, false, false], Some(1), false), "only 1 of 3, itself included; not connected: 2, 3"),
            (view([true, true, false], Some(2), false), "node 2 leads the log of this node"),
            (view([true, true, true], None, false), "has no leader at present; it reaches 3 of 3 voting nodes. Send"),
            // It was elected, but its term has not begun.
            (
                view([true, true, false], Some(1), false),
                "has no leader at present; it reaches 2 of 3 voting nodes. Send",
            ),
            (view([true, true, true], Some(1), true), "has just changed"),
        ] {
            let told = obstacle(&view);
            assert!(told.contains(expected), "{expected}: {told}");
        }
    }

    #[test]
    fn nodes_that_have_fallen_silent_are_not_counted_as_reached() {
        let mut cluster = view([true, true, true], None, false);
        for (silent_ms, expected) in [
            ([20, 90], "it reaches 3 of 3 voting nodes. Send"),
            ([90, 1310], "it reaches 2 of 3 voting nodes; connected, but silent: node 3 for 1310 ms. Send"),
            (
                [1240, 1310],
                "it reaches 1 of 3 voting nodes; connected, but silent: node 2 for 1240 ms, node 3 for 1310 ms. Send",
            ),
        ] {
            cluster.nodes.iter_mut().skip(1).zip(silent_ms).for_each(|(node, ms)| node.silent_ms = Some(ms));
            let told = obstacle(&cluster);
            assert!(told.contains(expected), "{expected}: {told}");
        }
    }
}
