//! `tribunal plugin new`: self-contained sources. They include the interfaces and the guest SDK, so that a build needs
//! only the registry's crates, at the versions that this program itself was built with.

use std::fs;
use std::path::{Path, PathBuf};

use tribunal_types::EMBEDDED_ADAPTOR;
use tribunal_types::limits::NAME_BYTES_MAX;
use tribunal_wasm::world::{OPTIONAL_WIT_FILES, WIT_FILES};
use tribunal_wasm::{BUILTINS, World};

use super::{Manifest, world};
use crate::commands::cli::program;
use crate::commands::output::out;
use crate::commands::plugin_flags::{Example, Language, New};

/// The guest SDK's sources.
const SDK: [(&str, &str); 10] = [
    ("adaptor.rs", include_str!("../../../../../sdk/plugin/src/adaptor.rs")),
    ("allocator.rs", include_str!("../../../../../sdk/plugin/src/allocator.rs")),
    ("bindings.rs", include_str!("../../../../../sdk/plugin/src/bindings.rs")),
    ("config.rs", include_str!("../../../../../sdk/plugin/src/config.rs")),
    ("instance.rs", include_str!("../../../../../sdk/plugin/src/instance.rs")),
    ("lib.rs", include_str!("../../../../../sdk/plugin/src/lib.rs")),
    ("record_ids.rs", include_str!("../../../../../sdk/plugin/src/record_ids.rs")),
    ("rule.rs", include_str!("../../../../../sdk/plugin/src/rule.rs")),
    ("traces.rs", include_str!("../../../../../sdk/plugin/src/traces.rs")),
    ("validator.rs", include_str!("../../../../../sdk/plugin/src/validator.rs")),
];
/// Path of the interfaces in the SDK: in this repository, and in a plugin's folder.
const WIT_PATH: (&str, &str) = ("path: \"../../plugins/wit\"", "path: \"../wit\"");

const SDK_MANIFEST: &str = include_str!("../../../../../sdk/templates/rust/sdk.toml");
const MANIFEST: &str = include_str!("../../../../../sdk/templates/rust/Cargo.toml.in");
const CARGO_CONFIG: &str = include_str!("../../../../../sdk/templates/rust/config.toml");
/// The versions of the registry's crates. Cargo drops those that a plugin does not need.
const LOCK: &str = include_str!("../../../../../Cargo.lock");
const RULE: &str = include_str!("../../../../../sdk/templates/rust/rule.rs");
const OLDEST_WAITING: &str = include_str!("../../../../../sdk/templates/rust/examples/oldest_waiting.rs");
const VALIDATOR: &str = include_str!("../../../../../sdk/templates/rust/validator.rs");
const ADAPTOR: &str = include_str!("../../../../../sdk/templates/rust/adaptor.rs");

/// A C library of a few functions, and the bindings that `wit-bindgen c` generates from the interfaces.
const C_RUNTIME: [(&str, &str); 3] = [
    ("runtime.c", include_str!("../../../../../sdk/templates/c/runtime/runtime.c")),
    ("stdlib.h", include_str!("../../../../../sdk/templates/c/runtime/stdlib.h")),
    ("string.h", include_str!("../../../../../sdk/templates/c/runtime/string.h")),
];
/// Each with its own test.
const C_RULE: [&str; 4] = [
    include_str!("../../../../../sdk/templates/c/rule.c"),
    include_str!("../../../../../sdk/templates/c/rule_test.c"),
    include_str!("../../../../../sdk/templates/c/bindings/conflict_rule.c"),
    include_str!("../../../../../sdk/templates/c/bindings/conflict_rule.h"),
];
const C_VALIDATOR: [&str; 4] = [
    include_str!("../../../../../sdk/templates/c/validator.c"),
    include_str!("../../../../../sdk/templates/c/validator_test.c"),
    include_str!("../../../../../sdk/templates/c/bindings/isolation_validator.c"),
    include_str!("../../../../../sdk/templates/c/bindings/isolation_validator.h"),
];
const C_ADAPTOR: [&str; 4] = [
    include_str!("../../../../../sdk/templates/c/adaptor.c"),
    include_str!("../../../../../sdk/templates/c/adaptor_test.c"),
    include_str!("../../../../../sdk/templates/c/bindings/log_adaptor.c"),
    include_str!("../../../../../sdk/templates/c/bindings/log_adaptor.h"),
];

const JS_MANIFEST: &str = include_str!("../../../../../sdk/templates/js/package.json.in");
const JS_LOCK: &str = include_str!("../../../../../sdk/templates/js/package-lock.json.in");
const JS_BUILD: &str = include_str!("../../../../../sdk/templates/js/build.mjs");
/// Each with its own test.
const JS_RULE: [&str; 2] = [
    include_str!("../../../../../sdk/templates/js/rule.js"),
    include_str!("../../../../../sdk/templates/js/rule.test.js"),
];
const JS_VALIDATOR: [&str; 2] = [
    include_str!("../../../../../sdk/templates/js/validator.js"),
    include_str!("../../../../../sdk/templates/js/validator.test.js"),
];
const JS_ADAPTOR: [&str; 2] = [
    include_str!("../../../../../sdk/templates/js/adaptor.js"),
    include_str!("../../../../../sdk/templates/js/adaptor.test.js"),
];

