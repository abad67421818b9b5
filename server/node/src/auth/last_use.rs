//! Last use of keys, across restarts: a small text file in the data directory.
//!
//! Written periodically, never while a request waits, and not synced: after a crash, keys may show an earlier use, or
//! none. Nothing else depends on it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::auth::keys::Keys;

/// Name of the file in the data directory.
pub const LAST_USE_FILE: &str = "keys.used";
/// Maximum length of the file in bytes: more than all keys need.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file.
pub(crate) struct LastUseFile {
    path: PathBuf,
    /// Its current content.
    written: String,
}

impl LastUseFile {
    /// Opens the file in a data directory, and restores its content.
    pub(crate) fn open(data: &Path, keys: &Keys) -> LastUseFile {
        let path = data.join(LAST_USE_FILE);
        let readable = fs::metadata(&path).is_ok_and(|file| file.len() <= FILE_BYTES_MAX);
        let written = if readable { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        for line in written.lines() {
            if let Some((id, at)) = line.split_once(' ')
                && let Ok(at) = at.parse()
            {
                keys.note_last_use(id, at);
            }
        }
        LastUseFile { path, written }
    }

    /// Writes the file if it has changed.
    pub(crate) fn write(&mut self, mut uses: Vec<(String, u64)>) -> std::io::Result<()> {
        uses.sort();
        let text: String = uses.iter().map(|(id, at)| format!("{id} {at}\n")).collect();
        if text == self.written {
            return Ok(());
        }
        let aside = self.path.with_extension("used.new");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&aside, &self.path)?;
        self.written = text;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tribunal_core::control::Effect;
    use tribunal_types::ApiKey;

    use super::*;

    fn keys() -> Keys {
        let mut keys = Keys::default();
        let key = ApiKey { id: "a1".into(), ..ApiKey::default() };
        keys.follow(&Effect::KeyCreated { key, founded: false });
        keys
    }

    #[test]
    fn uses_are_read_back_and_a_damaged_file_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = LastUseFile::open(dir.path(), &keys());
        file.write(vec![("a1".into(), 7), ("gone".into(), 8)]).unwrap();
        let again = keys();
        LastUseFile::open(dir.path(), &again);
        assert_eq!(again.last_uses(), [("a1".to_owned(), 7)]);
        for damaged in [&b""[..], b"a1", b"a1 x\n a1 -1\n", b"\xff\xfe a1 7", &[b'0'; 2 << 20]] {
            fs::write(dir.path().join("keys.used"), damaged).unwrap();
            let again = keys();
            let mut file = LastUseFile::open(dir.path(), &again);
            assert_eq!(again.last_uses(), []);
            file.write(vec![("a1".into(), 9)]).unwrap();
        }
        let again = keys();
        LastUseFile::open(dir.path(), &again);
        assert_eq!(again.last_uses(), [("a1".to_owned(), 9)]);
    }
}
