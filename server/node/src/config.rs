//! Configuration: defaults, then the TOML file, then `TRIBUNAL__*` variables, then the command line.
//!
//! Everything is checked at startup, once; nothing later in the program reads a file or a variable.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tribunal_types::limits;

use crate::auth::jwt::JwtConfig;
use crate::config_errors;
use crate::plugins::signatures::SignerConfig;
use crate::stores::credentials::Credential;

/// When an open epoch is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochLength {
    /// As soon as the previous epoch's sync has returned and something waits.
    Adaptive,
    /// At the end of a fixed length, milliseconds.
    Fixed(u64),
}

impl FromStr for EpochLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "adaptive" {
            return Ok(EpochLength::Adaptive);
        }
        match text.parse() {
            Ok(ms) if (limits::EPOCH_MS_MIN..=limits::EPOCH_MS_MAX).contains(&ms) => Ok(EpochLength::Fixed(ms)),
            _ => Err(format!(
                "epoch length is `adaptive` or a number of milliseconds from {} to {}, not `{text}`",
                limits::EPOCH_MS_MIN,
                limits::EPOCH_MS_MAX
            )),
        }
    }
}

impl fmt::Display for EpochLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochLength::Adaptive => f.write_str("adaptive"),
            EpochLength::Fixed(ms) => ms.fmt(f),
        }
    }
}

impl Serialize for EpochLength {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EpochLength::Adaptive => serializer.serialize_str("adaptive"),
            EpochLength::Fixed(ms) => serializer.serialize_u64(*ms),
        }
    }
}

impl<'de> Deserialize<'de> for EpochLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Number(u64),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Text(text) => text,
            Form::Number(ms) => ms.to_string(),
        };
        text.parse().map_err(de::Error::custom)
    }
}

/// How policies run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PolicyHost {
    /// As sandboxed Wasm modules: the default.
    #[default]
    Wasm,
    /// As native code, to measure the cost of the sandbox.
    Native,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people: the default.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The whole configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address and port of the REST API.
    pub listen: SocketAddr,
    /// Directory of the log and of embedded stores.
    pub data: PathBuf,
    /// When epochs are sealed.
    pub epoch: EpochLength,
    /// Partitions of the version map of a new log, which keeps them; each is resolved by one worker thread at a time.
    pub shards: u16,
    /// How rules and validators run.
    pub plugins: PolicyHost,
    /// Format of the lines that the node writes to standard error.
    pub log_format: LogFormat,
    /// Acceptance and storage of external plugins.
    pub uploads: Uploads,
    /// The conflict rule.
    pub rule: Rule,
    /// The durable log.
    pub log: Log,
    /// The HTTP server.
    pub http: Http,
    /// Memory bounds of the resolver.
    pub resolver: Resolver,
    /// Pushing to storages.
    pub push: Push,
    /// Authentication.
    pub auth: Auth,
    /// TLS of the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The other nodes; absent on a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
}

/// The node's cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Name of the cluster: a node does not communicate with one of another cluster.
    pub name: String,
    /// Number of this node.
    pub node: u16,
    /// Address and port for the other nodes.
    pub listen: SocketAddr,
    /// File with the secret that all nodes share, at least 32 characters.
    pub secret_file: PathBuf,
    /// PEM file with the certificate of this node, and its chain to the root.
    pub cert_file: PathBuf,
    /// PEM file with its key.
    pub key_file: PathBuf,
    /// PEM file with the certificate of the authority that signs the nodes' certificates.
    pub authority_file: PathBuf,
    /// Numbers of the cluster's founders, if `nodes` lists others.
    #[serde(default, deserialize_with = "founders", skip_serializing_if = "Vec::is_empty")]
    pub founders: Vec<u16>,
    /// The nodes, including this one.
    pub nodes: Vec<ClusterNode>,
}

/// Reads the founders. An empty list would mean all nodes, which is expressed by omitting it.
fn founders<'a, D: serde::Deserializer<'a>>(source: D) -> Result<Vec<u16>, D::Error> {
    let founders = Vec::<u16>::deserialize(source)?;
    if founders.is_empty() {
        return Err(serde::de::Error::custom(
            "`cluster.founders` is empty: list the nodes with which the cluster began, or leave it out if these are all of `cluster.nodes`",
        ));
    }
    Ok(founders)
}

