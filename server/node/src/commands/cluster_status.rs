//! `tribunal cluster status`: queries all given nodes, and reports whether all is well.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tribunal_api::{ClusterInfo, ClusterNode, ClusterPush, NodeStage};
use tribunal_client::{Client, Epoch, Error};

use crate::commands::cli::ClusterStatus;
use crate::commands::cluster_answers::{Answers, Asked, NoInfo, epoch_of, is_member, list};
use crate::commands::output::out;
use crate::commands::store::block_on;

/// Prints the state of a cluster. The exit code is 0 if all nodes are well, 1 if none answers the query, and 2
/// otherwise.
///
/// # Errors
/// If nothing can be queried.
pub fn run(flags: &ClusterStatus) -> Result<ExitCode, String> {
    let timeout = Duration::from_millis(flags.timeout_ms);
    let clients = flags.target.clients(timeout).map_err(|error| error.to_string())?;
    let report = Report::of(&block_on(async { Ok(ask_all(&clients, timeout).await) })?);
    if flags.target.json {
        out!("{}", serde_json::to_string(&report).map_err(|error| error.to_string())?);
    } else {
        report.print(&flags.target.as_flags());
    }
    Ok(report.exit_code())
}

/// Queries all nodes concurrently, and then those that answer for their digests as of an epoch that all of these have
/// decided.
async fn ask_all(clients: &[(String, Client)], timeout: Duration) -> Vec<Asked> {
    let all = clients.iter().map(|(_, client)| client.clone());
    let answers = join_all(all, timeout, |client| async move { client.cluster().await }).await;
    let epochs = answers.iter().flatten().filter_map(|info| info.epoch.parse().ok());
    let common = Epoch(epochs.min().unwrap_or_default());
    let answering = clients.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
    let answering = answering.map(|((_, client), _)| client.clone());
    let mut at_common =
        join_all(answering, timeout, |client| async move { client.cluster_at(common).await }).await.into_iter();
    let nodes = clients.iter().zip(answers).map(|((url, _), answer)| {
        let at_common = answer.is_ok().then(|| at_common.next()).flatten();
        let digest = at_common.and_then(Result::ok).and_then(|info| info.digest_at);
        Asked { url: url.clone(), answer, digest }
    });
    nodes.collect()
}

async fn join_all<F>(
    clients: impl Iterator<Item = Client>,
    timeout: Duration,
    ask: impl Fn(Client) -> F,
) -> Vec<Result<ClusterInfo, NoInfo>>
where
    F: Future<Output = Result<ClusterInfo, Error>> + Send + 'static,
{
    let asked: Vec<_> = clients.map(|client| tokio::spawn(tokio::time::timeout(timeout, ask(client)))).collect();
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(match answer.await {
            Ok(Ok(answer)) => answer.map_err(NoInfo::of),
            Ok(Err(_)) => Err(NoInfo::Silent(format!("no answer within {} ms", timeout.as_millis()))),
            Err(failed) => Err(NoInfo::Silent(failed.to_string())),
        });
    }
    answers
}

/// The report on a cluster.
#[derive(Serialize)]
struct Report {
    /// Every node was queried and answers, none has a problem, and all have decided the same.
    well: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// The last epoch that all answering nodes have decided.
    epoch: String,
    /// `equal`, `differ`, or `unknown` if a digest is missing, or only one of several nodes has one.
    digests: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    control_leader: Option<u16>,
    /// Generation in which the cluster decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    nodes: Vec<Row>,
    /// The nodes' releases, if they differ.
    releases: Vec<NodeRelease>,
    /// The nodes that are being added or removed, or are drained.
    changes: Vec<Change>,
    /// Members that the node with the most recent state is not connected with.
    silent: Vec<u16>,
    /// The node that pushes to each external storage.
    pushes: Vec<ClusterPush>,
    /// The node that delivers to each webhook.
    webhooks: Vec<ClusterPush>,
    /// The problems, for operators.
    problems: Vec<String>,
}

