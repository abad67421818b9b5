//! Ensures that a node with an empty data directory belongs to a new cluster or was admitted, and is no member that
//! lost its disk.
//!
//! A member's promises (votes, acknowledgements) are on its disk. If they are lost and the node takes part again, a
//! majority may agree on something that contradicts an earlier majority. So a node takes part only after it has
//! recorded so on its disk, and for the first time only if
//! * no other node has: all founders of the cluster must be running, and each records that it is prepared before the
//!   first one takes part. A node without a note that meets a participating one has lost its own note;
//! * or, if the cluster exists and has admitted the node: the control log binds its number to the first data directory
//!   that claims it. A directory draws its identifier when it is created, so a replacement is a different directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tribunal_member::Stage;
use tribunal_types::NodeId;

use crate::cluster::membership::Membership;
use crate::data_dir::log_dir;

/// The remedy for a node that was removed.
pub const REMOVED: &str = "the cluster has removed this node; start no process with its directory any more. To use the machine \
                           again, have it admitted as a new node, with an empty directory";
/// File name of the note in a data directory.
const FILE: &str = "member";
const HEADING: &str = "tribunal member 1";
/// Keywords of a note.
const PREPARED: &str = "prepared";
const MEMBER: &str = "member";
const CLAIMS: &str = "claims ";
const GONE: &str = "removed";

/// Returns whether the cluster has removed the node of a data directory, as far as that node knows.
#[must_use]
pub fn is_removed(data: &Path) -> bool {
    let note = std::fs::read_to_string(data.join(FILE)).unwrap_or_default();
    note.lines().any(|line| line.strip_prefix("stage ") == Some(GONE))
}

/// Records in a data directory that the cluster has removed its node.
///
/// # Errors
/// A description of the failure.
pub fn note_removed(data: &Path, membership: &Membership) -> Result<(), String> {
    write_note(&data.join(FILE), &listed(&membership.founders), GONE)
}

/// Returns whether a data directory has a note: it belongs to a member, or to a node that is about to become one.
#[must_use]
pub fn has_note(data: &Path) -> bool {
    data.join(FILE).exists()
}

/// Returns why a node cannot start with this configuration, according to its data directory: the log in it is another
/// cluster's or node's, or by the note in it, the cluster began with other founders or has removed the node. Writes
/// nothing.
#[must_use]
pub fn contradiction(data: &Path, membership: &Membership) -> Option<String> {
    if let Err(fault) = tribunal_log::check_member(&log_dir(data), membership.node, membership.identity) {
        return Some(fault.to_string());
    }
    if !has_note(data) {
        return None;
    }
    FirstStart::read(data, membership, true, 0).err()
}

/// Returns the error for a node that has a note of an earlier start but no log. With an empty log it would vote and
/// acknowledge again.
#[must_use]
pub fn log_is_missing(log: &Path, node: NodeId) -> String {
    format!(
        "{} is empty, but node {node} has run before with the directory that it is in: what it has promised to the others was in \
         that log. If it is on a disk of its own, mount that. {LOST}",
        log.display()
    )
}

/// Records in the data directory of a single node that it is the first member of a cluster, which it is from then on.
///
/// # Errors
/// A description of the failure.
pub fn note_adopted(data: &Path, node: NodeId) -> Result<(), String> {
    write_note(&data.join(FILE), &listed(&BTreeSet::from([node])), MEMBER)
}

/// Checks that the data directory of a member was adopted, if its cluster began with the log in it.
///
/// # Errors
/// A description of the remedy.
pub fn check_adopted(data: &Path, membership: &Membership) -> Result<(), String> {
    if has_note(data) || !membership.keeps_log || !membership.is_founder() {
        return Ok(());
    }
    let (node, data) = (membership.node, data.display());
    Err(format!(
        "the cluster {} began with the data directory of node {node}, which ran alone, and {data} is not adopted. If `tribunal cluster \
         adopt` was interrupted, repeat it; if {data} is another directory, start the node with the one that was adopted. {LOST}",
        membership.name
    ))
}