/// A node of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterNode {
    /// Its number, 1 to 1023.
    pub id: u16,
    /// Address at which the other nodes reach it: `host:port`.
    pub address: String,
}

/// Authentication.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Callers must present an API key or a token. Otherwise every caller that can connect may do everything.
    pub required: bool,
    /// Maximum number of requests in flight per tenant.
    pub tenant_requests_max: usize,
    /// Maximum number of bytes in their bodies.
    pub tenant_bytes_max: usize,
    /// Maximum number of rows in the tracked stores of one tenant; unlimited for the service's own tenant.
    pub tenant_rows_max: u64,
    /// Maximum size of the embedded stores of one tenant on this node, bytes; unlimited for the service's own tenant.
    pub tenant_stored_bytes_max: u64,
    /// Other bounds on rows for the tenants of these names, including that of the service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rows_max: BTreeMap<String, u64>,
    /// Likewise on bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stored_bytes_max: BTreeMap<String, u64>,
    /// Tokens signed by an external issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtConfig>,
}

/// TLS of the REST API.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate and its chain to the root.
    pub cert_file: PathBuf,
    /// PEM file with its key.
    pub key_file: PathBuf,
}

/// Acceptance and storage of external plugins.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uploads {
    /// Keep compiled code in the data directory, so that a start need not compile again. Turn it off if another user
    /// can write that directory: its content runs as the node's own code.
    pub keep_compiled: bool,
    /// Accepted signers of components; if empty, no signature is required.
    #[serde(default)]
    pub signers: Vec<SignerConfig>,
}

/// The conflict rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name of a built-in rule.
    pub name: String,
    /// Number of turns of `fair-rotation`; the others ignore it.
    pub turns: u32,
}

/// The durable log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// How long applied records stay readable, hours.
    pub retention_hours: u64,
    /// Bytes of log above which applied records are dropped earlier.
    pub retention_bytes: u64,
    /// Bytes of log after which a new state image is taken. Each epoch counts as 16 KiB in addition to its items.
    pub image_every_bytes: u64,
}

/// The HTTP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Maximum number of open connections. For a further one, an idle one is closed.
    pub connections_max: usize,
    /// Time to send all headers, milliseconds.
    pub header_timeout_ms: u64,
    /// Time to send the whole body, milliseconds.
    pub body_timeout_ms: u64,
    /// Maximum idle time of a connection between requests, milliseconds.
    pub idle_timeout_ms: u64,
    /// Threads that serve connections, each its own; 0 means one per core.
    pub threads: usize,
    /// Serve `/v1/debug/*`, for benchmarks.
    pub debug_routes: bool,
    /// Names besides `localhost` and IP addresses by which clients call a node on loopback without access control.
    pub hosts: Vec<String>,
}

/// Bounds that decide verdicts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolver {
    /// Bytes of history above which the floor rises earlier than by time. Decides verdicts: a change goes through the
    /// control log and applies from an epoch on.
    pub window_bytes_max: usize,
    /// Bytes of the id and status table; likewise.
    pub status_bytes_max: usize,
    /// Consecutive faults after which a slot is rolled back to the previous plugin; 0 for never. Likewise.
    pub plugin_faults_max: u32,
}

/// Pushing to storages.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Private networks that stores may be in: CIDR, for example `10.1.0.0/16`.
    pub allow: Vec<String>,
    /// A store that holds back truncation of the log for longer than this is detached, hours.
    pub detach_after_hours: u64,
    /// Likewise one that holds back more than this, bytes of log.
    pub detach_after_bytes: u64,
    /// Logins at storages.
    pub credentials: Vec<Credential>,
    /// Networks and credentials of other tenants' stores, by namespace: those above are for the namespace `default`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, TenantPush>,
}

