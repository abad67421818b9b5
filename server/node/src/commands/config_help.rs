//! The configuration as commented TOML: the meaning of each key, in the words of an operator's manual.
//!
//! The printed configuration must load again and mean the same.

use std::fmt::Write;

use crate::config::Config;

/// The meaning of a key or a table, by its path.
const EXPLAINED: &[(&str, &str)] = &[
    ("listen", "Address and port of the REST API. Any address but loopback requires `auth.required`."),
    ("data", "Directory of the log, the embedded stores and the API keys. One process at a time may use it."),
    (
        "epoch",
        "When an epoch ends: \"adaptive\" (as soon as the disk is free), or a fixed length of 1 to 200 milliseconds.",
    ),
    ("shards", "Partitions of the version map, 1 to 256. A new log keeps them for good. Default: one per core."),
    (
        "plugins",
        "How conflict rules and validators run: \"wasm\" (sandboxed), or \"native\" to measure the cost of the sandbox.",
    ),
    (
        "log_format",
        "Form of the lines that the node logs to its standard error: \"text\" or \"json\" (one object a line).",
    ),
    ("uploads", "Plugins that are uploaded."),
    ("uploads.keep_compiled", "Cache compiled plugins in the data directory. Set to false if others can write there."),
    (
        "uploads.signers",
        "Accept only plugins that are signed with one of these keys. Empty: signatures are not required.",
    ),
    ("uploads.signers.name", "Name of the signer in listings."),
    ("uploads.signers.key_file", "PEM file with the signer's public key."),
    ("rule", "The conflict rule, which decides who wins a contended row."),
    (
        "rule.name",
        "first-writer-wins, shorter-txn-wins, fair-rotation or priority. An activated plugin takes precedence.",
    ),
    ("rule.turns", "Number of turns of fair-rotation, 1 to 1048576; other rules ignore it."),
    ("log", "The durable log."),
    ("log.retention_hours", "How long records stay readable after they were applied, hours."),
    ("log.retention_bytes", "Size of the log above which applied records are truncated earlier, bytes."),
    (
        "log.image_every_bytes",
        "Bytes of log after which a new image of the resolver's state is written, where each epoch counts as 16 KiB more; in a cluster at \
         most 256 MiB. Bounds recovery time.",
    ),
    ("http", "The HTTP server."),
    ("http.connections_max", "Open connections. For a further one, an idle one is closed."),
    ("http.header_timeout_ms", "Time for a client to send all headers of a request, milliseconds."),
    ("http.body_timeout_ms", "Time for a client to send the whole body of a request, milliseconds."),
    (
        "http.idle_timeout_ms",
        "Time after which an idle connection is closed, and a stream whose client does not read, milliseconds.",
    ),
    ("http.threads", "Threads that serve connections. 0: one per core."),
    ("http.debug_routes", "Serve /v1/debug/*, for benchmarks only."),
    (
        "http.hosts",
        "Names by which clients call a node on loopback without access control, besides localhost and IP addresses.",
    ),
    ("resolver", "Bounds of the resolver. They affect verdicts; a change takes effect at an epoch boundary."),
    ("resolver.window_bytes_max", "History of rows, bytes. Above it, old snapshots are refused earlier."),
    (
        "resolver.status_bytes_max",
        "Table of transaction ids and their verdicts, bytes; 72 an id. Above it, the oldest ids are forgotten before they are \
         24 hours old, and repeated requests with them are refused.",
    ),
    ("resolver.plugin_faults_max", "Faults in a row after which a slot returns to the plugin before. 0: never."),
    ("push", "Pushing logs to storages. Applies to stores of the namespace default, apart from push.tenants."),
    (
        "push.allow",
        "Private networks in CIDR notation that storages and webhooks may be in. Public addresses are always allowed.",
    ),
    (
        "push.detach_after_hours",
        "A storage that forces the log to be retained for longer than this is detached, hours.",
    ),
    ("push.detach_after_bytes", "So is one that forces more than this to be retained, bytes of log."),
    ("push.credentials", "Logins at storages. Each is sent to its own endpoint only."),
    ("push.credentials.endpoint", "host:port, exactly as stores name it."),
    ("push.credentials.protocol", "`postgres` or `redis`."),
    ("push.credentials.user", "Role to log in as; at a Redis, `default` if it is left out."),
    ("push.credentials.password", "Its password."),
    ("push.credentials.password_file", "File with the password, instead of `password`. Read for every connection."),
    ("push.tenants", "Networks and logins for stores of other namespaces."),
    ("auth", "Authentication, and quotas of each tenant."),
    ("auth.required", "Callers need an API key or a token. If false, every caller that can connect may do everything."),
    ("auth.tenant_requests_max", "Requests that one tenant may have in flight; further ones get status 429."),
    (
        "auth.tenant_bytes_max",
        "Bytes of the bodies of these requests, and of responses until the client has taken them. A stream of commits counts \
         1 MiB, and 10 MiB more during a commit above 1 MiB.",
    ),
    (
        "auth.tenant_rows_max",
        "Rows that the tracked stores of one tenant may have; each takes about 80 bytes of memory. Writes that may add more \
         get status 429. The namespace default may have any number.",
    ),
    (
        "auth.tenant_stored_bytes_max",
        "Bytes that the embedded stores of one tenant may take on the disk of this node. Writes that may add more get status \
         429, deletes excepted. The namespace default may have any number.",
    ),
    ("auth.rows_max", "Other bounds on rows, by namespace."),
    ("auth.stored_bytes_max", "Other bounds on the bytes of embedded stores, by namespace."),
    ("auth.jwt", "Accept tokens of an issuer, with the claims sub, exp, aud, namespace and roles."),
    ("auth.jwt.algorithm", "EdDSA, ES256, RS256 or HS256. Tokens with any other algorithm are refused."),
    ("auth.jwt.audience", "Required value of the claim aud."),
    ("auth.jwt.issuer", "Required value of the claim iss; absent: not checked."),
    ("auth.jwt.key_file", "PEM file with the issuer's public key; for HS256, a file with the secret."),
    ("tls", "TLS of the REST API."),
    ("tls.cert_file", "PEM file with the certificate chain."),
    ("tls.key_file", "PEM file with the private key."),
    (
        "cluster",
        "Membership in a cluster. Each node has its own configuration. `name`, the founders, and the contents of `secret_file` and \
         `authority_file` are the same on all nodes; `nodes` may list more nodes on some.",
    ),
    ("cluster.name", "Name of the cluster. Nodes of different clusters refuse each other."),
    ("cluster.node", "Number of this node, 1 to 1023. A node whose data is lost gets a number that was never used."),
    ("cluster.listen", "Address and port for the other nodes. Connections are mutually authenticated by TLS."),
    ("cluster.secret_file", "File with a secret of at least 32 characters, the same on all nodes."),
    ("cluster.cert_file", "PEM file with this node's certificate chain. It has the DNS name node-<number>.tribunal."),
    ("cluster.key_file", "PEM file with its private key."),
    ("cluster.authority_file", "PEM file with the certificate of the authority that signs the nodes' certificates."),
    ("cluster.founders", "Numbers of the nodes with which the cluster began; all of `nodes` if left out."),
    ("cluster.nodes", "The nodes, this one included. Those that were added later need not be listed."),
    ("cluster.nodes.id", "Number of the node."),
    ("cluster.nodes.address", "host:port at which the others reach it."),
];

