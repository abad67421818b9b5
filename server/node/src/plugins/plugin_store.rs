//! Uploaded components on disk: `<data>/plugins/<digest>.wasm`, each with its description as JSON.
//!
//! A component is written to a temporary name, synced, renamed and the folder synced, before anything names it: the
//! control log never refers to a component that a power failure could lose. On reading, the content is compared with
//! its digest. Nothing else in the folder is touched.
//!
//! A member of a cluster hides a deleted component, and removes it when it starts from a state image that includes the
//! deletion: until then it may decide again epochs that the component decided, and lagging nodes may request it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tribunal_service::plugins::digest as read_digest;
use tribunal_types::limits::PLUGIN_VERSIONS_MAX;

use crate::plugins::digest::{ArtefactDigest, hex};
use crate::plugins::signatures::Signed;

/// The description of an uploaded component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artefact {
    /// Name that it was uploaded under.
    pub name: String,
    /// Its world's name.
    pub world: String,
    /// Its declared version.
    pub version: String,
    /// Its declared description.
    pub about: String,
    /// Size, bytes.
    pub bytes: u64,
    /// Unix milliseconds.
    pub uploaded_ms: u64,
    /// The accepted signature, if one was required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// Results of the conformance kit.
    pub checked: Checked,
    /// On a member of a cluster: the control entry that announced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<u64>,
    /// On a member of a cluster: a control entry that deleted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
}

/// Results of the conformance kit. They apply to a component *and* a configuration: another configuration can turn the
/// same bytes into another plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The configuration that it was checked with, JSON text.
    #[serde(default)]
    pub config: String,
    /// Fingerprint of the engine that checked it.
    #[serde(default)]
    pub engine: String,
    /// Checks, with the number of their inputs.
    pub checks: Vec<(String, u32)>,
    /// Fuel of a call that does almost nothing.
    pub fuel_per_call: u64,
    /// Fuel per further item.
    pub fuel_per_item: u64,
    /// Fuel that the limits grant per item.
    pub budget_per_item: u64,
    /// Digest of the answers to the golden vectors, hexadecimal.
    pub behaviour: String,
    /// The levels that a validator upholds, by name.
    pub levels: Vec<String>,
    /// The levels that a validator misses, and what it accepts there.
    pub misses: Vec<(String, String)>,
}

/// All uploaded components.
pub struct PluginStore {
    folder: PathBuf,
    known: RwLock<BTreeMap<ArtefactDigest, Artefact>>,
    /// Counts added components.
    changes: AtomicU64,
    /// Serializes file writes.
    writing: Mutex<()>,
}