/// Destinations of one tenant's stores besides public addresses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantPush {
    /// See [`Push::allow`].
    #[serde(default)]
    pub allow: Vec<String>,
    /// See [`Push::credentials`].
    #[serde(default)]
    pub credentials: Vec<Credential>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            data: PathBuf::from("tribunal-data"),
            epoch: EpochLength::Adaptive,
            shards: std::thread::available_parallelism().map_or(1, |n| u16::try_from(n.get()).unwrap_or(64)).min(64),
            plugins: PolicyHost::Wasm,
            log_format: LogFormat::Text,
            uploads: Uploads { keep_compiled: true, signers: Vec::new() },
            rule: Rule { name: "first-writer-wins".into(), turns: 1 },
            log: Log { retention_hours: 24, retention_bytes: 8 << 30, image_every_bytes: 4 << 30 },
            http: Http {
                connections_max: 10_240,
                header_timeout_ms: 10_000,
                body_timeout_ms: 30_000,
                idle_timeout_ms: 75_000,
                threads: 0,
                debug_routes: false,
                hosts: Vec::new(),
            },
            resolver: Resolver {
                window_bytes_max: limits::WINDOW_BYTES_MAX,
                status_bytes_max: limits::STATUS_BYTES_MAX,
                plugin_faults_max: limits::PLUGIN_FAULTS_MAX,
            },
            push: Push {
                allow: vec!["127.0.0.0/8".into(), "::1/128".into()],
                detach_after_hours: 24,
                detach_after_bytes: 8 << 30,
                credentials: Vec::new(),
                tenants: BTreeMap::new(),
            },
            auth: Auth {
                required: false,
                tenant_requests_max: 4096,
                tenant_bytes_max: 128 << 20,
                tenant_rows_max: 10_000_000,
                tenant_stored_bytes_max: 8 << 30,
                rows_max: BTreeMap::new(),
                stored_bytes_max: BTreeMap::new(),
                jwt: None,
            },
            tls: None,
            cluster: None,
        }
    }
}

impl Config {
    /// Reads defaults, then `file` if given, then `TRIBUNAL__*` variables (`TRIBUNAL__LOG__RETENTION_HOURS` sets
    /// `log.retention_hours`). Checks only the form: see [`Config::faults`].
    ///
    /// # Errors
    /// A message for the operator: the wrong key, the reason, and the correct form.
    pub fn read(file: Option<&Path>) -> Result<Config, String> {
        file.map_or(Ok(()), config_errors::check_readable)?;
        Config::layers(file).extract().map_err(config_errors::in_words)
    }

    fn layers(file: Option<&Path>) -> Figment {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        let with_file = match file {
            Some(file) => defaults.merge(Toml::file_exact(file)),
            None => defaults,
        };
        with_file.merge(Env::prefixed("TRIBUNAL__").split("__"))
    }

    /// Returns the log format and the node's number, as far as an erroneous configuration contains them.
    #[must_use]
    pub fn log_lines(file: Option<&Path>) -> (LogFormat, Option<u16>) {
        let of = |layers: &Figment| layers.extract_inner("log_format").ok();
        let layers = Config::layers(file);
        // A file that cannot be read hides the variables as well.
        let format = of(&layers).or_else(|| of(&Config::layers(None))).unwrap_or_default();
        (format, layers.extract_inner("cluster.node").ok())
    }

    /// Reads the configuration and checks every bound.
    ///
    /// # Errors
    /// See [`Config::read`]; all keys that are out of bounds, and the bounds, one per line.
    pub fn load(file: Option<&Path>) -> Result<Config, String> {
        let config = Config::read(file)?;
        let faults = config.faults();
        if faults.is_empty() { Ok(config) } else { Err(faults.join("\n")) }
    }

