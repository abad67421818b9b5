//! A storage's password. Comes from the operator's configuration, never from a store's declaration.
//!
//! Invariant: no text that leaves the process contains it.

use std::fmt;
use std::path::PathBuf;

use crate::TransportError;

/// Where a password is.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// In the configuration itself.
    Text(String),
    /// In a file. Read for every connection, so that a changed password needs no restart: connections that are open stay
    /// open, and the next one logs in with the new password.
    File(PathBuf),
}

impl Password {
    /// Returns the password for a new connection. A newline at the end of a file is not part of it.
    ///
    /// # Errors
    /// If the file cannot be read or is empty, for example while it is being replaced.
    pub(crate) async fn read(&self) -> Result<String, TransportError> {
        let file = match self {
            Password::Text(text) => return Ok(text.clone()),
            Password::File(file) => file,
        };
        let unusable = |why: String| TransportError::Broken(format!("`password_file` of `push.credentials`: {why}"));
        let text = tokio::fs::read_to_string(file).await;
        let text = text.map_err(|error| unusable(format!("cannot read {}: {error}", file.display())))?;
        let password = text.trim_end_matches(['\r', '\n']);
        if password.trim().is_empty() {
            return Err(unusable(format!("{} is empty", file.display())));
        }
        Ok(password.to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Password::Text(_) => f.write_str("(hidden)"),
            Password::File(file) => file.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[tokio::test]
    async fn a_file_is_read_each_time() {
        let folder = TempDir::new("password");
        let file = folder.path().join("word");
        let password = Password::File(file.clone());
        let refused = password.read().await.map_err(|error| error.to_string()).expect_err("it does not exist");
        assert!(refused.contains("cannot read") && refused.contains("word"), "{refused}");
        for (content, expected) in [("pass word\n", Some("pass word")), ("other\r\n", Some("other")), ("\n", None)] {
            std::fs::write(&file, content).expect("written");
            assert_eq!(password.read().await.ok().as_deref(), expected, "{content:?}");
        }
        let fixed = Password::Text("hunter2\n".into());
        assert_eq!(fixed.read().await.ok().as_deref(), Some("hunter2\n"));
        assert!(!format!("{fixed:?}").contains("hunter2"));
    }
}
