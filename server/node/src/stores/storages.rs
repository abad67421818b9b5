//! A store's connection data besides its declaration: the operator's credentials for the transport, and for the adaptor
//! the log whose rows it writes.

use serde::Deserialize;
use serde_json::{Map, Value};
use tribunal_push::{EgressPolicy, Password, RespOptions, SqlEndpoint, SqlOptions};
use tribunal_types::{LogId, NamespaceId, StoreSpec};

use crate::stores::credentials::{Credentials, Protocol};

/// Built-in adaptors that keep the names of log and store beside their watermark.
const NAMING_LOGS: [&str; 2] = ["postgres", "redis"];

/// Returns whether a store's adaptor keeps the store's name beside its watermark.
pub fn names_stores(spec: &StoreSpec) -> bool {
    spec.adaptor.as_deref().is_some_and(|name| NAMING_LOGS.contains(&name))
}

/// The part of the adaptor's configuration that the host reads; the adaptor reads the rest.
#[derive(Debug, Deserialize)]
struct Endpoint {
    endpoint: String,
}

/// The same part for an adaptor that speaks RESP.
#[derive(Debug, Deserialize)]
struct RespEndpoint {
    endpoint: String,
    /// Which of the users configured by the operator for this endpoint to log in as. An adaptor may have an unrelated
    /// setting of this name.
    #[serde(default)]
    user: Value,
}

/// All settings of a store with the built-in Redis adaptor: the host reads the first two, the adaptor the last one.
const REDIS_SETTINGS: [&str; 3] = ["endpoint", "user", "prefix"];

/// See the module documentation.
pub struct Storages {
    credentials: Credentials,
    /// Identifies the log, so that a storage filled from another log is recognized.
    log: String,
}

impl Storages {
    /// Creates the connection data.
    #[must_use]
    pub fn new(credentials: Credentials, log: LogId) -> Storages {
        Storages { credentials, log: log.to_string() }
    }

    /// Returns the configuration passed to a store's adaptor: the built-in ones also get the log's name, and the
    /// store's name and number.
    #[must_use]
    pub fn adaptor_config(&self, spec: &StoreSpec) -> String {
        match serde_json::from_str::<Map<String, Value>>(&spec.adaptor_config) {
            Ok(mut config) if names_stores(spec) => {
                config.insert("store".into(), spec.name.clone().into());
                // PostgreSQL's watermark is keyed by the store's name. The number distinguishes other namespaces; the
                // first namespace's key stays readable by every release.
                if spec.adaptor.as_deref() == Some("redis") || spec.namespace != NamespaceId::default() {
                    config.insert("store_id".into(), spec.id.0.into());
                }
                config.insert("log".into(), self.log.clone().into());
                Value::Object(config).to_string()
            }
            _ => spec.adaptor_config.clone(),
        }
    }

    /// Returns a store's RESP endpoint and login. Connections go where `egress` permits.
    ///
    /// # Errors
    /// If the declaration lacks the endpoint.
    pub fn resp(&self, spec: &StoreSpec, egress: EgressPolicy) -> Result<RespOptions, String> {
        let config = if spec.adaptor_config.is_empty() { "{}" } else { &spec.adaptor_config };
        let config: RespEndpoint =
            serde_json::from_str(config).map_err(|e| format!("must contain \"endpoint\": \"host:port\" ({e})"))?;
        let login = self.credentials.at(Protocol::Redis, &config.endpoint, config.user.as_str());
        let (username, password) = login.map_or((None, None), |(user, password)| (Some(user), password));
        Ok(RespOptions { username, password, ..RespOptions::new(config.endpoint, egress) })
    }

    /// Checks the declaration of a store whose adaptor speaks RESP.
    ///
    /// # Errors
    /// If the declaration lacks the endpoint, or contains a password.
    pub fn check_resp(&self, spec: &StoreSpec) -> Result<(), String> {
        // Checked here and not when the push starts, as all that follows: stores declared earlier continue to start.
        check_resp_endpoint(&self.resp(spec, EgressPolicy::default())?.endpoint)?;
        if spec.adaptor.as_deref() != Some("redis") {
            return Ok(());
        }
        let config: Map<String, Value> = serde_json::from_str(&spec.adaptor_config).unwrap_or_default();
        match config.keys().find(|name| !REDIS_SETTINGS.contains(&name.as_str())) {
            Some(name) if name == "password" => {
                Err("contains `password`, which everyone who may see the store would see: put it in \
                                                     `push.credentials` of the nodes' configuration"
                    .into())
            }
            Some(name) => Err(format!(
                "contains `{}`, which is no setting of the adaptor `redis`; its settings are `{}`",
                name.escape_debug(),
                REDIS_SETTINGS.join("`, `")
            )),
            None => Ok(()),
        }
    }