    /// Returns every key that is out of bounds, with the bounds.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let (log, push, auth, http, resolver) = (&self.log, &self.push, &self.auth, &self.http, &self.resolver);
        // Room for a stream of commits and a long commit in it; otherwise that commit would always be refused.
        let stream_bytes = (limits::STREAM_BYTES_MAX + limits::BODY_BYTES_MAX) as u64;
        let bounded = [
            ("shards", u64::from(self.shards), 1, 256),
            ("rule.turns", u64::from(self.rule.turns), 1, 1 << 20),
            ("log.retention_hours", log.retention_hours, 0, 24 * 366),
            ("log.retention_bytes", log.retention_bytes, 1 << 20, 1 << 50),
            ("log.image_every_bytes", log.image_every_bytes, 1 << 20, 1 << 40),
            ("push.detach_after_hours", push.detach_after_hours, 1, 24 * 366),
            ("push.detach_after_bytes", push.detach_after_bytes, 1 << 20, 1 << 50),
            ("auth.tenant_requests_max", auth.tenant_requests_max as u64, 2, 1 << 20),
            ("auth.tenant_bytes_max", auth.tenant_bytes_max as u64, stream_bytes, 1 << 40),
            ("http.connections_max", http.connections_max as u64, 1, 1 << 20),
            ("http.header_timeout_ms", http.header_timeout_ms, 100, 600_000),
            ("http.body_timeout_ms", http.body_timeout_ms, 100, 600_000),
            ("http.idle_timeout_ms", http.idle_timeout_ms, 100, 3_600_000),
            ("http.threads", http.threads as u64, 0, 1024),
            ("resolver.window_bytes_max", resolver.window_bytes_max as u64, 1 << 20, 1 << 40),
            ("resolver.status_bytes_max", resolver.status_bytes_max as u64, 1 << 20, 1 << 40),
        ];
        let out = bounded.into_iter().filter(|(_, value, min, max)| !(min..=max).contains(&value));
        let mut faults: Vec<_> = out
            .map(|(key, value, min, max)| {
                let unit = if key.contains("_bytes") { " bytes" } else { "" };
                format!("configuration: `{key}` is {value}; it must be from {min} to {max}{unit}")
            })
            .collect();
        if self.data.as_os_str().is_empty() {
            faults.push("configuration: `data` is empty; name the directory for the log and the stores".into());
        }
        let namespaces = auth.rows_max.keys().map(|name| ("auth.rows_max", name));
        let namespaces = namespaces.chain(auth.stored_bytes_max.keys().map(|name| ("auth.stored_bytes_max", name)));
        let namespaces = namespaces.chain(push.tenants.keys().map(|name| ("push.tenants", name)));
        for (table, name) in namespaces.filter(|(_, name)| !is_namespace(name)) {
            faults.push(format!(
                "configuration: `{table}` has `{name}`, which no namespace can be called: names are 1 to {} letters, digits, `.`, \
                 `_` and `-`, so the setting would apply to no tenant",
                limits::NAME_BYTES_MAX
            ));
        }
        // A request's port, and a dot at the end of its name, are not compared.
        for host in http.hosts.iter().filter(|host| host.is_empty() || host.ends_with('.') || host.contains([':', '/']))
        {
            faults.push(format!(
                "configuration: `http.hosts` has `{host}`; it lists names only, such as `host.docker.internal`, without scheme, port or a \
                 dot at the end"
            ));
        }
        let rules = ["first-writer-wins", "shorter-txn-wins", "fair-rotation", "priority"];
        if !rules.contains(&self.rule.name.as_str()) {
            faults.push(format!(
                "configuration: there is no rule `{}`; built in are {}",
                self.rule.name,
                rules.join(", ")
            ));
        }
        let peers = self.cluster.as_ref().map(|cluster| cluster.listen);
        if let Some(peers) = peers.filter(|peers| ports_collide(*peers, self.listen)) {
            faults.push(format!(
                "configuration: `listen` is {} and `cluster.listen` {peers}; the API and the other nodes need a port each",
                self.listen
            ));
        }
        faults
    }
}

