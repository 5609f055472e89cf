//! Random operations, compared with a model.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use proptest::prelude::*;
use tidecast_depot::{Admission, CacheId, Config, Depot, Error, Filter, Reader, State, Use, UseId};
use tidecast_metainfo::Manifest;

const OWNERS: [&str; 2] = ["alice", "bob"];

#[derive(Clone, Debug)]
enum Op {
    Put { owner: usize, name: u8, content: u8, trusted: bool },
    Remove(u8),
    Pin(u8),
    Unpin(u8),
    Extend(u8, u16),
    Use(u8),
    EndUse,
    Sweep,
    Shrink(u16),
    Later(u16),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2usize, 0..3u8, 0..6u8, any::<bool>())
            .prop_map(|(owner, name, content, trusted)| Op::Put { owner, name, content, trusted }),
        1 => any::<u8>().prop_map(Op::Remove),
        1 => any::<u8>().prop_map(Op::Pin),
        1 => any::<u8>().prop_map(Op::Unpin),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(c, s)| Op::Extend(c, s)),
        1 => any::<u8>().prop_map(Op::Use),
        1 => Just(Op::EndUse),
        1 => Just(Op::Sweep),
        1 => (100..400u16).prop_map(Op::Shrink),
        1 => (1..500u16).prop_map(Op::Later),
        1 => Just(Op::Reopen),
    ]
}

/// The expected state of a cache.
struct Known {
    owner: usize,
    name: String,
    content: u8,
    version: u64,
    pinned: bool,
    lease: u64,
}

struct World {
    dir: PathBuf,
    depot: Option<Depot>,
    config: Config,
    now: u64,
    sources: Vec<(PathBuf, Manifest)>,
    known: BTreeMap<CacheId, Known>,
    uses: Vec<UseId>,
    versions: BTreeMap<String, BTreeMap<u64, u8>>,
}

impl World {
    fn new(base: &Path) -> Self {
        let sources = (0..6u8).map(|i| {
            // Contents that overlap: `shared` is in all, `half` in every other.
            let (half, own) = (vec![i % 2; 6_000], vec![100 + i; 20_000]);
            let files: [(&str, &[u8]); 4] =
                [("shared", &[9; 9_000]), ("half", &half), ("d/own", &own), ("e", b"")];
            let root = tree(&base.join("sources").join(i.to_string()).join("data"), &files);
            let manifest = manifest(&root);
            (root, manifest)
        });
        let config = Config { lease: 300, lease_cap: 1_000, ..small(300 << 10) };
        let mut world = World {
            dir: base.join("depot"),
            depot: None,
            config,
            now: 1,
            sources: sources.collect(),
            known: BTreeMap::new(),
            uses: Vec::new(),
            versions: BTreeMap::new(),
        };
        world.reopen();
        world
    }

    fn reopen(&mut self) {
        self.depot = None;
        self.depot = Some(Depot::open(&self.dir, self.config.clone()).unwrap());
    }

    fn depot(&self) -> &Depot {
        self.depot.as_ref().unwrap()
    }

    fn pick(&self, n: u8) -> Option<CacheId> {
        self.known.keys().nth(usize::from(n) % self.known.len().max(1)).copied()
    }

    fn used(&self, id: CacheId) -> bool {
        self.uses.iter().any(|u| u.cache == id)
    }

    /// Removes caches that were evicted; others must not be missing.
    fn forget_evicted(&mut self) {
        let there: BTreeSet<CacheId> = self.depot().caches(&Filter::default()).iter().map(|r| r.id).collect();
        let uses: BTreeSet<CacheId> = self.uses.iter().map(|u| u.cache).collect();
        self.known.retain(|id, known| {
            let here = there.contains(id);
            assert!(here || !known.pinned, "{id} was pinned");
            assert!(here || !uses.contains(id), "{id} was in use");
            here
        });
    }

    fn put(&mut self, owner: usize, name: u8, content: u8, trusted: bool) {
        let (root, m) = self.sources[usize::from(content)].clone();
        let name = format!("{}-{name}", OWNERS[owner]);
        let reader = Reader::owner(OWNERS[owner]);
        let declared = self.depot().declare(of(OWNERS[owner], &name), self.now).unwrap();
        let asked = self.depot().admit(declared.id, Some(&m), &reader, self.now).unwrap();
        self.forget_evicted();
        let Admission::Ok(reservation) = asked else {
            self.depot().remove(declared.id, self.now).unwrap();
            return;
        };
        let reuse = reservation.reuse(&m, &reader).unwrap();
        let has = self.known.values().filter(|k| k.owner == owner).any(|k| k.content == content);
        if has {
            assert_eq!(reuse.files.len(), 3, "all of it was here");
        }
        if !self.known.values().any(|k| k.owner == owner) {
            assert!(reuse.files.is_empty(), "nothing was this owner's");
        }
        stage(&reservation, &m, &root, &reuse.files);
        let record = reservation.commit(&m, trusted, self.now).unwrap().record;
        let versions = self.versions.entry(name.clone()).or_default();
        let version = record.version.unwrap();
        match versions.iter().find(|(_, c)| **c == content) {
            Some((known, _)) => assert_eq!(version, *known),
            None => {
                assert_eq!(version, versions.keys().max().map_or(1, |v| v + 1));
                versions.insert(version, content);
            }
        }
        let lease = self.known.get(&record.id).map_or(0, |k| k.lease).max(self.now + 300);
        let pinned = self.known.get(&record.id).is_some_and(|k| k.pinned);
        self.known.insert(record.id, Known { owner, name, content, version, pinned, lease });
    }

