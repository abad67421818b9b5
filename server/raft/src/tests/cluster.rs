//! Several nodes and the messages between them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tribunal_types::{GroupId, NodeId};

use super::replica::Replica;
use super::{GROUP, settings};
use crate::{DurableUpTo, Input, Members};

/// A message in flight.
pub struct InFlight {
    pub from: NodeId,
    pub to: NodeId,
    pub what: Sent,
}

/// A message or a report from one node to another.
pub enum Sent {
    Message(Bytes),
    Durable(Vec<DurableUpTo>),
}

/// Nodes 1 to N, all of them replicas of the same groups.
pub struct Cluster {
    pub nodes: BTreeMap<NodeId, Replica>,
    pub in_flight: Vec<InFlight>,
    /// Nodes cut off in both directions.
    pub cut_off: Vec<NodeId>,
    /// Refused messages, with the reason.
    pub refused: Vec<crate::Refused>,
}

impl Cluster {
    pub fn new(nodes: u16, groups: &[(GroupId, Members)]) -> Self {
        let replica = |node: u16| (NodeId(node), Replica::new(NodeId(node), settings(u64::from(node)), groups));
        let nodes = (1..=nodes).map(replica).collect();
        let mut cluster = Self { nodes, in_flight: Vec::new(), cut_off: Vec::new(), refused: Vec::new() };
        cluster.nodes.values_mut().for_each(Replica::drain);
        cluster
    }

    /// Creates nodes 1 to N with the group of node 1, which leads it.
    pub fn led(nodes: u16, voters: Members) -> Self {
        let mut cluster = Self::new(nodes, &[(GROUP, voters)]);
        cluster.node(1).step(Input::Campaign(GROUP)).unwrap();
        cluster.settle();
        cluster
    }

    /// Proposes texts at node 1, each after the previous one was delivered.
    pub fn propose(&mut self, texts: &[&str]) {
        for text in texts {
            self.node(1).propose(GROUP, text).unwrap();
            self.settle();
        }
    }

    pub fn node(&mut self, node: u16) -> &mut Replica {
        self.nodes.get_mut(&NodeId(node)).expect("a node of the cluster")
    }

    pub fn collect_sent(&mut self) {
        for (from, replica) in &mut self.nodes {
            let sent = std::mem::take(&mut replica.sent);
            let told = std::mem::take(&mut replica.told);
            let sent = sent.into_iter().map(|(to, bytes)| (to, Sent::Message(bytes)));
            let sent = sent.chain(told.into_iter().map(|(to, upto)| (to, Sent::Durable(upto))));
            self.in_flight.extend(sent.map(|(to, what)| InFlight { from: *from, to, what }));
        }
        let cut_off = &self.cut_off;
        self.in_flight.retain(|message| !cut_off.contains(&message.from) && !cut_off.contains(&message.to));
    }

    pub fn deliver(&mut self, message: &InFlight) {
        let Some(replica) = self.nodes.get_mut(&message.to) else { return };
        let done = match &message.what {
            Sent::Message(bytes) => replica.receive(message.from, bytes),
            Sent::Durable(upto) => replica.step(Input::Durable { from: message.from, upto: upto.clone() }),
        };
        self.refused.extend(done.err());
    }

    /// Delivers everything, in order, until nothing is in flight.
    pub fn settle(&mut self) {
        loop {
            self.collect_sent();
            if self.in_flight.is_empty() {
                return;
            }
            for message in std::mem::take(&mut self.in_flight) {
                self.deliver(&message);
            }
        }
    }

    pub fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.nodes.values_mut().for_each(|replica| replica.step(Input::Tick).unwrap());
            self.settle();
        }
    }

    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        let leads = self.nodes.values().filter(|replica| replica.leads(group));
        leads.max_by_key(|replica| replica.roles[&group].1).map(|replica| replica.node)
    }
}
