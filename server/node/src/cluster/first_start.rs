//! That a node with an empty data directory is one of a new cluster, and no member that has lost its disk.
//!
//! What a member has promised (votes, acknowledgements) is on its disk. If that is lost and the node takes part again, a majority
//! may agree on something that another majority has agreed on otherwise. So a node takes part once it has noted so on its
//! disk, and for the first time only if no other one has: all nodes of a new cluster have to be there, and each notes that it is
//! prepared before the first one takes part. A node without a note that meets one that takes part has lost its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tribunal_member::Stage;
use tribunal_types::NodeId;

use crate::cluster::membership::Membership;

const HEADING: &str = "tribunal member 1";

/// How far a node's first start is.
#[derive(Debug)]
pub struct FirstStart {
    file: PathBuf,
    node: NodeId,
    stage: Stage,
    /// The other nodes, each with what it said last.
    others: BTreeMap<NodeId, Option<Stage>>,
}

impl FirstStart {
    /// Reads the note in a data directory. `has_history` tells whether its log has anything that was agreed on.
    ///
    /// # Errors
    /// In words, if the note names other nodes than the configuration, or cannot be read or written.
    pub fn read(data: &Path, membership: &Membership, has_history: bool) -> Result<FirstStart, String> {
        let file = data.join("member");
        let others = membership.nodes.keys().filter(|node| **node != membership.node).map(|node| (*node, None));
        let mut start = FirstStart { file, node: membership.node, stage: Stage::New, others: others.collect() };
        match std::fs::read_to_string(&start.file) {
            Ok(text) => start.stage = start.noted_in(&text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if has_history || start.others.is_empty() {
                    start.note(Stage::Member)?;
                }
            }
            Err(error) => return Err(format!("cannot read {}: {error}", start.file.display())),
        }
        Ok(start)
    }

    /// Returns the text of a note.
    fn text(&self, stage: Stage) -> String {
        let word = if stage == Stage::Member { "member" } else { "prepared" };
        format!("{HEADING}\nnodes {}\nstage {word}\n", self.nodes())
    }

    fn nodes(&self) -> String {
        let mut nodes: Vec<NodeId> = self.others.keys().copied().chain([self.node]).collect();
        nodes.sort_unstable();
        nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    fn noted_in(&self, text: &str) -> Result<Stage, String> {
        let stages = [Stage::Prepared, Stage::Member];
        if let Some(stage) = stages.into_iter().find(|stage| self.text(*stage) == text) {
            return Ok(stage);
        }
        let file = self.file.display();
        match text.lines().find_map(|line| line.strip_prefix("nodes ")) {
            Some(nodes) if text.starts_with(HEADING) => Err(format!(
                "`cluster.nodes` has the nodes {}, but {file} is of a cluster of {nodes}: the members of a cluster cannot be changed \
                 yet; configure the same ones on all nodes",
                self.nodes()
            )),
            _ => Err(format!("{file} cannot be read: restore it with the data directory that it belongs to")),
        }
    }

    fn note(&mut self, stage: Stage) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", self.file.display());
        tribunal_disk::replace(&self.file, self.text(stage).as_bytes()).map_err(failed)?;
        self.stage = stage;
        Ok(())
    }

