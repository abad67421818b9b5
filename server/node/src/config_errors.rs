//! Describes the errors of a configuration that cannot be read, in terms of the file.

use std::io::{Error, ErrorKind};
use std::path::Path;

use figment::error::Kind;

/// Rule for listen addresses.
pub const ADDRESS_RULE: &str = "it must be an IP address and a port, such as 127.0.0.1:7420, and not a host name";

/// Checks that a configuration file can be read.
///
/// # Errors
/// The problem, and the remedy.
pub fn check_readable(file: &Path) -> Result<(), String> {
    let found = std::fs::File::open(file).and_then(|open| open.metadata());
    match found {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(format!("{} is not a file; name a configuration file in TOML", file.display())),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn unreadable(file: &Path, error: &Error) -> String {
    let name = file.display();
    match error.kind() {
        ErrorKind::NotFound => {
            format!("there is no configuration file {name}; `tribunal config print` prints one with all defaults")
        }
        ErrorKind::PermissionDenied => format!(
            "cannot read the configuration file {name}: {error}. The process runs as user {}, who must be allowed to read the file and \
             to enter the directories above it",
            rustix::process::geteuid().as_raw()
        ),
        _ => format!("cannot read the configuration file {name}: {error}"),
    }
}

/// Converts the library's error into terms of the file, one or more lines per wrong key.
pub fn in_words(error: figment::Error) -> String {
    let faults = error.into_iter().map(|mut fault| {
        fault.kind = match fault.kind {
            Kind::UnknownField(name, known) => {
                Kind::Message(format!("`{name}` is no setting; known here: {}", listed(known)))
            }
            Kind::UnknownVariant(name, known) => Kind::Message(format!("`{name}` is none of {}", listed(known))),
            kind => kind,
        };
        // The library prefixes keys of files with a profile name, which is always this one.
        let text = fault.to_string().replace("\"default.", "\"");
        let text = plain(&text);
        let mut lines: Vec<&str> = text.lines().collect();
        // The place goes first, so that the last line is the reason.
        let place = lines.pop_if(|last| last.starts_with(" in ")).unwrap_or_default();
        let first = lines.first().map_or_else(String::new, |first| format!("configuration: {first}{place}"));
        let rest = lines.iter().skip(1).map(|line| format!("configuration: {line}"));
        std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n")
    });
    faults.collect::<Vec<_>>().join("\n")
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Replaces type names in a library error by the expected input.
fn plain(error: &str) -> String {
    let number = "expected a whole number; the unit is in the name of the key";
    let mut text = error.replace("invalid socket address syntax", ADDRESS_RULE);
    for kind in ["u64", "u32", "u16", "usize"] {
        text = text.replace(&format!("expected {kind}"), number);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_the_reason_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let told = |kind: ErrorKind| unreadable(Path::new("/etc/tribunal.toml"), &kind.into());
        let denied = told(ErrorKind::PermissionDenied);
        assert!(denied.contains("permission denied") && denied.contains("runs as user"), "{denied}");
        assert!(!denied.contains("config print"), "{denied}");
        assert!(told(ErrorKind::NotFound).contains("config print"));
        let missing = check_readable(&dir.path().join("none.toml")).unwrap_err();
        assert!(missing.contains("none.toml") && missing.contains("config print"), "{missing}");
        assert!(check_readable(dir.path()).unwrap_err().contains("is not a file"));
    }

    #[test]
    fn names_are_quoted_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tribunal.toml");
        for (text, parts) in [
            ("log_format = \"xml\"", &["`xml` is none of `text`, `json`"][..]),
            ("[log]\nretention = 3", &["`retention` is no setting", "`retention_hours`"]),
            ("[push]\ncredentials = [{ endpont = \"db:5432\" }]", &["`endpont` is no setting", "`endpoint`"]),
            ("plugins = \"lua\"", &["`lua` is none of `wasm`, `native`"]),
            ("epoch = 500", &["not `500`"]),
            ("[log", &["tribunal.toml TOML file\n", "\nconfiguration: invalid table header"]),
            ("[tls]\ncert_file = \"a\"", &["missing field `key_file`"]),
        ] {
            std::fs::write(&file, text).unwrap();
            let told = Config::read(Some(&file)).unwrap_err();
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
            // Quotes open and close in turn: each pair encloses one name.
            let quoted: Vec<&str> = told.split('`').skip(1).step_by(2).collect();
            assert!(quoted.iter().all(|name| !name.is_empty() && !name.contains(' ')), "{told}");
        }
    }
}