/// A node that is being added or removed, or is drained.
#[derive(Serialize)]
struct Change {
    node: u16,
    stage: NodeStage,
    /// For a node being added: why the others are not connected with it, which is no problem before it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// A node's release.
#[derive(Clone, PartialEq, Serialize)]
struct NodeRelease {
    node: u16,
    /// Unknown until the node has announced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generations: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
}

/// Returns the nodes' releases, if they differ. A node that has not started yet has none.
fn releases(nodes: &[ClusterNode]) -> Vec<NodeRelease> {
    let release = |node: &ClusterNode| NodeRelease {
        node: node.node,
        version: node.version.clone(),
        generations: node.generations.clone(),
        engine: node.engine.clone(),
    };
    let all: Vec<_> = nodes.iter().map(release).collect();
    let known: Vec<_> = all.iter().filter(|release| release.version.is_some()).collect();
    let is_same = known.windows(2).all(|two| NodeRelease { node: two[1].node, ..two[0].clone() } == *two[1]);
    if is_same { Vec::new() } else { all }
}

/// Compares the digests of the answering nodes, of this many in total. A single digest of several nodes cannot be
/// compared.
fn compared(asked: &[Asked], nodes: usize) -> &'static str {
    let digests: Vec<_> = asked.iter().filter(|one| one.answer.is_ok()).map(|one| one.digest.as_ref()).collect();
    match digests.split_first() {
        Some((Some(_), [])) if nodes > 1 => "unknown",
        Some((Some(first), others)) if others.iter().all(|other| *other == Some(*first)) => "equal",
        _ if digests.iter().flatten().any(|one| Some(one) != digests.iter().flatten().next()) => "differ",
        _ => "unknown",
    }
}

/// The report on a node.
#[derive(Default, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    answers: bool,
    /// It answers, but refuses to report: the key is missing or wrong, or it is another service.
    refuses: bool,
    ready: bool,
    takes_commits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
    /// By how many epochs it lags the most advanced node.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    control_index: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The nodes whose logs it leads.
    leads: Vec<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl Row {
    /// `last` is the last epoch that any node has decided.
    fn of(Asked { url, answer, digest }: &Asked, answers: &Answers<'_>, last: u64) -> Row {
        match answer {
            Ok(info) => Row {
                node: Some(info.node),
                url: Some(url.clone()),
                answers: true,
                refuses: false,
                ready: info.ready,
                takes_commits: info.takes_commits,
                epoch: Some(info.epoch.clone()),
                lag: Some(last - epoch_of(info)),
                control_index: Some(info.control_index.clone()),
                digest: digest.clone(),
                leads: answers.led_by(info.node),
                version: Some(info.version.clone()),
            },
            Err(reason) => {
                let refuses = matches!(reason, NoInfo::Refused(_));
                Row { url: Some(url.clone()), refuses, ..Row::default() }
            }
        }
    }
}

/// Returns a row for each node, including those that do not answer or were not asked.
fn rows(asked: &[Asked], answers: &Answers<'_>) -> Vec<Row> {
    let last = answers.infos.iter().map(|info| epoch_of(info)).max().unwrap_or_default();
    let mut rows: Vec<Row> = asked.iter().map(|one| Row::of(one, answers, last)).collect();
    let mut unknown = rows.iter_mut().filter(|row| row.node.is_none());
    match (&answers.absent[..], unknown.next(), unknown.next()) {
        // By elimination, it is at this URL.
        ([only], Some(row), None) => (row.node, row.leads) = (Some(only.node), answers.led_by(only.node)),
        // The problems name the URLs; a row per URL would list the same nodes again.
        (absent, ..) if absent.len() >= answers.unanswered() => {
            rows.retain(|row| row.node.is_some() || row.refuses);
            let row_of = |node: u16| Row { node: Some(node), leads: answers.led_by(node), ..Row::default() };
            rows.extend(absent.iter().map(|other| row_of(other.node)));
        }
        // They are at some of these URLs.
        _ => {}
    }
    rows.sort_by_key(|row| (row.node.is_none(), row.node));
    rows
}

/// Prints the pushing node of each of these stores.
fn print_pushes(pushes: &[ClusterPush], by: &str) {
    if !pushes.is_empty() {
        out!("\n{:<24} {:<24} {by}", "store", "namespace");
    }
    for ClusterPush { namespace, store, node } in pushes {
        let node = node.map_or_else(|| "nobody yet".to_owned(), |node| format!("node {node}"));
        out!("{store:<24} {namespace:<24} {node}");
    }
}

