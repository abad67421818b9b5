//! A node with signers in its configuration only accepts and activates plugins that one of them has signed: access to
//! the API does not suffice to run code. Keys are generated with `tribunal plugin keygen`, and with OpenSSL if
//! installed.

#[path = "../../wasm/tests/hostile/mod.rs"]
mod hostile;
mod support;
#[path = "support/plugin.rs"]
mod tool;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hostile::Hostile;
use serde_json::{Value, json};
use support::Node;
use tool::{done, plugin};

/// Generates a key; returns the private file, and the flag that makes a node trust its signatures.
fn key(folder: &Path, name: &str) -> (String, String) {
    let file = folder.join(format!("{name}.pem")).display().to_string();
    let said = done(folder, &["keygen", &file]);
    assert!(said.contains("[[uploads.signers]]") && said.contains(&format!("{name}.pem.pub")), "{said}");
    let mode = std::fs::metadata(&file).expect("was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the private half is its owner's alone");
    let (ok, again) = plugin(folder, &["keygen", &file]);
    assert!(!ok && again.contains(&file), "a key is never written over: {again}");
    let flag = format!("{name}={file}.pub");
    (file, flag)
}

/// Returns two rules with the same behaviour and different bytes.
fn rules(folder: &Path) -> [PathBuf; 2] {
    [4096, 4160].map(|top| {
        let file = folder.join(format!("rule-{top}.wasm"));
        std::fs::write(&file, Hostile { pages: 64, top, ..Hostile::default() }.component()).expect("writes");
        file
    })
}

fn version(node: &Node, name: &str) -> Value {
    let found = node.get(&format!("/v1/admin/plugins/{name}"));
    if found.status == 404 { Value::Null } else { found.body["versions"][0].clone() }
}

/// Pushes a file under a name, with additional flags; returns whether that succeeded, and the output.
fn push(node: &Node, folder: &Path, file: &Path, name: &str, flags: &[&str]) -> (bool, String) {
    let file = file.display().to_string();
    plugin(folder, &[&["push", "--url", &node.url, "--name", name, &file][..], flags].concat())
}

#[test]
fn only_plugins_signed_by_a_signer_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let ((own, own_flag), (other, other_flag)) = (key(folder, "release"), key(folder, "other"));
    let [rule, other_rule] = rules(folder);
    let dir = tempfile::tempdir().expect("a folder");

    // Before any signer was configured.
    let node = Node::start(dir.path());
    let (ok, text) = push(&node, folder, &rule, "early", &["--sign", &own]);
    assert!(ok && text.contains("the service asks for no signature, so this one was not checked"), "{text}");
    assert_eq!(version(&node, "early").get("signer"), None);
    assert!(node.stop().success());

    let node = Node::try_start(dir.path(), &["--signer", &own_flag]).expect("starts");
    let refused = |said: (bool, String), why: &str| assert!(!said.0 && said.1.contains(why), "{why}: {}", said.1);
    refused(
        push(&node, folder, &other_rule, "second", &[]),
        "plugin_signature: it is not signed, and this node takes only what release signed",
    );
    refused(
        push(&node, folder, &other_rule, "second", &["--sign", &other]),
        "none of release made this signature of \"second\"",
    );
    refused(
        push(&node, folder, &other_rule, "second", &["--sign", &format!("{own}.pub")]),
        "not an unencrypted Ed25519 private key",
    );
    refused(push(&node, folder, &other_rule, "second", &["--sign", "/nowhere.pem"]), "/nowhere.pem");
    // A valid signature, but of other bytes and another name.
    let (ok, text) = push(&node, folder, &rule, "early", &["--sign", &own]);
    assert!(ok && text.contains("signed by release"), "what was there is signed later: {text}");
    let signature = version(&node, "early")["signature"].as_str().expect("is shown").to_owned();
    assert_eq!(signature.len(), 128);
    for (name, file) in [("early", &other_rule), ("second", &rule)] {
        let bytes = std::fs::read(file).expect("reads");
        let reply = node.put_wasm(&format!("/v1/admin/plugins/{name}?signature={signature}"), &bytes);
        assert_eq!((reply.status, &reply.body["code"]), (422, &json!("plugin_signature")), "{}", reply.body);
    }
    let reply = node.put_wasm("/v1/admin/plugins/second?signature=abc", b"");
    assert_eq!((reply.status, &reply.body["code"]), (400, &json!("bad_parameter")), "{}", reply.body);
    assert_eq!(version(&node, "second"), Value::Null, "nothing of it is stored");

    let (ok, text) = push(&node, folder, &other_rule, "second", &["--sign", &own]);
    assert!(ok && text.contains("signed by release"), "{text}");
    assert!(done(folder, &["ls", "--url", &node.url]).contains("signed by release"));
    done(folder, &["activate", "--url", &node.url, "second"]);
    assert!(!node.contest("a").1);
    assert!(node.stop().success());

    // Another signer: a plugin that fills a slot stays active; a newly activated one must be signed by a current
    // signer.
    let node = Node::try_start(dir.path(), &["--signer", &other_flag]).expect("starts with what is active");
    assert_eq!(version(&node, "second")["signer"], "release", "it is remembered");
    let (ok, text) = plugin(folder, &["activate", "--url", &node.url, "second"]);
    assert!(!ok && text.contains("plugin_signature: none of other made this signature"), "{text}");
    let (ok, text) = plugin(folder, &["activate", "--url", &node.url, "priority"]);
    assert!(ok, "built-in ones need none: {text}");
    let (ok, text) = plugin(folder, &["rollback", "--url", &node.url, "priority"]);
    assert!(!ok && text.contains("none of other made this signature"), "nor does it come back by a rollback: {text}");
    let (ok, text) = push(&node, folder, &other_rule, "second", &["--sign", &other]);
    assert!(ok && text.contains("signed by other"), "{text}");
    done(folder, &["activate", "--url", &node.url, "second"]);
}

