//! The real program as used by people and scripts: exit codes, output, JSON, help.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `tidecast WORDS` in `dir`, with a home of its own there and nothing of the caller's settings.
fn tidecast(dir: &Path, words: &[&str]) -> Output {
    command(dir, words).output().unwrap()
}

fn command(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidecast"));
    command.args(words).current_dir(dir).env_clear().env("HOME", dir.join("home")).env("NO_COLOR", "1");
    command
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn done(output: Output) -> String {
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    out(&output)
}

fn events(output: &Output) -> Vec<Value> {
    out(output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// A small tree with the usual oddities.
fn tree(dir: &Path) {
    let data = dir.join("data");
    std::fs::create_dir_all(data.join("a/empty")).unwrap();
    let big: Vec<u8> =
        (0..300_000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()).collect();
    std::fs::write(data.join("big.bin"), &big).unwrap();
    std::fs::write(data.join("a/small"), "small").unwrap();
    std::fs::write(data.join("zero"), "").unwrap();
    std::os::unix::fs::symlink("small", data.join("a/link")).unwrap();
}

#[test]
fn wrong_usage_is_2_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &[][..],
        &["frobnicate"],
        &["publish"],
        &["publish", ".", "--format", "v9"],
        &["publish", ".", "--piece-size", "3"],
        &["publish", ".", "--piece-size", "10M"],
        &["publish", ".", "--exclude", "[", "--name", "x"],
        &["publish", ".", "--tracker", "gopher://x"],
        &["get", "m"],
        &["get", "m", "--to", "d", "--timeout", "soon"],
        &["get", "tidecast1nonsense", "--to", "d"],
        &["get", "magnet:?nothing", "--to", "d"],
        &["seed", "m", "p", "--listen", "nowhere"],
        &["seed", "m", "p", "--net", "10.0.0.0/99"],
        &["revoke", "nonsense"],
        &["ca", "issue", "d", "nonsense"],
        &["show", "m", "--config", "absent.toml"],
    ] {
        let output = tidecast(dir.path(), words);
        assert_eq!(code(&output), 2, "{words:?}: {}", err(&output));
        assert!(!err(&output).is_empty(), "{words:?}");
    }
}

#[test]
fn bad_data_is_1_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("junk"), vec![b'd'; 5000]).unwrap();
    let deep = "l".repeat(1_000_000);
    std::fs::write(dir.path().join("deep"), format!("d4:info{deep}")).unwrap();
    std::fs::write(dir.path().join("giant"), "d4:infod6:pieces10000000000:").unwrap();
    for file in ["junk", "deep", "giant", "absent"] {
        for words in
            [&["show", file][..], &["verify", file, "."], &["seed", file, "."], &["get", file, "--to", "d"]]
        {
            let output = tidecast(dir.path(), words);
            assert_eq!(code(&output), 1, "{words:?}: {}", err(&output));
            assert!(err(&output).contains(file), "{words:?}: {}", err(&output));
        }
    }
    let output = tidecast(dir.path(), &["publish", "absent"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("absent"));
}

#[test]
fn a_path_out_of_the_tree_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let info = format!(
        "d5:filesld6:lengthi1e4:pathl2:..6:passwdeee4:name1:x12:piece lengthi16384e6:pieces20:{}e",
        "a".repeat(20)
    );
    std::fs::write(dir.path().join("evil"), format!("d4:info{info}e")).unwrap();
    let output = tidecast(dir.path(), &["show", "evil", "--json"]);
    assert_eq!(code(&output), 1);
    let last = events(&output).pop().unwrap();
    assert_eq!((&last["event"], &last["code"]), (&"error".into(), &1.into()));
    assert!(last["message"].as_str().unwrap().contains(".."), "{last}");
}

