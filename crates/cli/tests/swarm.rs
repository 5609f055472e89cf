//! The real program in swarms of two on this host: share and get, seed and get, tickets, Ctrl-C.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A command of one node, which has a home of its own.
fn tidecast(dir: &Path, node: &str, words: &[&str]) -> Command {
    let home = dir.join(node);
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidecast"));
    command.args(words).current_dir(dir).env_clear().env("HOME", home).env("TIDECAST_LSD", "false");
    command
}

/// A process that is ended when the test is, whatever happened.
struct Running(Child, BufReader<ChildStdout>);

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(child, out)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn interrupt(&mut self) -> i32 {
        let pid = i32::try_from(self.0.id()).unwrap();
        let killed = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ok(output: Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    out.into_owned()
}

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn tree(dir: &Path) {
    let data = dir.join("data");
    std::fs::create_dir_all(data.join("a")).unwrap();
    let big: Vec<u8> =
        (0..700_000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()).collect();
    std::fs::write(data.join("big.bin"), &big).unwrap();
    std::fs::write(data.join("a/small"), "small").unwrap();
}

fn same(dir: &Path, got: &str) {
    for name in ["big.bin", "a/small"] {
        let (a, b) = (dir.join("data").join(name), dir.join(got).join("data").join(name));
        assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap(), "{name}");
    }
}

#[test]
fn share_and_get_with_the_ticket_until_it_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let mut owner = Running::start(tidecast(dir, "owner", &["share", "data", "--listen", "127.0.0.1:0"]));
    let ticket = owner.line();
    assert!(ticket.starts_with("tidecast1"), "{ticket}");
    let get = |to| {
        tidecast(dir, "member", &["get", &ticket, "--to", to, "--json", "--timeout", "60s"]).output().unwrap()
    };
    let done = last(&ok(get("got")));
    same(dir, "got");
    assert_eq!(done["event"], "done");
    assert_eq!(done["received"], 2_800_005);
    assert_eq!(done["peers"][0]["received"], 2_800_005);
    assert_eq!(done["files"], 2);
    let said = ok(tidecast(dir, "owner", &["revoke", &ticket]).output().unwrap());
    assert!(said.contains("revoked"));
    let refused = get("again");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let event = last(&String::from_utf8_lossy(&refused.stdout));
    assert!(event["message"].as_str().unwrap().contains("revoked"), "{event}");
    assert!(!dir.join("again/data").exists());
    assert_eq!(owner.interrupt(), 0, "being told to stop is the normal end of a seed");
}

#[test]
fn seed_and_get_an_open_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    ok(tidecast(dir, "owner", &["publish", "data"]).output().unwrap());
    let words = ["seed", "data.torrent", "data", "--listen", "127.0.0.1:0", "--json"];
    let mut seed = Running::start(tidecast(dir, "owner", &words));
    let started: Value = serde_json::from_str(&seed.line()).unwrap();
    let at = started["listen"][0].as_str().unwrap();
    let words = ["get", "data.torrent", "--to", "got", "--peer", at, "--timeout", "60s"];
    let output = tidecast(dir, "getter", &words).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("open BitTorrent"), "{output:?}");
    assert!(ok(output).contains("every piece verified"));
    same(dir, "got");
    let words = [
        "get",
        "data.torrent",
        "--to",
        "some",
        "--peer",
        at,
        "--timeout",
        "60s",
        "--file",
        "small",
        "--plain",
    ];
    ok(tidecast(dir, "getter", &words).output().unwrap());
    assert!(dir.join("some/data/a/small").exists() && !dir.join("some/data/big.bin").exists());
    drop(seed);
    let words = ["get", "data.torrent", "--to", "got", "--timeout", "60s"];
    assert!(ok(tidecast(dir, "getter", &words).output().unwrap()).contains("no data was fetched"));
}

#[test]
fn a_magnet_link_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let words = ["share", "data", "--plain", "--listen", "127.0.0.1:0", "--json"];
    let mut seed = Running::start(tidecast(dir, "owner", &words));
    let started: Value = serde_json::from_str(&seed.line()).unwrap();
    assert_eq!(started["event"], "started");
    let (magnet, at) = (started["magnet"].as_str().unwrap(), started["listen"][0].as_str().unwrap());
    let words = ["get", magnet, "--to", "got", "--peer", at, "--timeout", "60s"];
    ok(tidecast(dir, "getter", &words).output().unwrap());
    same(dir, "got");
    let ticket = started["ticket"].as_str().unwrap();
    let output =
        tidecast(dir, "other", &["get", ticket, "--to", "ticket", "--timeout", "60s"]).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("open BitTorrent"),
        "the publisher has said so"
    );
    ok(output);
    same(dir, "ticket");
}

#[test]
fn an_ssl_torrent_is_for_holders_of_its_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let words = ["publish", "data", "-o", "m", "--ssl-torrent", "--ssl-export", "cert"];
    ok(tidecast(dir, "owner", &words).output().unwrap());
    let mut seed =
        Running::start(tidecast(dir, "owner", &["seed", "m", "data", "--listen", "127.0.0.1:0", "--json"]));
    let started: Value = serde_json::from_str(&seed.line()).unwrap();
    let at = started["listen"][0].as_str().unwrap();
    let words = ["get", "m", "--to", "got", "--peer", at, "--timeout", "60s"];
    let output = tidecast(dir, "thief", &words).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--ssl-cert"), "{output:?}");
    let with = [&words[..], &["--ssl-cert", "cert/peer.crt", "--ssl-key", "cert/peer.key"]].concat();
    ok(tidecast(dir, "getter", &with).output().unwrap());
    same(dir, "got");
}

#[test]
fn nobody_there_is_3() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    ok(tidecast(dir, "owner", &["publish", "data"]).output().unwrap());
    let words = ["get", "data.torrent", "--to", "got", "--timeout", "1s", "--json"];
    let output = tidecast(dir, "getter", &words).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let event = last(&String::from_utf8_lossy(&output.stdout));
    assert_eq!((&event["event"], &event["code"]), (&"error".into(), &3.into()));
}

#[test]
fn a_private_manifest_is_no_ticket_and_no_file_of_that_name_is_1() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    ok(tidecast(dir, "owner", &["publish", "data", "--private", "-o", "p"]).output().unwrap());
    let output = tidecast(dir, "thief", &["get", "p", "--to", "got"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ticket"), "{output:?}");
    ok(tidecast(dir, "owner", &["publish", "data", "-o", "o"]).output().unwrap());
    let output =
        tidecast(dir, "getter", &["get", "o", "--to", "got", "--file", "*.nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("*.nothing"), "{output:?}");
}

#[test]
fn a_tracker_says_where_it_is_and_stops_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut tracker = Running::start(tidecast(dir.path(), "t", &["tracker", "--listen", "127.0.0.1:0"]));
    let line = tracker.line();
    assert!(line.contains("http://127.0.0.1:") && line.contains("udp://127.0.0.1:"), "{line}");
    assert_eq!(tracker.interrupt(), 0);
}