fn listed(founders: &BTreeSet<NodeId>) -> String {
    founders.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn write_note(file: &Path, founders: &str, word: &str) -> Result<(), String> {
    let text = format!("{HEADING}\nnodes {founders}\nstage {word}\n");
    tribunal_disk::replace(file, text.as_bytes()).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Progress of a node's first start.
#[derive(Debug)]
pub struct FirstStart {
    file: PathBuf,
    node: NodeId,
    stage: Stage,
    /// The founders of the cluster, as text.
    founders: String,
    /// The other founders, each with its last reported stage.
    others: BTreeMap<NodeId, Option<Stage>>,
    /// The identifier of an admitted node's directory, until its number is bound to it.
    claim: Option<u64>,
    /// The nodes to which it sends the claim.
    asked: Vec<NodeId>,
}

impl FirstStart {
    /// Reads the note in a data directory. `has_history` is whether its log contains anything agreed on; `drawn` is the
    /// identifier of a new directory.
    ///
    /// # Errors
    /// If the note names other founders, if the cluster has removed this node, or if the note cannot be
    /// read or written.
    pub fn read(data: &Path, membership: &Membership, has_history: bool, drawn: u64) -> Result<FirstStart, String> {
        let Membership { node, founders, nodes, .. } = membership;
        let is_founder = membership.is_founder();
        let mut start = FirstStart {
            file: data.join(FILE),
            node: *node,
            stage: Stage::New,
            founders: listed(founders),
            others: founders.iter().filter(|other| *other != node).map(|other| (*other, None)).collect(),
            claim: None,
            asked: nodes.keys().filter(|other| *other != node).copied().collect(),
        };
        match std::fs::read_to_string(&start.file) {
            Ok(text) => start.follow(&text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if has_history || (is_founder && start.others.is_empty()) {
                    start.note(Stage::Member)?;
                } else if !is_founder {
                    start.write(&format!("{CLAIMS}{drawn:016x}"))?;
                    start.claim = Some(drawn);
                }
            }
            Err(error) => return Err(format!("cannot read {}: {error}", start.file.display())),
        }
        Ok(start)
    }

    /// Applies the content of a note.
    fn follow(&mut self, text: &str) -> Result<(), String> {
        let (file, began) = (self.file.display(), &self.founders);
        let damaged = || {
            format!(
                "{file} cannot be read: it is damaged. A member of a cluster is not restored from a backup, which could take back \
                 what it has voted and acknowledged: remove this node (`tribunal cluster remove`) and add a new one (`tribunal \
                 cluster add`). Keep the directory until then"
            )
        };
        let mut lines = text.strip_prefix(HEADING).ok_or_else(damaged)?.lines().skip(1);
        let mut after = |name| lines.next().and_then(|line| line.strip_prefix(name)).ok_or_else(damaged);
        let (nodes, word) = (after("nodes ")?, after("stage ")?);
        if nodes != began {
            // A node that has not been admitted has promised nothing.
            let fresh = if word.starts_with(CLAIMS) {
                format!(
                    ". If the cluster began with {began}, and node {} has not become a member of it, delete {} instead and start again",
                    self.node,
                    self.directory()
                )
            } else {
                String::new()
            };
            return Err(format!(
                "`cluster.founders`, which are all of `cluster.nodes` if left out, are the nodes {began}, but {file} is of a cluster \
                 that began with {nodes}: set `cluster.founders` to [{}]. Nodes are added and removed by `tribunal cluster \
                 add` and `remove`, which need no change of this configuration{fresh}",
                nodes.replace(' ', ", ")
            ));
        }
        match word {
            PREPARED => self.stage = Stage::Prepared,
            MEMBER => self.stage = Stage::Member,
            GONE => return Err(REMOVED.into()),
            _ => {
                let directory = word.strip_prefix(CLAIMS).and_then(|drawn| u64::from_str_radix(drawn, 16).ok());
                self.claim = Some(directory.ok_or_else(damaged)?);
            }
        }
        Ok(())
    }

    fn note(&mut self, stage: Stage) -> Result<(), String> {
        self.write(if stage == Stage::Member { MEMBER } else { PREPARED })?;
        self.stage = stage;
        Ok(())
    }

    fn write(&self, word: &str) -> Result<(), String> {
        write_note(&self.file, &self.founders, word)
    }

    /// Records that the cluster has removed this node: no process may start with the directory again.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn note_removed(&self) -> Result<(), String> {
        self.write(GONE)
    }

    /// Returns the stage of this node; it takes part as a [`Stage::Member`].
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the directory's identifier, and the nodes to claim its number from, while the number is unbound.
    #[must_use]
    pub fn claim(&self) -> Option<(u64, &[NodeId])> {
        self.claim.filter(|_| self.stage == Stage::New).map(|directory| (directory, &*self.asked))
    }

    /// Returns the other founders of the cluster.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.others.keys().copied()
    }

    /// Returns the founders that have not reported yet, as text.
    #[must_use]
    pub fn missing(&self) -> String {
        let missing = self.others.iter().filter(|(_, said)| said.is_none()).map(|(node, _)| node.to_string());
        missing.collect::<Vec<_>>().join(", ")
    }

    /// Handles another node's report of its stage.
    ///
    /// # Errors
    /// If this node must not take part, or cannot write.
    pub fn received(&mut self, from: NodeId, said: Stage) -> Result<(), String> {
        let Some(known) = self.others.get_mut(&from).filter(|_| self.claim.is_none()) else { return Ok(()) };
        *known = Some(said);
        if self.stage == Stage::New && said == Stage::Member {
            let (node, directory) = (self.node, self.directory());
            return Err(format!(
                "the data directory {directory} is empty, but node {from} has been a member of this cluster with node {node}: what \
                 node {node} has promised to the others was in the directory that is missing. Start it with that one. {LOST}"
            ));
        }
        let all_are = |stage: Stage| self.others.values().all(|said| said.is_some_and(|said| said >= stage));
        if self.stage == Stage::New && all_are(Stage::New) {
            self.note(Stage::Prepared)?;
        } else if self.stage == Stage::Prepared && (said == Stage::Member || all_are(Stage::Prepared)) {
            // All other founders were prepared when that one became a member. Some of them may be lost by now.
            self.note(Stage::Member)?;
        }
        Ok(())
    }

    /// Handles the directory to which the control log binds this node's number.
    ///
    /// # Errors
    /// If this node must not take part, or cannot write.
    pub fn claimed(&mut self, by: u64) -> Result<(), String> {
        match self.claim() {
            Some((directory, _)) if directory == by => self.note(Stage::Member),
            Some(_) => {
                let (node, directory) = (self.node, self.directory());
                Err(format!(
                    "node {node} has run before with another data directory: {directory} is not that one, or was emptied since. The votes \
                     and acknowledgements that node {node} has given are in the original directory: start it with that. {LOST}"
                ))
            }
            None => Ok(()),
        }
    }

    fn directory(&self) -> std::path::Display<'_> {
        self.data().display()
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.file.parent().unwrap_or(&self.file)
    }
}

