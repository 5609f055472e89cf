//! Killed at any instant, many times: acknowledged changes survive, and the store has no defects.
//!
//! The test runs itself as the victim: the child works on a store and prints each acknowledged change, a line
//! each.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use tidecast_depot::{CacheId, Depot, Filter, Reader, State};

const VICTIM: &str = "TIDECAST_DEPOT_VICTIM";

/// A generator of its own, so that a run can be told by its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn say(line: &str) {
    // One write: a line is there whole or not at all.
    std::io::stdout().write_all(format!("\n#{line}\n").as_bytes()).unwrap();
}

/// The victim's work until it is killed.
fn work(base: &Path, seed: u64) -> ! {
    let mut dice = Dice(seed);
    let depot = Depot::open(&base.join("depot"), small(600 << 10)).unwrap();
    say("open");
    let sources = base.join("sources");
    let mut now = 1_000 * seed;
    loop {
        now += 1;
        let all = depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        let any = (!all.is_empty()).then(|| all[dice.below(all.len() as u64) as usize].clone());
        match (dice.below(10), any) {
            (0, Some(r)) => {
                if depot.remove(r.id, now).is_ok() {
                    say(&format!("gone {}", r.id));
                }
            }
            (1, Some(r)) => {
                depot.extend(r.id, 100_000, now).unwrap();
            }
            (2, Some(r)) => {
                // Pinned is pinned, whatever comes; not too many, for room is needed.
                if dice.below(4) == 0 && all.iter().filter(|r| r.pinned).count() < 3 {
                    depot.pin(r.id).unwrap();
                    say(&format!("pinned {}", r.id));
                } else if r.pinned {
                    say(&format!("unpinned {}", r.id));
                    depot.unpin(r.id).unwrap();
                }
            }
            (3, _) => {
                depot.sweep(now).unwrap();
            }
            _ => {
                let source = sources.join(dice.below(8).to_string()).join("data");
                let m = manifest(&source);
                let id = depot.declare(named(&format!("n{}", dice.below(4))), now).unwrap().id;
                let alice = Reader::owner("alice");
                let tidecast_depot::Admission::Ok(r) = depot.admit(id, Some(&m), &alice, now).unwrap() else {
                    continue;
                };
                let reuse = r.reuse(&m, &alice).unwrap();
                stage(&r, &m, &source, &reuse.files);
                let done = r.commit(&m, dice.below(2) == 0, now).unwrap().record;
                say(&format!(
                    "committed {} {}",
                    done.id,
                    data_encoding::HEXLOWER.encode(&done.content.unwrap())
                ));
            }
        }
    }
}

/// Acknowledged changes.
#[derive(Default)]
struct Truth {
    pinned: BTreeMap<CacheId, bool>,
    content: BTreeMap<CacheId, String>,
}

impl Truth {
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (word, id) = (words.next().unwrap(), words.next().and_then(|w| w.parse::<CacheId>().ok()));
        match (word, id) {
            ("committed", Some(id)) => drop(self.content.insert(id, words.next().unwrap().into())),
            ("pinned", Some(id)) => drop(self.pinned.insert(id, true)),
            ("unpinned", Some(id)) => drop(self.pinned.remove(&id)),
            ("gone", Some(id)) => drop(self.content.insert(id, String::new())),
            _ => {}
        }
    }

    /// Existing caches match the acknowledged ones, complete; pinned ones exist.
    fn check(&mut self, depot: &Depot) {
        for id in self.pinned.keys() {
            let record = depot.cache(*id).unwrap_or_else(|| panic!("pinned {id} is lost"));
            assert_eq!(record.state, State::Committed);
            assert!(record.pinned);
        }
        for (id, content) in &self.content {
            let Some(record) = depot.cache(*id) else { continue };
            assert!(!content.is_empty(), "{id} had gone");
            assert_eq!(&data_encoding::HEXLOWER.encode(&record.content.unwrap()), content);
            assert_eq!(record.state, State::Committed);
        }
    }
}

fn strike(base: &Path, seed: u64, truth: &mut Truth) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_at_any_instant", "--nocapture", "--test-threads=1"])
        .env(VICTIM, format!("{seed}:{}", base.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let errors = child.stderr.take().unwrap();
    let (opened, opening) = std::sync::mpsc::channel();
    let listening = std::thread::spawn(move || {
        let lines = out.lines().map_while(Result::ok);
        let said = lines.filter_map(|l| l.strip_prefix('#').map(str::to_owned));
        said.inspect(|_| opened.send(()).unwrap_or_default()).collect::<Vec<_>>()
    });
    let complaints = std::thread::spawn(move || std::io::read_to_string(errors).unwrap_or_default());
    let mut dice = Dice(seed ^ 0xabcd);
    if dice.below(8) > 0 {
        // At work; else while it opens the store, or even before.
        let _ = opening.recv();
    }
    std::thread::sleep(Duration::from_millis(dice.below(250)));
    child.kill().unwrap();
    child.wait().unwrap();
    let complaints = complaints.join().unwrap();
    assert!(!complaints.contains("panicked"), "seed {seed}: {complaints}");
    listening.join().unwrap().iter().for_each(|line| truth.hear(line));
}

#[test]
fn killed_at_any_instant() {
    if let Ok(victim) = std::env::var(VICTIM) {
        let (seed, base) = victim.split_once(':').unwrap();
        work(Path::new(base), seed.parse().unwrap());
    }
    let tmp = tempfile::tempdir().unwrap();
    for i in 0..8u8 {
        let files: Vec<(String, Vec<u8>)> = (0..12u8)
            .map(|f| {
                (format!("d{}/f{f}", f % 3), vec![if f < 8 { f } else { i.wrapping_mul(16) + f }; 9_000])
            })
            .collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(n, d)| (&**n, &**d)).collect();
        tree(&tmp.path().join("sources").join(i.to_string()).join("data"), &files);
    }
    let times = std::env::var("TIDECAST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let mut truth = Truth::default();
    let (mut committed, depot_dir) = (0, tmp.path().join("depot"));
    for seed in 1..=times {
        strike(tmp.path(), seed, &mut truth);
        let depot = Depot::open(&depot_dir, small(600 << 10)).unwrap();
        let report = depot.fsck(tidecast_depot::Depth::Bytes, &mut |_, _| Ok(false)).unwrap();
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        truth.check(&depot);
        committed = committed.max(truth.content.len());
        assert_eq!(fs::read_dir(depot_dir.join("trash")).unwrap().count(), 0);
    }
    assert!(committed > times as usize / 4, "only {committed} caches in {times} runs: too little was tried");
    eprintln!("{times} kills, {committed} caches acknowledged");
}