    /// Returns how far this node is; it takes part as a [`Stage::Member`].
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the other nodes.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.others.keys().copied()
    }

    /// Returns the nodes that have said nothing yet, as text.
    #[must_use]
    pub fn missing(&self) -> String {
        let missing = self.others.iter().filter(|(_, said)| said.is_none()).map(|(node, _)| node.to_string());
        missing.collect::<Vec<_>>().join(", ")
    }

    /// Takes note of how far another node is.
    ///
    /// # Errors
    /// In words: this node must not take part, or cannot write.
    pub fn received(&mut self, from: NodeId, said: Stage) -> Result<(), String> {
        let Some(known) = self.others.get_mut(&from) else { return Ok(()) };
        *known = Some(said);
        if self.stage == Stage::New && said == Stage::Member {
            let (node, directory) = (self.node, self.file.parent().unwrap_or(&self.file).display());
            return Err(format!(
                "the data directory {directory} is empty, but node {from} has been a member of this cluster with node {node}: what \
                 node {node} has promised to the others was in the directory that is missing. Start it with that one. If it \
                 is lost, the node must not return under its number: commits that were acknowledged could be lost"
            ));
        }
        let all_are = |stage: Stage| self.others.values().all(|said| said.is_some_and(|said| said >= stage));
        if self.stage == Stage::New && all_are(Stage::New) {
            self.note(Stage::Prepared)?;
        } else if self.stage == Stage::Prepared && all_are(Stage::Prepared) {
            self.note(Stage::Member)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tribunal_log::ClusterIdentity;
    use tribunal_types::{Incarnation, LogId};

    use super::*;

    fn membership(node: u16, nodes: u16) -> Membership {
        let identity = ClusterIdentity { id: LogId([1; 16]), incarnation: Incarnation(1), row_secret: [2; 16] };
        let nodes = (1..=nodes).map(|id| (NodeId(id), String::new())).collect();
        Membership { name: "test".into(), node: NodeId(node), identity, nodes }
    }

    /// Has everybody tell everybody how far it is, until nothing changes.
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
        let read = |id: u16| FirstStart::read(dirs[usize::from(id - 1)].path(), &membership(id, 3), false).unwrap();
        let mut nodes: Vec<_> = (1..=2).map(|id| (NodeId(id), read(id))).collect();
        talk(&mut nodes).unwrap();
        assert!(nodes.iter().all(|(_, start)| start.stage() == Stage::New), "one is missing");
        assert_eq!(nodes[0].1.missing(), "3");
        nodes.push((NodeId(3), read(3)));
        talk(&mut nodes).unwrap();
        assert!(nodes.iter().all(|(_, start)| start.stage() == Stage::Member));
        assert!((1..=3).all(|id| read(id).stage() == Stage::Member), "it is noted");
        // One that loses its disk is told so by any of the others.
        std::fs::remove_file(dirs[1].path().join("member")).unwrap();
        let mut wiped = read(2);
        wiped.received(NodeId(3), Stage::New).unwrap();
        let refused = wiped.received(NodeId(1), Stage::Member).unwrap_err();
        assert!(refused.contains("is empty") && refused.contains("node 2"), "{refused}");
    }

    #[test]
    fn a_node_that_stopped_amid_the_first_start_continues_it() {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let read = |id: u16| FirstStart::read(dirs[usize::from(id - 1)].path(), &membership(id, 3), false).unwrap();
        let (mut one, mut two) = (read(1), read(2));
        for start in [&mut one, &mut two] {
            (1..=3).for_each(|id| start.received(NodeId(id), Stage::New).unwrap());
        }
        assert_eq!((one.stage(), two.stage()), (Stage::Prepared, Stage::Prepared));
        one.received(NodeId(2), Stage::Prepared).unwrap();
        one.received(NodeId(3), Stage::Prepared).unwrap();
        assert_eq!(one.stage(), Stage::Member);
        let mut again = read(2);
        again.received(NodeId(1), Stage::Member).unwrap();
        again.received(NodeId(3), Stage::Prepared).unwrap();
        assert_eq!(again.stage(), Stage::Member);
    }

    #[test]
    fn a_note_of_other_members_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FirstStart::read(dir.path(), &membership(1, 1), false).unwrap().stage(), Stage::Member, "alone");
        let refused = FirstStart::read(dir.path(), &membership(1, 3), false).unwrap_err();
        assert!(refused.contains("the nodes 1 2 3") && refused.contains("a cluster of 1"), "{refused}");
        std::fs::write(dir.path().join("member"), "?").unwrap();
        assert!(FirstStart::read(dir.path(), &membership(1, 1), false).unwrap_err().contains("cannot be read"));
        let other = tempfile::tempdir().unwrap();
        assert_eq!(
            FirstStart::read(other.path(), &membership(1, 3), true).unwrap().stage(),
            Stage::Member,
            "a history"
        );
    }
}