#[test]
fn publish_show_verify() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for format in ["v1", "v2", "hybrid", "auto"] {
        let words = ["publish", "data", "-o", "m.torrent", "--format", format, "--json"];
        let output = tidecast(dir.path(), &words);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let all = events(&output);
        assert_eq!(all[0]["event"], "started");
        let last = all.last().unwrap();
        assert_eq!(last["event"], "done");
        assert_eq!(last["bytes"], 1_200_005);
        let shown = done(tidecast(dir.path(), &["show", "m.torrent"]));
        assert!(shown.contains("data/a/small") && shown.contains("big.bin"), "{shown}");
        let shown: Value =
            serde_json::from_str(&done(tidecast(dir.path(), &["show", "m.torrent", "--json"]))).unwrap();
        assert_eq!(shown["name"], "data");
        assert_eq!(shown["hash_v2"].is_string(), format != "v1");
        let good = done(tidecast(dir.path(), &["verify", "m.torrent", "data"]));
        assert!(good.contains("matches the manifest"), "{good}");
    }
}

#[test]
fn verify_lists_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    done(tidecast(dir.path(), &["publish", "data"]));
    let data = dir.path().join("data");
    let mut big = std::fs::read(data.join("big.bin")).unwrap();
    big[777_777] ^= 1;
    std::fs::write(data.join("big.bin"), big).unwrap();
    std::fs::remove_file(data.join("a/small")).unwrap();
    std::fs::write(data.join("surplus"), "?").unwrap();
    let human = tidecast(dir.path(), &["verify", "data.torrent", "data"]);
    assert_eq!(code(&human), 1);
    for name in ["big.bin", "a/small", "surplus"] {
        assert!(out(&human).contains(name), "{}", out(&human));
    }
    assert!(!out(&human).contains("zero"));
    let json = tidecast(dir.path(), &["verify", "data.torrent", "data", "--json"]);
    assert_eq!(code(&json), 1);
    let last = events(&json).pop().unwrap();
    assert_eq!(last["event"], "error");
    assert_eq!(last["damaged"], serde_json::json!(["big.bin"]));
    assert_eq!(last["missing"], serde_json::json!(["a/small"]));
    assert_eq!(last["extra"], serde_json::json!(["surplus"]));
}

#[test]
fn an_open_manifest_is_said_to_be_open_unless_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let said = |words: &[&str]| err(&tidecast(dir.path(), words));
    assert!(said(&["publish", "data"]).contains("open BitTorrent"));
    for words in
        [&["publish", "data", "--plain"][..], &["publish", "data", "--private"], &["publish", "data", "-q"]]
    {
        assert!(!said(words).contains("open BitTorrent"), "{words:?}");
    }
}

#[test]
fn settings_come_from_flags_then_environment_then_file() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    std::fs::write(dir.path().join("c.toml"), "piece_size = \"64KiB\"").unwrap();
    let publish = |environment: Option<&str>, flags: &[&str]| {
        let mut command = command(dir.path(), &["publish", "data", "-o", "m", "--json"]);
        command.args(flags).env("TIDECAST_CONFIG", "c.toml");
        if let Some(size) = environment {
            command.env("TIDECAST_PIECE_SIZE", size);
        }
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        events(&output).last().unwrap()["piece_length"].as_u64().unwrap()
    };
    assert_eq!(publish(None, &[]), 64 << 10);
    assert_eq!(publish(Some("32KiB"), &[]), 32 << 10);
    assert_eq!(publish(Some("32KiB"), &["--piece-size", "128KiB"]), 128 << 10);
    std::fs::write(dir.path().join("c.toml"), "piece_sise = 1").unwrap();
    let output = tidecast(dir.path(), &["show", "m", "--config", "c.toml"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("c.toml") && err(&output).contains("piece_sise"), "{}", err(&output));
}