/// Tables that are absent by default, as examples.
const ABSENT: &[(&str, &str)] = &[
    ("uploads.signers", "# [[uploads.signers]]\n# name = \"release\"\n# key_file = \"release.pem.pub\"\n"),
    (
        "push.credentials",
        "# [[push.credentials]]\n# endpoint = \"10.1.0.5:5432\"\n# protocol = \"postgres\"\n# user = \"tribunal\"\n\
         # password_file = \"tribunal.password\"\n",
    ),
    (
        "push.tenants",
        "# [push.tenants.shop]\n# allow = [\"10.1.0.0/16\"]\n\
         # credentials = [{ endpoint = \"10.1.0.5:5432\", user = \"shop\", password_file = \"shop.password\" }]\n",
    ),
    ("auth.rows_max", "# [auth.rows_max]\n# shop = 50_000_000\n"),
    ("auth.stored_bytes_max", "# [auth.stored_bytes_max]\n# shop = 34_359_738_368\n"),
    (
        "auth.jwt",
        "# [auth.jwt]\n# algorithm = \"EdDSA\"\n# audience = \"tribunal\"\n\
         # issuer = \"https://issuer.example\"\n# key_file = \"issuer.pem\"\n",
    ),
    ("tls", "# [tls]\n# cert_file = \"cert.pem\"\n# key_file = \"key.pem\"\n"),
    (
        "cluster",
        "# [cluster]\n# name = \"orders\"\n# node = 1\n# listen = \"10.1.0.1:7421\"\n# secret_file = \"cluster.secret\"\n\
         # cert_file = \"node-1.pem\"\n# key_file = \"node-1.key\"\n# authority_file = \"authority.pem\"\n\
         # founders = [1]\n# [[cluster.nodes]]\n# id = 1\n# address = \"10.1.0.1:7421\"\n",
    ),
];