impl Report {
    fn of(asked: &[Asked]) -> Report {
        let answers = Answers::of(asked);
        let best = answers.best;
        let nodes = rows(asked, &answers);
        let mut problems = answers.problems();
        let digests = compared(asked, nodes.len());
        if digests == "differ" {
            problems.push("nodes have decided differently: stop the cluster, and report this with all logs".into());
        }
        let changing = answers.known_nodes().filter(|other| other.stage != NodeStage::Member);
        let changes = changing.map(|other| Change {
            node: other.node,
            stage: other.stage,
            reason: other.problem.clone().filter(|_| other.stage == NodeStage::Joining),
        });
        let silent = answers.known_nodes().filter(|other| is_member(other) && !other.connected);
        Report {
            well: problems.is_empty() && !answers.infos.is_empty(),
            cluster: best.and_then(|info| info.name.clone()),
            epoch: answers.infos.iter().map(|info| epoch_of(info)).min().unwrap_or_default().to_string(),
            digests,
            control_leader: best.and_then(|info| info.control_leader),
            generation: best.and_then(|info| info.generation),
            nodes,
            releases: best.map(|info| releases(&info.nodes)).unwrap_or_default(),
            changes: changes.collect(),
            silent: silent.map(|other| other.node).collect(),
            pushes: best.map(|info| info.pushes.clone()).unwrap_or_default(),
            webhooks: best.map(|info| info.webhooks.clone()).unwrap_or_default(),
            problems,
        }
    }

    fn exit_code(&self) -> ExitCode {
        let is_answered = self.nodes.iter().any(|node| node.answers);
        ExitCode::from(if self.well { 0 } else { 1 + u8::from(is_answered) })
    }

    /// `flags` are those with which other commands reach the same nodes.
    fn print(&self, flags: &str) {
        match &self.cluster {
            Some(name) => out!("cluster {name}"),
            None if self.nodes.iter().any(|node| node.answers) => out!("a node that runs alone"),
            None => {}
        }
        let digests = match self.digests {
            "equal" if self.nodes.len() == 1 => "of one node, which is compared with no other",
            "equal" => "equal",
            "differ" => "DIFFER",
            _ if self.nodes.iter().any(|node| node.refuses) => "unknown: a node refuses to tell",
            _ if self.nodes.iter().all(|node| !node.answers) => "unknown: no node answers",
            _ if self.nodes.iter().filter(|node| node.answers).count() == 1 => {
                "unknown: only one node answers, which is compared with no other"
            }
            _ => "unknown: a node lags too far to be compared, or has not decided anything since its start",
        };
        out!("digests after epoch {}: {digests}\n", self.epoch);
        out!(
            "{:>5}  {:<8} {:<6} {:<8} {:>12} {:>8} {:>8}  {:<17} {:<20} {:<8} url",
            "node",
            "answers",
            "ready",
            "commits",
            "epoch",
            "lag",
            "control",
            "digest",
            "leads",
            "version"
        );
        for node in &self.nodes {
            out!("{}", self.line(node));
        }
        for Change { node, stage, reason } in &self.changes {
            match stage {
                NodeStage::Joining => {
                    let reason = reason.as_ref().map(|reason| format!(". At present: {reason}")).unwrap_or_default();
                    out!(
                        "\nnode {node} was added, and becomes a member once it has started and has what the others have{reason}"
                    );
                }
                NodeStage::Drained => {
                    out!(
                        "\nnode {node} is drained, until {} cluster resume {node}{flags}",
                        crate::commands::cli::program()
                    );
                }
                NodeStage::Leaving if self.silent.is_empty() => out!("\nnode {node} is being removed"),
                NodeStage::Leaving => {
                    out!("\nnode {node} is being removed; not connected: node {}", list(&self.silent))
                }
                NodeStage::Member => {}
            }
        }
        if let (false, Some(generation)) = (self.releases.is_empty(), self.generation) {
            out!(
                "\nthe nodes run different releases, and decide in generation {generation} until all can in the next one:"
            );
        }
        for NodeRelease { node, version, generations, engine } in &self.releases {
            let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known yet".into());
            let (version, generations, engine) = (known(version), known(generations), known(engine));
            out!("node {node}: release {version}, generations {generations}, plugin engine {engine}");
        }
        print_pushes(&self.pushes, "pushed by");
        print_pushes(&self.webhooks, "webhook delivered by");
        if !self.problems.is_empty() {
            out!("");
        }
        self.problems.iter().for_each(|problem| out!("{problem}"));
    }

