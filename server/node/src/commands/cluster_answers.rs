//! The answers of a cluster's nodes to `tribunal cluster status`, and the problems that they show.

use tribunal_api::{ClusterInfo, ClusterNode, NodeStage};
use tribunal_client::Error;

use crate::cluster::obstacle::DRAINED;
use crate::commands::store::refusal;

/// What the client says about an expired certificate.
const RENEW: &str = "its certificate must be renewed";

/// A queried node.
pub(super) struct Asked {
    pub url: String,
    pub answer: Result<ClusterInfo, NoInfo>,
    /// Its digest as of the epoch that all have decided.
    pub digest: Option<String>,
}

/// Why a node returns no cluster state.
pub(super) enum NoInfo {
    /// It answers, and refuses the request.
    Refused(String),
    /// It cannot be asked by this caller: its certificate is not accepted, or it does not speak TLS.
    Unusable(String),
    /// It does not answer.
    Silent(String),
}

impl NoInfo {
    pub fn of(error: Error) -> NoInfo {
        match error {
            Error::ClientMistake(problem) => NoInfo::Refused(refusal(&problem)),
            Error::Misuse(reason) => NoInfo::Unusable(reason),
            error => NoInfo::Silent(error.to_string()),
        }
    }

    fn problem(&self, url: &str) -> String {
        match self {
            NoInfo::Refused(reason) => format!("{url} refuses the request: {reason}"),
            NoInfo::Unusable(reason) if reason.contains(RENEW) => format!(
                "{url} cannot be asked: {reason}. Replace the file of that node's `tls.cert_file`, and restart the node. Until then \
                 its clients are locked out; the nodes know each other by other certificates"
            ),
            NoInfo::Unusable(reason) => format!("{url} cannot be asked: {reason}"),
            NoInfo::Silent(reason) => format!("{url} does not answer: {reason}"),
        }
    }
}

/// The answers of all queried nodes.
pub(super) struct Answers<'a> {
    asked: &'a [Asked],
    pub infos: Vec<&'a ClusterInfo>,
    /// The answer with the most recent state. A node that takes transactions knows the leaders; one that is cut off may
    /// not.
    pub best: Option<&'a ClusterInfo>,
    /// Members that answer at none of the queried URLs.
    pub absent: Vec<&'a ClusterNode>,
}

impl<'a> Answers<'a> {
    pub fn of(asked: &'a [Asked]) -> Answers<'a> {
        let infos: Vec<&ClusterInfo> = asked.iter().filter_map(|one| one.answer.as_ref().ok()).collect();
        let best = infos.iter().copied().max_by_key(|info| (info.takes_commits, epoch_of(info)));
        let members = best.iter().flat_map(|info| &info.nodes).filter(|other| is_member(other));
        let absent = members.filter(|other| infos.iter().all(|info| info.node != other.node)).collect();
        Answers { asked, infos, best, absent }
    }

    /// Returns the number of URLs that give no answer.
    pub fn unanswered(&self) -> usize {
        self.asked.len() - self.infos.len()
    }

    /// Returns the nodes of the cluster, as the most recent state has them.
    pub fn known_nodes(&self) -> impl Iterator<Item = &'a ClusterNode> {
        self.best.into_iter().flat_map(|info| &info.nodes)
    }

    /// Returns the nodes whose logs a node leads.
    pub fn led_by(&self, node: u16) -> Vec<u16> {
        self.known_nodes().filter(|other| other.led_by == Some(node)).map(|other| other.node).collect()
    }