/// Returns whether one process cannot listen on both addresses. A listener on all IPv6 addresses also takes the port on
/// all IPv4 addresses, but not the other way around.
#[must_use]
pub fn ports_collide(one: SocketAddr, other: SocketAddr) -> bool {
    let includes = |one: SocketAddr, other: SocketAddr| {
        one.ip() == other.ip() || one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (includes(one, other) || includes(other, one))
}

/// Returns whether a namespace may have this name: the same rule as for keys, which create namespaces.
fn is_namespace(name: &str) -> bool {
    (1..=limits::NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_collide_if_one_address_includes_the_other() {
        let collide = |one: &str, other: &str| ports_collide(one.parse().unwrap(), other.parse().unwrap());
        for (one, other) in [("127.0.0.1:7", "0.0.0.0:7"), ("[::]:7", "127.0.0.1:7"), ("[::1]:7", "[::1]:7")] {
            assert!(collide(one, other) && collide(other, one), "{one} {other}");
        }
        for (one, other) in [("127.0.0.1:7", "0.0.0.0:8"), ("[::1]:7", "0.0.0.0:7"), ("0.0.0.0:0", "0.0.0.0:0")] {
            assert!(!collide(one, other) && !collide(other, one), "{one} {other}");
        }
    }

    #[test]
    fn defaults_are_within_their_own_bounds_and_survive_a_round_trip() {
        let config = Config::default();
        assert_eq!(config.faults(), Vec::<String>::new());
        let text = toml::to_string(&config).unwrap();
        let back: Config = Figment::from(Toml::string(&text)).extract().unwrap();
        assert_eq!(toml::to_string(&back).unwrap(), text);
    }

    #[test]
    fn wrong_types_are_told_in_words_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let file = dir.path().join("tribunal.toml");
            std::fs::write(&file, text).unwrap();
            Config::read(Some(&file)).unwrap_err()
        };
        let number = read("[log]\nretention_hours = \"24h\"");
        assert!(number.contains("a whole number") && number.contains("log.retention_hours"), "{number}");
        let address = read("listen = \"localhost:24003\"");
        assert!(address.contains("an IP address and a port") && address.contains("listen"), "{address}");
    }

    #[test]
    fn errors_name_every_invalid_key() {
        let check = |text: &str| {
            let config: Result<Config, _> =
                Figment::from(Serialized::defaults(Config::default())).merge(Toml::string(text)).extract();
            config.map_or_else(|error| error.to_string(), |config| config.faults().join("\n"))
        };
        assert!(check("shards = 0").contains("`shards` is 0"));
        assert!(check("epoch = 500").contains("from 1 to 200"));
        assert!(check("[auth]\ntenant_requests_max = 1").contains("from 2 to"));
        let names = check(
            "[auth.rows_max]\n\"shop 1\" = 5\nshop-2 = 5\n[auth.stored_bytes_max]\n\"a/b\" = 5\n\
                           [push.tenants.\"\"]\nallow = []",
        );
        for bad in ["`auth.rows_max` has `shop 1`", "`auth.stored_bytes_max` has `a/b`", "`push.tenants` has ``"] {
            assert!(names.contains(bad) && !names.contains("shop-2"), "{names}");
        }
        assert!(
            check("[auth]\ntenant_bytes_max = 11_534_335").contains("from 11534336 to"),
            "a long commit in a stream"
        );
        assert!(check("[log]\nretention_bytes = 1048575").contains("from 1048576 to 1125899906842624 bytes"));
        assert!(check("[rule]\nname = \"coin-toss\"").contains("no rule `coin-toss`"));
        assert!(check("shard = 2").contains("shard"));
        assert!(check("data = \"\"").contains("`data` is empty"));
        let cluster = "listen = \"127.0.0.1:7\"\n[cluster]\nname = \"c\"\nnode = 1\nlisten = \"127.0.0.1:7\"\n\
                       secret_file = \"s\"\ncert_file = \"c\"\nkey_file = \"k\"\nauthority_file = \"a\"\nnodes = []";
        let without = check(&format!("{cluster}\nfounders = []"));
        assert!(without.contains("`cluster.founders` is empty") && without.contains("leave it out"), "{without}");
        assert!(!check(&format!("{cluster}\nfounders = [1]")).contains("founders"));
        assert!(
            check(cluster).contains("`listen` is 127.0.0.1:7 and `cluster.listen` 127.0.0.1:7;"),
            "{}",
            check(cluster)
        );
        for host in ["a:7420", "http://a", "a.", ""] {
            let wrong = check(&format!("[http]\nhosts = [\"b\", \"{host}\"]"));
            assert!(wrong.contains(&format!("`http.hosts` has `{host}`")), "{wrong}");
        }
        assert_eq!(check("[http]\nhosts = [\"host.docker.internal\"]"), "");
        let all = check("shards = 0\n[rule]\nname = \"coin-toss\"\nturns = 0\n[http]\nidle_timeout_ms = 1");
        assert_eq!(all.lines().count(), 4, "{all}");
    }
}
