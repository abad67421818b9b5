//! The secret of a cluster that began with the log of a single node: it contains the shared identity of all logs of the
//! cluster, which is that of the first log. Any other cluster's secret is drawn, and the identity derived from it.

use tribunal_log::ClusterIdentity;
use tribunal_types::LogId;

use crate::cluster::identity::FIRST;

const HEADING: &str = "tribunal cluster that keeps its log 1";

/// Returns the content of the secret file.
#[must_use]
pub fn text(identity: ClusterIdentity) -> String {
    let rows: String = identity.row_secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = format!("{HEADING}\nlog {}\nrows {rows}\n", identity.id);
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// Parses [`text`], with or without the final newline; returns `None` for another kind of secret.
#[must_use]
pub fn read(secret: &str) -> Option<Result<ClusterIdentity, String>> {
    let rest = secret.strip_prefix(HEADING)?;
    let damaged = || "it is damaged; copy it from another node of the cluster".to_owned();
    Some(identity_in(rest).filter(|identity| text(*identity).trim_end() == secret.trim_end()).ok_or_else(damaged))
}

fn identity_in(lines: &str) -> Option<ClusterIdentity> {
    let mut lines = lines.lines().skip(1);
    let id: LogId = lines.next()?.strip_prefix("log ")?.parse().ok()?;
    let rows = lines.next()?.strip_prefix("rows ")?;
    let mut row_secret = [0; 16];
    for (ix, byte) in row_secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(rows.get(2 * ix..2 * ix + 2)?, 16).ok()?;
    }
    Some(ClusterIdentity { id, incarnation: FIRST, row_secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_and_a_changed_one_does_not() {
        let identity = ClusterIdentity { id: LogId([0xa5; 16]), incarnation: FIRST, row_secret: [0x3c; 16] };
        let text = text(identity);
        assert_eq!(read(&text), Some(Ok(identity)));
        assert_eq!(read(text.trim_end()), Some(Ok(identity)));
        for at in 0..text.trim_end().len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(!matches!(read(&changed), Some(Ok(_))), "byte {at}");
        }
        assert_eq!(read("0123456789abcdef0123456789abcdef"), None);
    }
}