    /// Checks the declaration of a store whose adaptor speaks SQL.
    ///
    /// # Errors
    /// If the declaration lacks the endpoint, or contains more, or nothing can listen at its port.
    pub fn check_sql(&self, spec: &StoreSpec) -> Result<(), String> {
        let (endpoint, ..) = self.login(spec)?;
        match endpoint.address.rsplit_once(':') {
            Some((_, "0")) => Err(NO_PORT.to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns a store's database and login. Connections go where `egress` permits.
    ///
    /// # Errors
    /// If the declaration lacks the endpoint, or contains more.
    pub fn sql(&self, spec: &StoreSpec, egress: EgressPolicy) -> Result<SqlOptions, String> {
        let (endpoint, user, password) = self.login(spec)?;
        Ok(SqlOptions { password, ..SqlOptions::new(endpoint.address, endpoint.database, user, egress) })
    }

    /// Returns a store's database, role and password.
    ///
    /// # Errors
    /// As [`Storages::sql`].
    pub fn login(&self, spec: &StoreSpec) -> Result<(SqlEndpoint, String, Option<Password>), String> {
        let needs = |e: String| format!("needs \"endpoint\": \"postgres://role@host:port/database\": {e}");
        let config: Endpoint = serde_json::from_str(&spec.adaptor_config).map_err(|e| needs(e.to_string()))?;
        let endpoint: SqlEndpoint = config.endpoint.parse().map_err(needs)?;
        let (user, password) = self.credentials.of(&endpoint).map_err(needs)?;
        Ok((endpoint, user, password))
    }
}

/// What is wrong with a port in a declaration.
const NO_PORT: &str = "\"endpoint\" must end in a port from 1 to 65535";

/// Checks that `endpoint` can be an address: `host:port`. The text may contain a password, so errors do not quote it.
fn check_resp_endpoint(endpoint: &str) -> Result<(), String> {
    if endpoint.contains('@') {
        return Err(
            "\"endpoint\" names a user or holds a password, but everyone who may see the store sees its declaration: \
                    write `host:port`, and put the login in `push.credentials` of the nodes' configuration"
                .to_owned(),
        );
    }
    if endpoint.contains("://") {
        return Err("\"endpoint\" must be `host:port`, without a scheme such as redis://".to_owned());
    }
    if endpoint.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | ',')) {
        return Err("\"endpoint\" must be `host:port`, and nothing else".to_owned());
    }
    let (host, port) = endpoint.rsplit_once(':').ok_or("\"endpoint\" must be `host:port`: it has no port")?;
    let is_ipv6 = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains(':') && !is_ipv6) {
        return Err("\"endpoint\" must name one host before its port; put an IPv6 address in brackets".to_owned());
    }
    // In one form only: endpoints are compared as texts.
    match port.parse::<u16>() {
        Ok(number @ 1..) if number.to_string() == port => Ok(()),
        _ => Err(NO_PORT.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_can_never_work_is_refused_without_being_quoted() {
        for works in ["cache:6379", "127.0.0.1:1", "[::1]:65535", "a_b.example:6379", "localhost.:6379"] {
            assert_eq!(check_resp_endpoint(works), Ok(()), "{works}");
        }
        for (endpoint, reason) in [
            ("", "no port"),
            ("cache", "no port"),
            (":6379", "one host"),
            ("::1:6379", "one host"),
            ("cache:", "from 1 to 65535"),
            ("cache:0", "from 1 to 65535"),
            ("cache:99999", "from 1 to 65535"),
            ("cache:redis", "from 1 to 65535"),
            ("redis://cache:6379", "without a scheme"),
            ("redis://cache", "without a scheme"),
            ("redis://u:hunter2@cache:6379/0", "holds a password"),
            ("u:hunter2@cache:6379", "holds a password"),
            ("cache:6379/0", "nothing else"),
            ("a:1,b:2", "nothing else"),
            ("cache :6379", "nothing else"),
        ] {
            let said = check_resp_endpoint(endpoint).expect_err(endpoint);
            assert!(said.contains(reason) && !said.contains("hunter2"), "{endpoint}: {said}");
        }
    }
}
