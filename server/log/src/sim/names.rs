//! Simulated directories: the names that programs see, the names on the disk, and the changes between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::content::Fate;
use super::random::Random;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A file, by its number.
    File(u64),
    Dir,
}

type Entries = BTreeMap<String, Entry>;

/// Names that change together, each with its new target.
type Change = Vec<(String, Option<Entry>)>;

#[derive(Clone, Debug, Default)]
struct Dir {
    cached: Entries,
    durable: Entries,
    /// The changes between `durable` and `cached`, in order.
    unsynced: Vec<Change>,
}

fn apply(change: &Change, to: &mut Entries) {
    for (name, entry) in change {
        match entry {
            Some(entry) => to.insert(name.clone(), *entry),
            None => to.remove(name),
        };
    }
}

/// All directories, by their absolute paths.
#[derive(Clone, Debug)]
pub(super) struct Names {
    dirs: BTreeMap<PathBuf, Dir>,
}

impl Names {
    pub(super) fn new() -> Self {
        Self { dirs: BTreeMap::from([(PathBuf::from("/"), Dir::default())]) }
    }

    fn dir(&mut self, path: &Path) -> io::Result<&mut Dir> {
        self.dirs.get_mut(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, dir: &Path, change: Change) -> io::Result<()> {
        let dir = self.dir(dir)?;
        apply(&change, &mut dir.cached);
        dir.unsynced.push(change);
        Ok(())
    }

    /// Returns the target of a path; `None` if its directory has no such name.
    pub(super) fn find(&self, path: &Path) -> Option<Entry> {
        let (dir, name) = split(path).ok()?;
        self.dirs.get(dir)?.cached.get(&name).copied()
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<u64> {
        match self.find(path) {
            Some(Entry::File(file)) => Ok(file),
            Some(Entry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn add(&mut self, path: &Path, file: u64) -> io::Result<()> {
        let (dir, name) = split(path)?;
        self.change(dir, vec![(name, Some(Entry::File(file)))])
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let (dir, name) = split(path)?;
        self.change(dir, vec![(name, None)])
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        let ((dir, old), (target, new)) = (split(from)?, split(to)?);
        if dir != target || self.find(to) == Some(Entry::Dir) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.change(dir, vec![(old, None), (new, Some(Entry::File(file)))])
    }

    /// Creates a directory in an existing one.
    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = split(path)?;
        self.change(dir, vec![(name, Some(Entry::Dir))])?;
        self.dirs.insert(path.to_owned(), Dir::default());
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let dir = self.dirs.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(dir.cached.keys().map(|name| path.join(name)).collect())
    }

    pub(super) fn sync(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        for change in dir.unsynced.drain(..) {
            apply(&change, &mut dir.durable);
        }
        Ok(())
    }

    /// Cuts the power: of the unsynced changes, some are on the disk. Those of one directory may be reordered, but a
    /// single name never changes back. A directory whose own name is lost is lost with its content.
    pub(super) fn cut_power(&mut self, fate: impl Fn(&mut Random) -> Fate, random: &mut Random) {
        for dir in self.dirs.values_mut() {
            let fate = fate(random);
            let changes = std::mem::take(&mut dir.unsynced);
            let first = random.below(changes.len() as u64 + 1) as usize;
            for (number, change) in changes.iter().enumerate() {
                let survives = match fate {
                    Fate::Dropped => false,
                    Fate::Kept => true,
                    Fate::Torn => number < first,
                    Fate::Reordered => random.below(2) == 0,
                };
                if survives {
                    apply(change, &mut dir.durable);
                }
            }
            dir.cached.clone_from(&dir.durable);
        }
        let found = |dirs: &BTreeMap<PathBuf, Dir>, path: &Path| {
            split(path).is_ok_and(|(dir, name)| dirs.get(dir).is_some_and(|d| d.cached.get(&name) == Some(&Entry::Dir)))
        };
        let paths: Vec<PathBuf> = self.dirs.keys().skip(1).cloned().collect();
        // Parents come before their children.
        for path in paths {
            if !found(&self.dirs, &path) {
                self.dirs.remove(&path);
            }
        }
    }

    /// Returns the files with a name, including names that may only be on the disk.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        let of = |entry: &Entry| if let Entry::File(file) = entry { Some(*file) } else { None };
        let mut files = BTreeSet::new();
        for dir in self.dirs.values() {
            files.extend(dir.cached.values().chain(dir.durable.values()).filter_map(of));
            files.extend(dir.unsynced.iter().flatten().filter_map(|(_, entry)| entry.as_ref().and_then(of)));
        }
        files
    }

    /// Returns the files that programs see.
    pub(super) fn visible(&self) -> BTreeSet<u64> {
        let entries = self.dirs.values().flat_map(|dir| dir.cached.values());
        entries.filter_map(|entry| if let Entry::File(file) = entry { Some(*file) } else { None }).collect()
    }
}

fn split(path: &Path) -> io::Result<(&Path, String)> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) if path.is_absolute() => Ok((dir, name.to_owned())),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Names) -> Vec<String> {
        dir.list(Path::new("/d")).unwrap_or_default().iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_are_durable_once_their_directory_and_its_name_are_synced() {
        let path = |name: &str| PathBuf::from(format!("/d/{name}"));
        let mut disk = Names::new();
        disk.create_dir(Path::new("/d")).unwrap();
        disk.add(&path("a"), 1).unwrap();
        disk.sync(Path::new("/d")).unwrap();
        let cut = |disk: &Names, fate: Fate| {
            let mut disk = disk.clone();
            disk.cut_power(|_| fate, &mut Random(1));
            names(&disk)
        };
        assert!(cut(&disk, Fate::Dropped).is_empty(), "the directory itself has no durable name");
        disk.sync(Path::new("/")).unwrap();
        assert_eq!(cut(&disk, Fate::Dropped), ["/d/a"]);
        disk.add(&path("new"), 2).unwrap();
        disk.rename(&path("new"), &path("a")).unwrap();
        assert_eq!((names(&disk), disk.file(&path("a")).unwrap()), (vec!["/d/a".into()], 2));
        for seed in 0..100 {
            let mut left = disk.clone();
            left.cut_power(|_| Fate::Reordered, &mut Random(seed));
            assert!(
                [1, 2].contains(&left.file(&path("a")).unwrap()),
                "a name that is replaced is never without a file"
            );
        }
        disk.remove(&path("a")).unwrap();
        assert_eq!(cut(&disk, Fate::Dropped), ["/d/a"]);
        assert!(cut(&disk, Fate::Kept).is_empty());
    }
}