    /// Returns the problems, for operators, other than different decisions.
    pub fn problems(&self) -> Vec<String> {
        let hint = self.best.and_then(|best| about_url(best, &self.absent, &self.infos)).unwrap_or_default();
        let mut problems = Vec::new();
        for Asked { url, answer, .. } in self.asked {
            match answer {
                Ok(_) => {}
                Err(reason @ (NoInfo::Refused(_) | NoInfo::Unusable(_))) => problems.push(reason.problem(url)),
                Err(reason @ NoInfo::Silent(_)) => problems.push(reason.problem(url) + &hint),
            }
        }
        for info in &self.infos {
            // A drained node takes no transactions, which is no problem.
            let reasons = info.reasons.iter().filter(|reason| !reason.contains(DRAINED));
            problems.extend(reasons.map(|reason| format!("node {}: {reason}", info.node)));
            if !info.takes_commits && info.reasons.is_empty() {
                problems.push(format!("node {} takes no transactions", info.node));
            }
        }
        for told in told_of_others(&self.infos) {
            if !problems.contains(&told) {
                problems.push(told);
            }
        }
        problems.extend(strangers(&self.infos));
        problems.extend(self.not_asked());
        problems
    }

    /// Returns the problem that there are more absent members than URLs without an answer, which may be theirs.
    fn not_asked(&self) -> Option<String> {
        let missing = self.absent.len().checked_sub(self.unanswered()).filter(|missing| *missing > 0)?;
        let names = list(&self.absent.iter().map(|other| other.node).collect::<Vec<_>>());
        let which = if self.unanswered() == 0 {
            format!("not asked: node {names}")
        } else {
            // The URLs without an answer are those of the others.
            format!("not asked: {missing} of the nodes {names}")
        };
        Some(format!("{which}; list the URLs of all nodes in --url, separated by commas"))
    }
}

/// Returns the last epoch that a node has decided.
pub(super) fn epoch_of(info: &ClusterInfo) -> u64 {
    info.epoch.parse().unwrap_or_default()
}

pub(super) fn is_member(node: &ClusterNode) -> bool {
    matches!(node.stage, NodeStage::Member | NodeStage::Drained)
}

pub(super) fn list(nodes: &[u16]) -> String {
    nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns a hint about a URL that does not answer, if the URL may be wrong: according to `best`, the members that have
/// not answered at another URL are running, or there are none.
fn about_url(best: &ClusterInfo, absent: &[&ClusterNode], answers: &[&ClusterInfo]) -> Option<String> {
    let name = best.name.as_ref()?;
    let answers_here = |other: &ClusterNode| answers.iter().any(|info| info.node == other.node);
    // It may be the URL of a node that is being added or removed, which need not run.
    if best.nodes.iter().any(|other| !is_member(other) && !answers_here(other)) {
        return None;
    }
    if absent.is_empty() {
        return Some(format!(". All nodes of {name} answer at other URLs: it is the URL of none of them"));
    }
    let names: Vec<u16> = absent.iter().map(|other| other.node).collect();
    absent.iter().all(|other| other.connected).then(|| {
        format!(
            ". Node {} is connected with node {} all the same: check the URL, and the network from here",
            list(&names),
            best.node
        )
    })
}

/// Returns the nodes' reports about other members: only other nodes know that one is unreachable, or has decided
/// otherwise.
fn told_of_others(answers: &[&ClusterInfo]) -> Vec<String> {
    let told = answers.iter().flat_map(|info| {
        let others = info.nodes.iter().filter(|other| other.node != info.node && is_member(other));
        others.filter_map(|other| Some(format!("node {}: {}", other.node, other.problem.as_ref()?)))
    });
    told.collect()
}

/// Returns the problems if the answering nodes belong to different clusters, or one of them was queried twice.
fn strangers(answers: &[&ClusterInfo]) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, info) in answers.iter().enumerate() {
        if let Some(other) = answers[..at].iter().find(|other| other.name != info.name) {
            let name = |info: &ClusterInfo| info.name.clone().unwrap_or_else(|| "none".into());
            problems.push(format!("the nodes are of different clusters: {} and {}", name(other), name(info)));
        } else if answers[..at].iter().any(|other| other.node == info.node) {
            problems.push(format!("node {} was asked twice", info.node));
        }
    }
    problems
}