    fn step(&mut self, op: &Op) {
        let now = self.now;
        match op {
            Op::Put { owner, name, content, trusted } => self.put(*owner, *name, *content, *trusted),
            Op::Remove(n) => {
                let Some(id) = self.pick(*n) else { return };
                match self.depot().remove(id, now) {
                    Ok(_) => {
                        assert!(!self.known[&id].pinned && !self.used(id));
                        self.known.remove(&id);
                    }
                    Err(Error::Pinned(_)) => assert!(self.known[&id].pinned),
                    Err(e) => assert!(matches!(e, Error::InUse(_)) && self.used(id), "{e}"),
                }
            }
            Op::Pin(n) | Op::Unpin(n) => {
                let Some(id) = self.pick(*n) else { return };
                let pinned = matches!(op, Op::Pin(_));
                if pinned {
                    self.depot().pin(id).unwrap()
                } else {
                    self.depot().unpin(id).unwrap()
                }
                self.known.get_mut(&id).unwrap().pinned = pinned;
            }
            Op::Extend(n, seconds) => {
                let Some(id) = self.pick(*n) else { return };
                let until = self.depot().extend(id, u64::from(*seconds), now).unwrap();
                let known = self.known.get_mut(&id).unwrap();
                known.lease = known.lease.max(now + u64::from(*seconds).min(1_000));
                assert_eq!(until, known.lease);
            }
            Op::Use(n) => {
                let Some(id) = self.pick(*n) else { return };
                let reader = Reader::owner(OWNERS[self.known[&id].owner]);
                let what = Use::process(std::process::id()).unwrap();
                let begun = self.depot().begin_use(id, what, &reader, now).unwrap();
                self.uses.push(begun);
            }
            Op::EndUse => {
                if let Some(id) = self.uses.pop() {
                    self.depot().end_use(id).unwrap();
                }
            }
            Op::Sweep => {
                self.depot().sweep(now).unwrap();
                self.forget_evicted();
                let usage = self.depot().usage().unwrap();
                let free = self.known.iter().any(|(id, k)| !k.pinned && !self.used(*id));
                assert!(usage.kept.bytes <= usage.high.bytes || !free, "{usage:?}");
            }
            Op::Shrink(kib) => {
                self.config.max_bytes = Some(u64::from(*kib) << 10);
                self.depot().configure(self.config.clone());
            }
            Op::Later(seconds) => self.now += u64::from(*seconds),
            Op::Reopen => self.reopen(),
        }
    }

    fn check(&self) {
        let all = self.depot().caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        assert_eq!(
            all.iter().map(|r| r.id).collect::<Vec<_>>(),
            self.known.keys().copied().collect::<Vec<_>>()
        );
        for record in all {
            let known = &self.known[&record.id];
            assert_eq!((record.pinned, record.version), (known.pinned, Some(known.version)));
            assert_eq!((&record.name, record.lease_until), (&known.name, known.lease));
            let (_, m) = &self.sources[usize::from(known.content)];
            assert_eq!(record.content, m.hash_v2());
            let view = self.depot().view(record.id).unwrap();
            assert_eq!(fs::read(view.join("d/own")).unwrap(), vec![100 + known.content; 20_000]);
        }
        let contents: BTreeSet<u8> = self.known.values().map(|k| k.content).collect();
        let halves: BTreeSet<u8> = contents.iter().map(|c| c % 2).collect();
        let expected = usize::from(!contents.is_empty()) + halves.len() + contents.len();
        assert_eq!(objects(self.depot()).len(), expected, "equal files are one inode");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_says(ops in prop::collection::vec(op(), 1..40)) {
        let tmp = tempfile::tempdir().unwrap();
        let mut world = World::new(tmp.path());
        for op in &ops {
            world.step(op);
            world.check();
        }
        assert_clean(world.depot());
        world.reopen();
        world.check();
        for id in std::mem::take(&mut world.uses) {
            world.depot().end_use(id).unwrap();
        }
        for id in world.known.keys() {
            world.depot().unpin(*id).unwrap();
            world.depot().remove(*id, world.now).unwrap();
        }
        prop_assert_eq!(world.depot().usage().unwrap().kept, tidecast_depot::Size::ZERO);
        prop_assert_eq!(objects(world.depot()).len(), 0);
    }
}