/// Rust's keywords in lower case, those that are reserved included.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
/// Crates of Rust's toolchain.
const CRATES: [&str; 5] = ["alloc", "core", "proc-macro", "std", "test"];
/// Names that macros and every source use without importing them.
const PRELUDE: [&str; 12] =
    ["Box", "Clone", "Copy", "Debug", "Default", "Err", "None", "Ok", "Option", "Result", "Some", "Vec"];

/// A file to write: path below the plugin's folder, and text.
type File = (PathBuf, String);

/// Writes a new plugin.
///
/// # Errors
/// If the name or world is invalid, or the folder exists.
pub fn write(flags: &New) -> Result<(), String> {
    let world = world(&flags.world)?;
    let name = &flags.name;
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.ends_with('-');
    if !fits {
        return Err(format!(
            "`{name}` must be lower-case letters, digits and `-`, begin with a letter and not end with `-`"
        ));
    }
    if let Some(why) = taken(name) {
        return Err(format!("`{name}` is {why}; choose another name"));
    }
    let folder = flags.folder.clone().unwrap_or_else(|| PathBuf::from(name));
    if folder.exists() {
        return Err(format!("{} already exists; choose another folder with --folder", folder.display()));
    }
    let manifest = Manifest { name: name.clone(), world: world.name().to_owned(), lang: flags.lang.name().to_owned() };
    let mut files = match flags.lang {
        Language::Rust => {
            let source = source_of(flags.example, world)?;
            if let Some(why) = unbuildable(name, source) {
                return Err(format!("`{name}` {why}; choose another name"));
            }
            rust(name, source)
        }
        Language::C => c(name, world),
        Language::Js => js(name, world),
    };
    let manifest = toml::to_string(&manifest).map_err(|error| error.to_string())?;
    files.push(("plugin.toml".into(), manifest));
    for (file, text) in WIT_FILES.into_iter().chain(OPTIONAL_WIT_FILES) {
        files.push((Path::new("wit").join(file), text.to_owned()));
    }
    for (path, text) in &files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, text))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let at = folder.display();
    out!("{at}: {} in {}. Next steps:\n", world.name(), flags.lang.name());
    let program = program();
    out!("  edit {at}/src\n  {program} plugin build {at}\n  {program} plugin test {at}");
    out!("\nWith a running service (`{program} dev`):\n");
    let slot = if world == World::IsolationValidator { " --slot validator:LEVEL" } else { "" };
    out!("  {program} plugin push {at}\n  {program} plugin activate {name}{slot}");
    Ok(())
}

/// Describes what already has this name, so that no plugin can have it.
fn taken(name: &str) -> Option<String> {
    if let Some(builtin) = BUILTINS.iter().find(|builtin| builtin.name == name) {
        return Some(format!("the name of a built-in {}, which an upload cannot have", builtin.world.name()));
    }
    if name == EMBEDDED_ADAPTOR {
        return Some("the name of the adaptor of embedded stores, which an upload cannot have".to_owned());
    }
    // Two packages of the same name do not build.
    let sdk: toml::Table = toml::from_str(SDK_MANIFEST).ok()?;
    let own = sdk.get("package")?.get("name")?.as_str() == Some(name);
    let packages = sdk.get("dependencies")?.as_table()?;
    (own || packages.contains_key(name))
        .then(|| "the name of a package that every plugin in Rust depends on".to_owned())
}

/// Returns why no plugin in Rust with this source can have this name, if so.
fn unbuildable(name: &str, source: &str) -> Option<String> {
    if KEYWORDS.contains(&name) || CRATES.contains(&name) {
        return Some("is a keyword of Rust or a crate of its toolchain, which no package is named after".to_owned());
    }
    let own = camel(name);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let code = source.lines().filter_map(|line| line.split("//").next());
    let taken = code.flat_map(|code| code.split(|c| !is_word(c))).chain(PRELUDE).any(|word| word == own);
    taken.then(|| format!("would name the plugin's type `{own}`, which the source uses for something else"))
}

/// Returns a plugin's name as that of a type.
fn camel(name: &str) -> String {
    let words = name.split('-').filter_map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    words.collect()
}

/// Replaces `{{name}}` and its forms.
fn filled(text: &str, name: &str) -> String {
    text.replace("{{name}}", name).replace("{{Name}}", &camel(name))
}

/// Returns the Rust source: an example, or the template of the world.
fn source_of(example: Option<Example>, world: World) -> Result<&'static str, String> {
    match (example, world) {
        (Some(Example::OldestWaiting), World::ConflictRule) => Ok(OLDEST_WAITING),
        (Some(Example::OldestWaiting), world) => {
            Err(format!("the example is a conflict-rule, not of world {}; leave --world out", world.name()))
        }
        (None, World::ConflictRule) => Ok(RULE),
        (None, World::IsolationValidator) => Ok(VALIDATOR),
        (None, World::LogAdaptor) => Ok(ADAPTOR),
    }
}

