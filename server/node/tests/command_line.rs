//! The command line in everyday use: without a command, into a closed pipe, with addresses in use and services missing.

mod support;

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Node, new_id};

fn tribunal(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(arguments).env_remove("TRIBUNAL_LOG").env_remove("TRIBUNAL_URL").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    tribunal(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must fail and returns its standard error.
fn error_of(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded: {}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn without_a_command_the_first_steps_are_printed() {
    let output = run(&[]);
    assert!(output.status.success());
    let printed = text(&output.stdout);
    for step in ["demo bank", "dev", "config print", "serve --config", "/docs", "--help"] {
        assert!(printed.contains(step), "{step} is missing:\n{printed}");
    }
}

#[test]
fn certificates_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("files");
    let out = out.to_str().expect("a path");
    let refused = |name: &str, more: &[&str], expected: &str| {
        let error = error_of(&[&["cluster", "certificates", "--name", name, "--out", out][..], more].concat());
        assert!(error.contains(expected), "{error}");
        assert!(!std::path::Path::new(out).exists(), "{more:?}");
    };
    refused("a b", &["--node", "1=127.0.0.1"], "the name of a cluster is 1 to 40 letters");
    refused(
        "orders",
        &["--node", "1=127.0.0.1", "--node", "2=[::1]"],
        "--node 2=[::1]: `[::1]` is neither a host name",
    );
    refused("orders", &["--node", "1=127.0.0.1", "--port", "7421"], "needs two ports");

    let written = run(&["cluster", "certificates", "--name", "orders", "--node", "1=127.0.0.1", "--out", out]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let config = std::fs::read_to_string(format!("{out}/node-1/tribunal.toml")).expect("written");
    assert!(config.contains("node = 1") && !config.contains("shards"), "a node counts its own cores: {config}");
    let again = error_of(&["cluster", "certificates", "--name", "orders", "--node", "2=127.0.0.1", "--out", out]);
    for way_on in [&*format!("cluster add --files {out}"), "authority.key", "choose another directory"] {
        assert!(again.contains(way_on), "{way_on} is missing: {again}");
    }
    assert!(!std::path::Path::new(out).join("node-2").exists(), "nothing was changed");
}

#[test]
fn a_configuration_is_compared_with_the_member_whose_data_it_names() {
    let cluster = support::cluster::Cluster::prepare(1);
    let file = cluster.node_dir(1).join("tribunal.toml");
    let check = || run(&["config", "check", "--config", file.to_str().expect("a path")]);
    let unused = check();
    assert!(unused.status.success(), "no data directory yet: {}", text(&unused.stderr));
    let config = std::fs::read_to_string(&file).expect("written");
    let data = config.lines().find_map(|line| line.strip_prefix("data = \"")?.strip_suffix('"')).expect("its data");
    std::fs::create_dir_all(data).expect("created");
    let note = |nodes: &str, stage: &str| {
        let text = format!("tribunal member 1\nnodes {nodes}\nstage {stage}\n");
        std::fs::write(std::path::Path::new(data).join("member"), text).expect("written");
        check()
    };
    assert!(note("1", "member").status.success());
    let other = note("1 2 3", "member");
    let told = text(&other.stderr).to_string();
    assert_eq!((other.status.code(), told.contains("set `cluster.founders` to [1, 2, 3]")), (Some(2), true), "{told}");
    assert_eq!(note("1", "removed").status.code(), Some(2));
    // A configuration without a cluster would not start with it either.
    let alone = cluster.dir().join("alone.toml");
    std::fs::write(&alone, format!("data = {data:?}\n")).expect("written");
    let checked = run(&["config", "check", "--config", alone.to_str().expect("a path")]);
    let told = text(&checked.stderr).to_string();
    assert_eq!((checked.status.code(), told.contains("belongs to a member of a cluster")), (Some(2), true), "{told}");
    assert!(!std::path::Path::new(data).join("log").exists(), "nothing else was created");
}

#[test]
fn every_error_of_a_configuration_is_reported_before_the_data_directory_exists() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, data) = (dir.path().join("tribunal.toml"), dir.path().join("data"));
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "short").expect("written");
    let config = format!(
        r#"
        listen = "127.0.0.1:0"
        data = {data:?}
        shards = 0
        [push]
        allow = ["10.0.0.0/99", "everywhere"]
        credentials = [{{ endpoint = "db:5432", user = "shop", password_file = "/nowhere/password" }}]
        [push.tenants.shop]
        allow = ["300.0.0.0/8"]
        [auth.jwt]
        algorithm = "HS256"
        audience = "tribunal"
        key_file = {secret:?}
        [tls]
        cert_file = "/nowhere/cert.pem"
        key_file = "/nowhere/key.pem"
        "#
    );
    std::fs::write(&file, config).expect("written");
    let error = error_of(&["serve", "--config", file.to_str().expect("a path")]);
    for fault in [
        "`shards` is 0",
        "`push.allow` has `10.0.0.0/99`",
        "`push.allow` has `everywhere`",
        "`push.credentials` of db:5432",
        "`push.tenants.shop.allow` has `300.0.0.0/8`",
        "`auth.jwt`: the secret",
        "`push.credentials` of db:5432: `password_file`: cannot read /nowhere/password: ",
        "`tls.cert_file`: cannot read /nowhere/cert.pem: ",
        "`tls.key_file`: cannot read /nowhere/key.pem: ",
    ] {
        assert!(error.contains(fault), "{fault} is missing:\n{error}");
    }
    assert!(!data.exists(), "{error}");
}

