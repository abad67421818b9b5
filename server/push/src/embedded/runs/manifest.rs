//! The manifest: lists a store's runs, and the record that they reflect. One small file that is replaced as a whole.
//!
//! ```text
//! magic 8 bytes, watermark (lsn u64, log 16 bytes, digest u64), next u64, count u32,
//! then per run, newest first: number u64, bytes u64, crc u32; finally crc32c u32
//! ```

use std::fs;
use std::io;
use std::path::Path;

use tribunal_types::{Digest, LogId, Lsn, Watermark};

use super::run::RunName;
use crate::embedded::EmbeddedError;

const MAGIC: &[u8; 8] = b"tribmani";
pub(super) const NAME: &str = "manifest";

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Last record in the runs.
    pub watermark: Watermark,
    /// Number of the next run; higher than every number ever used, so that no file name is reused with other content.
    pub next: u64,
    /// Runs, newest first.
    pub runs: Vec<RunName>,
}

impl Manifest {
    /// Reads the manifest of `dir`; an empty one if there is no file.
    pub(super) fn load(dir: &Path) -> Result<Self, EmbeddedError> {
        let path = dir.join(NAME);
        match fs::read(&path) {
            Ok(bytes) => {
                Self::decode(&bytes).ok_or_else(|| EmbeddedError::Damaged(format!("{} is malformed", path.display())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Manifest::default()),
            Err(error) => Err(EmbeddedError::io(&path, error)),
        }
    }

    /// Replaces the manifest of `dir`; durable on return. The files that it lists must already be synced.
    pub(super) fn store(&self, dir: &Path) -> io::Result<()> {
        // The directory entries of the runs must be durable before a manifest lists them.
        tribunal_disk::sync_directory(dir)?;
        tribunal_disk::replace(&dir.join(NAME), &self.encode())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.watermark.lsn.0.to_le_bytes());
        bytes.extend_from_slice(&self.watermark.log.0);
        bytes.extend_from_slice(&self.watermark.digest.0.to_le_bytes());
        bytes.extend_from_slice(&self.next.to_le_bytes());
        bytes.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for run in &self.runs {
            bytes.extend_from_slice(&run.number.to_le_bytes());
            bytes.extend_from_slice(&run.bytes.to_le_bytes());
            bytes.extend_from_slice(&run.crc.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(content).to_le_bytes() != *crc {
            return None;
        }
        let rest = content.strip_prefix(MAGIC)?;
        let (lsn, rest) = rest.split_first_chunk::<8>()?;
        let (log, rest) = rest.split_first_chunk::<16>()?;
        let (digest, rest) = rest.split_first_chunk::<8>()?;
        let (lsn, digest) = (Lsn(u64::from_le_bytes(*lsn)), Digest(u64::from_le_bytes(*digest)));
        let watermark = Watermark { lsn, log: LogId(*log), digest };
        let (next, rest) = rest.split_first_chunk::<8>()?;
        let (count, mut rest) = rest.split_first_chunk::<4>()?;
        let mut runs = Vec::new();
        for _ in 0..u32::from_le_bytes(*count) {
            let (number, after) = rest.split_first_chunk::<8>()?;
            let (bytes, after) = after.split_first_chunk::<8>()?;
            let (crc, after) = after.split_first_chunk::<4>()?;
            let (number, bytes) = (u64::from_le_bytes(*number), u64::from_le_bytes(*bytes));
            runs.push(RunName { number, bytes, crc: u32::from_le_bytes(*crc) });
            rest = after;
        }
        let manifest = Manifest { watermark, next: u64::from_le_bytes(*next), runs };
        rest.is_empty().then_some(manifest)
    }
}
