//! The logs that a salvaged log continues. Some records that it shares with them are no longer readable in it; a store
//! that has applied them may continue with this log. A small text file; a log that was never salvaged has none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tribunal_types::{LogId, Lsn, StoreId};

use crate::error::LogError;
use crate::files::{self, Files};

/// First line of the file.
const HEADING: &str = "tribunal former logs 1";

/// A log that this one continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormerLog {
    /// Its id.
    pub id: LogId,
    /// By store: the position up to which both logs have the same records, whether or not this one still contains them.
    pub common: BTreeMap<StoreId, Lsn>,
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join("former")
}

/// Reads the file; returns an empty list if it does not exist.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn load(files: &dyn Files, dir: &Path) -> Result<Vec<FormerLog>, LogError> {
    let path = path_in(dir);
    let Some(bytes) = files::read(files, &path)? else { return Ok(Vec::new()) };
    let former = std::str::from_utf8(&bytes).ok().and_then(parse);
    former.ok_or_else(|| LogError::damaged(dir, format!("{} cannot be read", path.display())))
}

/// Writes the file of a new log. Its name is durable once the identity is stored.
pub(crate) fn store(files: &dyn Files, dir: &Path, former: &[FormerLog]) -> Result<(), LogError> {
    files::create(files, &path_in(dir), text(former).as_bytes())
}

fn text(former: &[FormerLog]) -> String {
    let mut body = format!("{HEADING}\n");
    for FormerLog { id, common } in former {
        body += &format!("log {id}\n");
        common.iter().for_each(|(store, lsn)| body += &format!("store {store} {lsn}\n"));
    }
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// Reads [`text`]; `None` for anything else.
fn parse(whole: &str) -> Option<Vec<FormerLog>> {
    let mut former: Vec<FormerLog> = Vec::new();
    let lines = whole.strip_prefix(HEADING)?.lines().skip(1);
    for line in lines.filter(|line| !line.starts_with("checksum ")) {
        if let Some(id) = line.strip_prefix("log ") {
            former.push(FormerLog { id: id.parse().ok()?, common: BTreeMap::new() });
        } else {
            let (store, lsn) = line.strip_prefix("store ")?.split_once(' ')?;
            former.last_mut()?.common.insert(StoreId(store.parse().ok()?), Lsn(lsn.parse().ok()?));
        }
    }
    // Any text that differs from the generated one, checksum included, was not written by this release.
    (text(&former) == whole).then_some(former)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_logs_come_back_and_changed_ones_do_not() {
        let common = BTreeMap::from([(StoreId(1), Lsn(7)), (StoreId(40), Lsn(u64::MAX))]);
        let former = vec![
            FormerLog { id: LogId([1; 16]), common: BTreeMap::new() },
            FormerLog { id: LogId([0xab; 16]), common },
        ];
        let text = text(&former);
        assert_eq!(parse(&text), Some(former));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(parse(&String::from_utf8(changed).unwrap()), None, "byte {at}");
        }
        assert!((0..text.len()).all(|cut| parse(&text[..cut]).is_none()));
    }
}