    fn line(&self, row: &Row) -> String {
        let word = |is: bool| if is { "yes" } else { "no" };
        let known = |is: bool| if row.answers { word(is) } else { "-" };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let mut leads: Vec<String> =
            row.leads.iter().map(|log| if Some(*log) == row.node { "own".into() } else { log.to_string() }).collect();
        if row.node.is_some() && row.node == self.control_leader {
            leads.push("control".into());
        }
        let leads = if leads.is_empty() { "-".into() } else { leads.join(",") };
        let mut line = String::new();
        let node = row.node.map_or_else(|| "-".into(), |node| node.to_string());
        let lag = row.lag.map_or_else(|| "-".into(), |lag| lag.to_string());
        let asked = match row.url {
            Some(_) if row.refuses => "refuses",
            Some(_) => word(row.answers),
            None => "-",
        };
        let _ = write!(
            line,
            "{node:>5}  {asked:<8} {:<6} {:<8} {:>12} {lag:>8} {:>8}  {:<17} {leads:<20} {:<8} {}",
            known(row.ready),
            known(row.takes_commits),
            text(&row.epoch),
            text(&row.control_index),
            text(&row.digest),
            text(&row.version),
            text(&row.url)
        );
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: u16, epoch: u64, digest: Option<&str>) -> Asked {
        let nodes =
            (1..=3).map(|id| ClusterNode { node: id, connected: true, led_by: Some(id), ..ClusterNode::default() });
        let info = ClusterInfo {
            name: Some("orders".into()),
            node,
            takes_commits: true,
            ready: true,
            epoch: epoch.to_string(),
            control_leader: Some(2),
            nodes: nodes.collect(),
            ..ClusterInfo::default()
        };
        Asked { url: format!("http://node-{node}"), answer: Ok(info), digest: digest.map(Into::into) }
    }

    #[test]
    fn nodes_that_have_decided_the_same_are_well() {
        let report = Report::of(&[answer(3, 9, Some("d")), answer(1, 7, Some("d")), answer(2, 8, Some("d"))]);
        assert!(report.well, "{:?}", report.problems);
        assert_eq!((&*report.epoch, report.digests), ("7", "equal"));
        let rows: Vec<_> = report.nodes.iter().map(|row| (row.node, row.lag)).collect();
        assert_eq!(rows, [(Some(1), Some(2)), (Some(2), Some(1)), (Some(3), Some(0))]);
        let line = report.line(&report.nodes[1]);
        assert!(line.contains("own,control") && line.contains("http://node-2"), "{line}");
    }

    #[test]
    fn releases_are_told_apart() {
        let node = |node, version: Option<&str>| ClusterNode {
            node,
            version: version.map(Into::into),
            generations: Some("1".into()),
            ..ClusterNode::default()
        };
        assert!(releases(&[node(1, Some("0.1.0")), node(2, Some("0.1.0"))]).is_empty());
        assert!(releases(&[node(1, Some("0.1.0")), node(2, None)]).is_empty(), "it has not started yet");
        let told = releases(&[node(1, Some("0.1.0")), node(2, Some("0.2.0")), node(3, None)]);
        let versions: Vec<_> = told.iter().map(|release| (release.node, release.version.as_deref())).collect();
        assert_eq!(versions, [(1, Some("0.1.0")), (2, Some("0.2.0")), (3, None)]);
    }

    #[test]
    fn the_exit_code_tells_apart_that_no_node_answers() {
        let code = |asked: &[Asked]| Report::of(asked).exit_code();
        let all = [1, 2, 3].map(|node| answer(node, 7, Some("d")));
        assert_eq!(code(&all), ExitCode::SUCCESS);
        assert_eq!(code(&[lost("http://gone")]), ExitCode::from(1));
        assert_eq!(code(&[answer(1, 7, Some("d")), lost("http://gone")]), ExitCode::from(2));
    }

    fn lost(url: &str) -> Asked {
        Asked { url: url.into(), answer: Err(NoInfo::Silent("refused".into())), digest: None }
    }

    fn with_two(third: Asked) -> [Asked; 3] {
        [answer(1, 7, Some("d")), answer(2, 7, Some("d")), third]
    }

    /// Returns the digests and the problems of a cluster that is not well.
    fn fault(asked: &[Asked]) -> String {
        let report = Report::of(asked);
        assert!(!report.well);
        format!("{} {}", report.digests, report.problems.join("\n"))
    }