fn rust(name: &str, source: &str) -> Vec<File> {
    let mut files: Vec<File> = vec![
        ("Cargo.toml".into(), filled(MANIFEST, name)),
        ("Cargo.lock".into(), LOCK.to_owned()),
        (".cargo/config.toml".into(), CARGO_CONFIG.to_owned()),
        (".gitignore".into(), "/target\n*.wasm\n".to_owned()),
        ("src/lib.rs".into(), filled(source, name)),
        ("sdk/Cargo.toml".into(), SDK_MANIFEST.to_owned()),
    ];
    for (file, text) in SDK {
        files.push((Path::new("sdk/src").join(file), text.replace(WIT_PATH.0, WIT_PATH.1)));
    }
    files
}

fn c(name: &str, world: World) -> Vec<File> {
    let ([source, test, bindings, header], prefix) = match world {
        World::ConflictRule => (C_RULE, "conflict_rule"),
        World::IsolationValidator => (C_VALIDATOR, "isolation_validator"),
        World::LogAdaptor => (C_ADAPTOR, "log_adaptor"),
    };
    let mut files: Vec<File> = vec![
        ("src/plugin.c".into(), filled(source, name)),
        ("test/plugin_test.c".into(), test.to_owned()),
        (format!("bindings/{prefix}.c").into(), bindings.to_owned()),
        (format!("bindings/{prefix}.h").into(), header.to_owned()),
        (".gitignore".into(), "/plugin-test\n*.wasm\n".to_owned()),
    ];
    for (file, text) in C_RUNTIME {
        files.push((Path::new("runtime").join(file), text.replace("{{world}}", prefix)));
    }
    files
}

fn js(name: &str, world: World) -> Vec<File> {
    let [source, test] = match world {
        World::ConflictRule => JS_RULE,
        World::IsolationValidator => JS_VALIDATOR,
        World::LogAdaptor => JS_ADAPTOR,
    };
    vec![
        ("package.json".into(), filled(JS_MANIFEST, name)),
        ("package-lock.json".into(), filled(JS_LOCK, name)),
        ("build.mjs".into(), JS_BUILD.to_owned()),
        (".gitignore".into(), "/node_modules\n*.wasm\n".to_owned()),
        ("src/plugin.js".into(), filled(source, name)),
        ("test/plugin.test.js".into(), test.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_types() {
        assert_eq!(filled("{{name}} {{Name}}", "most-writes-2"), "most-writes-2 MostWrites2");
    }

    #[test]
    fn the_sdk_looks_for_the_interfaces_where_they_are() {
        let (_, bindings) = SDK.iter().find(|(file, _)| *file == "bindings.rs").expect("is there");
        assert_eq!(bindings.matches(WIT_PATH.0).count(), bindings.matches("wit_bindgen::generate!").count());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/plugin/src");
        let sources = fs::read_dir(folder).expect("is there").count();
        assert_eq!(sources, SDK.len(), "every source of the SDK belongs to the template");
    }

    #[test]
    fn names_that_cannot_be_built_or_uploaded_are_taken() {
        for name in ["tribunal-plugin-sdk", "serde", "wit-bindgen", "priority", "snapshot", "redis", "kv"] {
            assert!(taken(name).is_some(), "{name}");
        }
        assert_eq!(taken("most-writes-wins"), None);
    }

    #[test]
    fn names_that_do_not_compile_in_rust_are_refused() {
        for (name, source) in [
            ("self", RULE),
            ("fn", RULE),
            ("core", ADAPTOR),
            ("rule", RULE),
            ("rule", OLDEST_WAITING),
            ("txns", RULE),
            ("validator", VALIDATOR),
            ("evidence", VALIDATOR),
            ("adaptor", ADAPTOR),
            ("resp-value", ADAPTOR),
            ("string", ADAPTOR),
            ("vec", RULE),
        ] {
            assert!(unbuildable(name, source).is_some(), "{name}");
        }
        for (name, source) in [("rule", ADAPTOR), ("my-rule", RULE), ("adaptor-2", ADAPTOR), ("selfish", RULE)] {
            assert_eq!(unbuildable(name, source), None, "{name}");
        }
    }

    #[test]
    fn the_sdk_depends_on_the_versions_of_this_workspace() {
        let root: toml::Table = toml::from_str(include_str!("../../../../../Cargo.toml")).expect("is TOML");
        let sdk: toml::Table = toml::from_str(SDK_MANIFEST).expect("is TOML");
        assert_eq!(sdk["dependencies"]["wit-bindgen"], root["workspace"]["dependencies"]["wit-bindgen"]);
        let own: toml::Table = toml::from_str(include_str!("../../../../../sdk/plugin/Cargo.toml")).expect("is TOML");
        for name in ["serde", "serde_json"] {
            assert_eq!(sdk["dependencies"][name], own["dependencies"][name], "{name}");
        }
        assert_eq!(sdk["features"], own["features"]);
    }
}
