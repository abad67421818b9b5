//! Reader state that an earlier release stored beside a member's log: imported into the control log once, unless the
//! cluster has newer state.

use std::path::{Path, PathBuf};

use tribunal_codec::Readers;

use crate::readers::consumer_state::{FILE, load};

/// Name of the file once its content is in the control log.
const BROUGHT_IN: &str = "readers.brought-in";

/// The file and its content.
#[derive(Debug)]
pub struct EarlierFile {
    path: PathBuf,
    remembered: Readers,
}

impl EarlierFile {
    /// Reads the file; returns `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(dir: &Path) -> Result<Option<EarlierFile>, String> {
        let path = dir.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        load(&path).map(|remembered| Some(EarlierFile { path, remembered }))
    }

    /// Returns its content.
    pub fn remembered(&self) -> &Readers {
        &self.remembered
    }

    /// Renames the file.
    pub fn put_aside(&self) {
        let aside = self.path.with_file_name(BROUGHT_IN);
        match std::fs::rename(&self.path, &aside) {
            Ok(()) => {
                tracing::info!(file = %aside.display(), "consumers and webhooks of this node are the cluster's now")
            }
            // Its content changes nothing at the next start.
            Err(error) => tracing::warn!(file = %self.path.display(), %error, "the file cannot be put aside"),
        }
    }
}