/// Renders a configuration as TOML with an explanation of each key, and examples of absent tables.
///
/// # Errors
/// If it cannot be represented in TOML.
pub fn commented(config: &Config) -> Result<String, String> {
    let plain = toml::to_string(config).map_err(|error| error.to_string())?;
    let mut text = String::from(
        "# Configuration of Tribunal, for `tribunal serve --config FILE`. A missing key has its default. Relative paths are\n\
         # relative to the working directory of the process.\n",
    );
    let mut table = String::new();
    for line in plain.lines() {
        let header = line.trim_start_matches('[').split(']').next().filter(|_| line.starts_with('['));
        let path = match header {
            Some(name) => {
                table = name.to_owned();
                name.to_owned()
            }
            None => {
                let key = line.split(" = ").next().unwrap_or_default();
                if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
            }
        };
        // An empty list of tables would conflict with the example once that is uncommented.
        if line.ends_with(" = []") && ABSENT.iter().any(|(absent, _)| *absent == path) {
            continue;
        }
        if !line.is_empty()
            && let Some(explanation) = explanation(&path)
        {
            let _ = writeln!(text, "{}# {explanation}", if header.is_some() { "" } else { "\n" });
        }
        text.push_str(line);
        text.push('\n');
    }
    for (path, example) in ABSENT {
        let present = [format!("\n[{path}]\n"), format!("\n[[{path}]]\n"), format!("\n[{path}.")];
        if !present.iter().any(|header| plain.contains(header.as_str())) && !plain.starts_with(&present[0][1..]) {
            let _ = write!(text, "\n# {}\n{example}", explanation(path).unwrap_or_default());
        }
    }
    Ok(text)
}

/// Returns the paths of the settings that an environment variable can set: no tables, nor entries of lists of tables.
pub fn settings_of_variables() -> impl Iterator<Item = &'static str> {
    let paths = || EXPLAINED.iter().map(|(path, _)| *path);
    let is_below = |path: &str, table: &str| path.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
    let lists = ["uploads.signers", "push.credentials", "cluster.nodes"];
    paths().filter(move |path| {
        !paths().any(|other| is_below(other, path)) && !lists.iter().any(|list| is_below(path, list))
    })
}

/// Returns the meaning of a path. Tenants have their own names: paths below a tenant are explained like those below
/// `push`.
fn explanation(path: &str) -> Option<&'static str> {
    let path = match path.strip_prefix("push.tenants.") {
        Some(below) => format!("push{}", below.find('.').map_or("", |at| &below[at..])),
        None => path.to_owned(),
    };
    EXPLAINED.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format, Serialized, Toml};

    use super::*;

    fn load(text: &str) -> Config {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        defaults.merge(Toml::string(text)).extract().unwrap_or_else(|error| panic!("{error}:\n{text}"))
    }

    #[test]
    fn every_key_is_explained() {
        fn walk(path: &str, value: &toml::Value, missing: &mut Vec<String>) {
            let Some(table) = value.as_table() else { return };
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if explanation(&path).is_none() {
                    missing.push(path.clone());
                }
                walk(&path, value, missing);
            }
        }
        let config = toml::Value::try_from(Config::default()).expect("a table");
        let mut missing = Vec::new();
        walk("", &config, &mut missing);
        assert!(missing.is_empty(), "not explained: {missing:?}");
    }

    #[test]
    fn the_commented_form_loads_again() {
        let config = Config::default();
        let text = commented(&config).expect("TOML");
        assert_eq!(toml::to_string(&load(&text)).unwrap(), toml::to_string(&config).unwrap(), "{text}");
        assert!(text.contains("\n# Address and port"), "{text}");
    }

    #[test]
    fn the_examples_of_absent_tables_load_when_they_are_uncommented() {
        let text = commented(&Config::default()).expect("TOML");
        let first = text.find("# [[uploads.signers]]").expect("an example");
        let (head, examples) = text.split_at(first);
        // Within an example, prose lines are those that do not look like TOML.
        let is_toml = |line: &str| line.starts_with('[') || line.split_once(" = ").is_some();
        let uncommented: Vec<_> =
            examples.lines().map(|line| line.strip_prefix("# ").filter(|rest| is_toml(rest)).unwrap_or(line)).collect();
        let config = load(&format!("{head}{}", uncommented.join("\n")));
        assert!(
            config.tls.is_some()
                && config.cluster.is_some()
                && config.auth.jwt.is_some()
                && config.push.tenants.contains_key("shop")
                && config.auth.stored_bytes_max.contains_key("shop")
        );
        assert_eq!((config.push.credentials.len(), config.uploads.signers.len()), (1, 1));
        let again = commented(&config).expect("TOML");
        assert!(!again.contains("# [tls]"), "what is present needs no example:\n{again}");
        assert_eq!(toml::to_string(&load(&again)).unwrap(), toml::to_string(&config).unwrap());
    }
}