/// Each of these once hid the ones after it.
#[test]
fn every_error_of_tokens_and_signers_is_reported_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("tribunal.toml");
    let config = "[auth.jwt]\nalgorithm = \"none\"\naudience = \"\"\nkey_file = \"/nowhere/jwt\"\n\
                  [[uploads.signers]]\nname = \"a\"\nkey_file = \"/nowhere/a\"\n\
                  [[uploads.signers]]\nname = \"a\"\nkey_file = \"/nowhere/b\"\n";
    std::fs::write(&file, config).expect("written");
    let checked = run(&["config", "check", "--config", file.to_str().expect("a path")]);
    let error = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{error}");
    for fault in [
        "`auth.jwt`: `audience` must not be empty",
        "`auth.jwt.key_file`: cannot read /nowhere/jwt: ",
        "`auth.jwt`: `algorithm` is `none`, not EdDSA",
        "`uploads.signers`: a: `key_file`: cannot read /nowhere/a: ",
        "`uploads.signers`: a: names must have 1 to",
        "`uploads.signers`: a: `key_file`: cannot read /nowhere/b: ",
    ] {
        assert!(error.contains(fault), "{fault} is missing:\n{error}");
    }
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(&dir.path().join("data"));
    assert_eq!(node.put_row("k", 1)["status"], "committed");
    let url = ["--url", &node.url];
    let remote: &[&[&str]] = &[
        &["plugin", "ls"],
        &["store", "ls"],
        &["store", "get", "k"],
        &["store", "skips", "kv"],
        &["consumer", "ls"],
        &["key", "ls"],
        &["log", "tail"],
        &["plugin", "ls", "--json"],
    ];
    let local: &[&[&str]] =
        &[&[], &["config", "print"], &["config", "print", "--json"], &["completions", "bash"], &["--help"]];
    let all = remote.iter().map(|words| [*words, &url].concat()).chain(local.iter().map(|words| words.to_vec()));
    for words in all {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = tribunal(&words).stdout(writer).output().expect("the binary runs");
        let printed = text(&output.stderr);
        assert!(
            !printed.contains("panicked") && output.status.code().is_some_and(|code| code != 101),
            "{words:?}: {printed}"
        );
    }
}

#[test]
fn the_printed_configuration_is_explained_and_loads_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("tribunal.toml");
    let printed = run(&["config", "print"]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    std::fs::write(&file, &printed.stdout).expect("written");
    let again = run(&["config", "print", "--config", file.to_str().expect("a path")]);
    assert_eq!(text(&again.stdout), text(&printed.stdout), "{}", text(&again.stderr));
    let printed = text(&printed.stdout);
    let mut above = "";
    for line in printed.lines() {
        if !line.is_empty() && !line.starts_with('#') {
            assert!(above.starts_with("# "), "no explanation of `{line}`:\n{printed}");
        }
        above = line;
    }
}

