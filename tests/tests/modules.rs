//! The modules of a crate depend on each other in one direction: no two refer to each other, not even through others.
//!
//! A module that adds methods to a type of another one may name that type: the state of a state machine is in one file,
//! and what it does with each of its parts in others. A module and its children are one room: what a child takes from its
//! parents does not count. Paths within macros are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{Visit, visit_item_impl, visit_item_mod, visit_path};
use syn::{Attribute, ItemImpl, ItemMod, ItemUse, Type, UseTree, VisRestricted};

/// A module: its path below the crate's root.
type Module = Vec<String>;

/// What a file refers to.
#[derive(Default)]
struct Mentions {
    /// Paths that begin with `crate`, `self` or `super`.
    paths: Vec<Vec<String>>,
    /// Types that the file adds methods to.
    extended: BTreeSet<String>,
}

impl Mentions {
    fn add(&mut self, path: Vec<String>) {
        if matches!(path[0].as_str(), "crate" | "self" | "super") {
            self.paths.push(path);
        }
    }

    fn add_tree(&mut self, mut path: Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.add_tree(path, &step.tree);
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.add(path);
            }
            UseTree::Rename(rename) => {
                path.push(rename.ident.to_string());
                self.add(path);
            }
            UseTree::Glob(_) => self.add(path),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(path.clone(), tree)),
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(Vec::new(), &item.tree);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let Type::Path(path) = &*item.self_ty
            && let Some(name) = path.path.segments.last()
        {
            self.extended.insert(name.ident.to_string());
        }
        visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the tree is readable") {
        let path = entry.expect("the tree is readable").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the module that a source file contains; `None` for a crate's root and for tests.
fn module_of(source: &Path, file: &Path) -> Option<Module> {
    let path = file.strip_prefix(source).expect("below the root").with_extension("");
    let mut module: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    let is_root = matches!(module.first().map(String::as_str), Some("lib" | "main" | "bin"));
    (!is_root && !module.iter().any(|name| name == "tests")).then_some(module)
}

/// Returns the module that a path from within `from` leads to.
fn target(from: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let supers = path.iter().take_while(|step| *step == "super").count();
    let mut absolute = match path[0].as_str() {
        "crate" => Module::new(),
        _ => from[..from.len().checked_sub(supers)?].to_vec(),
    };
    absolute.extend(path.iter().filter(|step| !matches!(step.as_str(), "crate" | "self" | "super")).cloned());
    while !absolute.is_empty() && !modules.contains(&absolute) {
        absolute.pop();
    }
    Some(absolute).filter(|module| !from.starts_with(module))
}

/// Returns the modules that the text of a module refers to.
fn mentioned(text: &str, from: &Module, modules: &BTreeSet<Module>) -> syn::Result<BTreeSet<Module>> {
    let mut mentions = Mentions::default();
    mentions.visit_file(&syn::parse_file(text)?);
    let Mentions { paths, extended } = mentions;
    let is_extended = |path: &&Vec<String>| !path.iter().any(|step| extended.contains(step));
    Ok(paths.iter().filter(is_extended).filter_map(|path| target(from, path, modules)).collect())
}

/// Returns, for each module of a crate, the modules that it refers to.
fn dependencies(source: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let files: BTreeMap<Module, PathBuf> =
        files.into_iter().filter_map(|file| Some((module_of(source, &file)?, file))).collect();
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let of = |(module, file): (Module, PathBuf)| {
        let text = fs::read_to_string(&file).expect("the tree is readable");
        let targets = mentioned(&text, &module, &modules).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (module, targets)
    };
    files.into_iter().map(of).collect()
}

/// Returns a circle that begins and ends with `module`, if there is one: the shortest.
fn circle(module: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    let (mut ways, mut seen) = (vec![vec![module.clone()]], BTreeSet::new());
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in &edges[way.last().expect("a way has a start")] {
                let way: Vec<Module> = way.iter().chain([next]).cloned().collect();
                if next == module {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Returns the sources of all crates below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the tree is readable") {
        let path = entry.expect("the tree is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_dir() || name.starts_with('.') || matches!(name.as_str(), "target" | "node_modules" | "templates") {
            continue;
        }
        if path.join("Cargo.toml").exists() && path.join("src").is_dir() {
            found.push(path.join("src"));
        }
        found.extend(sources(&path));
    }
    found.sort();
    found
}

#[test]
fn no_modules_of_a_crate_refer_to_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the root");
    let sources = sources(root);
    assert!(sources.len() > 20, "the walk sees the project: {sources:?}");
    let mut circles = Vec::new();
    for source in sources {
        let edges = dependencies(&source);
        let mut known = BTreeSet::<Module>::new();
        for module in edges.keys() {
            if let Some(way) = circle(module, &edges).filter(|way| !way.iter().any(|module| known.contains(module))) {
                let names: Vec<String> = way.iter().map(|module| module.join("::")).collect();
                circles.push(format!(
                    "{}: {}",
                    source.strip_prefix(root).unwrap_or(&source).display(),
                    names.join(" -> ")
                ));
                known.extend(way);
            }
        }
    }
    assert!(circles.is_empty(), "move what both need into a module of its own:\n  {}", circles.join("\n  "));
}

#[test]
fn a_module_refers_to_what_it_takes_from_others() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let modules = ["a", "a::b", "a::c", "d", "e"].map(module).into();
    let of = |text: &str| {
        let found = mentioned(text, &module("a::b"), &modules).expect("it is Rust");
        found.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of("use crate::d::{D, inner::F}; use super::c;"), "a::c d");
    assert_eq!(of("fn f() -> crate::e::E { super::super::d::new() }"), "d e");
    assert_eq!(of("use super::Part; pub(in crate::a) fn f() {}"), "", "its parent");
    assert_eq!(of("use crate::d::D; impl D { fn f() {} }"), "", "it adds methods");
    assert_eq!(of("#[cfg(test)] mod tests { use crate::d::D; }"), "", "a test");
}

#[test]
fn a_circle_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let edges = |all: &[(&str, &[&str])]| {
        all.iter().map(|(from, to)| (module(from), to.iter().map(|name| module(name)).collect())).collect()
    };
    let found = circle(&module("a"), &edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])]));
    assert_eq!(found, Some(["a", "b", "c", "a"].map(module).to_vec()));
    assert_eq!(circle(&module("a"), &edges(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
}
