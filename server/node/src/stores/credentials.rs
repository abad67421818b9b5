//! Secrets of storages: named in the operator's configuration, bound to one address, passed to transports only.
//!
//! Invariant: no text that leaves the process contains them: a printed configuration shows only that a secret exists.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};
use tribunal_push::{Password, SqlEndpoint};

use crate::named_file::read_named;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}

/// Protocol of an endpoint. Redis sends passwords in plain text, so it never gets one that is meant for another
/// protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The PostgreSQL protocol.
    #[default]
    Postgres,
    /// RESP.
    Redis,
}

/// The user of a Redis that only has a password.
const REDIS_USER: &str = "default";

/// Login at one storage.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// `host:port` as stores name it. The secret is sent nowhere else, whatever a store declares.
    pub endpoint: String,
    /// Its protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// Role; for Redis, `default` if omitted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The role's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// File with the password, read for every connection; a trailing newline is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// All credentials, checked.
#[derive(Default)]
pub struct Credentials(Vec<Credential>);

impl Credentials {
    /// Checks the credentials and that their files can be read. `key` is their configuration section.
    ///
    /// # Errors
    /// The files that cannot be read, and the credentials with superfluous settings.
    pub fn check(key: &str, configured: &[Credential]) -> Result<Credentials, Vec<String>> {
        let mut faults = Vec::new();
        let mut checked = configured.to_vec();
        for (number, credential) in checked.iter_mut().enumerate() {
            if credential.protocol == Protocol::Redis && credential.user.is_empty() {
                credential.user = REDIS_USER.to_owned();
            }
            let Credential { endpoint, protocol, user, .. } = &*credential;
            let is_host = |host: &str| !host.is_empty() && (!host.contains(':') || host.starts_with('['));
            let port = endpoint.rsplit_once(':').and_then(|(host, port)| is_host(host).then_some(port));
            if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                faults.push(format!(
                    "configuration: `{key}.credentials` has the endpoint `{endpoint}`, which is not host:port, so no store can match it"
                ));
            }
            if user.is_empty() {
                faults.push(format!("configuration: `{key}.credentials` of {endpoint}: `user` is empty"));
            }
            let is_same = |earlier: &Credential| {
                (&earlier.endpoint, &earlier.protocol, &earlier.user) == (endpoint, protocol, user)
            };
            if configured[..number].iter().any(is_same) {
                faults.push(format!("configuration: `{key}.credentials` has `{user}` at {endpoint} twice"));
            }
            let Some(file) = &credential.password_file else { continue };
            let of = format!("configuration: `{key}.credentials` of {}", credential.endpoint);
            if credential.password.is_some() {
                faults.push(format!("{of}: `password` and `password_file` exclude each other"));
                continue;
            }
            let not_text = |_| format!("`password_file`: {} is not text in UTF-8", file.display());
            let read = read_named("password_file", file).and_then(|bytes| String::from_utf8(bytes).map_err(not_text));
            faults.extend(read.err().map(|fault| format!("{of}: {fault}")));
        }
        if faults.is_empty() { Ok(Credentials(checked)) } else { Err(faults) }
    }

    /// Returns user and password for an address; of several users, the requested one, otherwise the first.
    #[must_use]
    pub fn at(&self, protocol: Protocol, address: &str, user: Option<&str>) -> Option<(String, Option<Password>)> {
        let fits = |known: &&Credential| {
            known.protocol == protocol && known.endpoint == address && user.is_none_or(|user| user == known.user)
        };
        let known = self.0.iter().find(fits)?;
        let in_file = known.password_file.clone().map(Password::File);
        let password = in_file.or_else(|| known.password.as_ref().map(|secret| Password::Text(secret.0.clone())));
        Some((known.user.clone(), password))
    }

    /// Returns role and password for a database.
    ///
    /// # Errors
    /// If no role is configured.
    pub fn of(&self, endpoint: &SqlEndpoint) -> Result<(String, Option<Password>), String> {
        match (self.at(Protocol::Postgres, &endpoint.address, endpoint.user.as_deref()), &endpoint.user) {
            (Some(known), _) => Ok(known),
            (None, Some(user)) => Ok((user.clone(), None)),
            (None, None) => Err(format!(
                "names no role: postgres://role@{}/{}, or `push.credentials` of the configuration",
                endpoint.address, endpoint.database
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(user: &str) -> Credential {
        let password = Some(Secret::new(format!("{user}'s word")));
        let protocol = Protocol::Postgres;
        Credential { endpoint: "db:5432".into(), protocol, user: user.into(), password, password_file: None }
    }

    fn of(text: &str) -> Result<(String, Option<Password>), String> {
        let known = Credentials::check("push", &[credential("shop"), credential("bank")]).expect("no files");
        known.of(&text.parse().expect("an endpoint"))
    }

    #[test]
    fn a_secret_goes_to_its_own_address_only_and_is_never_shown() {
        let text = |password: &str| Password::Text(password.to_owned());
        let found = |user: &str, password: Option<&str>| Ok((user.to_owned(), password.map(text)));
        assert_eq!(of("postgres://db/a"), found("shop", Some("shop's word")));
        assert_eq!(of("postgres://bank@db/a"), found("bank", Some("bank's word")));
        assert_eq!(of("postgres://shop@elsewhere/a"), found("shop", None));
        assert!(of("postgres://elsewhere/a").is_err());
        let redis = |user| Credential { protocol: Protocol::Redis, endpoint: "cache:6379".into(), ..credential(user) };
        let known = Credentials::check("push", &[credential("shop"), redis(""), redis("bank")]).expect("no files");
        let at = |address, user| known.at(Protocol::Redis, address, user).map(|(user, _)| user);
        assert_eq!(at("cache:6379", None).as_deref(), Some("default"));
        assert_eq!(at("cache:6379", Some("bank")).as_deref(), Some("bank"));
        assert_eq!(at("cache:6379", Some("other")).or(at("cache:6380", None)), None);
        assert_eq!(at("db:5432", None), None, "Redis would get the password of a database as it is");
        let shown = format!("{:?} {}", credential("shop"), toml::to_string(&credential("shop")).expect("TOML"));
        assert!(!shown.contains("'s word") && shown.matches("(hidden)").count() == 2, "{shown}");
    }

    #[test]
    fn a_password_may_be_in_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("word");
        std::fs::write(&file, "pass word\n").expect("written");
        let mut filed = Credential { password: None, password_file: Some(file.clone()), ..credential("shop") };
        let known = Credentials::check("push", std::slice::from_ref(&filed)).expect("the file is there");
        let found = known.of(&"postgres://db/a".parse().expect("an endpoint"));
        assert_eq!(found, Ok(("shop".to_owned(), Some(Password::File(file)))));
        filed.password_file = Some(folder.path().join("none"));
        assert!(Credentials::check("push", &[filed]).is_err());
    }
}