#[test]
fn plugins_stored_without_a_signature_are_not_activated() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (_, flag) = key(folder, "release");
    let [rule, _] = rules(folder);
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::start(dir.path());
    assert!(push(&node, folder, &rule, "early", &[]).0);
    assert!(node.stop().success());
    let node = Node::try_start(dir.path(), &["--signer", &flag]).expect("starts");
    let (ok, text) = plugin(folder, &["activate", "--url", &node.url, "early"]);
    assert!(!ok && text.contains("it is not signed") && text.contains("then push it again"), "{text}");
    assert!(node.stop().success());
    for (flag, expected) in [
        ("release", "must be NAME=FILE"),
        ("release=/nowhere.pub", "`uploads.signers`: release: `key_file`: cannot read /nowhere.pub"),
        (&*flag.replace(".pub", ""), "there is no `-----BEGIN PUBLIC KEY-----` in it"),
    ] {
        let refusal = Node::try_start(dir.path(), &["--signer", flag]).err().expect("must not start");
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
}

#[test]
fn keys_of_openssl_can_sign() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let openssl = |arguments: &[&str]| Command::new("openssl").current_dir(folder).args(arguments).output();
    if !openssl(&["genpkey", "-algorithm", "ed25519", "-out", "k.pem"]).is_ok_and(|made| made.status.success()) {
        println!("SKIPPED: openssl with Ed25519 is needed to make its keys");
        return;
    }
    let made = openssl(&["pkey", "-in", "k.pem", "-pubout", "-out", "k.pub"]).expect("ran before");
    assert!(made.status.success());
    let [rule, _] = rules(folder);
    let dir = tempfile::tempdir().expect("a folder");
    let flag = format!("them={}", folder.join("k.pub").display());
    let node = Node::try_start(dir.path(), &["--signer", &flag]).expect("starts");
    let (ok, text) = push(&node, folder, &rule, "a-rule", &["--sign", "k.pem"]);
    assert!(ok && text.contains("signed by them"), "{text}");
    // OpenSSL also accepts the keys generated here.
    let (own, _) = key(folder, "own");
    assert!(openssl(&["pkey", "-in", &own, "-noout"]).expect("ran before").status.success());
}