#[test]
fn an_address_in_use_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let error = error_of(&["dev", "--listen", &address, "--data", data.to_str().expect("a path")]);
    for part in [address.as_str(), "--listen", "port 0"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    assert!(!data.exists(), "nothing was created");
}

#[test]
fn a_data_directory_in_use_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let node = Node::start(&data);
    let data = data.to_str().expect("a path");
    let error = error_of(&["dev", "--listen", "127.0.0.1:0", "--data", data]);
    let in_use = format!("{data}/log is in use by process {}; stop that one", node.pid());
    assert!(error.contains(&in_use), "{error}");
}

#[test]
fn a_service_that_cannot_be_reached_is_named_with_its_address() {
    let port = support::cluster::free_port();
    let url = format!("http://127.0.0.1:{port}");
    for words in [&["store", "ls", "--url", &url][..], &["demo", "bank", "--url", &url]] {
        let error = error_of(words);
        assert!(error.contains(&url) || error.contains(&port.to_string()), "{words:?}: {error}");
    }
}

#[test]
fn a_change_of_a_cluster_ends_in_time_although_a_node_hangs() {
    // Like a stopped process: the system accepts connections, and no process responds.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", hanging.local_addr().expect("an address"));
    for (change, told) in [("drain", "no node has accepted the draining"), ("remove", "has not begun")] {
        let begun = Instant::now();
        let error = error_of(&["cluster", change, "2", "--url", &url, "--timeout-s", "1"]);
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(error.contains(told) && error.contains("within 1 s"), "{error}");
    }
}

