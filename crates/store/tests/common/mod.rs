//! Shared by the tests: trees of known content, their manifests in each format, and a driver that downloads them
//! like `net`.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

pub mod sim;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tidecast_hash::{Digest, LEAF};
use tidecast_metainfo::{Builder, Content, Entry, Layout, Manifest, Mtime, Version, merkle};
use tidecast_store::{Error, Opened, Store};

pub const VERSIONS: [Version; 3] = [Version::V1, Version::V2, Version::Hybrid];
pub const PIECE: u32 = 32 << 10;

/// Small and seeded, so that a failure can be run again.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
    out.truncate(len);
    out
}

/// An entry of a tree and, for files, its bytes.
#[derive(Clone)]
pub struct Item {
    pub entry: Entry,
    pub data: Vec<u8>,
}

pub fn file(path: &str, data: Vec<u8>) -> Item {
    let content =
        Content::File { len: data.len() as u64, executable: false, holes: Vec::new(), hard_link: None };
    Item { entry: entry(path, content), data }
}

pub fn entry(path: &str, content: Content) -> Entry {
    Entry { path: path.as_bytes().to_vec(), content, mode: None, mtime: None, xattrs: Vec::new() }
}

pub fn symlink(path: &str, target: &str) -> Item {
    Item { entry: entry(path, Content::Symlink(target.as_bytes().to_vec())), data: Vec::new() }
}

pub fn dir(path: &str) -> Item {
    Item { entry: entry(path, Content::Directory), data: Vec::new() }
}

/// A manifest and the bytes it describes.
#[derive(Clone)]
pub struct Fixture {
    pub manifest: Arc<Manifest>,
    /// By file index.
    pub data: Vec<Vec<u8>>,
}

/// `name` published from these items.
pub fn publish(name: &str, version: Version, items: &[Item]) -> Fixture {
    let entries = items.iter().map(|i| i.entry.clone()).collect();
    let mut builder = Builder::new(name.as_bytes(), version, PIECE, entries).unwrap();
    let data: Vec<Vec<u8>> = builder
        .files()
        .iter()
        .map(|e| items.iter().find(|i| i.entry.path == e.path).unwrap().data.clone())
        .collect();
    if version.has_v2() {
        for (index, data) in data.iter().enumerate() {
            if let Some((root, layer)) = merkle::file(&leaf_digests(data), PIECE) {
                builder.set_root(index as u32, root, layer);
            }
        }
    }
    if version.has_v1() {
        let layout = builder.layout();
        let v1 = (0..layout.piece_count()).map(|p| {
            let rest = layout.space() - u64::from(p) * u64::from(PIECE);
            let len = rest.min(u64::from(PIECE)) as u32;
            tidecast_hash::sha1(&assemble(layout, &data, p, 0, len))
        });
        let v1 = v1.collect();
        builder.set_v1(v1);
    }
    Fixture { manifest: Arc::new(builder.build().unwrap()), data }
}

pub fn leaf_digests(data: &[u8]) -> Vec<Digest> {
    let mut out = vec![Digest::default(); data.len().div_ceil(LEAF)];
    tidecast_hash::leaves(data, &mut out);
    out
}

fn assemble(layout: &Layout, data: &[Vec<u8>], piece: u32, begin: u32, len: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for span in layout.spans(piece, begin, len) {
        let part = if span.pad {
            vec![0; span.len as usize]
        } else {
            let at = span.offset as usize;
            data[span.file as usize][at..at + span.len as usize].to_vec()
        };
        out.extend(part);
    }
    out
}

impl Fixture {
    pub fn piece(&self, piece: u32) -> Vec<u8> {
        self.part(piece, 0, self.manifest.piece_len(piece))
    }

    pub fn part(&self, piece: u32, begin: u32, len: u32) -> Vec<u8> {
        assemble(self.manifest.layout(), &self.data, piece, begin, len)
    }

    /// Index of a file by its path below the published directory.
    pub fn index(&self, path: &str) -> u32 {
        let wanted: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        self.manifest.files().find(|f| f.path().inner() == wanted).unwrap().index()
    }

    /// Brings one piece in: blocks in random order, leaves, done.
    pub fn deliver(&self, store: &Store, piece: u32, rng: &mut Rng) -> Result<(), Error> {
        let data = self.piece(piece);
        let mut blocks: Vec<(usize, &[u8])> = data.chunks(LEAF).enumerate().collect();
        rng.shuffle(&mut blocks);
        for (i, block) in blocks {
            store.write(piece, (i * LEAF) as u32, block)?;
        }
        store.set_leaves(piece, &leaf_digests(&data))?;
        store.piece_done(piece)
    }

    /// Checks the present data, fetches the rest in random order, finishes. Returns how many
    /// pieces were fetched.
    pub fn complete(&self, opened: &Opened, rng: &mut Rng) -> Result<u64, Error> {
        let store = &opened.store;
        for piece in opened.to_check.iter().cloned().flatten() {
            store.check(piece)?;
        }
        let mut rest: Vec<u32> = opened.wanted.iter().cloned().flatten().filter(|p| !store.has(*p)).collect();
        rng.shuffle(&mut rest);
        let fetched = rest.len() as u64;
        assert_eq!(fetched, store.missing());
        for piece in rest {
            self.deliver(store, piece, rng)?;
            if rng.one_in(20) {
                store.sync()?;
            }
        }
        store.finish()?;
        Ok(fetched)
    }

    /// Every file of the manifest is under `root` with the right bytes.
    pub fn assert_at(&self, root: &Path) {
        for f in self.manifest.files() {
            let path = f.path().below(root);
            if let Some(target) = f.symlink() {
                use std::os::unix::ffi::OsStrExt;
                let found = std::fs::read_link(&path).unwrap();
                assert_eq!(found.as_os_str().as_bytes(), &*target);
            } else {
                let found = std::fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                assert!(found == self.data[f.index() as usize], "{path:?} differs");
            }
        }
    }

    /// Writes the data as a publisher has it.
    pub fn write_to(&self, root: &Path) {
        for f in self.manifest.files() {
            let path = f.path().below(root);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match f.symlink() {
                Some(target) => {
                    let target = String::from_utf8(target.to_vec()).unwrap();
                    std::os::unix::fs::symlink(target, &path).unwrap();
                }
                None => std::fs::write(&path, &self.data[f.index() as usize]).unwrap(),
            }
        }
    }
}

/// A tree with everything that a store has to place: small, empty, large, unaligned, nested.
pub fn tree(seed: u64) -> Vec<Item> {
    let mut rng = Rng(seed);
    let mut items = vec![
        file("a/empty", Vec::new()),
        file("a/one", bytes(seed + 1, 1)),
        file("a/leaf", bytes(seed + 2, LEAF)),
        file("a/piece", bytes(seed + 3, PIECE as usize)),
        file("b/c/over", bytes(seed + 4, PIECE as usize + 1)),
        file("big", bytes(seed + 5, 5 * PIECE as usize + 12_345)),
        file("z", bytes(seed + 6, 777)),
    ];
    for i in 0..rng.below(6) {
        let len = rng.below(70_000) as usize;
        items.push(file(&format!("n{}/f{i}", i % 2), bytes(seed + 10 + i, len)));
    }
    items
}

pub fn with_holes(path: &str, data: Vec<u8>, holes: Vec<Range<u64>>) -> Item {
    let content = Content::File { len: data.len() as u64, executable: false, holes, hard_link: None };
    Item { entry: entry(path, content), data }
}

pub fn mtime(secs: i64, nanos: u32) -> Option<Mtime> {
    Some(Mtime { secs, nanos })
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