    #[test]
    fn each_url_without_an_answer_is_told() {
        assert_eq!(
            fault(&with_two(lost("http://gone"))),
            "equal http://gone does not answer: refused. Node 3 is connected with node 2 all the same: check the URL, and the network \
             from here"
        );
        let [one, two, three] = with_two(answer(3, 7, Some("d")));
        let told = fault(&[one, two, three, lost("http://typo")]);
        assert!(told.ends_with("All nodes of orders answer at other URLs: it is the URL of none of them"), "{told}");
        let expired = "`https://three`: its certificate must be renewed: certificate expired";
        let expired =
            Asked { url: "https://three".into(), answer: Err(NoInfo::Unusable(expired.into())), digest: None };
        let told = fault(&with_two(expired));
        assert!(told.contains("Replace the file of that node's `tls.cert_file`"), "{told}");
        assert!(!told.contains("check the URL"), "the URL is right: {told}");
        let denied = Asked { url: "http://three".into(), answer: Err(NoInfo::Refused("no key".into())), digest: None };
        let all_and_denied = with_two(denied);
        assert_eq!(fault(&all_and_denied), "equal http://three refuses the request: no key");
        let report = Report::of(&all_and_denied);
        let line = report.nodes.iter().find(|row| row.refuses).map(|row| report.line(row));
        assert!(
            line.as_ref().is_some_and(|line| line.contains("refuses") && line.contains("http://three")),
            "{line:?}"
        );
    }

    #[test]
    fn each_problem_of_the_answers_is_told() {
        assert!(fault(&with_two(answer(3, 7, Some("e")))).starts_with("differ nodes have decided differently"));
        assert!(fault(&with_two(answer(2, 7, Some("d")))).contains("node 2 was asked twice"));
        let single = fault(&[answer(1, 7, Some("d"))]);
        assert!(single.starts_with("unknown ") && single.contains("not asked: node 2, 3; list the URLs"), "{single}");
        let mut other = answer(3, 7, Some("d"));
        other.answer = other.answer.map(|info| ClusterInfo { name: None, ..info });
        assert!(fault(&with_two(other)).contains("different clusters: orders and none"));
        let mut unready = answer(3, 7, Some("d"));
        unready.answer = unready.answer.map(|info| ClusterInfo { takes_commits: false, ..info });
        assert!(fault(&with_two(unready)).contains("node 3 takes no transactions"));
        assert_eq!(fault(&[]), "unknown ");
        // A node that lags too far for its digest to be compared is not known to differ.
        assert_eq!(Report::of(&with_two(answer(3, 1, None))).digests, "unknown");
    }

    #[test]
    fn an_added_node_is_not_missing_but_reported_with_the_reason_why_it_is_no_member_yet() {
        let mut added = answer(3, 7, Some("d"));
        added.answer = added.answer.map(|mut info| {
            let problem = Some("node 4 refuses node 3".into());
            info.nodes.push(ClusterNode { node: 4, stage: NodeStage::Joining, problem, ..ClusterNode::default() });
            ClusterInfo { epoch: "8".into(), ..info }
        });
        let report = Report::of(&with_two(added));
        let told: Vec<_> = report.changes.iter().map(|change| (change.node, change.reason.as_deref())).collect();
        assert_eq!((report.well, told), (true, vec![(4, Some("node 4 refuses node 3"))]), "{:?}", report.problems);
    }

    #[test]
    fn other_nodes_report_an_unreachable_one_once() {
        let unreachable = |node| {
            let mut asked = answer(node, 7, Some("d"));
            asked.answer = asked.answer.map(|mut info| {
                info.nodes[2].connected = false;
                info.nodes[2].problem = Some("it closed the connection".into());
                info
            });
            asked
        };
        let apart = [unreachable(1), unreachable(2), answer(3, 6, Some("d"))];
        assert_eq!(fault(&apart), "equal node 3: it closed the connection");
        assert_eq!(Report::of(&apart[..2]).silent, [3]);
    }

    #[test]
    fn a_node_has_one_row_whether_or_not_its_url_is_known() {
        let rows = |asked: &[Asked]| {
            let rows = Report::of(asked).nodes;
            rows.into_iter().map(|row| (row.node, row.url, row.answers, row.leads)).collect::<Vec<_>>()
        };
        let one_gone = rows(&[lost("http://gone"), answer(3, 7, Some("d")), answer(1, 7, Some("d"))]);
        assert_eq!(one_gone.iter().map(|row| row.0).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
        assert_eq!(one_gone[1], (Some(2), Some("http://gone".into()), false, vec![2]));
        let two_gone = rows(&[answer(1, 7, Some("d")), lost("http://gone"), lost("http://lost")]);
        assert_eq!(two_gone.iter().map(|row| row.0).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
        // Nothing shows which of the two the URL is of.
        let one_asked = fault(&[answer(1, 7, Some("d")), lost("http://gone")]);
        assert!(one_asked.contains("not asked: 1 of the nodes 2, 3; list"), "{one_asked}");
        assert!(!one_asked.contains("not asked: node"), "{one_asked}");
        assert_eq!(rows(&[lost("http://gone"), lost("http://lost")]).len(), 2, "nobody tells which nodes there are");
    }
}