#[test]
fn the_demo_has_a_time_series() {
    let output = run(&["demo", "bank", "--seconds", "2", "--accounts", "100", "--clients", "2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let series = result["series"].as_array().expect("a series");
    assert_eq!(series.len(), 2, "an entry a second: {result}");
    for (at, entry) in series.iter().enumerate() {
        assert_eq!(entry["second"], at + 1);
        assert!(
            entry["committed"].is_u64() && entry["aborted"].is_u64() && entry["commit_us"]["p99"].is_u64(),
            "{entry}"
        );
    }
}

#[test]
fn log_lines_are_json_objects_if_the_configuration_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = tribunal(&["dev", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(dir.path().join("data")).env("TRIBUNAL__LOG_FORMAT", "json");
    let node = Node::spawn(command).unwrap_or_else(|error| panic!("{error}"));
    node.signal("TERM");
    let (status, log) = node.ended();
    assert!(status.success(), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let stopping = lines.iter().find(|line| line["fields"]["message"] == "stopping").expect("it stops");
    assert_eq!(
        (&stopping["level"], &stopping["target"]),
        (&Value::from("INFO"), &Value::from("tribunal::node")),
        "{log}"
    );
    assert!(stopping["timestamp"].is_string() && stopping.get("node").is_none(), "{stopping}");
    let starting = &lines[0]["fields"];
    assert_eq!(starting["message"], "starting", "{log}");
    assert_eq!((&starting["version"], &starting["listen"]), (&env!("CARGO_PKG_VERSION").into(), &"127.0.0.1:0".into()));
    assert_eq!(starting["data"], dir.path().join("data").to_str().expect("a path"));
    assert!(starting.get("config").is_none() && starting.get("node").is_none(), "{starting}");

    // A member of a cluster has its number in each line.
    let mut cluster = support::cluster::Cluster::prepare(1);
    let mut command = cluster.command(1);
    command.env("TRIBUNAL__LOG_FORMAT", "json");
    cluster.insert(1, Node::spawn(command).unwrap_or_else(|error| panic!("{error}")));
    let node = cluster.take(1);
    node.signal("TERM");
    let (status, log) = node.ended();
    assert!(status.success() && !log.is_empty(), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.iter().all(|line| line["node"] == 1), "{log}");
    let (starting, file) = (&lines[0]["fields"], cluster.node_dir(1).join("tribunal.toml"));
    assert_eq!(starting["config"], file.to_str().expect("a path"), "{log}");
    assert_eq!((&starting["cluster"], &starting["node"]), (&"test".into(), &1.into()), "{log}");

    let mut refused = tribunal(&["dev", "--listen", "127.0.0.1:0"]);
    let error = text(&refused.env("TRIBUNAL__LOG_FORMAT", "xml").output().expect("it runs").stderr);
    assert!(error.contains("log_format") || error.contains("LOG_FORMAT"), "{error}");
    assert!(error.contains("`text`") && error.contains("`json`"), "{error}");
}

#[test]
fn the_reason_for_which_a_node_ends_has_the_form_of_its_log_lines() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("tribunal.toml");
    let reason = |config: &str, level: &str| {
        std::fs::write(&file, config).expect("written");
        let mut command = tribunal(&["serve", "--config", file.to_str().expect("a path")]);
        let output = command.env("TRIBUNAL_LOG", level).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let config = format!("listen = \"{address}\"\ndata = {:?}\n", dir.path().join("data"));
    for (config, expected) in [
        (config.clone(), format!("cannot listen on {address}")),
        // Errors of the configuration itself, one of which hides the rest of the file.
        (config.clone() + "shard = 2\n", "`shard` is no setting".to_owned()),
        (config.clone() + "shards = 0\n", "`shards` is 0".to_owned()),
    ] {
        for level in ["info", "off"] {
            let plain = reason(&config, level);
            let last = plain.lines().last().expect("a reason");
            assert!(last.starts_with("tribunal: ") && last.contains(&expected), "{plain}");
            let log = reason(&format!("log_format = \"json\"\n{config}"), level);
            let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
            let last = lines.last().expect("a reason");
            assert!(last["fields"]["message"].as_str().is_some_and(|reason| reason.contains(&expected)), "{log}");
            assert_eq!((&last["level"], &last["target"]), (&Value::from("ERROR"), &Value::from("tribunal")), "{log}");
            assert!(last["timestamp"].is_string() && last.get("node").is_none(), "{log}");
        }
    }
    let log = reason("log_format = \"json\"\n[cluster]\nnode = 3\nnam = \"c\"", "info");
    let last: Value = serde_json::from_str(log.lines().last().expect("a reason")).expect("JSON");
    assert_eq!(last["node"], 3, "{log}");
}

#[test]
fn a_configuration_is_checked_without_a_node() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, data) = (dir.path().join("tribunal.toml"), dir.path().join("data"));
    let check = |config: &str, more: &[&str]| {
        std::fs::write(&file, config).expect("written");
        run(&[&["config", "check", "--config", file.to_str().expect("a path")][..], more].concat())
    };
    // The address is in use, as if the node were running.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let right = format!("listen = \"{}\"\ndata = {data:?}\n", taken.local_addr().expect("its address"));
    let well = check(&right, &[]);
    assert_eq!((well.status.code(), &*text(&well.stderr)), (Some(0), ""));
    let printed = text(&well.stdout);
    assert!(right.lines().all(|line| printed.contains(line)) && printed.contains("retention_hours = 24"), "{printed}");
    assert!(!data.exists());

    let wrong =
        format!("{right}shards = 0\n[tls]\ncert_file = \"/nowhere/cert.pem\"\nkey_file = \"/nowhere/key.pem\"\n");
    let ill = check(&wrong, &[]);
    assert_eq!((ill.status.code(), &*text(&ill.stdout)), (Some(2), ""));
    let errors = text(&ill.stderr);
    assert!(errors.contains("`shards` is 0") && errors.contains("`tls.cert_file`"), "{errors}");
    assert!(errors.lines().count() == 3 && errors.lines().all(|line| line.starts_with("tribunal: ")), "{errors}");
    let json: Value = serde_json::from_slice(&check(&wrong, &["--json"]).stdout).expect("JSON");
    assert_eq!((json["errors"].as_array().map(Vec::len), &json["config"]), (Some(3), &Value::Null), "{json}");
    assert_eq!(check("shard = 2", &[]).status.code(), Some(2));

    for (doubtful, fault) in [
        (format!("listen = \"127.0.0.1:7\"\ndata = {file:?}\n"), "which is not a directory"),
        (format!("{right}[[push.credentials]]\nendpoint = \"10.1.0.5\"\nuser = \"shop\"\n"), "is not host:port"),
    ] {
        let told = text(&check(&doubtful, &[]).stderr).to_string();
        assert!(told.contains(fault), "{told}");
    }
    let doubtful = check("listen = \"0.0.0.0:7420\"\n[auth]\nrequired = true\n", &[]);
    let warned = text(&doubtful.stderr);
    assert!(doubtful.status.success() && warned.starts_with("tribunal: warning: API keys are sent unenc"), "{warned}");
    std::fs::remove_file(&file).expect("it was there");
    let missing = run(&["config", "check", "--config", file.to_str().expect("a path")]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
}

#[test]
fn ports_of_a_local_cluster_that_are_in_use_are_named_and_the_last_flag_counts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let data = data.to_str().expect("a path");
    let error = error_of(&["cluster", "up", "--port", "1", "--port", &port, "--data", data]);
    for part in [&*format!("cannot listen on 127.0.0.1:{port}"), "--port; 0 takes free ones", "3 nodes from --port"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    assert!(!std::path::Path::new(data).exists(), "nothing was created");
    // A cluster must not use the data of a node that runs alone.
    std::fs::create_dir_all(dir.path().join("alone/log")).expect("a directory");
    let alone = dir.path().join("alone");
    let error = error_of(&["cluster", "up", "--port", "0", "--data", alone.to_str().expect("a path")]);
    assert!(error.contains("of a node that runs alone") && error.contains("cluster adopt"), "{error}");
    // Flags that may be repeated keep all of their values.
    let out = dir.path().join("files");
    let out = out.to_str().expect("a path");
    let two = ["--node", "1=127.0.0.1", "--node", "2=127.0.0.2"];
    let made = run(&[&["cluster", "certificates", "--name", "a", "--name", "orders", "--out", out][..], &two].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let config = std::fs::read_to_string(format!("{out}/node-2/tribunal.toml")).expect("both nodes");
    assert!(config.contains("name = \"orders\""), "{config}");
}

#[test]
fn a_node_that_listens_elsewhere_than_the_others_connect_warns_at_its_start() {
    let cluster = support::cluster::Cluster::prepare(1);
    let log = |cluster: &support::cluster::Cluster| {
        let node = Node::spawn(cluster.command(1)).unwrap_or_else(|error| panic!("{error}"));
        node.signal("TERM");
        node.ended().1
    };
    let usual = log(&cluster);
    assert!(!usual.contains("cluster.listen"), "{usual}");
    let file = cluster.node_dir(1).join("tribunal.toml");
    let config = std::fs::read_to_string(&file).expect("written");
    let address = config.split("address = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    let elsewhere = support::cluster::free_address();
    let changed = config.replacen(&format!("listen = \"{address}\""), &format!("listen = \"{elsewhere}\""), 1);
    std::fs::write(&file, changed).expect("written");
    let warned = log(&cluster);
    assert!(warned.contains(&format!("`cluster.listen` is {elsewhere}")) && warned.contains(address), "{warned}");
}

#[test]
fn a_wrong_log_filter_is_refused_with_an_example() {
    let output =
        tribunal(&["dev", "--listen", "127.0.0.1:0"]).env("TRIBUNAL_LOG", "tribunal=loud").output().expect("it runs");
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("TRIBUNAL_LOG") && error.contains("debug"), "{error}");
}

#[test]
fn hints_are_commands_that_work() {
    let dir = tempfile::tempdir().expect("a folder");
    let made = tribunal(&["plugin", "new", "--world", "conflict-rule", "mine"])
        .current_dir(dir.path())
        .output()
        .expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let printed = text(&made.stdout);
    let program = env!("CARGO_BIN_EXE_tribunal");
    let hints: Vec<Vec<&str>> = printed
        .lines()
        .filter_map(|line| Some(line.trim().strip_prefix(program)?.split_whitespace().collect()))
        .collect();
    assert!(hints.len() >= 4, "build, test, push and activate:\n{printed}");
    for hint in hints {
        // Checks only that the words are a command; the README's test runs them.
        let parsed = tribunal(&[&hint[..], &["--help"]].concat()).output().expect("it runs");
        assert!(parsed.status.success(), "{hint:?} is no command: {}", text(&parsed.stderr));
    }
}

#[test]
fn a_configuration_of_a_plugin_that_is_no_json_object_is_refused() {
    for command in ["test", "push"] {
        for (config, expected) in [("{turns: 3}", "--config is not JSON: "), ("[3]", "--config is not a JSON object")] {
            let error = error_of(&["plugin", command, "/no/such/folder", "--config", config]);
            assert!(error.contains(expected), "{command}: {error}");
        }
        let error = error_of(&["plugin", command, "/no/such/folder", "--config", "{\"turns\": 3}"]);
        assert!(error.contains("/no/such/folder"), "{command}: {error}");
    }
}

#[test]
fn a_digest_that_is_none_is_refused_with_the_reason() {
    for (digest, expected) in [
        ("zz", "`z` is not a hexadecimal digit; a digest has 64 hexadecimal digits"),
        ("abc", "it has 3 digits; a digest has 64 hexadecimal digits"),
        ("1234567", "of which the first 8 are enough"),
        (&"a".repeat(65), "it has 65 digits"),
    ] {
        for command in [&["plugin", "activate", "fair"][..], &["plugin", "rm", "fair"]] {
            let error = error_of(&[command, &["--digest", digest]].concat());
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn stores_are_declared_and_shown() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    let url = node.url.clone();
    let store = |arguments: &[&str]| run(&[&["store"], arguments, &["--url", &url]].concat());
    let shown = |name: &str| text(&store(&["show", name]).stdout);

    let declared = store(&["declare", "orders", "--transactional", "--multi-version", "--declared-existence"]);
    assert!(declared.status.success(), "{}", text(&declared.stderr));
    assert!(text(&declared.stdout).starts_with("orders: log_only, acknowledged 0 of 0"), "{}", text(&declared.stdout));
    let printed = shown("orders");
    for line in ["adaptor          -", "existence        declared", "multi-version    true", "transactional    true"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    // A store keeps this until it is explicitly removed.
    let declare = |flags: &[&str]| store(&[&["declare", "orders", "--declared-existence"], flags].concat());
    let error = text(&declare(&["--transactional"]).stderr);
    assert!(error.contains("--multi-version to keep") && error.contains("--multi-version=false"), "{error}");
    assert!(shown("orders").contains("multi-version    true"));
    assert!(declare(&["--multi-version"]).status.success());
    assert!(shown("orders").contains("multi-version    true"));
    assert!(declare(&["--multi-version=false"]).status.success());
    assert!(shown("orders").contains("multi-version    false"));
    let error = text(&store(&["declare", "orders", "--multi-version=false"]).stderr);
    assert!(error.contains("--declared-existence to keep") && error.contains("--declared-existence=false"), "{error}");
    let omitted = node.put("/v1/stores/orders", &serde_json::json!({}));
    assert_eq!((omitted.status, &omitted.body["code"]), (422, &Value::from("existence_omitted")), "{}", omitted.body);
    assert!(shown("orders").contains("existence        declared"));
    assert!(store(&["declare", "orders", "--declared-existence=false"]).status.success());
    assert!(shown("orders").contains("existence        tracked"));
    // Omitted settings have their defaults.
    assert!(store(&["declare", "carts", "--adaptor", "kv"]).status.success());
    let printed = shown("carts");
    assert!(printed.contains("adaptor          kv") && printed.contains("existence        tracked"), "{printed}");
    let json = store(&["show", "carts", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["store"], &json["adaptor"]), (&Value::from("carts"), &Value::from("kv")));
    assert!(text(&store(&["ls"]).stdout).contains("carts"));

    // An adaptor is removed only on request, both by the command line and by the API.
    let error = text(&store(&["declare", "carts"]).stderr);
    assert!(error.contains("`--adaptor kv`") && error.contains("--log-only"), "{error}");
    let row = serde_json::json!({"writes": [{"op": "put", "store": "carts", "key": "a", "value": 1}]});
    assert_eq!(node.commit(&row).status, 200);
    let omitted = node.put("/v1/stores/carts", &serde_json::json!({"multi_version": false}));
    assert_eq!((omitted.status, &omitted.body["code"]), (422, &Value::from("adaptor_omitted")), "{}", omitted.body);
    assert_eq!(node.get("/v1/stores/carts/rows/a").body["value"], 1);
    assert!(store(&["declare", "carts", "--log-only"]).status.success());
    assert!(shown("carts").contains("adaptor          -"));
    assert_eq!(node.put("/v1/stores/carts", &serde_json::json!({"adaptor": "kv"})).status, 200);

    // A storage that has not responded yet is not reported as running, and a refusal is reported at once.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = |address: std::net::SocketAddr| format!("{{\"endpoint\": \"{address}\"}}");
    let config = endpoint(hanging.local_addr().expect("an address"));
    let starting = text(&store(&["declare", "slow", "--adaptor", "redis", "--config", &config]).stdout);
    assert!(starting.starts_with("slow: starting, acknowledged 0"), "{starting}");
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let refused = text(&store(&["declare", "gone", "--adaptor", "redis", "--config", &endpoint(gone)]).stdout);
    assert!(refused.starts_with("gone: backing_off: ") && refused.contains("refused"), "{refused}");

    let error = text(&store(&["declare", "x", "--adaptor", "redis", "--config", "endpoint"]).stderr);
    assert!(error.contains("--config is not JSON"), "{error}");
    let error = text(&store(&["declare", "x", "--adaptor", "nowhere"]).stderr);
    assert!(error.contains("nowhere"), "{error}");
    assert!(text(&store(&["show", "nowhere"]).stderr).contains("nowhere"));
}

#[test]
fn values_are_printed_as_they_were_posted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    // Details that no JSON library preserves: digits, the order of members, a repeated one, escapes.
    let value = r#"{"z":12345678901234567890123.5,"a":1.10,"d":1,"d":2,"e":"\u00e9"}"#;
    let writes = [format!(r#""key":"exact","value":{value}"#), r#""key_b64":"/w==","value":1"#.to_owned()]
        .map(|write| format!(r#"{{"op":"put","store":"kv",{write}}}"#))
        .join(",");
    let body = format!(r#"{{"writes":[{writes}]}}"#);
    let address = node.url.strip_prefix("http://").expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let path = format!("/v1/txns/{}/commit", new_id());
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json");
    std::io::Write::write_all(
        &mut stream,
        format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
    )
    .expect("sent");
    let response = std::io::read_to_string(stream).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200") && response.contains(r#""status":"committed""#), "{response}");
    let printed = |words: &[&str]| text(&run(&[words, &["--url", &node.url]].concat()).stdout);
    assert_eq!(printed(&["store", "get", "exact"]), format!("{value}\n"));
    let row = printed(&["store", "get", "exact", "--json"]);
    assert!(row.starts_with(&format!(r#"{{"store":"kv","key":"exact","value":{value},"version":""#)), "{row}");
    assert!(printed(&["log", "tail"]).contains(&format!("put exact = {value}\n")));
    let record = printed(&["log", "tail", "--json"]);
    assert!(record.contains(&format!(r#"{{"op":"put","key":"exact","value":{value}}}"#)), "{record}");
    assert!(record.contains(r#"{"op":"put","key_b64":"/w==","value":1}"#), "{record}");
    assert!(record.contains(r#""lsn":"1","prev_lsn":"0","#) && record.contains(r#""checksum":""#), "{record}");
    assert!(text(&run(&["store", "get", "none", "--url", &node.url]).stderr).contains("has no row `none`"));
    let unknown = text(&run(&["store", "get", "k", "--store", "a b/c?d", "--url", &node.url]).stderr);
    assert!(unknown.contains(r#"there is no store "a b/c?d""#), "{unknown}");
}