impl PluginStore {
    /// Reads the existing components.
    ///
    /// # Errors
    /// If the folder cannot be read or created.
    pub fn open(data: &Path) -> Result<PluginStore, String> {
        let folder = data.join("plugins");
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        // This is the first directory that a start creates.
        tribunal_disk::create_private_directories(&folder).map_err(|error| {
            format!(
                "cannot create {}: {error}. `data` in the configuration (or --data) must name a directory that this process \
                 can create and write",
                folder.display()
            )
        })?;
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            match path.extension().and_then(|extension| extension.to_str()) {
                // Leftover of an interrupted upload.
                Some("partial") => drop(fs::remove_file(&path)),
                Some("json") => {
                    let text = fs::read(&path).map_err(failed)?;
                    match (read_digest(stem), serde_json::from_slice(&text)) {
                        (Some(digest), Ok(artefact)) => drop(known.insert(digest, artefact)),
                        _ => tracing::warn!(path = %path.display(), "ignored: not the description of a plugin"),
                    }
                }
                _ => {}
            }
        }
        Ok(PluginStore { folder, known: RwLock::new(known), changes: AtomicU64::new(0), writing: Mutex::default() })
    }

    /// Returns the description of a component.
    pub fn find(&self, digest: &ArtefactDigest) -> Option<Artefact> {
        self.known.read().get(digest).filter(|artefact| artefact.deleted.is_none()).cloned()
    }

    /// Returns all components.
    pub fn list(&self) -> Vec<(ArtefactDigest, Artefact)> {
        let known = self.known.read();
        let present = known.iter().filter(|(_, artefact)| artefact.deleted.is_none());
        present.map(|(digest, artefact)| (*digest, artefact.clone())).collect()
    }

    /// Checks that there is room for another component.
    ///
    /// # Errors
    /// If there is none; includes the remedy.
    pub fn check_room(&self) -> Result<(), String> {
        let known = self.known.read().values().filter(|artefact| artefact.deleted.is_none()).count();
        if known < PLUGIN_VERSIONS_MAX {
            return Ok(());
        }
        Err(format!(
            "{PLUGIN_VERSIONS_MAX} plugin versions are kept, which is the limit; delete versions that no slot needs \
             (`tribunal plugin rm NAME`)"
        ))
    }

    /// Stores a component durably.
    ///
    /// # Errors
    /// If it cannot be written; nothing names it then.
    pub fn keep(&self, bytes: &[u8], artefact: Artefact) -> Result<ArtefactDigest, String> {
        let digest: ArtefactDigest = Sha256::digest(bytes).into();
        let name = hex(&digest);
        let json = serde_json::to_vec_pretty(&artefact).map_err(|error| error.to_string())?;
        let _one = self.writing.lock();
        self.write(&format!("{name}.wasm"), bytes)?;
        // Last, because it makes the component known.
        self.write(&format!("{name}.json"), &json)?;
        self.known.write().insert(digest, artefact);
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(digest)
    }

    /// Returns a number that changes when a component is added.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Records the control entry that announced a component.
    ///
    /// # Errors
    /// If that cannot be written, or the component is missing.
    pub fn note_announced(&self, digest: &ArtefactDigest, index: u64) -> Result<(), String> {
        self.replace(digest, |artefact| Artefact { announced: Some(index), ..artefact }).map(drop)
    }

    /// Hides a component that control entry `index`, or an earlier one, has deleted. A hidden component stays hidden.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn hide(&self, digest: &ArtefactDigest, index: u64) -> Result<(), String> {
        let hidden = self.replace(digest, |artefact| Artefact { deleted: Some(index), ..artefact });
        // Both the requester of the deletion and the follower of the control log call this.
        if self.find(digest).is_none() { Ok(()) } else { hidden.map(drop) }
    }

    /// Removes components deleted by control entries up to `index`; returns their digests.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn sweep(&self, index: u64) -> Result<Vec<ArtefactDigest>, String> {
        let is_over = |artefact: &Artefact| artefact.deleted.is_some_and(|deleted| deleted <= index);
        let known = self.known.read();
        let over: Vec<_> = known.iter().filter(|(_, artefact)| is_over(artefact)).map(|(digest, _)| *digest).collect();
        drop(known);
        over.iter().try_for_each(|digest| self.remove(digest)).map(|()| over)
    }

    /// Reads a part of a component, deleted or not, with its size; `None` if it is missing.
    #[must_use]
    pub fn part(&self, digest: &ArtefactDigest, offset: u64, bytes_max: usize) -> Option<(u64, Vec<u8>)> {
        if !self.known.read().contains_key(digest) {
            return None;
        }
        let mut file = File::open(self.folder.join(format!("{}.wasm", hex(digest)))).ok()?;
        let size = file.metadata().ok()?.len();
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(offset)).ok()?;
        file.take(bytes_max as u64).read_to_end(&mut part).ok()?;
        Some((size, part))
    }

    /// Replaces the kit's results for a stored component.
    ///
    /// # Errors
    /// If that cannot be written, or the component is missing.
    pub fn note_checked(&self, digest: &ArtefactDigest, checked: Checked) -> Result<Artefact, String> {
        self.replace(digest, |artefact| Artefact { checked, ..artefact })
    }

    /// Records the signature of a stored component.
    ///
    /// # Errors
    /// If that cannot be written, or the component is missing.
    pub fn note_signed(&self, digest: &ArtefactDigest, signed: Signed) -> Result<Artefact, String> {
        self.replace(digest, |artefact| Artefact { signed: Some(signed), ..artefact })
    }

    fn replace(&self, digest: &ArtefactDigest, change: impl FnOnce(Artefact) -> Artefact) -> Result<Artefact, String> {
        let _one = self.writing.lock();
        let artefact = change(self.find(digest).ok_or_else(|| "it is not here any more".to_owned())?);
        let json = serde_json::to_vec_pretty(&artefact).map_err(|error| error.to_string())?;
        self.write(&format!("{}.json", hex(digest)), &json)?;
        self.known.write().insert(*digest, artefact.clone());
        Ok(artefact)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let (partial, path) = (self.folder.join(format!("{name}.partial")), self.folder.join(name));
        let written = || {
            let mut file = File::create(&partial)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        written().map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Removes a component, durably.
    ///
    /// # Errors
    /// If it cannot be removed; after a restart it may then be unknown, or known as before.
    pub fn remove(&self, digest: &ArtefactDigest) -> Result<(), String> {
        let name = hex(digest);
        // The description first: it makes the component known.
        for file in [format!("{name}.json"), format!("{name}.wasm")] {
            let path = self.folder.join(file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", path.display()));
                }
                _ => {}
            }
            self.known.write().remove(digest);
        }
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| format!("{}: {error}", self.folder.display()))
    }

    /// Reads a component back.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub fn read(&self, digest: &ArtefactDigest) -> Result<Vec<u8>, String> {
        let path = self.folder.join(format!("{}.wasm", hex(digest)));
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if ArtefactDigest::from(Sha256::digest(&bytes)) == *digest {
            Ok(bytes)
        } else {
            Err(format!("{} is damaged: its SHA-256 is not its name", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artefact(name: &str) -> Artefact {
        Artefact {
            name: name.to_owned(),
            world: "conflict-rule".to_owned(),
            version: "1.0.0".to_owned(),
            about: String::new(),
            bytes: 3,
            uploaded_ms: 0,
            signed: None,
            checked: Checked::default(),
            announced: None,
            deleted: None,
        }
    }

    #[test]
    fn stored_plugins_are_found_again_and_damage_is_detected() {
        let data = tempfile::tempdir().expect("a folder");
        let artefacts = PluginStore::open(data.path()).expect("opens");
        let digest = artefacts.keep(b"abc", artefact("a")).expect("is kept");
        fs::write(data.path().join("plugins/x.wasm.partial"), b"half").expect("writes");
        let again = PluginStore::open(data.path()).expect("opens");
        assert_eq!(again.list(), [(digest, artefact("a"))]);
        assert!(!data.path().join("plugins/x.wasm.partial").exists(), "an interrupted upload is swept away");
        assert_eq!(again.read(&digest).as_deref(), Ok(&b"abc"[..]));
        assert_eq!(read_digest(&hex(&digest)), Some(digest));
        fs::write(data.path().join(format!("plugins/{}.wasm", hex(&digest))), b"abd").expect("writes");
        assert!(again.read(&digest).is_err_and(|error| error.contains("damaged")));
        assert!(again.read(&[0; 32]).is_err());
    }

    #[test]
    fn a_deleted_plugin_is_hidden_until_an_image_includes_that() {
        let data = tempfile::tempdir().expect("a folder");
        let artefacts = PluginStore::open(data.path()).expect("opens");
        let digest = artefacts.keep(b"abc", artefact("a")).expect("is kept");
        assert_eq!(artefacts.part(&digest, 1, 1), Some((3, b"b".to_vec())));
        assert_eq!(artefacts.part(&digest, 3, 9), Some((3, Vec::new())));
        assert_eq!(artefacts.part(&[0; 32], 0, 9), None);
        artefacts.hide(&digest, 7).expect("is hidden");
        artefacts.hide(&digest, 8).expect("is hidden already");
        let again = PluginStore::open(data.path()).expect("opens");
        assert_eq!((again.list(), again.find(&digest)), (Vec::new(), None));
        assert_eq!(again.read(&digest).as_deref(), Ok(&b"abc"[..]), "epochs may be decided again with it");
        assert_eq!(again.sweep(6), Ok(Vec::new()));
        assert_eq!(again.sweep(7), Ok(vec![digest]));
        assert!(again.read(&digest).is_err() && again.part(&digest, 0, 9).is_none());
    }
}