/// The remedy for a lost directory.
const LOST: &str = "If it is lost, the node must not return under its number, or commits that were acknowledged could be lost: \
                    remove it (`tribunal cluster remove`) and add a new one (`tribunal cluster add`)";

#[cfg(test)]
mod tests {
    use tribunal_log::{ClusterIdentity, LogOptions};
    use tribunal_types::{Incarnation, LogId};

    use super::*;

    fn membership(node: u16, nodes: u16) -> Membership {
        let identity = ClusterIdentity { id: LogId([1; 16]), incarnation: Incarnation(1), row_secret: [2; 16] };
        let nodes: BTreeMap<_, _> = (1..=nodes).map(|id| (NodeId(id), String::new())).collect();
        let founders = nodes.keys().copied().collect();
        Membership {
            name: "test".into(),
            node: NodeId(node),
            identity,
            keeps_log: false,
            nodes,
            founders,
            authorities: Vec::new(),
        }
    }

    #[test]
    fn a_log_of_another_cluster_or_node_contradicts_the_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let own = membership(1, 3);
        assert_eq!(contradiction(dir.path(), &own), None, "it has no log yet");
        let options = LogOptions { node: own.node, cluster: Some(own.identity), ..LogOptions::default() };
        drop(tribunal_log::open(&log_dir(dir.path()), &options).unwrap());
        assert_eq!(contradiction(dir.path(), &own), None);
        let renamed = Membership { identity: ClusterIdentity { id: LogId([3; 16]), ..own.identity }, ..own };
        let told = contradiction(dir.path(), &renamed).unwrap();
        assert!(told.contains("log cannot be used: it is log 01010101") && told.contains("`cluster.name`"), "{told}");
        let told = contradiction(dir.path(), &membership(2, 3)).unwrap();
        assert!(told.contains("it is the log of node 1, and this is node 2"), "{told}");
    }

    /// Exchanges all nodes' stages until nothing changes.
    fn talk(nodes: &mut [(NodeId, FirstStart)]) -> Result<(), String> {
        for _ in 0..4 {
            let said: Vec<_> = nodes.iter().map(|(node, start)| (*node, start.stage())).collect();
            for (to, start) in nodes.iter_mut() {
                for (from, stage) in said.iter().filter(|(from, _)| from != to) {
                    start.received(*from, *stage)?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn nodes_of_a_new_cluster_begin_once_all_are_there_and_one_without_its_note_never() {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let read = |id: u16| FirstStart::read(dirs[usize::from(id - 1)].path(), &membership(id, 3), false, 7).unwrap();
        let mut nodes: Vec<_> = (1..=2).map(|id| (NodeId(id), read(id))).collect();
        talk(&mut nodes).unwrap();
        assert!(nodes.iter().all(|(_, start)| start.stage() == Stage::New), "one is missing");
        assert_eq!(nodes[0].1.missing(), "3");
        nodes.push((NodeId(3), read(3)));
        talk(&mut nodes).unwrap();
        assert!(nodes.iter().all(|(_, start)| start.stage() == Stage::Member));
        assert!((1..=3).all(|id| read(id).stage() == Stage::Member), "it is noted");
        // Any of the other nodes informs one that loses its disk.
        std::fs::remove_file(dirs[1].path().join("member")).unwrap();
        let mut wiped = read(2);
        wiped.received(NodeId(3), Stage::New).unwrap();
        let refused = wiped.received(NodeId(1), Stage::Member).unwrap_err();
        assert!(refused.contains("is empty") && refused.contains("node 2"), "{refused}");
    }

    #[test]
    fn a_node_that_stopped_amid_the_first_start_continues_it() {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let read = |id: u16| FirstStart::read(dirs[usize::from(id - 1)].path(), &membership(id, 3), false, 7).unwrap();
        let (mut one, mut two) = (read(1), read(2));
        for start in [&mut one, &mut two] {
            (1..=3).for_each(|id| start.received(NodeId(id), Stage::New).unwrap());
        }
        assert_eq!((one.stage(), two.stage()), (Stage::Prepared, Stage::Prepared));
        one.received(NodeId(2), Stage::Prepared).unwrap();
        one.received(NodeId(3), Stage::Prepared).unwrap();
        assert_eq!(one.stage(), Stage::Member);
        let mut again = read(2);
        again.received(NodeId(3), Stage::Prepared).unwrap();
        assert_eq!(again.stage(), Stage::Prepared);
        again.received(NodeId(3), Stage::Member).unwrap();
        assert_eq!(again.stage(), Stage::Member, "node 1 may be gone");
    }

    #[test]
    fn a_node_that_was_admitted_begins_once_its_number_is_bound_to_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let admitted = Membership { node: NodeId(4), ..membership(1, 3) };
        let read = |drawn| FirstStart::read(dir.path(), &admitted, false, drawn).unwrap();
        let others = [1, 2, 3].map(NodeId);
        assert_eq!(read(7).claim(), Some((7, &others[..])));
        let mut start = read(8);
        assert_eq!(start.claim(), Some((7, &others[..])), "it was drawn once");
        start.received(NodeId(1), Stage::Member).unwrap();
        assert_eq!(start.stage(), Stage::New, "that others are members says nothing");
        let refused = start.claimed(8).unwrap_err();
        assert!(refused.contains("another data directory") && refused.contains("cluster remove"), "{refused}");
        start.claimed(7).unwrap();
        assert_eq!((start.stage(), start.claim()), (Stage::Member, None));
        start.claimed(8).unwrap();
        let start = read(9);
        assert_eq!(start.stage(), Stage::Member, "it is noted");
        assert!(!is_removed(dir.path()));
        start.note_removed().unwrap();
        assert!(is_removed(dir.path()));
        assert_eq!(FirstStart::read(dir.path(), &admitted, true, 9).unwrap_err(), REMOVED);
    }

    #[test]
    fn the_first_node_of_a_cluster_that_keeps_its_log_never_begins_without_that() {
        let dir = tempfile::tempdir().unwrap();
        let first = Membership { keeps_log: true, ..membership(1, 1) };
        let refused = check_adopted(dir.path(), &first).unwrap_err();
        assert!(refused.contains("is not adopted") && refused.contains("cluster remove"), "{refused}");
        check_adopted(dir.path(), &Membership { node: NodeId(2), ..first.clone() }).unwrap();
        check_adopted(dir.path(), &membership(1, 1)).unwrap();
        note_adopted(dir.path(), NodeId(1)).unwrap();
        check_adopted(dir.path(), &first).unwrap();
        assert_eq!(FirstStart::read(dir.path(), &first, false, 7).unwrap().stage(), Stage::Member);
    }

    #[test]
    fn a_note_of_other_members_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let read = |dir: &Path, nodes, has_history| FirstStart::read(dir, &membership(1, nodes), has_history, 7);
        assert_eq!(read(dir.path(), 1, false).unwrap().stage(), Stage::Member, "alone");
        let refused = read(dir.path(), 3, false).unwrap_err();
        assert!(refused.contains("the nodes 1 2 3") && refused.contains("began with 1:"), "{refused}");
        assert!(refused.contains("`cluster.founders` to [1]") && !refused.contains("delete"), "{refused}");
        let claiming = tempfile::tempdir().unwrap();
        let admitted = |founders| Membership { node: NodeId(4), ..membership(1, founders) };
        FirstStart::read(claiming.path(), &admitted(2), false, 7).unwrap();
        let refused = FirstStart::read(claiming.path(), &admitted(3), false, 7).unwrap_err();
        assert!(refused.contains("`cluster.founders` to [1, 2]") && refused.contains("delete"), "{refused}");
        for damaged in ["?", "", "tribunal member 1\nnodes 1\nstage claims x\n", "tribunal member 1\nnodes 1\n"] {
            std::fs::write(dir.path().join("member"), damaged).unwrap();
            let refused = read(dir.path(), 1, false).unwrap_err();
            assert!(
                refused.contains("cannot be read") && refused.contains("tribunal cluster remove"),
                "{damaged}: {refused}"
            );
        }
        let other = tempfile::tempdir().unwrap();
        assert_eq!(read(other.path(), 3, true).unwrap().stage(), Stage::Member, "a history");
    }
}