#[test]
fn help_teaches_every_command_and_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let help = done(tidecast(dir.path(), &["--help"]));
    for word in ["publish", "show", "verify", "seed", "share", "get", "tracker", "revoke", "ca"] {
        assert!(help.contains(&format!("\n  {word} ")), "{word} is not in the list:\n{help}");
        assert!(done(tidecast(dir.path(), &[word, "--help"])).contains("Example"), "{word}");
    }
    for words in ["Exit codes:", "timed out", "TIDECAST_CONFIG", "tidecast get @ticket"] {
        assert!(help.contains(words), "{words}");
    }
    let short = done(tidecast(dir.path(), &["-V"]));
    assert_eq!(short, concat!("tidecast ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = done(tidecast(dir.path(), &["--version"]));
    assert!(long.starts_with(&short) && long.contains("\ncommit: ") && long.contains("\ntarget: "), "{long}");
}

#[test]
fn manual_pages_and_completions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    done(tidecast(dir.path(), &["man", "man1"]));
    let page = std::fs::read_to_string(dir.path().join("man1/tidecast.1")).unwrap();
    assert!(page.contains(".SH EXIT CODES"), "{page}");
    let get = std::fs::read_to_string(dir.path().join("man1/tidecast-get.1")).unwrap();
    assert!(get.contains("seed\\-for"));
    assert_pages_match(&dir.path().join("man1"), &done(tidecast(dir.path(), &["--help"])));
    for shell in ["bash", "zsh", "fish"] {
        assert!(done(tidecast(dir.path(), &["completions", shell])).contains("publish"));
    }
}

/// Each page that a page names exists, each page is named by another, and commands of the help have one, internal ones none.
fn assert_pages_match(dir: &Path, help: &str) {
    let files =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.collect();
    let mut named = BTreeSet::from(["tidecast.1".to_owned()]);
    for file in &files {
        let text = std::fs::read_to_string(dir.join(file)).unwrap().replace('\\', "");
        assert!(text.contains(&format!("\n.TH {} 1", file.trim_end_matches(".1"))), "{file}");
        named.extend(
            text.split_whitespace().filter_map(|word| Some(format!("{}.1", word.strip_suffix("(1)")?))),
        );
    }
    assert_eq!(files, named);
    for page in ["tidecast-cache-get.1", "tidecast-daemon-init.1", "tidecast-field-view.1"] {
        assert!(files.contains(page), "{page}");
    }
    for file in files.iter().filter(|file| file.matches('-').count() == 1) {
        let command = file.trim_start_matches("tidecast-").trim_end_matches(".1");
        assert!(help.contains(&format!("\n  {command} ")), "{command} is internal or unknown");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), &["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!err(&output).contains("panicked"), "{}", err(&output));
}

#[test]
fn a_small_site_has_its_own_ca() {
    let dir = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| tidecast(dir.path(), words);
    done(run(&["ca", "init", "ca", "--name", "Lab"]));
    assert_eq!(code(&run(&["ca", "init", "ca"])), 1, "never written over");
    let node = done(run(&["ca", "show"])).trim().to_owned();
    done(run(&["ca", "issue", "ca", "host:n1", "--node", &node]));
    assert_eq!(code(&run(&["ca", "issue", "ca", "host:n1"])), 2, "the file exists");
    done(run(&["ca", "issue", "ca", "user:alice", "-o", "a.pem", "--lifetime", "30d"]));
    let pem = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(!pem("host-n1.pem").contains("PRIVATE") && pem("a.pem").contains("PRIVATE"));
    assert!(done(run(&["ca", "show", "a.pem"])).contains("user:alice"));
    done(run(&["ca", "revoke", "ca", "host:n1"]));
    assert_eq!(code(&run(&["ca", "revoke", "ca", "host:n9"])), 1);
    done(run(&["ca", "revoke", "ca"]));
    let shown = events(&run(&["ca", "show", "ca", "--json"])).pop().unwrap();
    let certificates = shown["certificates"].as_array().unwrap();
    assert_eq!(certificates.len(), 2);
    let revoked = |c: &Value| c["revoked"].is_u64();
    assert!(certificates.iter().all(|c| revoked(c) == (c["identity"] == "host:n1")), "{shown}");
    assert_eq!(code(&run(&["ca", "show", "absent"])), 1);
}
