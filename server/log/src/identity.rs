//! Identity of a log: its id, its group and its row secret, in a separate small text file, so that a wiped directory
//! next to it is noticed. Group and secret are drawn once; a salvage draws a new id.

use std::path::{Path, PathBuf};

use tribunal_types::{GroupId, Incarnation, LogId, NodeId};

use crate::error::LogError;
use crate::files::{self, Files};

/// First line of the file. The number is the format version of files, frames, entries, outcomes and control entries.
const HEADING: &str = "tribunal log 6";
/// First lines of formats that are no longer supported.
const HEADINGS_BEFORE: [&str; 5] =
    ["tribunal log 1\n", "tribunal log 2\n", "tribunal log 3\n", "tribunal log 4\n", "tribunal log 5\n"];

/// The values drawn at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub id: LogId,
    pub group: GroupId,
    pub row_secret: [u8; 16],
}

/// The values that the logs of all members of a cluster share, so that a position means the same in each of them, and
/// so does the name of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClusterIdentity {
    /// Id of the logs.
    pub id: LogId,
    /// Incarnation of the node's first group.
    pub incarnation: Incarnation,
    /// Key of the row hashes.
    pub row_secret: [u8; 16],
}

impl std::fmt::Debug for ClusterIdentity {
    /// Formats it without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterIdentity").field("id", &self.id).finish_non_exhaustive()
    }
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join("identity")
}

impl Identity {
    /// Draws an identity.
    pub(crate) fn draw(files: &dyn Files, node: NodeId) -> Result<Self, LogError> {
        let incarnation = Incarnation(u32::from_le_bytes(random(files)?));
        Ok(Self { id: LogId(random(files)?), group: GroupId { node, incarnation }, row_secret: random(files)? })
    }

    /// Returns the identity of a new log of a cluster's member.
    pub(crate) fn of_member(node: NodeId, cluster: ClusterIdentity) -> Self {
        let ClusterIdentity { id, incarnation, row_secret } = cluster;
        Self { id, group: GroupId { node, incarnation }, row_secret }
    }

    /// Returns the reason if this is not the log of that node in that cluster.
    pub(crate) fn check_member(&self, node: NodeId, cluster: ClusterIdentity) -> Result<(), String> {
        let (here, there) = (self.group.node, node);
        if self.id != cluster.id || self.row_secret != cluster.row_secret {
            let (here, there) = (self.id, cluster.id);
            return Err(format!(
                "it is log {here}, the cluster's is {there}: the data directory belongs to another cluster, or to a node that ran \
                 alone (`tribunal cluster adopt` makes that the first node of a cluster), or `cluster.name` or the cluster's secret was changed. If \
                 the node has only ever been started with a wrong name or secret, start it with an empty directory"
            ));
        }
        if here != there {
            return Err(format!(
                "it is the log of node {here}, and this is node {there}: give each node its own data directory"
            ));
        }
        Ok(())
    }

    /// Returns the identity of a log that continues this one under a new id.
    pub(crate) fn renewed(&self, files: &dyn Files) -> Result<Self, LogError> {
        Ok(Self { id: LogId(random(files)?), ..*self })
    }

    /// Reads the file; `None` if the log was never created.
    pub(crate) fn load(files: &dyn Files, dir: &Path) -> Result<Option<Self>, LogError> {
        let path = path_in(dir);
        let Some(bytes) = files::read(files, &path)? else { return Ok(None) };
        match String::from_utf8(bytes) {
            Ok(text) if HEADINGS_BEFORE.iter().any(|heading| text.starts_with(heading)) => Err(LogError::Io {
                reason: format!(
                    "{} was written by an older release, in a format that this one does not read: run that release, or \
                     begin with another directory and import the rows' versions",
                    dir.display()
                ),
            }),
            Ok(text) => Self::parse(&text)
                .map(Some)
                .ok_or_else(|| LogError::damaged(dir, format!("{} cannot be read", path.display()))),
            Err(_) => Err(LogError::damaged(dir, format!("{} is not text", path.display()))),
        }
    }

    /// Writes the file of a new log, durably and atomically, once the names of all other files are durable: the log
    /// exists from then on.
    pub(crate) fn store(&self, files: &dyn Files, dir: &Path) -> Result<(), LogError> {
        files::sync_directory(files, dir)?;
        files::replace(files, &path_in(dir), self.text().as_bytes())
    }

    /// Returns the content of the file.
    pub(crate) fn text(&self) -> String {
        let secret: String = self.row_secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let body = format!(
            "{HEADING}\nid {}\nnode {}\nincarnation {}\nrow-secret {secret}\n",
            self.id, self.group.node, self.group.incarnation
        );
        format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
    }

    /// Reads [`Identity::text`]; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [HEADING, id, node, incarnation, secret, _checksum] = lines[..] else { return None };
        let secret = secret.strip_prefix("row-secret ")?;
        let mut row_secret = [0; 16];
        for (ix, byte) in row_secret.iter_mut().enumerate() {
            *byte = u8::from_str_radix(secret.get(2 * ix..2 * ix + 2)?, 16).ok()?;
        }
        let group = GroupId {
            node: NodeId(node.strip_prefix("node ")?.parse().ok()?),
            incarnation: Incarnation(incarnation.strip_prefix("incarnation ")?.parse().ok()?),
        };
        let identity = Self { id: id.strip_prefix("id ")?.parse().ok()?, group, row_secret };
        // Any text that differs from the generated one, checksum included, was not written by this release.
        (identity.text() == text).then_some(identity)
    }
}

fn random<const N: usize>(files: &dyn Files) -> Result<[u8; N], LogError> {
    let mut drawn = [0; N];
    files.random(&mut drawn).map(|()| drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::RealFiles;

    #[test]
    fn an_identity_comes_back_and_a_changed_one_does_not() {
        let identity = Identity::draw(&RealFiles, NodeId(5)).unwrap();
        let text = identity.text();
        assert_eq!(Identity::parse(&text), Some(identity));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(Identity::parse(&changed), None, "byte {at}");
        }
    }
}
